"""Encoded corpora -> batches: shuffle, mix, pack into sequences, mask, pack into word tables. One grain iterator.

Packing is stateful: see `charlm.data.lanes` for what is saved of it.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

import grain
import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from charlm.core.batch import WordBatch
from charlm.data.batching import BatchShape, Sequence, ShardPacker, halve
from charlm.data.lanes import lane_batches, stack
from charlm.data.masking import Masking, mask_words
from charlm.data.records import EncodedRecord, clear_damage, count_records, read_record, remedy_of
from charlm.text.chars import CLS, SEP, WORD_CLS


def rows_of(record: EncodedRecord, char_slots: int) -> np.ndarray:
    """Returns the words of a record as uint16 [W, C]: WORD_CLS, the characters, 0."""
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


class SequenceStream:
    """Packs the sentences of records, in order, into masked sequences of at most `max_words` words.

    A sentence that does not fit what is left opens the next sequence; one longer than a whole sequence is cut. The
    masks of a sequence depend on the seed and its number alone: `lane`, `lane + lanes`, `lane + 2 * lanes` and so on.

    With `by_record` no sequence holds sentences of two records, and masks depend on the number of the record: the same
    sequences with the same masks, however many lanes there are.
    """

    def __init__(
        self,
        records: Iterator[EncodedRecord],
        max_words: int,
        char_slots: int,
        masking: Masking,
        seed: int,
        lane: int = 0,
        lanes: int = 1,
        by_record: bool = False,
    ) -> None:
        if max_words < 3:
            raise ValueError(f"data.max_words={max_words}: a sequence needs [CLS], a word and [SEP]")
        self._records = records
        self._room = max_words - 2
        self._slots = char_slots
        self._masking = masking
        self._seed = seed
        self._lane, self._lanes, self._by_record = lane, lanes, by_record
        self._sentences: deque[np.ndarray] = deque()  # uint16 [words, C] each
        self._returned: deque[Sequence] = deque()
        self._made = 0  # sequences; with `by_record`, those of the record
        self._read_records = 0

    def next(self) -> Sequence | None:
        """Returns the next sequence, or None when the records are used up."""
        if self._returned:
            return self._returned.popleft()
        taken, words = [], 0
        while self._sentences or (not (taken and self._by_record) and self._read()):
            sentence = self._sentences[0]
            if words + len(sentence) <= self._room:
                taken.append(self._sentences.popleft())
                words += len(sentence)
            elif taken:
                break
            else:
                taken.append(sentence[: self._room])
                self._sentences[0] = sentence[self._room :]
                break
        return self._mask(taken) if taken else None

    def give_back(self, *sequences: Sequence) -> None:
        """Puts sequences in front of the stream, the first to come out first."""
        self._returned.extendleft(reversed(sequences))

    def _read(self) -> bool:
        for record in self._records:
            rows_WC = rows_of(record, self._slots)
            ends = np.cumsum(record.sentences, dtype=np.int64)
            self._sentences.extend(s for s in np.split(rows_WC, ends[:-1]) if len(s))
            self._read_records += 1
            self._made = 0 if self._by_record else self._made
            if self._sentences:
                return True
        return False

    def _mask(self, sentences: list[np.ndarray]) -> Sequence:
        edges = np.zeros((2, 1, self._slots), np.uint16)
        edges[:, 0, 0] = CLS, SEP  # one-character words without WORD_CLS (appendix A.3)
        chars_WC = np.concatenate([edges[0], *sentences, edges[1]])
        if self._by_record:
            number = (self._lane + self._lanes * (self._read_records - 1), self._made)
        else:
            number = (self._lane + self._lanes * self._made,)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((self._seed, *number))))
        self._made += 1
        return Sequence(*mask_words(chars_WC, self._masking, rng))

    def get_state(self) -> dict[str, Any]:
        """Returns what the stream holds back, JSON-able."""
        none = np.zeros((0, self._slots), np.uint16)
        arrays = {
            "sentences": np.array([len(s) for s in self._sentences], np.int64),
            "words": np.concatenate([none, *self._sentences]),
            "returned": np.array([len(s.chars_WC) for s in self._returned], np.int64),
            "chars": np.concatenate([none, *(s.chars_WC for s in self._returned)]),
            "labels": np.concatenate([none, *(s.labels_WC for s in self._returned)]),
        }
        counts = {"made": self._made, "records": self._read_records}
        return counts | {"held": base64.b64encode(save_arrays(arrays)).decode("ascii")}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        held = load_arrays(base64.b64decode(state["held"]))
        pieces = lambda name, lengths: np.split(held[name], np.cumsum(held[lengths])[:-1]) if len(held[lengths]) else []
        self._made, self._read_records = state["made"], state["records"]
        self._sentences = deque(pieces("words", "sentences"))
        chars, labels = pieces("chars", "returned"), pieces("labels", "returned")
        self._returned = deque(Sequence(c, y) for c, y in zip(chars, labels, strict=True))


class PackedLane:
    """A lane of `LaneBatches` that packs sequences into the word tables of its shard."""

    def __init__(self, stream: SequenceStream, shape: BatchShape) -> None:
        self._stream, self._shape = stream, shape

    def shard(self) -> tuple[WordBatch, bool]:
        """Returns the next shard, and whether it holds a word."""
        shard = ShardPacker(self._shape)
        while not shard.full and (sequence := self._stream.next()) is not None:
            if shard.add(sequence):
                continue
            if len(shard):
                self._stream.give_back(sequence)
                break
            self._stream.give_back(*halve(sequence))
        return shard.build(), len(shard) > 0

    def get_state(self) -> dict[str, Any]:
        """Returns what the lane holds back."""
        return self._stream.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._stream.set_state(state)


def empty_batch(shape: BatchShape, shards: int, accumulation: int = 1) -> WordBatch:
    """Returns a batch [accumulation, shards, ...] without a word, for a process whose lanes end before another's."""
    shard = ShardPacker(shape).build()
    return stack([stack([shard] * shards)] * accumulation)


