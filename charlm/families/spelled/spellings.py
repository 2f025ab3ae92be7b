"""Collects distinct spellings of words as rows of characters, and defines the length buckets of their tables.

`units` gathers the words of a text with it; open it to change the length buckets used outside of pre-training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from charlm.data.batching import slots_up_to

FIRST_SPELLING_ROWS = 256  # initial size of the table; it doubles when it is full
# Character slots of the buckets of shorter spellings, mark included; one more holds the longest.
SPELLING_SLOTS = (7, 11, 16)


def spelling_slots(longest: int) -> tuple[int, ...]:
    """Returns the length buckets of spellings, ascending, up to the longest."""
    return slots_up_to(longest, SPELLING_SLOTS)


class Spellings:
    """Distinct spellings as rows of characters, numbered in the order in which they are met.

    Args:
      vocab: the character vocabulary.
      slots: characters C of a row; longer spellings are cut.
      write: returns rows uint16 [U, C], 0 pads, from spellings, vocabulary and slots.
    """

    def __init__(self, vocab: object, slots: int, write: Callable[..., np.ndarray]) -> None:
        self._vocab, self._slots, self._write = vocab, slots, write
        self._numbers: dict[str, int] = {}
        self._rows_NC = np.zeros((FIRST_SPELLING_ROWS, slots), np.uint16)

    def __len__(self) -> int:
        return len(self._numbers)

    def known(self) -> tuple[list[str], np.ndarray]:
        """Returns the spellings met so far and their rows of characters, uint16 [U, C]."""
        return list(self._numbers), self._rows_NC[: len(self._numbers)].copy()

    def emptied(self) -> Spellings:
        """Returns a new object with the same characters and no spellings."""
        return Spellings(self._vocab, self._slots, self._write)

    def codes(self, read: Sequence[int | str]) -> np.ndarray:
        """Returns words as codes, int32 [W]: a row of the table (int) as it is, spelling number n (str) as -1 - n."""
        new = [what for what in dict.fromkeys(read) if isinstance(what, str) and what not in self._numbers]
        if new:
            start = len(self._numbers)
            while start + len(new) > len(self._rows_NC):
                self._rows_NC = np.concatenate([self._rows_NC, np.zeros_like(self._rows_NC)])
            self._rows_NC[start : start + len(new)] = self._write(new, self._vocab, self._slots)
            self._numbers.update((spelling, start + n) for n, spelling in enumerate(new))
        return np.array([what if isinstance(what, int) else -1 - self._numbers[what] for what in read], np.int32)

    def of_words(self, codes: np.ndarray) -> np.ndarray:
        """Returns codes of the same spellings, one code for each spelling; here, the codes themselves."""
        return codes

    def ids(self, codes: np.ndarray) -> np.ndarray:
        """Returns what a `SpelledBatch` says of codes in `ids_SBL`: rows of the table, and -1 for spellings."""
        return np.maximum(codes, -1)

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """Returns the characters uint16 [..., C] of codes [...]; zeros at codes that are no spellings."""
        spelled = codes < 0
        return np.where(spelled[..., None], self._rows_NC[np.where(spelled, -1 - codes, 0)], np.uint16(0))

    def spelled(self, code: int) -> str:
        """Returns the spelling of a code; IndexError if it was not met."""
        return list(self._numbers)[-1 - code]
