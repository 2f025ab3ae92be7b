"""Packs rows of any length into batches of a few shapes: rows of similar length together, each shape compiled once.

The content of a batch depends only on seed and epoch, so a resumed run continues with exactly the next batch. Open it
to change which rows share a batch, or how many shapes are compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from charlm.core.types import Array, Tree
from charlm.families.units import Units
from charlm.tasks.base import Row

QUANTILES = (0.5, 0.9, 1.0)  # quantiles of the rows' lengths that become lengths of batches
STEP = 8  # lengths of batches are rounded up to a multiple of this
TRAINING_SLACK = 0.1  # share of room that a shape has beyond what was measured, for the other epochs
FEW_POSITIONS = 128  # of a batch of few rows: so many positions have a table row each
MEASURED_GROUPS = 64  # number of batches of each length that a shape is measured on


class Group(NamedTuple):
    """The indices of the rows of one batch, the length they are padded to, and to how many; 0: to a whole batch."""

    length: int
    rows: list[int]
    size: int = 0


class TaskBatch(NamedTuple):
    """A batch: the model's input, and the targets of the loss by name; leading axes [A, S]: micro-batches, shards."""

    inputs: Tree
    targets: dict[str, Array]


class Packed(NamedTuple):
    """A batch as one process packs it: arrays [A, S', ...] with its shards, and the number of rows in them."""

    batch: TaskBatch
    rows: int


