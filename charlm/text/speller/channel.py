"""What typing errors cost: how unlikely it is that a word is typed as another.

A weighted edit distance with exchanges of neighbours (Damerau, 1964): each edit costs about the negative logarithm of
its probability, as in Kernighan, Church and Gale (1990), but with few, hand-set classes of edits instead of confusion
counts. Open it to change them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from charlm.text.noise.keyboards import Keyboard

LARGEST = 1e15  # of a cost


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs of edits, in nats.

    Attributes:
      near, other: another letter is hit, a neighbour on the keyboard or any.
      swap: two letters are exchanged.
      drop: a letter is left out.
      insert, near_insert: a letter is put in; one whose neighbour on the keyboard stands beside it.
      repeat: a letter is typed twice, or once of twice.
      first: what any of these costs more at the first letter.
    """

    near: float = 3.4
    other: float = 6.5
    swap: float = 3.4
    drop: float = 3.9
    insert: float = 4.7
    near_insert: float = 3.9
    repeat: float = 2.6
    first: float = 1.0

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        check_numbers(self)


def check_numbers(settings: object) -> None:
    """Raises a ValueError that names a number of a dataclass that is negative, above `LARGEST`, or not a number."""
    for field in dataclasses.fields(settings):  # pyright: ignore[reportArgumentType]
        value = getattr(settings, field.name)
        if isinstance(value, float | int) and not 0 <= value <= LARGEST:
            raise ValueError(f"{field.name}={value!r}: expected a number of 0 to {LARGEST:g}")


def typing_costs(typed: str, codes_KC: np.ndarray, keyboard: Keyboard, costs: Costs) -> np.ndarray:
    """Returns for each of K words the cost of the cheapest edits that turn it into `typed`, float64 [K].

    Args:
      typed: a word, not empty.
      codes_KC: the code points of the words, behind their ends 0.
      keyboard: says which letters are neighbours.
    """
    # Words lie along the last axis, which is long: what is done for a letter is done for all of them at once.
    codes_CK = np.ascontiguousarray(codes_KC.T)
    C, K = codes_CK.shape
    first_C1 = costs.first * (np.arange(C) == 0)[:, None]
    repeats_CK = np.zeros((C, K), bool)
    repeats_CK[1:] = codes_CK[1:] == codes_CK[:-1]
    # row[c]: the cost of typing the first t letters for the first c of the word
    # Letters left out add up along the word, so a row is the least of its other ways, each with the letters behind it.
    left_out = np.zeros((C + 1, K))
    np.cumsum(np.where(repeats_CK, costs.repeat, costs.drop) + first_C1, axis=0, out=left_out[1:])
    hit_TCK, swap_TCK = _hits(typed, codes_CK, keyboard, costs), _swaps(typed, codes_CK, repeats_CK, costs)
    earlier = row = left_out
    for t in range(len(typed)):
        insert = _insertion(typed, t, keyboard, costs)
        ways = row + insert
        np.minimum(ways[1:], row[:-1] + hit_TCK[t], out=ways[1:])
        if t:
            np.minimum(ways[2:], earlier[:-2] + swap_TCK[t - 1], out=ways[2:])
        ways -= left_out
        np.minimum.accumulate(ways, axis=0, out=ways)
        ways += left_out
        earlier, row = row, ways
    return row[(codes_CK != 0).sum(axis=0), np.arange(K)]


def _hits(typed: str, codes_CK: np.ndarray, keyboard: Keyboard, costs: Costs) -> np.ndarray:
    """Returns what it costs to hit each letter typed in place of each of the words, float64 [T, C, K]."""
    cost_TX = np.full((len(typed), int(codes_CK.max(initial=0)) + 1), costs.other)  # by code point
    for t, char in enumerate(typed):
        for near in keyboard.near(char):
            cost_TX[t, ord(near) : ord(near) + 1] = costs.near  # a slice, which may lie behind the end
        cost_TX[t, ord(char) : ord(char) + 1] = 0.0
    found_TCK = np.take(cost_TX, codes_CK, axis=1)
    found_TCK[:, 0] += costs.first * (found_TCK[:, 0] > 0)
    return found_TCK


def _swaps(typed: str, codes_CK: np.ndarray, repeats_CK: np.ndarray, costs: Costs) -> np.ndarray:
    """Returns what it costs that two letters typed are two of the words exchanged, float64 [T - 1, C - 1, K]."""
    typed_T = np.array([ord(char) for char in typed])
    is_T1CK = codes_CK == typed_T[:, None, None]
    swapped = is_T1CK[1:, :-1] & is_T1CK[:-1, 1:] & ~repeats_CK[1:]
    found = np.where(swapped, costs.swap, np.inf)
    found[:, :1] += costs.first
    return found


def _insertion(typed: str, t: int, keyboard: Keyboard, costs: Costs) -> float:
    """Returns what it costs that letter t was put in."""
    extra = costs.first if t == 0 else 0.0
    if t and typed[t - 1] == typed[t]:
        return costs.repeat
    beside = [typed[place] for place in (t - 1, t + 1) if 0 <= place < len(typed)]
    near = keyboard.near(typed[t])
    return extra + (costs.near_insert if any(char in near for char in beside) else costs.insert)
