"""Reads the records of encoded corpora in lanes, shuffled and mixed, and makes masked sequences of encoded words.

Open it to see in which order a corpus is read. `charlm.data.streams` makes batches of the records.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import SupportsIndex

import grain
import ml_collections
import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from charlm.core.types import JsonObject, Option
from charlm.data.batching import WordSequence, framed, halve
from charlm.data.corpus import EncodedCorpus
from charlm.data.forms import rows_of
from charlm.data.lanes import AnyRecord, Records
from charlm.data.masking import Masking, mask_words
from charlm.data.records import EncodedRecord, clear_damage, count_records, read_record, remedy_of
from charlm.data.streams import generator


@dataclasses.dataclass(frozen=True)
class SentenceMaker:
    """Makes masked sequences from the sentences of encoded records; a `charlm.data.streams.SequenceMaker`.

    A sentence that is longer than a sequence is cut into several parts.

    Attributes:
      max_words: words of a sequence, including [CLS] and [SEP].
      char_slots: character slots C of a word.
    """

    max_words: int
    char_slots: int
    masking: Masking
    seed: int

    def __post_init__(self) -> None:
        if self.max_words < 3:
            raise ValueError(f"data.max_words={self.max_words}: a sequence needs [CLS], a word and [SEP]")

    @property
    def _room(self) -> int:
        return self.max_words - 2

    def parts(self, record: EncodedRecord, number: int) -> Iterator[np.ndarray]:
        """Yields the sentences of a record, uint16 [words, C] each."""
        ends = np.cumsum(record.sentences, dtype=np.int64)
        for sentence in np.split(rows_of(record, self.char_slots), ends[:-1]):
            yield from self._cut(sentence)

    def _cut(self, sentence: np.ndarray) -> Iterator[np.ndarray]:
        return (sentence[at : at + self._room] for at in range(0, len(sentence), self._room))

    def filled(self, used: int | None, part: np.ndarray) -> int | None:
        """Returns the number of words so far; see `SequenceMaker.filled`."""
        used = (used or 0) + len(part)
        return used if used <= self._room else None

    def make(self, parts: list[np.ndarray], number: tuple[int, ...]) -> WordSequence:
        """Joins sentences to a sequence and masks some of its words."""
        whole = framed(np.concatenate(parts))
        return WordSequence(*mask_words(whole.chars_WC, self.masking, generator(self.seed, *number)))

    def halves(self, sequence: WordSequence) -> tuple[WordSequence, WordSequence]:
        """Returns the two halves, with the same words masked; see `charlm.data.batching.halve`."""
        return halve(sequence)

    def held(self, parts: Iterable[np.ndarray], returned: Iterable[WordSequence]) -> dict[str, str]:
        """Returns the arrays of sentences and sequences, packed into one string."""
        none = np.zeros((0, self.char_slots), np.uint16)
        arrays = {
            "sentences": np.array([len(s) for s in parts], np.int64),
            "words": np.concatenate([none, *parts]),
            "returned": np.array([len(s.chars_WC) for s in returned], np.int64),
            "chars": np.concatenate([none, *(s.chars_WC for s in returned)]),
            "labels": np.concatenate([none, *(s.labels_WC for s in returned)]),
        }
        return {"held": base64.b64encode(save_arrays(arrays)).decode("ascii")}

    def restored(self, state: JsonObject) -> tuple[Iterable[np.ndarray], Iterable[WordSequence]]:
        """Returns what was given to `held`; positions saved by older versions may hold sentences not yet cut."""
        held = load_arrays(base64.b64decode(state["held"]))
        pieces = lambda name, lengths: np.split(held[name], np.cumsum(held[lengths])[:-1]) if len(held[lengths]) else []
        sentences = itertools.chain.from_iterable(map(self._cut, pieces("words", "sentences")))
        chars, labels = pieces("chars", "returned"), pieces("labels", "returned")
        return sentences, (WordSequence(c, y) for c, y in zip(chars, labels, strict=True))


class ShardSource(grain.sources.ArrayRecordDataSource):
    """The records of an encoded corpus (`EncodedCorpus`); reading a damaged shard raises one line that names it."""

    def __init__(self, corpus: EncodedCorpus) -> None:
        self._remedy = remedy_of(corpus.name)
        self._shards: tuple[str, ...] = tuple(corpus.paths)
        try:
            super().__init__(list(corpus.paths))
        except RuntimeError as error:
            damaged = next((path for path in corpus.paths if not count_records(path)), corpus.paths[0])
            with clear_damage(damaged, self._remedy):
                raise error

    def __len__(self) -> int:
        """Returns the number of records."""
        return super().__len__()  # pyright: ignore[reportAttributeAccessIssue]  # grain's types are of Windows

    def __getitem__(self, index: SupportsIndex) -> bytes:
        """Returns a record; raises ValueError when it cannot be read."""
        try:
            return super().__getitem__(index)
        except RuntimeError as error:
            with clear_damage(self._shard_of(index.__index__()), self._remedy):
                raise error

    def __getitems__(self, numbers: Iterable[SupportsIndex]) -> list[bytes]:
        """Returns several records; raises ValueError as `__getitem__` does."""
        return [self[number] for number in numbers]

    def _shard_of(self, number: int) -> str:
        for path in self._shards:
            records = count_records(path)
            if number < records:
                return path
            number -= records
        return self._shards[-1]


def record_lanes(
    corpora: Iterable[EncodedCorpus],
    weights: tuple[float, ...] = (),
    *,
    seed: int = 0,
    shuffle: bool = False,
    repeat: bool = False,
    lanes: Iterable[int] = (0,),
    of: int = 1,
    reader_threads: int = 0,
    read: Callable[[bytes], AnyRecord] = read_record,
) -> dict[int, Records]:
    """Opens encoded corpora (`EncodedCorpus`) as one stream of records, which is dealt out to `of` lanes in turn.

    Args:
      corpora: the corpora that `charlm.data.corpus.prepare` returned.
      weights: share of each corpus in words; (): in proportion to its records, so that all end together. Only with
        `repeat`.
      shuffle: whether to shuffle, anew in every epoch of a corpus.
      repeat: whether to read for ever; else every record is read once, corpus after corpus.
      lanes: numbers of the lanes to return; a lane that gets no record is empty.
      reader_threads: number of reader threads of all lanes together.
      read: parses the bytes of a record.
    """
    corpora = list(corpora)
    sources = [ShardSource(corpus) for corpus in corpora]
    datasets = [grain.MapDataset.source(source).seed(seed + i) for i, source in enumerate(sources)]
    if shuffle:
        datasets = [dataset.shuffle() for dataset in datasets]
    if not repeat:
        whole = datasets[0] if len(datasets) == 1 else grain.MapDataset.concatenate(datasets)
    elif len(datasets) == 1:
        whole = datasets[0].repeat()
    else:
        # Weights are shares of words, and records of short files or long sentences hold fewer than others.
        a_word = [corpus.stats.records / max(corpus.stats.words, 1) for corpus in corpora] if weights else []
        shares = [weight * records for weight, records in zip(weights, a_word, strict=True)]
        whole = grain.MapDataset.mix([d.repeat() for d in datasets], shares or [len(s) for s in sources])
    lanes = tuple(lanes)
    # No threads by default: on a local disk they would only compete with packing for the interpreter lock.
    threads = -(-reader_threads // len(lanes))
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=4 * threads)
    return {lane: whole[lane::of].to_iter_dataset(options).map(read) for lane in lanes}


def record_dataset(corpora: Iterable[EncodedCorpus], weights: tuple[float, ...] = (), **options: Option) -> Records:
    """Returns the records of `record_lanes` in one stream."""
    return record_lanes(corpora, weights, **options)[0]


@contextlib.contextmanager
def training_records(
    config: ml_collections.ConfigDict,
    corpora: Iterable[EncodedCorpus],
    read: Callable[[bytes], AnyRecord] = read_record,
) -> Iterator[AnyRecord]:
    """Gives an endless stream of training records, shuffled as in training, for measuring budgets.

    Args:
      config: the config of the run.
      corpora, read: as in `record_lanes`.
    """
    order = {"seed": config.seed, "shuffle": True, "repeat": True}
    with contextlib.closing(iter(record_dataset(corpora, tuple(config.data.weights), **order, read=read))) as records:
        yield records