def lengths_of(rows: Sequence[Row], longest: int) -> tuple[int, ...]:
    """Returns the lengths of batches, ascending: the `QUANTILES` of the rows' lengths, then `longest`."""
    if not rows:
        return (longest,)
    lengths = np.array([row.joined.length for row in rows])
    ends = {min(longest, -(-int(np.quantile(lengths, q, method="higher")) // STEP) * STEP) for q in QUANTILES}
    return tuple(sorted(ends | {longest}))


def grid(longest: int) -> tuple[int, ...]:
    """Returns the lengths of batches for any text: powers of two and the numbers halfway between, up to `longest`."""
    powers = [2**n for n in range(4, longest.bit_length() + 1)]
    lengths = sorted({*powers, *(3 * power // 2 for power in powers if power >= 32)})
    return (*(length for length in lengths if length < longest), longest)


def epoch_groups(rows: Sequence[Row], lengths: tuple[int, ...], batch_size: int, seed: int, epoch: int) -> list[Group]:
    """Returns the batches of an epoch: every row once, in a new order.

    Rows are drawn at random and collected by length. A batch is emitted as soon as it is full, so batches of all
    lengths are mixed. The rows left at the end form the last batches, the shortest first.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(rows)).tolist()
    waiting: dict[int, list[int]] = {length: [] for length in lengths}
    groups = []
    for index in order:
        length = _length_for(rows[index].joined.length, lengths)
        waiting[length].append(index)
        if len(waiting[length]) == batch_size:
            groups.append(Group(length, waiting[length]))
            waiting[length] = []
    return groups + _in_order([index for length in lengths for index in waiting[length]], rows, lengths, batch_size)


def eval_groups(rows: Sequence[Row], lengths: tuple[int, ...], batch_size: int) -> list[Group]:
    """Returns batches of rows sorted by length, every row once; each is padded to `batch_size` rows."""
    order = sorted(range(len(rows)), key=lambda index: rows[index].joined.length)
    return [group._replace(size=batch_size) for group in _in_order(order, rows, lengths, batch_size)]


def _in_order(order: list[int], rows: Sequence[Row], lengths: tuple[int, ...], batch_size: int) -> list[Group]:
    parts = [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
    return [Group(_length_for(max(rows[i].joined.length for i in part), lengths), part) for part in parts]


def _length_for(length: int, lengths: tuple[int, ...]) -> int:
    return next(end for end in lengths if length <= end)


class Packer:
    """Packs groups of rows into batches of a few shapes: for each length the measured ones, and one that fits any rows.

    Args:
      units: text side of the model.
      batch_size: rows per batch.
      accumulation: A, micro-batches per batch.
      shards: S, shards per micro-batch.
      slack: share of room that a shape has beyond what was measured.
      local: indices of the shards of this process, ascending; None: all.
    """

    def __init__(
        self,
        units: Units,
        batch_size: int,
        accumulation: int = 1,
        shards: int = 1,
        slack: float = TRAINING_SLACK,
        local: Sequence[int] | None = None,
    ) -> None:
        if batch_size < 1 or batch_size % (accumulation * shards):
            raise ValueError(
                f"data.batch_size={batch_size} must be a multiple of data.accumulation={accumulation} x the {shards} "
                "devices the batch is spread over (mesh.data x mesh.fsdp)"
            )
        self._units, self._pieces, self._shards, self._slack = units, accumulation * shards, shards, slack
        self._size = batch_size
        self._local = list(range(shards) if local is None else local)
        self._shapes: dict[tuple[int, int], list[Any]] = {}  # by rows and length; each family has a type of its own

    def measure(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Adds a shape for the first groups of each size, unless a known shape fits them: every shape is compiled."""
        alike: dict[tuple[int, int], list[Group]] = {}
        for group in groups:
            alike.setdefault((self._rows(group), group.length), []).append(group)
        for (count, length), chosen in alike.items():
            cut = [part for group in chosen[:MEASURED_GROUPS] for part in self._cut(rows, group)]
            parts = [[row.joined for row in part] for part in cut]
            known = self._shapes.setdefault((count, length), [])
            fits = lambda shape, parts=parts: all(self._units.pack(part, shape) is not None for part in parts)
            if count * self._pieces < self._size and count * length <= FEW_POSITIONS:
                continue  # the widest shape fits whatever a few short texts hold, at little cost
            if not any(map(fits, known)):
                known.append(self._units.measure([part for part in parts if part], count, length, self._slack))

    def _rows(self, group: Group) -> int:
        """Returns the number of rows that each piece of a group is padded to."""
        return (group.size or self._size) // self._pieces

    def _cut(self, rows: Sequence[Row], group: Group) -> list[list[Row]]:
        """Returns the rows of each piece (shard of a micro-batch), dealt in turn so that all are about equally full."""
        return [[rows[index] for index in group.rows[piece :: self._pieces]] for piece in range(self._pieces)]

    def order(self, group: Group) -> list[int | None]:
        """Returns the index of the row at each place of a packed batch, in the order of the logits; None: padding."""
        found: list[int | None] = []
        for piece in range(self._pieces):
            part = group.rows[piece :: self._pieces]
            found += [*part, *[None] * (self._rows(group) - len(part))]
        return found

    def pack(self, rows: Sequence[Row], group: Group) -> Packed:
        """Returns a batch with arrays [A, S', ...] of the S' shards of this process.

        Every process packs all shards, so that all choose the same shape.
        """
        parts, count = self._cut(rows, group), self._rows(group)
        shapes = [*self._shapes.get((count, group.length), ()), self._units.widest(count, group.length)]
        tried = ([self._units.pack([row.joined for row in part], shape) for part in parts] for shape in shapes)
        packed = next(found for found in tried if all(part is not None for part in found))  # the widest fits any rows
        targets = [_targets(part, count, group.length, rows[group.rows[0]]) for part in parts]
        here = [piece for piece in range(self._pieces) if piece % self._shards in self._local]
        own = lambda of: self._stack([of[piece] for piece in here])
        return Packed(TaskBatch(own(packed), own(targets)), sum(len(parts[piece]) for piece in here))

    def _stack(self, parts: list[Tree]) -> Tree:
        def lay(*arrays: np.ndarray) -> np.ndarray:
            stacked = np.stack(arrays)
            return stacked.reshape(len(arrays) // len(self._local), len(self._local), *stacked.shape[1:])

        return jax.tree.map(lay, *parts)


def _targets(rows: Sequence[Row], count: int, length: int, like: Row) -> dict[str, np.ndarray]:
    """Returns the targets of rows, padded with 0 to `count` rows of `length` positions; "weight" marks real ones."""
    found: dict[str, np.ndarray] = {}
    for name, first in like.targets.items():
        value = np.asarray(first)
        found[name] = np.zeros((count, *((length,) if value.ndim else ())), value.dtype)
    for b, row in enumerate(rows):
        for name, value in row.targets.items():
            if np.ndim(value):
                found[name][b, : len(value)] = value
            else:
                found[name][b] = value
    return found
