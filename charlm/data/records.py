"""Records of encoded text (consecutive sentences as integer arrays): how they are written, read, stored and counted.

`charlm.data.encode` writes them in shards of ArrayRecord files, `charlm.data.pipeline` reads them for training. Open it
to see the bytes of a record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import itertools
import json
import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core import stores
from charlm.core.durable import write_text
from charlm.core.local_paths import is_address
from charlm.core.reading import read_json
from charlm.data.text_records import TextRecord

LONGEST_COUNTED = 255  # characters; a longer word is counted as a word of this length
DESCRIPTION_FILE = "corpus.json"  # beside shards: their names, counts and settings
ENCODER_VERSION = 1  # raise it when the same text and settings would give other records


class EncodedRecord(NamedTuple):
    """Consecutive sentences of one corpus: S sentences with W words in all.

    Attributes:
      sentences: number of words in each sentence, uint16 or uint32 [S].
      words: number of characters in each word, uint8 [W].
      chars: character ids of all words, one word after another, uint16 [sum of `words`].
    """

    sentences: np.ndarray
    words: np.ndarray
    chars: np.ndarray


def write_record(sentences: Sequence[int] | np.ndarray, words: np.ndarray, chars: np.ndarray) -> bytes:
    """Serializes an `EncodedRecord`; raises ValueError when the lengths do not add up."""
    from safetensors.numpy import save

    sentences = np.asarray(sentences, np.uint32)
    if sentences.sum() != len(words) or words.sum(dtype=np.int64) != len(chars):
        sizes = f"sentences of {sentences.sum()} words, {len(words)} words of {words.sum(dtype=np.int64)} characters"
        raise ValueError(f"inconsistent record: {sizes}, {len(chars)} characters")
    if sentences.max(initial=0) < 1 << 16:
        sentences = sentences.astype(np.uint16)
    arrays = {"sentences": sentences, "words": np.asarray(words, np.uint8), "chars": np.asarray(chars, np.uint16)}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_record(data: bytes) -> EncodedRecord:
    """Parses bytes of `write_record` (about 10 µs) into read-only arrays; raises ValueError for any other bytes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        return EncodedRecord(arrays["sentences"], arrays["words"], arrays["chars"])
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not an encoded record of charlm: {error}") from error


@dataclasses.dataclass
class CorpusStats:
    """Counts of an encoded corpus or shard; `a + b` merges two of them.

    Attributes:
      documents, sentences, words, chars, records: how many were encoded; `chars` counts the characters that were kept.
      words_cut: words that were longer than the character slots and lost their ends.
      chars_unknown: characters that are not in the vocabulary.
      longest_record: number of words in the longest record.
      skipped: documents that could not be read, by reason.
      slots_histogram: entry n is the number of words that occupy n character slots (their characters + 1).
    """

    documents: int = 0
    sentences: int = 0
    words: int = 0
    chars: int = 0
    records: int = 0
    words_cut: int = 0
    chars_unknown: int = 0
    longest_record: int = 0
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)
    slots_histogram: list[int] = dataclasses.field(default_factory=list)

    def __add__(self, other: CorpusStats) -> CorpusStats:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)}
        total = {name: a + b for name, (a, b) in pairs.items() if isinstance(a, int)}
        total["longest_record"] = max(pairs["longest_record"])
        total["skipped"] = dict(Counter(self.skipped) + Counter(other.skipped))
        columns = itertools.zip_longest(*pairs["slots_histogram"], fillvalue=0)
        total["slots_histogram"] = [a + b for a, b in columns]
        return CorpusStats(**total)

    def add_record(self, record: EncodedRecord | TextRecord) -> None:
        """Adds a record to the counts in place."""
        self.records += 1
        self.sentences += len(record.sentences)
        self.words += len(record.words)
        self.chars += len(record.chars)
        self.longest_record = max(self.longest_record, len(record.words))
        slots = np.bincount(np.minimum(record.words.astype(np.int64), LONGEST_COUNTED) + 1)
        self.slots_histogram += [0] * (len(slots) - len(self.slots_histogram))
        for n in np.flatnonzero(slots):
            self.slots_histogram[n] += int(slots[n])

    def describe(self) -> str:
        """Returns one line that says what was encoded and what was lost, as shares and counts."""
        if self.words and not self.documents:  # the records were counted, their text was not seen
            return f"{self.words:,} words, {self.chars:,} characters; documents and losses are not known"
        text = f"{self.documents:,} documents, {self.words:,} words, {self.chars:,} characters"
        text += f"; cut words {_share(self.words_cut, self.words)}"
        text += f"; unknown characters {_share(self.chars_unknown, self.chars)}"
        seen = self.documents + sum(self.skipped.values())
        for reason, count in sorted(self.skipped.items()):
            text += f"; skipped documents, {reason}: {_share(count, seen)}"
        return text


