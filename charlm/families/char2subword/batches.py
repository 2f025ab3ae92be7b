"""Makes batches of spelled vocabulary entries for the approximation stage, in length buckets and of a fixed shape.

Open it to change which entries a batch has or how they get their typos. A length bucket's share of the rows of a batch
equals its share of the entries of the vocabulary. So no row is padding, and all entries are seen equally often, up to
rounding to whole rows. The content of a batch depends only on the seed and on the number of the batch, so the number is
all that a checkpoint saves of the data position.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import grain
import numpy as np

from charlm.core.trees import stack
from charlm.core.types import JsonObject
from charlm.data.batching import bucket_of
from charlm.data.budgets import check_rows, choose_buckets
from charlm.data.lanes import check_shards
from charlm.data.streams import generator
from charlm.families.char2subword.batch import ImitationBatch
from charlm.families.char2subword.spelling import spell_piece, spell_rows
from charlm.families.char2subword.spelling_noise import ManyTypos, OneTypo
from charlm.families.char2subword.spelling_vocab import Entries
from charlm.families.spelled.masked_batches import SPELLING_BUCKETS
from charlm.text.chars import CharVocab

ORDER, TYPOS, UNSEEN = 0, 1, 2  # numbers of the random streams


class ImitationShape(NamedTuple):
    """The shape of every batch: shards S; per length bucket, character slots C and rows U per shard."""

    shards: int
    slots: tuple[int, ...]
    rows: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Imitated:
    """The vocabulary entries to imitate, and how they are spelled.

    Attributes:
      entries: the N entries of the vocabulary that have a spelling.
      vocab: the character vocabulary.
      typos: makes typos; None: there are no typos.
      slots: character slots of the longest spelling; longer spellings are cut.
      near_NK: int32, the rows of the table nearest to each entry's row.
      unseen_N: bool, True at entries that are never trained on.
    """

    entries: Entries
    vocab: CharVocab
    typos: OneTypo | ManyTypos | None
    slots: int
    near_NK: np.ndarray
    unseen_N: np.ndarray

    def lengths(self) -> np.ndarray:
        """Returns the character slots [N] that each entry needs, also with typos that lengthen it."""
        lengths_N = np.array([len(spelling) for spelling in self.entries.spellings])
        if self.typos is not None:
            lengths_N += [self.typos.longer(surface.chars) for surface in self.entries.surfaces]
        return np.minimum(lengths_N, self.slots)

    def rows(self, chosen: Sequence[int], slots: int, rng: np.random.Generator | None) -> np.ndarray:
        """Returns spellings uint16 [len(chosen), slots], some of them with a typo; without `rng` there are no typos."""
        spellings = []
        for place in chosen:
            surface = self.entries.surfaces[place]
            if self.typos is not None and rng is not None:
                surface = surface._replace(chars=self.typos.word(surface.chars, rng))
            spellings.append(spell_piece(surface))
        return spell_rows(spellings, self.vocab, slots)


def choose_unseen(entries: Entries, share: float, seed: int) -> np.ndarray:
    """Returns bool [N]: True at the share of the entries, drawn at random, that is never trained on."""
    unseen_N = np.zeros(len(entries), bool)
    unseen_N[generator(seed, UNSEEN).permutation(len(entries))[: int(share * len(entries))]] = True
    return unseen_N


def measure_shape(
    imitated: Imitated, size: int, shards: int, slots: tuple[int, ...] = (), rows: tuple[int, ...] = ()
) -> ImitationShape:
    """Chooses the length buckets and the rows of each, unless they are given.

    Args:
      size: rows of a shard, summed over all buckets.
      slots: character slots of the buckets; (): they are chosen here.
      rows: rows of the buckets; (): they are chosen here.

    Raises:
      ValueError: `slots` do not ascend, do not hold the longest entry or are more than `size`; or `rows` are not one
        number per bucket, or do not add up to `size`.
    """
    lengths_N = imitated.lengths()[~imitated.unseen_N]
    longest = int(imitated.lengths().max())
    slots = slots or choose_buckets(np.bincount(lengths_N, minlength=longest + 1), min(SPELLING_BUCKETS, size))
    if tuple(sorted(set(slots))) != tuple(slots) or slots[-1] < longest:
        raise ValueError(f"data.bucket_slots={tuple(slots)} must ascend, and end at {longest} or more")
    if not rows and len(slots) > size:
        raise ValueError(f"data.bucket_slots={tuple(slots)} are more than the {size} spellings of a part of the batch")
    rows = rows or _share_out(size, np.bincount(bucket_of(lengths_N, slots), minlength=len(slots)) / len(lengths_N))
    check_rows("data.bucket_rows", rows, slots)
    if sum(rows) != size:
        raise ValueError(
            f"data.bucket_rows={tuple(rows)} are {sum(rows)} spellings, but data.batch_size / (data.accumulation x "
            f"data.table_shards) is {size}"
        )
    return ImitationShape(shards, tuple(slots), tuple(rows))


def _share_out(size: int, shares: np.ndarray) -> tuple[int, ...]:
    """Returns whole numbers in proportion to `shares`, each at least 1, that add up to `size`."""
    exact = shares * size
    counts = np.maximum(np.floor(exact).astype(int), 1)
    for bucket in np.argsort(counts - exact)[: max(size - counts.sum(), 0)]:  # the largest remainders
        counts[bucket] += 1
    while counts.sum() > size:  # because small counts were raised to 1
        counts[np.argmax(np.where(counts > 1, counts - exact, -np.inf))] -= 1
    return tuple(counts.tolist())


def build_shard(
    imitated: Imitated, shape: ImitationShape, chosen: Sequence[Sequence[int]], rng: np.random.Generator | None
) -> ImitationBatch:
    """Returns the arrays of one shard, without the leading axis S.

    Args:
      chosen: for each bucket the indices of its entries, at most as many as the bucket has rows.
      rng: draws the typos; None: there are no typos.
    """
    tables: list[list[np.ndarray]] = []
    for entries, slots, rows in zip(chosen, shape.slots, shape.rows, strict=True):
        chars_UC = np.zeros((rows, slots), np.uint16)
        ids_U = np.full(rows, -1, np.int32)
        near_UK = np.zeros((rows, imitated.near_NK.shape[1]), np.int32)
        unseen_U = np.zeros(rows, bool)
        if count := len(entries):
            places = np.asarray(entries)
            chars_UC[:count] = imitated.rows(entries, slots, rng)
            ids_U[:count], near_UK[:count] = imitated.entries.ids_N[places], imitated.near_NK[places]
            unseen_U[:count] = imitated.unseen_N[places]
        tables.append([chars_UC, ids_U, near_UK, unseen_U])
    return ImitationBatch(*(tuple(column) for column in zip(*tables, strict=True)))


class _NumberedIterator(grain.DatasetIterator[ImitationBatch]):
    """Batches that their number determines; only the number of the next one is saved."""

    def __init__(self, shards: int) -> None:
        super().__init__()
        self._shards, self._made = shards, 0

    def __next__(self) -> ImitationBatch:
        batch = self._batch(self._made)
        self._made += 1
        return batch

    @abc.abstractmethod
    def _batch(self, number: int) -> ImitationBatch:
        """Returns the batch with this number; StopIteration after the last."""

    def get_state(self) -> JsonObject:
        return {"made": self._made, "of": self._shards}

    def set_state(self, state: JsonObject) -> None:
        check_shards(state, self._shards)
        self._made = state["made"]


class MadeLater(grain.IterDataset[ImitationBatch]):
    """Batches of a function that is called when they are first read, since it takes minutes."""

    def __init__(self, make: Callable[[], grain.IterDataset[ImitationBatch]]) -> None:
        super().__init__()
        self._make = make

    def __iter__(self) -> grain.DatasetIterator[ImitationBatch]:
        return iter(self._make())


class TrainingBatches(grain.IterDataset[ImitationBatch]):
    """Batches [accumulation, len(lanes), ...] without end.

    Each bucket is read again and again, in a new order each time.

    Args:
      lanes: which of the `shape.shards` shards to make.
    """

    def __init__(
        self,
        imitated: Imitated,
        shape: ImitationShape,
        lanes: Iterable[int],
        *,
        accumulation: int,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        super().__init__()
        self.imitated, self.shape, self.lanes = imitated, shape, tuple(lanes)
        self.accumulation, self.drawn_from, self.shuffle = accumulation, seed, shuffle
        bucket_N = bucket_of(imitated.lengths(), shape.slots)
        seen = ~imitated.unseen_N
        self.members = [np.flatnonzero(seen & (bucket_N == b)) for b in range(len(shape.slots))]

    def __iter__(self) -> grain.DatasetIterator[ImitationBatch]:
        return _TrainingIterator(self)


class _TrainingIterator(_NumberedIterator):
    def __init__(self, settings: TrainingBatches) -> None:
        super().__init__(settings.shape.shards)
        self._settings = settings
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def _batch(self, number: int) -> ImitationBatch:
        settings, micro_batches = self._settings, []
        for micro in range(settings.accumulation):
            part = number * settings.accumulation + micro
            micro_batches.append(stack([self._shard(part * settings.shape.shards + lane) for lane in settings.lanes]))
        return stack(micro_batches)

    def _shard(self, number: int) -> ImitationBatch:
        settings = self._settings
        chosen = [
            [self._member(bucket, number * rows + row) for row in range(rows)] if len(settings.members[bucket]) else []
            for bucket, rows in enumerate(settings.shape.rows)
        ]
        rng = generator(settings.drawn_from, TYPOS, number)
        return build_shard(settings.imitated, settings.shape, chosen, rng)

    def _member(self, bucket: int, place: int) -> int:
        """Returns the index of the entry at a position of a bucket's endless stream."""
        members = self._settings.members[bucket]
        epoch, within = divmod(place, len(members))
        if not self._settings.shuffle:
            return int(members[within])
        if (bucket, epoch) not in self._orders:
            self._orders = {
                key: order for key, order in self._orders.items() if key[0] != bucket or key[1] >= epoch - 1
            }
            order = generator(self._settings.drawn_from, ORDER, bucket, epoch).permutation(len(members))
            self._orders[bucket, epoch] = order
        return int(members[self._orders[bucket, epoch][within]])


