"""Packs rows of any length into batches of a few shapes, each compiled once.

`charlm.finetune.strips` says which rows make a batch and where they lie in it. Open it to change how batches are laid
out as arrays, or how many shapes are compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import Array, Tree
from charlm.families.units import Joined, Units
from charlm.finetune.strips import Group, strip_counts
from charlm.tasks.base import Row

TRAINING_SLACK = 0.1  # share of room that a shape has beyond what was measured, for the other epochs
FEW_POSITIONS = 128  # of a batch of few rows: so many positions have a table row each
MEASURED_GROUPS = 64  # number of batches of each length that a shape is measured on


class TaskBatch(NamedTuple):
    """A batch; all arrays have leading axes [A, S]: micro-batches, shards.

    Attributes:
      inputs: the model's input.
      targets: the targets of the loss by name, each [A, S, T] or [A, S, T, L] for T rows.
      places: where rows share strips, int32 of the same shape as targets: the place among all positions of the shard at
        which each logit of a row is read; see `of_rows`. None: each row has a strip.
    """

    inputs: Tree
    targets: dict[str, Array]
    places: Array | None = None


class Packed(NamedTuple):
    """A batch as one process packs it: arrays [A, S', ...] with its shards, and the number of rows in them."""

    batch: TaskBatch
    rows: int


class Place(NamedTuple):
    """Where a row lies in a packed batch: its strip, in the order of the logits, and its first position there."""

    row: int
    strip: int
    start: int


def of_rows(logits: jax.Array, places: jax.Array | None) -> jax.Array:
    """Returns the logits of rows, [S * T, labels] or [S * T, L, labels]; those after a row's end mean nothing.

    Args:
      logits: of all positions of all strips, [S * strips, length, labels]; without places what is to be returned.
      places: [S, T] or [S, T, L], see `TaskBatch`.
    """
    if places is None:
        return logits
    flat_SNK = logits.reshape(len(places), -1, logits.shape[-1])
    found = jax.vmap(lambda of_NK, at: jnp.take(of_NK, at, axis=0))(flat_SNK, places)
    return found.reshape(-1, *found.shape[2:])


class Packer:
    """Packs groups of rows into batches of a few shapes: for each length the measured ones, and one that fits any rows.

    Args:
      units: text side of the model.
      batch_size: the most rows of a batch for training.
      accumulation: A, micro-batches per batch.
      shards: S, shards per micro-batch.
      slack: share of room that a shape has beyond what was measured.
      local: indices of the shards of this process, ascending; None: all.
      shares: whether rows may share strips.
      by_row: whether the model's labels are of rows, not of positions.
    """

    def __init__(
        self,
        units: Units,
        batch_size: int,
        accumulation: int = 1,
        shards: int = 1,
        slack: float = TRAINING_SLACK,
        local: Sequence[int] | None = None,
        *,
        shares: bool = False,
        by_row: bool = False,
    ) -> None:
        if batch_size < 1 or batch_size % (accumulation * shards):
            raise ValueError(
                f"data.batch_size={batch_size} must be a multiple of data.accumulation={accumulation} x the {shards} "
                "devices the batch is spread over (mesh.data x mesh.fsdp)"
            )
        self._units, self._pieces, self._shards, self._slack = units, accumulation * shards, shards, slack
        self._size, self._shares, self._by_row = batch_size, shares, by_row
        self._local = list(range(shards) if local is None else local)
        self._shapes: dict[tuple[int, int], list[Any]] = {}  # by strips and length; each family has a type of its own
        self._counts: dict[int, tuple[int, ...]] = {}  # by length, the numbers of strips of a piece

    def measure(self, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Adds a shape for the first groups of each size, unless a known shape fits them: every shape is compiled."""
        self._counts |= strip_counts([group for group in groups if not group.size], self._pieces)
        alike: dict[tuple[int, int], list[Group]] = {}
        for group in groups:
            alike.setdefault((self.strips(group), group.length), []).append(group)
        for (count, length), chosen in alike.items():
            parts = [part for group in chosen[:MEASURED_GROUPS] for part in self._joined(rows, group)]
            known = self._shapes.setdefault((count, length), [])
            fits = lambda shape, parts=parts: all(self._units.pack(part, shape) is not None for part in parts)
            if count * self._pieces < self._size and count * length <= FEW_POSITIONS:
                continue  # the widest shape fits whatever a few short texts hold, at little cost
            if not any(map(fits, known)):
                known.append(self._units.measure([part for part in parts if part], count, length, self._slack))

    def strips(self, group: Group) -> int:
        """Returns the number of strips that each piece of a group is padded to."""
        if group.size:
            return group.size // self._pieces
        most = self._size // self._pieces  # one for each row
        counts = (*self._counts.get(group.length, ()), most)
        return next(count for count in counts if count * self._pieces >= len(group.strips))

    def _cut(self, group: Group) -> list[list[list[int]]]:
        """Returns the strips of each piece (shard of a micro-batch)."""
        return [[strip for strip in group.strips[piece :: self._pieces] if strip] for piece in range(self._pieces)]

    def _joined(self, rows: Sequence[Row], group: Group) -> list[list[Joined]]:
        """Returns the strips of each piece as the model reads them."""
        together = self._units.end_to_end if self._shares else lambda alone: alone[0]
        return [[together([rows[index].joined for index in strip]) for strip in part] for part in self._cut(group)]

    def places(self, rows: Sequence[Row], group: Group) -> list[Place]:
        """Returns where each row of a packed batch lies."""
        found, count = [], self.strips(group)
        for piece, strips in enumerate(self._cut(group)):
            for n, strip in enumerate(strips, start=piece * count):
                start = 0
                for index in strip:
                    found.append(Place(index, n, start))
                    start += rows[index].joined.length
        return found

    def inputs(self, rows: Sequence[Row], group: Group) -> Tree:
        """Returns the model's input, arrays [A, S', ...] with the S' shards of this process.

        Every process packs all shards, so that all choose the same shape.
        """
        parts, count = self._joined(rows, group), self.strips(group)
        shapes = [*self._shapes.get((count, group.length), ()), self._units.widest(count, group.length)]
        tried = ([self._units.pack(part, shape) for part in parts] for shape in shapes)
        packed = next(found for found in tried if all(part is not None for part in found))  # the widest fits any rows
        if self._shares:
            packed = [self._units.numbered(part, strips) for part, strips in zip(packed, parts, strict=True)]
        return self._stack([packed[piece] for piece in self._here()])

    def pack(self, rows: Sequence[Row], group: Group) -> Packed:
        """Returns a batch for training with arrays [A, S', ...] of the S' shards of this process."""
        parts = self._cut(group)
        count = self._size // self._pieces if self._shares else self.strips(group)
        flat = [[rows[index] for strip in part for index in strip] for part in parts]
        of_piece = lambda piece: targets_of(flat[piece], count, group.length, rows[group.rows[0]])
        here = self._here()
        places = self._stack([self._read_at(rows, parts[piece], group) for piece in here]) if self._shares else None
        batch = TaskBatch(self.inputs(rows, group), self._stack([of_piece(piece) for piece in here]), places)
        return Packed(batch, sum(len(flat[piece]) for piece in here))

    def _here(self) -> list[int]:
        return [piece for piece in range(self._pieces) if piece % self._shards in self._local]

    def _read_at(self, rows: Sequence[Row], strips: Sequence[Sequence[int]], group: Group) -> np.ndarray:
        """Returns `TaskBatch.places` of a piece: [T], or [T, length]."""
        count, last = self._size // self._pieces, self.strips(group) * group.length - 1
        found = np.zeros((count,) if self._by_row else (count, group.length), np.int32)
        row = 0
        for n, strip in enumerate(strips):
            start = n * group.length
            for index in strip:
                joined = rows[index].joined
                found[row] = start + (joined.whole if self._by_row else np.arange(group.length))
                start += joined.length
                row += 1
        return np.minimum(found, last)

    def _stack(self, parts: list[Tree]) -> Tree:
        def lay(*arrays: np.ndarray) -> np.ndarray:
            stacked = np.stack(arrays)
            return stacked.reshape(len(arrays) // len(self._local), len(self._local), *stacked.shape[1:])

        return jax.tree.map(lay, *parts)


def targets_of(rows: Sequence[Row], count: int, length: int, like: Row) -> dict[str, np.ndarray]:
    """Returns the targets of rows, padded with 0 to `count` rows of `length` positions; "weight" marks real ones.

    Args:
      like: a row with the same targets, since there may be no rows.
    """
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
