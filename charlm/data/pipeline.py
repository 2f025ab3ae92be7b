"""Encoded corpora -> batches: shuffle, mix, pack into sequences, mask, pack into word tables. One grain iterator.

Packing is stateful, so the iterator saves what it holds back beside grain's position: a resumed run sees exactly the
batches that the unbroken run would have seen.
"""

from __future__ import annotations

import base64
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import grain
import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from charlm.batch import WordBatch
from charlm.data.batching import BatchShape, Sequence, ShardPacker, bucket_of, halve, stack
from charlm.data.masking import Masking, mask_words
from charlm.data.records import EncodedRecord, read_record
from charlm.text.chars import CLS, SEP, WORD_CLS

BUCKETS = 3  # length buckets when the config names none: a fourth saves 2 % of the slots and costs another program part
SAMPLE_SHARDS = 24  # shards read to measure budgets
SPREADS = 4.0  # budgets lie so many standard deviations above the mean: few batches close early


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
    masks of the n-th sequence depend on (seed, n) alone.
    """

    def __init__(self, records: Iterator[EncodedRecord], max_words: int, char_slots: int, masking: Masking, seed: int):
        if max_words < 3:
            raise ValueError(f"data.max_words={max_words}: a sequence needs [CLS], a word and [SEP]")
        self._records = records
        self._room = max_words - 2
        self._slots = char_slots
        self._masking = masking
        self._seed = seed
        self._sentences: deque[np.ndarray] = deque()  # uint16 [words, C] each
        self._returned: deque[Sequence] = deque()
        self._made = 0

    def next(self) -> Sequence | None:
        """Returns the next sequence, or None when the records are used up."""
        if self._returned:
            return self._returned.popleft()
        taken, words = [], 0
        while self._sentences or self._read():
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
            if self._sentences:
                return True
        return False

    def _mask(self, sentences: list[np.ndarray]) -> Sequence:
        edges = np.zeros((2, 1, self._slots), np.uint16)
        edges[:, 0, 0] = CLS, SEP  # one-character words without WORD_CLS (appendix A.3)
        chars_WC = np.concatenate([edges[0], *sentences, edges[1]])
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((self._seed, self._made))))
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
        return {"made": self._made, "held": base64.b64encode(save_arrays(arrays)).decode("ascii")}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        held = load_arrays(base64.b64decode(state["held"]))
        pieces = lambda name, lengths: np.split(held[name], np.cumsum(held[lengths])[:-1]) if len(held[lengths]) else []
        self._made = state["made"]
        self._sentences = deque(pieces("words", "sentences"))
        chars, labels = pieces("chars", "returned"), pieces("labels", "returned")
        self._returned = deque(Sequence(c, y) for c, y in zip(chars, labels, strict=True))


class PackedBatches(grain.IterDataset[WordBatch]):
    """Batches [accumulation, S, ...] of the fixed shape from a dataset of encoded records."""

    def __init__(
        self,
        records: grain.IterDataset[EncodedRecord],
        shape: BatchShape,
        accumulation: int,
        masking: Masking,
        seed: int,
    ) -> None:
        super().__init__(records)
        self.shape, self.accumulation, self.masking, self.seed = shape, accumulation, masking, seed

    def __iter__(self) -> grain.DatasetIterator[WordBatch]:
        return _PackedIterator(self._parent.__iter__(), self)


class _PackedIterator(grain.DatasetIterator[WordBatch]):
    def __init__(self, records: grain.DatasetIterator[EncodedRecord], settings: PackedBatches) -> None:
        super().__init__(records)
        self._shape, self._accumulation = settings.shape, settings.accumulation
        shape = settings.shape
        self._stream = SequenceStream(records, shape.words, shape.slots[-1], settings.masking, settings.seed)

    def __next__(self) -> WordBatch:
        micro_batches = [[self._fill() for _ in range(self._shape.shards)] for _ in range(self._accumulation)]
        if not any(len(shard) for shards in micro_batches for shard in shards):
            raise StopIteration
        return stack([stack([shard.build() for shard in shards]) for shards in micro_batches])

    def _fill(self) -> ShardPacker:
        shard = ShardPacker(self._shape)
        while not shard.full and (sequence := self._stream.next()) is not None:
            if shard.add(sequence):
                continue
            if len(shard):
                self._stream.give_back(sequence)
                break
            self._stream.give_back(*halve(sequence))
        return shard

    def get_state(self) -> dict[str, Any]:
        return {"records": self._parent.get_state(), "stream": self._stream.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state["records"])
        self._stream.set_state(state["stream"])


def record_dataset(
    corpora: Iterable[Any],
    weights: tuple[float, ...] = (),
    *,
    seed: int = 0,
    shuffle: bool = False,
    repeat: bool = False,
    reader_threads: int = 0,
) -> grain.IterDataset[EncodedRecord]:
    """Opens encoded corpora (`EncodedCorpus`) as one stream of records.

    Args:
      corpora: what `charlm.data.corpus.prepare` returned.
      weights: share of each corpus; (): in proportion to their words. Only with `repeat`.
      shuffle: anew in every epoch of a corpus.
      repeat: for ever; else every record once, corpus after corpus.
    """
    corpora = list(corpora)
    sources = [grain.sources.ArrayRecordDataSource(list(corpus.paths)) for corpus in corpora]
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
    # On a local disk reader threads would only fight with packing for the interpreter lock.
    options = grain.ReadOptions(num_threads=reader_threads, prefetch_buffer_size=4 * reader_threads)
    return whole.to_iter_dataset(options).map(read_record)


def batch_dataset(
    records: grain.IterDataset[EncodedRecord],
    shape: BatchShape,
    masking: Masking,
    *,
    accumulation: int,
    seed: int,
    prefetch: int,
) -> grain.IterDataset[WordBatch]:
    """Returns batches [accumulation, S, ...]; `prefetch` > 0: prepared in a thread, so its iterators must be closed."""
    batches = PackedBatches(records, shape, accumulation, masking, seed)
    if prefetch:
        return grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=prefetch)
    return batches


def measure_shape(
    records: Iterable[EncodedRecord],
    *,
    sequences: int,
    shards: int,
    max_words: int,
    char_slots: int,
    masking: Masking,
    unique_words: bool = True,
    bucket_slots: tuple[int, ...] = (),
    sample_shards: int = SAMPLE_SHARDS,
) -> BatchShape:
    """Chooses length buckets and budgets from a sample of the corpus.

    Buckets minimise the character slots that are computed; each budget lies `SPREADS` standard deviations above the
    mean of the sampled shards, so that nearly every shard gets all its sequences.

    Args:
      records: a stream of records; the first `sample_shards * sequences` sequences are read.
      sequences: sequences B of a shard. shards: shards S of a batch. bucket_slots: given buckets; (): chosen here.
    """
    stream = SequenceStream(iter(records), max_words, char_slots, masking, seed=0)
    sample = list(itertools.islice(iter(stream.next, None), sample_shards * sequences))
    if not sample:
        raise ValueError("data.train: no sentence to measure batches on")
    # A short corpus is read round and round: budgets must hold whole shards.
    shard_samples = [
        [sample[i % len(sample)] for i in range(n * sequences, (n + 1) * sequences)] for n in range(sample_shards)
    ]
    counts = np.array([_count_slots(shard, char_slots) for shard in shard_samples])  # [shards, 3, C + 1]
    slots = bucket_slots or _choose_buckets(counts[:, :2].sum(axis=1).mean(axis=0))
    if tuple(sorted(set(slots))) != tuple(slots) or slots[-1] != char_slots:
        raise ValueError(
            f"data.bucket_slots={tuple(slots)} must ascend and end at model.char_slots={char_slots}, the longest word"
        )
    bucket_C = np.minimum(bucket_of(np.arange(char_slots + 1), slots), len(slots) - 1)
    per_bucket = np.stack([counts[:, :, bucket_C == b].sum(axis=-1) for b in range(len(slots))], axis=-1)
    if not unique_words:
        labels = (_budget(per_bucket[:, 2].sum(axis=-1)),)
        return BatchShape(shards, sequences, max_words, (char_slots,), (), (sequences * max_words,), labels, False)
    table, masked, labels = (tuple(_budget(per_bucket[:, kind, b]) for b in range(len(slots))) for kind in range(3))
    return BatchShape(shards, sequences, max_words, tuple(slots), table, masked, labels)


def _count_slots(shard: list[Sequence], char_slots: int) -> np.ndarray:
    """Returns counts by slots [3, C + 1]: distinct words only met unmasked, distinct masked ones, masked positions."""
    chars_NC = np.concatenate([s.chars_WC for s in shard])
    is_masked_N = np.concatenate([s.labels_WC.any(axis=1) for s in shard])
    masked_NC = chars_NC[is_masked_N]
    distinct, masked = (set(map(bytes, rows)) for rows in (chars_NC, masked_NC))
    counts = np.zeros((3, char_slots + 1), np.int64)
    for row in distinct:
        counts[int(row in masked), np.count_nonzero(np.frombuffer(row, np.uint16))] += 1
    counts[2] = np.bincount((masked_NC != 0).sum(axis=1), minlength=char_slots + 1)
    return counts


def _choose_buckets(words_by_slots: np.ndarray) -> tuple[int, ...]:
    """Returns the ascending bucket lengths that hold all words in the fewest slots."""
    longest = len(words_by_slots) - 1
    total = np.cumsum(words_by_slots)

    def cost(inner: tuple[int, ...]) -> float:
        edges = (0, *inner, longest)
        return sum((total[b] - total[a]) * b for a, b in itertools.pairwise(edges))

    inner = min(itertools.combinations(range(2, longest), min(BUCKETS - 1, max(longest - 2, 0))), key=cost)
    return (*inner, longest)


def _budget(counts: np.ndarray) -> int:
    """Returns a capacity, a multiple of 8, well above the sampled counts."""
    return int(-(-max(counts.mean() + SPREADS * counts.std(), counts.max(), 1) // 8) * 8)
