"""Forms of encoded text: how the words of some sentences become a record."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from charlm.data.records import CorpusStats, EncodedRecord, write_record
from charlm.data.text_records import TextRecord, write_text_record
from charlm.text.chars import CharVocab, WordEncoder

Encoded = tuple[EncodedRecord | TextRecord, bytes]  # a record, and as it is written


def encoded_record(encoder: WordEncoder, words: Sequence[str], sentences: Sequence[int] | None = None) -> EncodedRecord:
    """Returns words as a record; `sentences`: words of each; None: all are one."""
    return EncodedRecord(np.asarray([len(words)] if sentences is None else sentences), *encoder.encode(words))


class RecordEncoder(Protocol):
    """Encodes the records of one shard."""

    def record(self, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> Encoded:
        """Returns a record of some sentences.

        Args:
          sentences: words of each. words: of all of them. spaces: of each word, whether a space comes before it.
        """
        ...

    def finish(self, stats: CorpusStats) -> None:
        """Counts what the records do not show."""
        ...


class Form(Protocol):
    """A form of records; picklable, so that they can be written in other processes."""

    def start(self) -> RecordEncoder:
        """Returns an encoder for a shard."""
        ...

    def settings(self) -> dict[str, Any]:
        """Returns, JSON-able, all that decides what records hold, beside the text and its splitter."""
        ...


@dataclasses.dataclass(frozen=True)
class CharForm:
    """Words as ids of their characters, the form of HLM; the fields are those of `WordEncoder`."""

    vocab: dict[str, int]
    char_slots: int
    normalize: str

    def start(self) -> RecordEncoder:
        """Returns an encoder with these characters."""
        return _CharEncoder(WordEncoder(CharVocab.from_dict(self.vocab), self.char_slots, self.normalize))

    def settings(self) -> dict[str, Any]:
        """Returns the fields, the vocabulary by its digest."""
        digest = CharVocab.from_dict(self.vocab).digest()
        return {"normalize": self.normalize, "vocab_digest": digest, "char_slots": self.char_slots}


class _CharEncoder:
    def __init__(self, encoder: WordEncoder) -> None:
        self._encoder = encoder

    def record(self, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> Encoded:
        record = encoded_record(self._encoder, words, sentences)
        return record, write_record(*record)

    def finish(self, stats: CorpusStats) -> None:
        stats.words_cut, stats.chars_unknown = int(self._encoder.words_cut), int(self._encoder.chars_unknown)


@dataclasses.dataclass(frozen=True)
class TextForm:
    """Words as text, for families that misspell and cut them anew in every epoch."""

    def start(self) -> RecordEncoder:
        """Returns an encoder."""
        return _TextEncoder()

    def settings(self) -> dict[str, Any]:
        """Returns the name of the form."""
        return {"form": "text"}


class _TextEncoder:
    def record(self, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> Encoded:
        record = TextRecord.of(sentences, words, spaces)
        return record, write_text_record(record)

    def finish(self, stats: CorpusStats) -> None:
        pass
