"""Makes the sequences of XRayEmb's second pre-training from records of text, with spelled words and hidden subwords.

Open it to follow the data of second pre-training from a record to a sequence. A sequence takes words, cut into
subwords, until the next word does not fit. Then policies select words that become one position each, so the sequence
gets shorter. All draws depend only on the seed and the number of the sequence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

import numpy as np

from charlm.data.masking import Hiding, rounded_at_random
from charlm.data.streams import generator
from charlm.families.spelled.sequences import PieceMaker
from charlm.families.xrayemb.chars import XRayChars, word_rows
from charlm.families.xrayemb.policies import Policy, WordRuns, select
from charlm.families.xrayemb.words import XRayWords
from charlm.text.subwords import SubwordTokenizer

KEPT_ROWS = 2**18  # most words whose characters are remembered


class XRaySequence(NamedTuple):
    """A sequence of T positions, special tokens included; W words are to be learned.

    Attributes:
      ids_T: int32, rows of the table of subwords that the model reads; -1 at spelled words.
      rows_TC: uint16, the characters of the spelled words; zeros at all other positions.
      labels_T: int32, the subword to predict from a position; -1 for none.
      written_TC: uint16, the word to write from a position; zeros for none.
      learned_WC: uint16, the words whose vectors are learned.
      pieces_WP: int32, ids of their subwords; -1 pads.
      pieces: the subwords that the sequence was made from, without special tokens.
      number: the numbers that, with the seed, decided the draws.
    """

    ids_T: np.ndarray
    rows_TC: np.ndarray
    labels_T: np.ndarray
    written_TC: np.ndarray
    learned_WC: np.ndarray
    pieces_WP: np.ndarray
    pieces: list[int]
    number: tuple[int, ...]


class CharacterRows:
    """The characters of words and of the subwords of a vocabulary, as rows of ids.

    Attributes:
      of_subwords_VC: uint16; zeros for special tokens, white space and pieces with half a character.
    """

    def __init__(self, tokenizer: SubwordTokenizer, chars: XRayChars, slots: int) -> None:
        self._chars, self._slots = chars, slots
        self._known: dict[str, np.ndarray] = {}
        self.of_subwords_VC = np.zeros((tokenizer.size, slots), np.uint16)
        named = []
        for index in tokenizer.ids():
            surface = tokenizer.surface(index)
            if surface is not None and surface.whole and surface.chars.strip():
                named.append((index, surface.chars))
        if named:
            ids, texts = zip(*named, strict=True)
            self.of_subwords_VC[list(ids)] = word_rows(texts, chars, slots)

    def of_words(self, words: Iterable[str]) -> np.ndarray:
        """Returns uint16 [W, C]."""
        found = [self._row(word) for word in words]
        return np.array(found, np.uint16).reshape(len(found), self._slots)

    def _row(self, word: str) -> np.ndarray:
        row = self._known.get(word)
        if row is None:
            row = word_rows([word], self._chars, self._slots)[0]
            if len(self._known) >= KEPT_ROWS:
                self._known.clear()
            self._known[word] = row
        return row


@dataclasses.dataclass(frozen=True)
class XRaySequenceMaker(PieceMaker[int, XRaySequence]):
    """Turns subwords into sequences; the corpus that they come from is given elsewhere.

    Attributes:
      tokenizer: the tokenizer of subwords.
      found: finds the words in them.
      rows: the characters of words and subwords.
      learn, infer: policies that select the words whose vectors are learned, and the words that are spelled
        (section 2.1).
      hiding: how subwords are hidden; None: nothing is hidden, and the next subword is predicted (GPT-2).
      writes: "all": the word at every position is written; "masked": only at positions to predict; "": nowhere.
      share: share of these positions at which the word is written.
      slots: C, character slots of a word.
    """

    too_tight: ClassVar[str] = "data.bucket_rows, learned_words and written_rows leave no room for a single subword"
    tokenizer: SubwordTokenizer
    found: XRayWords
    rows: CharacterRows
    learn: Policy
    infer: Policy
    hiding: Hiding | None
    writes: str
    share: float
    slots: int

    @property
    def framed(self) -> bool:
        """Whether special tokens stand at both ends of a sequence; not with GPT-2."""
        return self.hiding is not None

    @property
    def room(self) -> int:
        """Most subwords of a sequence, without special tokens."""
        return self.length - 2 * self.framed

    @property
    def most(self) -> int:
        """Most subwords of a sequence that are predicted."""
        return self.room - 1 if self.hiding is None else self.hiding.most(self.room)

    @property
    def pad(self) -> int:
        """The id of padding: the vocabulary's padding token, or 0 if it has none."""
        return self.tokenizer.special.pad or 0

    @property
    def pieces_most(self) -> int:
        """P, how many subwords of a learned word are used at most: as many as the encoder reads characters."""
        return self.slots - 2

    def sequence(self, ids: list[int], number: tuple[int, ...]) -> XRaySequence:
        """Returns the sequence of some subwords."""
        rng = generator(self.seed, *number)
        found = self.found.find(ids)
        learned_WC, pieces_WP = self._learned(ids, found, select(self.learn, found, rng))
        ids_T, rows_TC = self._collapsed(ids, found, select(self.infer, found, rng))
        gold_TC = np.where(ids_T[:, None] >= 0, self.rows.of_subwords_VC[np.maximum(ids_T, 0)], rows_TC)
        if self.framed:
            special = self.tokenizer.special
            ids_T = np.concatenate([[special.needed("cls")], ids_T, [special.needed("sep")]]).astype(np.int32)
            rows_TC, gold_TC = (np.pad(x, ((1, 1), (0, 0))) for x in (rows_TC, gold_TC))
        if self.hiding is not None:
            ids_T, labels_T = self.hiding.hide(ids_T, self._ordinary(ids_T), rng)
        else:
            labels_T = np.append(ids_T[1:], -1).astype(np.int32)
        written_TC = self._written(gold_TC, labels_T, rng)
        return XRaySequence(ids_T, rows_TC, labels_T, written_TC, learned_WC, pieces_WP, ids, number)

    def _learned(self, ids: list[int], found: WordRuns, chosen_W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        spans = list(zip(found.starts_W[chosen_W].tolist(), found.ends_W[chosen_W].tolist(), strict=True))
        pieces_WP = np.full((len(spans), self.pieces_most), -1, np.int32)
        for row, (start, end) in zip(pieces_WP, spans, strict=True):
            kept = ids[start : min(end, start + self.pieces_most)]
            row[: len(kept)] = kept
        return self.rows.of_words(self.found.text(ids[start:end]) for start, end in spans), pieces_WP

    def _collapsed(self, ids: list[int], found: WordRuns, chosen_W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids (-1 at spelled words) and the rows of characters of the positions that remain."""
        starts, ends = found.starts_W[chosen_W], found.ends_W[chosen_W]
        ids_P, kept_P = np.array(ids, np.int32), np.ones(len(ids), bool)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            kept_P[start + 1 : end] = False
        ids_P[starts] = -1
        ids_T = ids_P[kept_P]
        rows_TC = np.zeros((len(ids_T), self.slots), np.uint16)
        texts = (self.found.text(ids[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True))
        rows_TC[ids_T < 0] = self.rows.of_words(texts)
        return ids_T, rows_TC

    def _ordinary(self, ids_T: np.ndarray) -> np.ndarray:
        """Returns the positions of ordinary subwords, which are neither spelled words nor special tokens."""
        special = np.array([index for index in self.tokenizer.special if index is not None])
        return np.flatnonzero((ids_T >= 0) & ~np.isin(ids_T, special))

    def _written(self, gold_TC: np.ndarray, labels_T: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        written_TC = np.zeros_like(gold_TC)
        if not self.writes:
            return written_TC
        (places,) = np.nonzero((gold_TC[:, 0] != 0) & ((labels_T >= 0) | (self.writes == "all")))
        if self.share < 1:
            places = rng.permutation(places)[: rounded_at_random(self.share * len(places), rng)]
        written_TC[places] = gold_TC[places]
        return written_TC
