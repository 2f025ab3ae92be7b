"""Finds the gaps among the pieces of a text, and ranks the pieces or known words that may fill them.

`fill_mask` uses it; open it to change how a word of several pieces is ranked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from charlm.families.arguments import KnownWords, checked_list
from charlm.families.gaps import Length, around_gaps
from charlm.families.predictor import Fill
from charlm.families.windows import Text, text_of
from charlm.text.subwords import SubwordTokenizer

CONTINUES = "##"  # shown before a piece that continues a word, in every family, as in BERT's vocabulary


class Gap(NamedTuple):
    """A gap of a text.

    Attributes:
      place: its index among the pieces of the text.
      length: the number of characters of its word; "auto": any.
      spaced: whether a space stands before it.
      first: whether it is at the beginning of the text.
    """

    place: int
    length: Length
    spaced: bool
    first: bool


def find_gaps(text: str, tokenizer: SubwordTokenizer, length: Length) -> tuple[Text, list[Gap]]:
    """Returns the pieces of a text, with one mask token for each gap, and the gaps.

    A gap is "[MASK]", "[MASK:5]" for a word of five characters, or the mask token of the vocabulary.

    Raises:
      ValueError: when there is no gap, or a length that no word has.
    """
    if tokenizer.special.mask is None:
        raise ValueError("the vocabulary has no mask token: its model fills no gaps")
    mask = tokenizer.token(tokenizer.special.mask)
    parts, lengths = around_gaps(text, length, mask)
    whole = mask.join(parts)
    pieces = text_of(tokenizer.encode(whole), whole)
    places = [place for place, index in enumerate(pieces.ids) if index == tokenizer.special.mask]
    if len(places) != len(lengths):
        raise ValueError(f"{len(lengths)} gaps, but the tokenizer reads {len(places)} masks in the text {text!r}")
    found = zip(places, lengths, parts[:-1], strict=True)
    return pieces, [Gap(place, wanted, before.endswith(" "), place == 0) for place, wanted, before in found]


def masked(text: Text, gap: Gap, count: int, mask: int) -> Text:
    """Returns the text with `count` mask tokens in a gap."""
    put = lambda column, value: [*column[: gap.place], *[value] * count, *column[gap.place + 1 :]]
    word = text.words[gap.place]
    return text._replace(ids=put(text.ids, mask), offsets=put(text.offsets, (0, 0)), words=put(text.words, word))


class Pieces:
    """The pieces of a vocabulary that may fill a gap, and how each is shown.

    Special tokens and unused ids may not fill a gap.

    Args:
      rows: the number of rows of the model's table; rows beyond the vocabulary are ignored.
    """

    def __init__(self, tokenizer: SubwordTokenizer, rows: int) -> None:
        self._any_begins = not tokenizer.marks_continuations
        self._bare: list[str] = [""] * rows
        self._starts_V, self._chars_V = np.zeros(rows, bool), np.zeros(rows, np.int32)
        self._allowed_V = np.zeros(rows, bool)
        for index in tokenizer.ids():
            if (surface := tokenizer.surface(index)) is not None:
                # Bytes that are no complete character are shown as transformers shows them, and get length 0.
                self._bare[index] = surface.chars.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                self._starts_V[index] = surface.starts_word
                self._chars_V[index] = len(surface.chars) if surface.whole else 0
                self._allowed_V[index] = True

    def best(self, log_probs_V: np.ndarray, gap: Gap, top: int) -> list[Fill]:
        """Returns the likeliest pieces, best first.

        At the beginning of a text, a byte-level piece without a leading space also begins a word.
        """
        starts_V = np.ones_like(self._starts_V) if gap.first and self._any_begins else self._starts_V
        allowed_V = self._allowed_V
        if gap.length != "auto":
            allowed_V = allowed_V & starts_V & (self._chars_V == gap.length)
        order = np.argsort(np.where(allowed_V, -log_probs_V, np.inf), kind="stable")[: min(top, allowed_V.sum())]
        fills = []
        for index in order:
            log_prob = float(log_probs_V[index])
            shown = self._bare[index] if starts_V[index] else CONTINUES + self._bare[index]
            fills.append(Fill(shown, log_prob, math.exp(log_prob)))
        return fills


class PieceWords:
    """Known words, cut into the pieces of a vocabulary both with and without a space before them.

    Words that the vocabulary cannot write, and words with more pieces than `longest`, are left out.

    Args:
      longest: the number of pieces that the model has room for.

    Attributes:
      tokenizer: as above.
      words: those that can be written.
    """

    def __init__(self, words: KnownWords | Iterable[str], tokenizer: SubwordTokenizer, longest: int) -> None:
        self.tokenizer = tokenizer
        words = checked_list(words)
        special = {index for index in tokenizer.special if index is not None}
        bare = [text_of(item).ids for item in tokenizer.encode_batch(words)]
        spaced = [text_of(item).ids for item in tokenizer.encode_words_batch([[word] for word in words])]
        fits = lambda ids: 0 < len(ids) <= longest and special.isdisjoint(ids)
        kept = [n for n in range(len(words)) if fits(bare[n]) and fits(spaced[n])]
        self.words = [words[n] for n in kept]
        self._by_count: dict[bool, dict[int, tuple[list[str], np.ndarray, np.ndarray]]] = {False: {}, True: {}}
        for context, spellings in ((False, bare), (True, spaced)):
            for count in {len(spellings[n]) for n in kept}:
                chosen = [n for n in kept if len(spellings[n]) == count]
                chars_N = np.array([len(words[n]) for n in chosen])
                ids_NK = np.array([spellings[n] for n in chosen], np.int64)
                self._by_count[context][count] = ([words[n] for n in chosen], chars_N, ids_NK)

    def __len__(self) -> int:
        return len(self.words)

    def counts(self, gap: Gap) -> list[int]:
        """Returns the different numbers of pieces of the words that fit this gap, ascending."""
        found = self._by_count[gap.spaced].items()
        return sorted(count for count, (_, chars_N, _) in found if gap.length == "auto" or gap.length in chars_N)

    def best(self, log_probs_KV: np.ndarray, gap: Gap, top: int) -> list[Fill]:
        """Returns the likeliest words of K pieces, best first; `log_probs_KV`: log-probabilities at the K masks."""
        K = len(log_probs_KV)
        words, chars_N, ids_NK = self._by_count[gap.spaced][K]
        scores_N = log_probs_KV[np.arange(K), ids_NK].sum(axis=1, dtype=np.float64)
        if gap.length != "auto":
            scores_N = np.where(chars_N == gap.length, scores_N, -np.inf)
        order = np.argsort(-scores_N, kind="stable")[:top]
        found = [(words[n], float(scores_N[n])) for n in order if scores_N[n] > -np.inf]
        return [Fill(word, score, math.exp(score / K)) for word, score in found]
