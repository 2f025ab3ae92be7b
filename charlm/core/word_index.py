"""Finds the rows of many words in a table at once, without a loop in Python: for calls all of whose words are known.

`charlm.core.cache` uses it; open it if a call on an accelerator waits for the host. A word's hash is a sum over its
characters, so padding does not change it; what is found is compared letter by letter, so a hash never decides alone. Of
words with equal hashes, which are very rare, only one is found.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

_FACTORS_SEED = 0x5EED


class WordIndex:
    """The words of a table at one moment; it does not change.

    Args:
      words: owner and characters of each word, uint16 as bytes without padding.
      rows: the row of each word.
      slots: the most characters of a word.
    """

    def __init__(self, words: Iterable[tuple[int, bytes]], rows: Iterable[int], slots: int) -> None:
        self._factors = np.random.default_rng(_FACTORS_SEED).integers(1, 2**63, slots, np.uint64) | np.uint64(1)
        listed, width = list(words), 2 * slots
        text = b"".join(word.ljust(width, b"\0") for _, word in listed)
        chars_NS = np.frombuffer(text, np.uint16).reshape(len(listed), slots)
        owner_N = np.array([owner for owner, _ in listed], np.int64)
        hash_N = self._hashes(chars_NS, owner_N)
        order = np.argsort(hash_N)
        self._hash_N, self._chars_NS, self._owner_N = hash_N[order], chars_NS[order], owner_N[order]
        self._row_N = np.fromiter(rows, np.int32, len(listed))[order]

    def rows(self, owner: int, chars_MC: np.ndarray) -> np.ndarray | None:
        """Returns the row of each word, int32 [M]; 0 where there is no word, and None if one of the words is not found.

        Args:
          owner: whose words they are.
          chars_MC: uint16 character ids, 0 pads; slot 0 is 0 where there is no word.
        """
        M, C = chars_MC.shape
        S = len(self._factors)
        if not len(self._row_N) or (C > S and chars_MC[:, S:].any()):
            return None
        chars_MC = chars_MC[:, :S]
        is_word_M = chars_MC[:, 0] != 0
        at_M = np.searchsorted(self._hash_N, self._hashes(chars_MC, np.full(M, owner, np.int64)))
        at_M = np.minimum(at_M, len(self._row_N) - 1)
        there = self._chars_NS[at_M]
        same_M = (self._owner_N[at_M] == owner) & (there[:, : chars_MC.shape[1]] == chars_MC).all(axis=1)
        same_M &= ~there[:, chars_MC.shape[1] :].any(axis=1)
        if not (same_M | ~is_word_M).all():
            return None
        return np.where(is_word_M, self._row_N[at_M], 0)

    def _hashes(self, chars_MC: np.ndarray, owner_M: np.ndarray) -> np.ndarray:
        """Returns a hash of each word and its owner, uint64 [M]."""
        sums_M = chars_MC.astype(np.uint64) @ self._factors[: chars_MC.shape[1]]
        mixed_M = sums_M + owner_M.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return mixed_M ^ (mixed_M >> np.uint64(32))
