"""Rows of any length in batches of a few shapes: like lengths together, each shape compiled once.

What a batch holds depends on seed and epoch alone, so a resumed run goes on with the very batch it stopped before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from charlm.families.units import Units
from charlm.tasks.base import Row

QUANTILES = (0.5, 0.9, 1.0)  # of the rows' lengths: where the lengths of batches end
STEP = 8  # lengths of batches are multiples of it
SLACK = 0.1  # room of a shape beyond what was measured, for the other epochs
MEASURED = 64  # batches of each length that a shape is measured on


class Group(NamedTuple):
    """Rows of one batch, and the positions they are padded to."""

    length: int
    rows: list[int]


class Batch(NamedTuple):
    """A batch: the model's input and the loss's targets by name; leading axes [A, S] of micro-batches and shards."""

    inputs: Any
    targets: dict[str, Any]


class Packed(NamedTuple):
    """A batch as one process packs it: arrays [A, S', ...] of its shards, and how many rows they hold."""

    batch: Batch
    rows: int


def lengths_of(rows: Sequence[Row], longest: int) -> tuple[int, ...]:
    """Returns the lengths of batches, ascending: quantiles of those of the rows, then `longest`."""
    if not rows:
        return (longest,)
    lengths = np.array([row.joined.length for row in rows])
    ends = {min(longest, -(-int(np.quantile(lengths, q, method="higher")) // STEP) * STEP) for q in QUANTILES}
    return tuple(sorted(ends | {longest}))


def grid(longest: int) -> tuple[int, ...]:
    """Returns the lengths of batches of any text: powers of two and what lies halfway between, up to `longest`."""
    powers = [2**n for n in range(4, longest.bit_length() + 1)]
    lengths = sorted({*powers, *(3 * power // 2 for power in powers if power >= 32)})
    return (*(length for length in lengths if length < longest), longest)


def epoch_groups(rows: Sequence[Row], lengths: tuple[int, ...], batch_size: int, seed: int, epoch: int) -> list[Group]:
    """Returns the batches of an epoch: every row once, in a new order.

    Rows are drawn at random and wait for others of their length; a batch leaves as soon as it is full, so the batches
    of all lengths are mixed. Those still waiting at the end are put together, the shortest first.
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
    """Returns batches of rows by their lengths, every row once."""
    order = sorted(range(len(rows)), key=lambda index: rows[index].joined.length)
    return _in_order(order, rows, lengths, batch_size)


def _in_order(order: list[int], rows: Sequence[Row], lengths: tuple[int, ...], batch_size: int) -> list[Group]:
    parts = [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
    return [Group(_length_for(max(rows[i].joined.length for i in part), lengths), part) for part in parts]


def _length_for(length: int, lengths: tuple[int, ...]) -> int:
    return next(end for end in lengths if length <= end)


class Packer:
    """Lays groups of rows out as batches of few shapes: of each length those measured, and one that holds all.

    Args:
      units: of the model. batch_size: rows of a batch. accumulation, shards: micro-batches A of it, and shards S of
        each of them. slack: share of room of a shape beyond what it was measured on.
      local: which of the shards are of this process, ascending; None: all.
    """

    def __init__(
        self,
        units: Units,
        batch_size: int,
        accumulation: int = 1,
        shards: int = 1,
        slack: float = SLACK,
        local: Sequence[int] | None = None,
    ) -> None:
        if batch_size < 1 or batch_size % (accumulation * shards):
            raise ValueError(
                f"data.batch_size={batch_size} must be a multiple of data.accumulation={accumulation} x the {shards} "
                "devices the batch is spread over (mesh.data x mesh.fsdp)"
            )
        self._units, self._pieces, self._shards, self._slack = units, accumulation * shards, shards, slack
        self._rows = batch_size // self._pieces
        self._local = list(range(shards) if local is None else local)
        self._shapes: dict[int, list[Any]] = {}

    def measure(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Makes a shape for the first groups of each length, where none that is known holds them: each is compiled."""
        for length in {group.length for group in groups}:
            chosen = [group for group in groups if group.length == length][:MEASURED]
            parts = [[row.joined for row in part] for group in chosen for part in self._cut(rows, group)]
            known = self._shapes.setdefault(length, [])
            fits = lambda shape, parts=parts: all(self._units.pack(part, shape) is not None for part in parts)
            if not any(map(fits, known)):
                known.append(self._units.measure([part for part in parts if part], self._rows, length, self._slack))

    def _cut(self, rows: Sequence[Row], group: Group) -> list[list[Row]]:
        """Returns the rows of each piece, dealt in turn so that none is much fuller than the others."""
        return [[rows[index] for index in group.rows[piece :: self._pieces]] for piece in range(self._pieces)]

    def order(self, group: Group) -> list[int | None]:
        """Returns the row of every place of a packed batch, in the order of the logits; None for padding."""
        found: list[int | None] = []
        for piece in range(self._pieces):
            part = group.rows[piece :: self._pieces]
            found += [*part, *[None] * (self._rows - len(part))]
        return found

    def pack(self, rows: Sequence[Row], group: Group) -> Packed:
        """Returns a batch with arrays [A, S', ...], of the S' shards of this process.

        Every process packs all shards: whether a shape holds a batch is to be the same for all of them.
        """
        parts = self._cut(rows, group)
        shapes = [*self._shapes.get(group.length, ()), self._units.widest(self._rows, group.length)]
        tried = ([self._units.pack([row.joined for row in part], shape) for part in parts] for shape in shapes)
        packed = next(found for found in tried if all(part is not None for part in found))  # the widest holds any rows
        targets = [_targets(part, self._rows, group.length, rows[group.rows[0]]) for part in parts]
        here = [piece for piece in range(self._pieces) if piece % self._shards in self._local]
        own = lambda of: self._stack([of[piece] for piece in here])
        return Packed(Batch(own(packed), own(targets)), sum(len(parts[piece]) for piece in here))

    def _stack(self, parts: list[Any]) -> Any:
        def lay(*arrays: np.ndarray) -> np.ndarray:
            stacked = np.stack(arrays)
            return stacked.reshape(len(arrays) // len(self._local), len(self._local), *stacked.shape[1:])

        return jax.tree.map(lay, *parts)


def _targets(rows: Sequence[Row], count: int, length: int, like: Row) -> dict[str, np.ndarray]:
    """Returns the targets of rows, padded: 0 beyond a row's positions and the rows; "weight" tells what is real."""
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
