"""The two forms of encoded text, character ids or plain words: how the words of some sentences become a record.

HLM keeps character ids, the families that cut words into subwords keep text. `charlm.data.encode` writes either form;
open this module to add a third.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from charlm.core.types import JsonObject
from charlm.data.records import CorpusStats, EncodedRecord, write_record
from charlm.data.text_records import TextRecord, write_text_record
from charlm.text.chars import JOINED, MASK, SPACED, WORD_CLS, CharVocab, WordEncoder

EncodedItem = tuple[EncodedRecord | TextRecord, bytes]  # a record, and its bytes


def encoded_record(encoder: WordEncoder, words: Sequence[str], sentences: Sequence[int] | None = None) -> EncodedRecord:
    """Returns words as a record; `sentences` is the number of words in each sentence, None for a single sentence."""
    return EncodedRecord(np.asarray([len(words)] if sentences is None else sentences), *encoder.encode(words))


def rows_of(record: EncodedRecord, char_slots: int) -> np.ndarray:
    """Returns the words of a record as uint16 [W, C]; each row is WORD_CLS, the characters, then zeros."""
    lengths_W = record.words.astype(np.int64)
    if len(lengths_W) and lengths_W.max() >= char_slots:
        raise ValueError(
            f"an encoded record has a word of {lengths_W.max()} characters, but model.char_slots={char_slots} holds "
            f"{char_slots - 1}: encode the corpus again with this config"
        )
    rows_WC = np.zeros((len(lengths_W), char_slots), np.uint16)
    rows_WC[:, 0] = WORD_CLS
    rows_WC[:, 1:][np.arange(char_slots - 1) < lengths_W[:, None]] = record.chars
    return rows_WC


def word_rows(encoder: WordEncoder, words: Sequence[str]) -> np.ndarray:
    """Encodes words as a model reads them, uint16 [W, C]; see `rows_of`."""
    return rows_of(encoded_record(encoder, words), encoder.char_slots)


def hidden_row(length: int, char_slots: int) -> np.ndarray:
    """Returns a word of so many characters as a model reads it with all of them masked, uint16 [C]."""
    row_C = np.zeros(char_slots, np.uint16)
    row_C[0], row_C[1 : length + 1] = WORD_CLS, MASK
    return row_C


def hidden_rows(rows_WC: np.ndarray) -> np.ndarray:
    """Returns words with all characters masked, uint16 [W, C]; their lengths still show. See `rows_of`."""
    hidden_WC = np.where(rows_WC != 0, MASK, 0).astype(rows_WC.dtype)
    hidden_WC[:, 0] = rows_WC[:, 0]
    return hidden_WC


class RecordEncoder(Protocol):
    """Encodes the records of one shard."""

    def record(self, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> EncodedItem:
        """Returns a record of some sentences.

        Args:
          sentences: number of words in each sentence.
          words: the words of all sentences.
          spaces: for each word, whether a space comes before it.
        """
        ...

    def finish(self, stats: CorpusStats) -> None:
        """Adds to the counts what the records alone do not show."""
        ...


class Form(Protocol):
    """A form of records; picklable, so that other processes can write them."""

    def start(self) -> RecordEncoder:
        """Returns an encoder for a shard."""
        ...

    def settings(self) -> JsonObject:
        """Returns all settings that affect the records, apart from text and splitter, in a form that JSON can store."""
        ...


@dataclasses.dataclass(frozen=True)
class CharForm:
    """Words as ids of their characters (HLM); the fields are those of `WordEncoder`."""

    vocab: dict[str, int]
    char_slots: int
    normalize: str

    def start(self) -> RecordEncoder:
        """Returns an encoder with these characters."""
        return _CharEncoder(WordEncoder(CharVocab.from_dict(self.vocab), self.char_slots, self.normalize))

    def settings(self) -> JsonObject:
        """Returns the fields, with the vocabulary replaced by its digest."""
        digest = CharVocab.from_dict(self.vocab).digest()
        return {"normalize": self.normalize, "vocab_digest": digest, "char_slots": self.char_slots}


class _CharEncoder:
    def __init__(self, encoder: WordEncoder) -> None:
        self._encoder = encoder

    def record(self, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> EncodedItem:
        record = encoded_record(self._encoder, words, sentences)
        return record, write_record(*record)

    def finish(self, stats: CorpusStats) -> None:
        stats.words_cut, stats.chars_unknown = int(self._encoder.words_cut), int(self._encoder.chars_unknown)


@dataclasses.dataclass(frozen=True)
class SpacedForm(CharForm):
    """As `CharForm`, with a last id that says whether a space follows, so that the text can be written again."""

    def start(self) -> RecordEncoder:
        """Returns an encoder with these characters."""
        return _SpacedEncoder(WordEncoder(CharVocab.from_dict(self.vocab), self.char_slots - 1, self.normalize))

    def settings(self) -> JsonObject:
        """Returns the fields, with the vocabulary replaced by its digest, and the name of the form."""
        return {**super().settings(), "form": "spaced"}


def spaces_behind(pieces: Sequence[Sequence[str]], spaces: Sequence[bool]) -> list[bool]:
    """Returns for each piece of each word whether a space follows it.

    Args:
      pieces: those of each word, one or more.
      spaces: for each word, whether a space comes before it. One follows the last word.
    """
    behind = zip(pieces, [*spaces[1:], True][: len(pieces)], strict=True)
    return [spaced and last for of_word, spaced in behind for last in [False] * (len(of_word) - 1) + [True]]


class _SpacedEncoder:
    def __init__(self, encoder: WordEncoder) -> None:
        self._encoder = encoder

    def record(self, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> EncodedItem:
        encoder = self._encoder
        pieces = [encoder.vocab.cut(word, encoder.char_slots - 1, encoder.normalize) for word in words]
        starts = np.cumsum([0, *sentences])[:-1]
        lengths, chars = self._encoder.encode(list(itertools.chain.from_iterable(pieces)))
        ends = np.cumsum(lengths, dtype=np.int64)
        chars = np.insert(chars, ends, np.where(spaces_behind(pieces, spaces), SPACED, JOINED).astype(np.uint16))
        record = EncodedRecord(np.add.reduceat(list(map(len, pieces)), starts), lengths + np.uint8(1), chars)
        return record, write_record(*record)

    def finish(self, stats: CorpusStats) -> None:
        stats.words_cut, stats.chars_unknown = int(self._encoder.words_cut), int(self._encoder.chars_unknown)
        stats.chars = int(self._encoder.chars_total)  # the records have ends, too


@dataclasses.dataclass(frozen=True)
class TextForm:
    """Words as text, for families that misspell words and cut them into subwords anew in every epoch."""

    def start(self) -> RecordEncoder:
        """Returns an encoder."""
        return _TextEncoder()

    def settings(self) -> JsonObject:
        """Returns the name of the form."""
        return {"form": "text"}


class _TextEncoder:
    def record(self, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> EncodedItem:
        record = TextRecord.of(sentences, words, spaces)
        return record, write_text_record(record)

    def finish(self, stats: CorpusStats) -> None:
        pass
