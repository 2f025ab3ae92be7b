"""Sequences of subwords with whole words in place of some of them, each one position (Pinter et al., 2021, section 2).

The sequence becomes shorter: positions, offsets, masks and labels are those of what is left. `[UNK]` and other special
tokens are no words, and their characters stay lost, as in the released code.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from charlm.families.xrayemb.policies import BYTE_SPACE, CONTINUES, Policy, WordRuns, runs, select
from charlm.text.subwords import Subwords, SubwordTokenizer

KEPT_WORDS = 2**18  # words whose text is remembered at most


@dataclasses.dataclass(frozen=True)
class Collapsed:
    """A sequence of P pieces as L positions: pieces that stay, and words.

    Attributes:
      items: per position the id of the piece that stays, or the text of the word.
      starts_L, ends_L: int, the pieces [start, end) that are there now.
      type_ids, special, words, sequences: as `charlm.text.subwords.Subwords` has them, of the first of these pieces.
      offsets: (start, end) characters of the text that these pieces stand for.
    """

    items: tuple[int | str, ...]
    starts_L: np.ndarray
    ends_L: np.ndarray
    type_ids: tuple[int, ...]
    special: tuple[bool, ...]
    offsets: tuple[tuple[int, int], ...]
    words: tuple[int | None, ...]
    sequences: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def positions_P(self) -> np.ndarray:
        """The position of each piece, int [P]."""
        return np.repeat(np.arange(len(self)), self.ends_L - self.starts_L)

    @property
    def collapsed_L(self) -> np.ndarray:
        """Which positions are words, bool [L]: what the base model's own loss leaves out."""
        return np.array([isinstance(item, str) for item in self.items], bool)

    def first(self, values: Sequence[Any]) -> list[Any]:
        """Returns values of pieces, such as labels, at the positions: that of the first piece of each."""
        return [values[start] for start in self.starts_L.tolist()]


class XRayWords:
    """The words of one tokenizer: where they are, and their text.

    Args:
      tokenizer: of BERT, RoBERTa or GPT-2.
      compat_bytes: byte-level pieces are read by their glyphs, as in the released code, so that é is the two
        characters Ã©; False: as the text that their bytes are.
    """

    def __init__(self, tokenizer: SubwordTokenizer, *, compat_bytes: bool = False) -> None:
        self._tokenizer, self._compat = tokenizer, compat_bytes
        V = tokenizer.size
        self._tokens, self._chars = [""] * V, [""] * V
        self._real_V, self._begins_V, self._inked_V, self._closes_V = (np.zeros(V, bool) for _ in range(4))
        for index in tokenizer.ids():
            self._tokens[index] = tokenizer.token(index)
            surface = tokenizer.surface(index)
            if surface is None:
                continue
            chars = surface.chars
            self._chars[index], self._real_V[index] = chars, True
            # White space of other kinds than the space that `Ġ` is: a line break is a piece without it.
            self._begins_V[index] = surface.starts_word or chars[:1].isspace()
            self._closes_V[index] = chars[-1:].isspace()
            self._inked_V[index] = bool(chars.strip())
        self._known: dict[tuple[int, ...], str] = {}

    def find(
        self,
        ids: Sequence[int],
        sequences: Sequence[int | None] | None = None,
        words: Sequence[int | None] | None = None,
    ) -> WordRuns:
        """Returns the words of a sequence.

        Args:
          ids: with or without special tokens. sequences: of each the text that it is of; no word is in two.
          words: of each the word that was given, where words were; no word is in two.
        """
        ids_P = np.asarray(ids, np.int64)
        begins_P = self._begins_V[ids_P]
        begins_P[1:] |= self._closes_V[ids_P[:-1]]
        for of in (sequences, words):
            if of is not None:
                begins_P[1:] |= np.array([a != b for a, b in itertools.pairwise(of)], bool)
        starts_W, ends_W = runs(self._real_V[ids_P], begins_P, self._inked_V[ids_P])
        tokens, chars = self._tokens, self._chars
        return WordRuns([tokens[i] for i in ids_P.tolist()], [chars[i] for i in ids_P.tolist()], starts_W, ends_W)

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of the pieces of a word; bytes that make no character are U+FFFD."""
        key = tuple(ids)
        found = self._known.get(key)
        if found is None:
            found = self._read(key)
            if len(self._known) >= KEPT_WORDS:
                self._known.clear()
            self._known[key] = found
        return found

    def _read(self, ids: tuple[int, ...]) -> str:
        if self._compat:
            return "".join(map(self._glyphs, ids))
        chars = "".join(self._chars[index] for index in ids)
        # Pieces of a character are surrogates alone, and the character together.
        return chars.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def _glyphs(self, index: int) -> str:
        """Returns a piece without its mark, byte-level ones not decoded."""
        token, chars = self._tokens[index], self._chars[index]
        return chars if token in (chars, CONTINUES + chars) else token.replace(BYTE_SPACE, "")

    def collapse(
        self, item: Subwords, policy: Policy, rng: np.random.Generator | None = None, *, given: bool = False
    ) -> Collapsed:
        """Returns a sequence with the words that a policy selects as one position each.

        Args:
          item: as the tokenizer encodes a text, a pair or words.
          rng: of the sequence, for a policy that draws.
          given: `item` was made of words that were given: none is joined with another.

        Raises:
          ValueError: the policy draws and there is no generator, or it does not say it of every word.
        """
        found = self.find(item.ids, item.sequences, item.words if given else None)
        chosen_W = select(policy, found, rng)
        starts_P = np.ones(len(item.ids), bool)
        for start, end in zip(found.starts_W[chosen_W].tolist(), found.ends_W[chosen_W].tolist(), strict=True):
            starts_P[start + 1 : end] = False
        starts = np.flatnonzero(starts_P)
        ends = np.append(starts[1:], len(item.ids)).astype(starts.dtype)[: len(starts)]
        read = dict.fromkeys(found.starts_W[chosen_W].tolist())
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        return Collapsed(
            items=tuple(self.text(item.ids[a:b]) if a in read else item.ids[a] for a, b in spans),
            starts_L=starts,
            ends_L=ends,
            type_ids=tuple(item.type_ids[a] for a, _ in spans),
            special=tuple(item.special[a] for a, _ in spans),
            offsets=tuple(_together(item.offsets[a:b]) for a, b in spans),
            words=tuple(item.words[a] for a, _ in spans),
            sequences=tuple(item.sequences[a] for a, _ in spans),
        )


def _together(offsets: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Returns the characters of pieces that follow one another, of which the first may be nothing but a space."""
    return min(start for start, _ in offsets), max(end for _, end in offsets)
