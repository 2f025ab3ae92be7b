"""Which rows make a batch of fine-tuning, and where they lie in it: each alone, or several end to end.

The rows of the model's input are called strips here, since the rows of a task (`charlm.tasks.base.Row`) may share one.
What a batch holds depends only on seed, epoch and lengths, which a checkpoint keeps, so a resumed run continues with
exactly the next batch, on whatever devices. Open it to change which rows share a batch or a strip, or how many shapes
are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from charlm.families.unpadded import ATTENDED, SHARED_ROWS, best_fit, calls
from charlm.tasks.base import Row

QUANTILES = (0.5, 0.9, 1.0)  # of the lengths of rows that become lengths of batches, where rows share no strips
STEP = 8  # lengths of batches are rounded up to a multiple of this
TRIED = 128  # batches on which lengths of shared strips are compared

Sharing = Literal["auto", "yes", "no"]  # whether rows share strips; "auto": where that is faster


class Group(NamedTuple):
    """The rows of one batch.

    Attributes:
      length: number of positions of each strip.
      strips: for each strip the indices of the rows in it, one after another. The batch is cut into pieces (shards of
        micro-batches): strip n belongs to piece n % pieces.
      size: number of strips that the batch is padded to; 0: as many as batches of this length need.
    """

    length: int
    strips: list[list[int]]
    size: int = 0

    @property
    def rows(self) -> list[int]:
        """The indices of all its rows."""
        return [index for strip in self.strips for index in strip]


def lengths_of(rows: Sequence[Row], longest: int, shared: int = 0) -> tuple[int, ...]:
    """Returns the lengths of batches, ascending: the `QUANTILES` of the rows' lengths, then `longest`.

    Args:
      shared: length of the strips that all rows share that are no longer; the others share some of the longest row's
        length. 0: no rows share strips.
    """
    ends = {min(shared, longest), longest} if shared else {longest}
    if lengths := [row.joined.length for row in rows if row.joined.length > shared]:
        quantiles = (1.0,) if shared else QUANTILES
        ends |= {min(longest, _up(int(np.quantile(lengths, q, method="higher")))) for q in quantiles}
    return tuple(sorted(ends))


def shared_lengths(rows: Sequence[Row], longest: int, batch_size: int, pieces: int, seed: int) -> tuple[int, ...]:
    """Returns the lengths of batches whose rows share strips, as they cost least for rows like these."""

    def cost(shared: int) -> float:
        lengths = lengths_of(rows, longest, shared)
        groups = epoch_groups(rows[: TRIED * batch_size], lengths, batch_size, seed, 0, pieces, shares=True)
        counts = strip_counts(groups, pieces)
        positions = ((next(n for n in counts[g.length] if n * pieces >= len(g.strips)), g.length) for g in groups)
        return sum(count * length * (1 + length / ATTENDED) for count, length in positions)

    return lengths_of(rows, longest, min(SHARED_ROWS, key=cost))


def strip_counts(groups: Sequence[Group], pieces: int) -> dict[int, tuple[int, ...]]:
    """Returns the numbers of strips that a piece is padded to, ascending, by length: the most, and the best beside it.

    Each is a program to compile, so there are no more than two.
    """
    needed: dict[int, list[int]] = {}
    for group in groups:
        needed.setdefault(group.length, []).append(-(-len(group.strips) // pieces))

    def counts(found: list[int]) -> tuple[int, ...]:
        most = max(found)
        best = min(set(found), key=lambda count: sum(count if n <= count else most for n in found))
        return tuple(sorted({best, most}))

    return {length: counts(found) for length, found in needed.items()}


def grid(longest: int) -> tuple[int, ...]:
    """Returns the lengths of batches for any text: powers of two and the numbers halfway between, up to `longest`."""
    powers = [2**n for n in range(4, longest.bit_length() + 1)]
    lengths = sorted({*powers, *(3 * power // 2 for power in powers if power >= 32)})
    return (*(length for length in lengths if length < longest), longest)


def epoch_groups(
    rows: Sequence[Row],
    lengths: tuple[int, ...],
    batch_size: int,
    seed: int,
    epoch: int,
    pieces: int = 1,
    *,
    shares: bool = False,
) -> list[Group]:
    """Returns the batches of an epoch: every row once, in a new order.

    Rows are drawn at random and collected by length. A batch is emitted as soon as it has `batch_size` rows, so batches
    of all lengths are mixed. The rows left at the end form the last batches, the shortest first.

    Args:
      pieces: number of pieces that a batch is cut into; each gets as many rows as the others, or one less.
      shares: whether the rows of a piece share strips.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(rows)).tolist()
    waiting: dict[int, list[int]] = {length: [] for length in lengths}
    found: list[tuple[int, list[int]]] = []
    for index in order:
        length = _length_for(rows[index].joined.length, lengths)
        waiting[length].append(index)
        if len(waiting[length]) == batch_size:
            found.append((length, waiting[length]))
            waiting[length] = []
    found += _in_order([index for length in lengths for index in waiting[length]], rows, lengths, batch_size)
    if not shares:
        return [Group(length, [[index] for index in chosen], batch_size) for length, chosen in found]
    return [Group(length, _laid(rows, chosen, length, pieces)) for length, chosen in found]