class ShardSource(grain.sources.ArrayRecordDataSource):
    """The records of an encoded corpus (`EncodedCorpus`); of a damaged shard one line says which it is."""

    def __init__(self, corpus: Any) -> None:
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
        return super().__len__()  # pyright: ignore[reportAttributeAccessIssue]  # grain shows the base of Windows

    def __getitem__(self, index: SupportsIndex) -> bytes:
        """Returns a record; ValueError when it cannot be read."""
        try:
            return super().__getitem__(index)
        except RuntimeError as error:
            with clear_damage(self._shard_of(index.__index__()), self._remedy):
                raise error

    def __getitems__(self, numbers: Iterable[SupportsIndex]) -> list[bytes]:
        """Returns several records, as `__getitem__`."""
        return [self[number] for number in numbers]

    def _shard_of(self, number: int) -> str:
        for path in self._shards:
            records = count_records(path)
            if number < records:
                return path
            number -= records
        return self._shards[-1]


def record_lanes(
    corpora: Iterable[Any],
    weights: tuple[float, ...] = (),
    *,
    seed: int = 0,
    shuffle: bool = False,
    repeat: bool = False,
    lanes: Iterable[int] = (0,),
    of: int = 1,
    reader_threads: int = 0,
    read: Callable[[bytes], Any] = read_record,
) -> dict[int, grain.IterDataset[Any]]:
    """Opens encoded corpora (`EncodedCorpus`) as one stream of records, dealt out to `of` lanes in turn.

    Args:
      corpora: what `charlm.data.corpus.prepare` returned.
      weights: share of each corpus; (): in proportion to their words. Only with `repeat`.
      shuffle: anew in every epoch of a corpus.
      repeat: for ever; else every record once, corpus after corpus.
      lanes: those to return, by their numbers; a lane that gets no record is empty.
      reader_threads: threads that read, over all lanes together.
      read: parses a record, and so says of what kind the records of the lanes are.
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
        # A record holds about as many words in every corpus, so shares of records are shares of words.
        whole = grain.MapDataset.mix([d.repeat() for d in datasets], list(weights) or [len(s) for s in sources])
    lanes = tuple(lanes)
    # On a local disk reader threads would only fight with packing for the interpreter lock.
    threads = -(-reader_threads // len(lanes))
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=4 * threads)
    return {lane: whole[lane::of].to_iter_dataset(options).map(read) for lane in lanes}


def record_dataset(corpora: Iterable[Any], weights: tuple[float, ...] = (), **options: Any) -> grain.IterDataset:
    """Returns the records of `record_lanes` in one stream."""
    return record_lanes(corpora, weights, **options)[0]


def batch_dataset(
    lanes: Mapping[int, grain.IterDataset[EncodedRecord]],
    shape: BatchShape,
    masking: Masking,
    *,
    accumulation: int,
    seed: int,
    prefetch: int,
    by_record: bool = False,
) -> grain.IterDataset[WordBatch]:
    """Returns batches [accumulation, S', ...] of the fixed shape, one shard for each lane of encoded records.

    Args:
      lanes: for each shard that is wanted, its index among all `shape.shards`, and its records.
      prefetch: batches prepared ahead in a thread, so that the iterators must be closed; 0: none.
    """
    about = (shape.words, shape.slots[-1], masking, seed)

    def lane(number: int, records: Iterator[EncodedRecord]) -> PackedLane:
        return PackedLane(SequenceStream(records, *about, number, shape.shards, by_record), shape)

    return lane_batches(lanes, lane, of=shape.shards, accumulation=accumulation, prefetch=prefetch)