class EvaluationBatches(grain.IterDataset[ImitationBatch]):
    """Batches [1, len(lanes), ...] that hold a sample of the entries once, spelled without typos.

    Up to a quarter of the sample are unseen entries; one of them, if the sample has two or more.

    Args:
      most: entries of the sample; 0: all entries.
      lanes: which of the `shape.shards` shards to make.
    """

    def __init__(self, imitated: Imitated, shape: ImitationShape, lanes: Iterable[int], most: int) -> None:
        super().__init__()
        self.imitated, self.shape, self.lanes = imitated, shape, tuple(lanes)
        order = generator(0, ORDER).permutation(len(imitated.entries))
        unseen, seen = order[imitated.unseen_N[order]], order[~imitated.unseen_N[order]]
        if most:
            unseen = unseen[: min(max(1, most // 4), most - 1)]
            seen = seen[: most - len(unseen)]
        sample = np.concatenate([unseen, seen])
        bucket_N = bucket_of(imitated.lengths()[sample], shape.slots)
        self.members = [sample[bucket_N == b] for b in range(len(shape.slots))]

    def __iter__(self) -> grain.DatasetIterator[ImitationBatch]:
        return _EvaluationIterator(self)


class _EvaluationIterator(_NumberedIterator):
    def __init__(self, settings: EvaluationBatches) -> None:
        super().__init__(settings.shape.shards)
        self._settings = settings

    def _batch(self, number: int) -> ImitationBatch:
        settings, first = self._settings, number * self._settings.shape.shards
        pairs = list(zip(settings.members, settings.shape.rows, strict=True))
        if all(len(members) <= first * rows for members, rows in pairs):
            raise StopIteration
        made = []
        for lane in settings.lanes:
            parts = [members[(first + lane) * rows : (first + lane + 1) * rows].tolist() for members, rows in pairs]
            made.append(build_shard(settings.imitated, settings.shape, parts, None))
        return stack([stack(made)])