def _laid(rows: Sequence[Row], chosen: Sequence[int], length: int, pieces: int) -> list[list[int]]:
    """Returns the strips of a batch; all pieces have the same number, of which the last may be empty."""
    parts = []
    for piece in range(pieces):
        order = sorted(chosen[piece::pieces], key=lambda index: -rows[index].joined.length)
        sizes = [rows[index].joined.length for index in order]
        strips = best_fit(sizes, range(len(sizes)), lambda _: length, length).get(length, [])
        parts.append([[order[n] for n in strip] for strip in strips])
    most = max(map(len, parts))
    return [part[n] if n < len(part) else [] for n in range(most) for part in parts]


def eval_groups(rows: Sequence[Row], lengths: tuple[int, ...], batch_size: int) -> list[Group]:
    """Returns batches of rows sorted by length, every row once, none sharing a strip; each has `batch_size` strips."""
    order = sorted(range(len(rows)), key=lambda index: rows[index].joined.length)
    parts = _in_order(order, rows, lengths, batch_size)
    return [Group(length, [[index] for index in part], batch_size) for length, part in parts]


def shared_groups(
    rows: Sequence[Row], lengths: tuple[int, ...], most: Callable[[int], int], pieces: int = 1
) -> list[Group]:
    """Returns batches of rows that share strips, with hardly any padding; every row once (`charlm.families.unpadded`).

    Args:
      most: returns the most strips of a batch, by their length.
      pieces: as in `epoch_groups`.
    """
    sizes = [row.joined.length for row in rows]
    width = lambda n: next((length for length in lengths if n <= length), lengths[-1])
    groups = []
    for call in calls(sizes, width, most):
        strips: list[list[int]] = [[] for _ in range(call.rows)]
        for index, (strip, _) in sorted(call.at.items(), key=lambda item: item[1]):
            strips[strip].append(index)
        groups.append(Group(call.length, strips, -(-call.rows // pieces) * pieces))
    return groups


def _in_order(
    order: Sequence[int], rows: Sequence[Row], lengths: tuple[int, ...], batch_size: int
) -> list[tuple[int, list[int]]]:
    parts = [list(order[at : at + batch_size]) for at in range(0, len(order), batch_size)]
    return [(_length_for(max(rows[i].joined.length for i in part), lengths), part) for part in parts]


def _length_for(length: int, lengths: tuple[int, ...]) -> int:
    return next(end for end in lengths if length <= end)


def _up(length: int) -> int:
    return -(-length // STEP) * STEP
