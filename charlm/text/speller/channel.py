"""What typing errors cost: how unlikely it is that a word is typed as another.

A weighted edit distance with exchanges of neighbours (Damerau, 1964): each edit costs about the negative logarithm of
its probability, as in Kernighan, Church and Gale (1990), but with few, hand-set classes of edits instead of confusion
counts. Open it to change them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from charlm.text.noise.keyboards import Keyboard


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


def typing_costs(typed: str, codes_KC: np.ndarray, keyboard: Keyboard, costs: Costs) -> np.ndarray:
    """Returns for each of K words the cost of the cheapest edits that turn it into `typed`, float64 [K].

    Args:
      typed: a word, not empty.
      codes_KC: the code points of the words, behind their ends 0.
      keyboard: says which letters are neighbours.
    """
    K, C = codes_KC.shape
    typed_T = [ord(char) for char in typed]
    near_T = [np.array([ord(char) for char in keyboard.near(char)] or [-1]) for char in typed]
    first_C = costs.first * (np.arange(C) == 0)
    repeats_KC = np.zeros((K, C), bool)
    repeats_KC[:, 1:] = codes_KC[:, 1:] == codes_KC[:, :-1]
    drop_KC = np.where(repeats_KC, costs.repeat, costs.drop) + first_C
    # row[:, c]: the cost of typing the first t letters for the first c of the word
    # Letters left out add up along the word, so a row is the least of its other ways, each with the letters behind it.
    left_out = np.concatenate([np.zeros((K, 1)), np.cumsum(drop_KC, axis=1)], axis=1)
    earlier = row = left_out
    for t, code in enumerate(typed_T):
        same_KC = codes_KC == code
        near_KC = (codes_KC[..., None] == near_T[t]).any(axis=-1)
        other_KC = np.where(near_KC, costs.near, costs.other) + first_C
        insert = _insertion(typed_T, near_T, t, costs)
        best = np.minimum(row[:, :-1] + np.where(same_KC, 0.0, other_KC), row[:, 1:] + insert)
        if t:
            swapped = (codes_KC[:, :-1] == code) & (codes_KC[:, 1:] == typed_T[t - 1]) & ~repeats_KC[:, 1:]
            swap_KC = earlier[:, :-2] + costs.swap + first_C[:-1]
            best[:, 1:] = np.minimum(best[:, 1:], np.where(swapped, swap_KC, np.inf))
        ways = np.concatenate([row[:, :1] + insert, best], axis=1)
        earlier, row = row, np.minimum.accumulate(ways - left_out, axis=1) + left_out
    return row[np.arange(K), (codes_KC != 0).sum(axis=1)]


def _insertion(typed_T: list[int], near_T: list[np.ndarray], t: int, costs: Costs) -> float:
    """Returns what it costs that letter t was put in."""
    beside = [typed_T[place] for place in (t - 1, t + 1) if 0 <= place < len(typed_T)]
    extra = costs.first if t == 0 else 0.0
    if t and typed_T[t - 1] == typed_T[t]:
        return costs.repeat
    return extra + (costs.near_insert if np.isin(beside, near_T[t]).any() else costs.insert)