def _share(count: int, total: int) -> str:
    return f"{100 * count / max(total, 1):.3g} % ({count:,})"


def is_encoded(spec: str) -> bool:
    """Returns whether a corpus of the config names shards that are already encoded."""
    return spec.endswith(".array_record")


def count_records(path: str) -> int:
    """Returns the number of records in a shard; 0 when the file does not exist or cannot be read."""
    from array_record.python.array_record_module import ArrayRecordReader

    if not os.path.exists(path):
        return 0
    try:
        reader = ArrayRecordReader(path)
        records = reader.num_records()
        reader.close()  # for a truncated file, only this call fails
    except (RuntimeError, ValueError):
        return 0
    return records


def counts_file(shard: str) -> str:
    """Returns the path of the file with a shard's counts, which lies beside the shard."""
    return f"{shard}.json"


def write_counts(shard: str, stats: CorpusStats, digest: str) -> None:
    """Writes the counts of a complete shard and its sha256 (hex); the digest of a shard without records is ""."""
    write_text(counts_file(shard), json.dumps(dataclasses.asdict(stats) | {"sha256": digest}))


def read_counts(shard: str) -> tuple[CorpusStats, str] | None:
    """Returns what `write_counts` wrote, or None when it is missing or damaged; a digest of "" means it is unknown."""
    try:
        counts = read_json(counts_file(shard))
        digest = counts.pop("sha256", "")
        return CorpusStats(**counts), digest
    except (OSError, ValueError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def clear_damage(path: str, remedy: str) -> Iterator[None]:
    """Turns errors raised while a shard is read into a one-line ValueError that names the shard and the remedy."""
    try:
        yield
    except (RuntimeError, OSError, IndexError, ValueError) as error:
        reason = " ".join(str(error).split()).split(", chunk at")[0][:200] or "it cannot be read"
        raise ValueError(f"{path} is damaged: {reason}; {remedy}") from error


def remedy_of(corpus: str) -> str:
    """Returns advice for a damaged shard of a corpus; `corpus` is the corpus as the config names it."""
    if is_encoded(corpus):
        return "put a good copy in its place, or encode its text again"
    return "remove it: the same command encodes it again"


def shard_paths(spec: str, key: str) -> list[str]:
    """Returns the shards that match a path or glob (copies of objects in a store); ValueError if none does."""
    if is_address(spec):
        for description in (counts_file(spec), posixpath.join(posixpath.dirname(spec), DESCRIPTION_FILE)):
            with contextlib.suppress(ValueError):  # not all have them
                stores.matching(description, key)
        return stores.matching(spec, key)
    path = os.path.expanduser(spec)
    paths = [path] if os.path.isfile(path) else sorted(glob.glob(path, recursive=True))
    if not paths:
        raise ValueError(f"{key}: no file matches {spec!r} (current directory: {os.getcwd()})")
    return [os.path.abspath(path) for path in paths]


def read_shard(path: str, key: str) -> Iterator[EncodedRecord]:
    """Yields the records of a shard; raises ValueError when it holds none."""
    from array_record.python.array_record_module import ArrayRecordReader

    try:
        reader = ArrayRecordReader(path)
        size = reader.num_records()
        if not size:  # a truncated file, or one that is not an ArrayRecord, also reports 0
            raise ValueError("it holds no record, or is damaged")
        for i in range(size):
            yield read_record(reader.read([i])[0])
        reader.close()
    except (RuntimeError, OSError, IndexError, ValueError) as error:
        raise ValueError(f"{key}: {path} is not an encoded corpus of charlm: {error}") from error
