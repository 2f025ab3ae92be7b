"""The results of `charlm.load(...)`'s methods: small frozen dataclasses, which print well and fill a pandas.DataFrame.

Open it to add a field to a result. Offsets count characters of the text, the end excluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tag:
    """A word of a text with its tag; the probability is NaN if the model could not read the word."""

    word: str
    start: int
    end: int
    label: str
    probability: float


@dataclass(frozen=True)
class Class:
    """The likeliest class of a text, and the probability of each class."""

    label: str
    probability: float
    probabilities: Mapping[str, float]


@dataclass(frozen=True)
class Answer:
    """An answer to a question, with its place in the context; the text is "" if the context has no answer.

    Attributes:
      start, end: where the answer stands in the context; 0 and 0 without an answer.
      probability: among the candidates, and "no answer" if the model knows that.
      candidates: the best spans, best first, whether or not there is an answer; they have no candidates themselves.
    """

    text: str
    start: int
    end: int
    probability: float
    candidates: tuple[Answer, ...] = ()


@dataclass(frozen=True)
class Ranked:
    """A passage with its score (nats; higher is better), and its place among the passages that were given."""

    passage: str
    score: float
    index: int


@dataclass(frozen=True)
class Word:
    """A word for a gap: its log-probability (nats), and the geometric mean probability of its characters or pieces."""

    word: str
    log_prob: float
    score: float


@dataclass(frozen=True)
class Gap:
    """A "[MASK]" of a text with the likeliest words for it, best first."""

    start: int
    end: int
    words: tuple[Word, ...]

    @property
    def word(self) -> str:
        """The likeliest word; "" if no known word fits."""
        return self.words[0].word if self.words else ""


@dataclass(frozen=True)
class Edit:
    """A word of a text that is corrected, and the probability that the correction is the word meant."""

    start: int
    end: int
    word: str
    correction: str
    probability: float


@dataclass(frozen=True)
class Corrected:
    """A text with misspelled words mended.

    Attributes:
      text: as it was given.
      corrected: with all corrections.
      edits: the corrections, in the order of the text; their offsets are those of `text`.
    """

    text: str
    corrected: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Neighbor:
    """An entry of a vocabulary near a string ("##" marks pieces inside words), and the cosine of their vectors."""

    subword: str
    cosine: float


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Encoding:
    """The vectors of a text.

    Attributes:
      words: the words, or the pieces as the vocabulary spells them.
      offsets: their characters (start, end) in the text.
      vectors: float32 [W, D], one for each word, in its context.
      sentence: float32 [D], the mean over all positions that the model read.
    """

    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    vectors: np.ndarray
    sentence: np.ndarray

    def __repr__(self) -> str:
        words, width = " ".join(self.words[:8]), self.vectors.shape[-1]
        return f"Encoding({len(self.words)} words of {width} numbers: {words}{' ...' * (len(self.words) > 8)})"


@dataclass(frozen=True)
class Piece:
    """A piece of a text as the vocabulary spells it, and its log-probability (nats); NaN if it was not scored."""

    piece: str
    start: int
    end: int
    log_prob: float


@dataclass(frozen=True)
class Score:
    """How likely a text is: log-probability (nats), bits per character, and its pieces."""

    log_prob: float
    bits_per_char: float
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Generation:
    """How a text goes on: what was written after it, its log-probability (nats), and whether the model ended it."""

    text: str
    log_prob: float
    finished: bool
