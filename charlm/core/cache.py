"""What is kept between calls: vectors of words, and what depends on parameters alone.

A word's vector depends on its characters and the parameters alone, never on the context, so the cache is exact, but for
rounding: words are padded to the longest that they are encoded with. It is bounded: the words that were not read for
the longest time make room. Vectors stay on the device.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

CHUNKS = (512, 128, 32)  # words encoded at a time: few programs; each is a multiple of the last
CALL_SLOTS = 150  # what an array costs beside its slots, in slots: the parameters are read from memory again
FIRST_ROWS = 1024  # the table doubles when it is full, up to its limit
DEFAULT_BYTES = 2**28  # some 87,000 words of HLM-Base in float32

Encode = Callable[[Any, np.ndarray], jax.Array]
Key = tuple[int, bytes]


class CacheStats(NamedTuple):
    """Distinct words of all calls that were there (`hits`) or not (`misses`); words held, and the most there may be."""

    hits: int
    misses: int
    words: int
    limit: int

    @property
    def hit_rate(self) -> float:
        """Share of distinct words that were there; 0 before the first."""
        return self.hits / max(1, self.hits + self.misses)

    def __str__(self) -> str:
        """Returns one line for people."""
        read = self.hits + self.misses
        return (
            f"word cache: {self.hits:,} of {read:,} distinct words read were there ({100 * self.hit_rate:.1f} %), "
            f"it holds {self.words:,} of at most {self.limit:,}"
        )


class WordCache:
    """A table of word vectors on the device, by characters and parameters; safe to share between threads.

    Args:
      encode: `encode(params, chars_UC)` -> vectors [U, D], compiled by the caller; rows of zeros pad.
      width: D. dtype: of the vectors.
      buckets: character slots that words are padded to, ascending; the last holds the longest word.
      max_bytes: of the table; max_words: in its place, a number of words.

    Raises:
      ValueError: when there is no room for a single word.
    """

    def __init__(
        self,
        encode: Encode,
        width: int,
        dtype: Any,
        buckets: tuple[int, ...],
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_words: int | None = None,
    ) -> None:
        room = max_bytes // (width * jnp.dtype(dtype).itemsize) if max_words is None else max_words
        if room < 1:
            raise ValueError(f"a cache of {room} words holds nothing; expected at least one")
        self._encode, self._width, self._dtype, self._buckets, self.limit = encode, width, dtype, buckets, room
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        self._numbers = itertools.count()
        self.clear()

    def clear(self) -> None:
        """Forgets all words; the counts stay."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._rows: OrderedDict[Key, int] = OrderedDict()  # least recently read first
        self._free: list[int] = []
        # Row 0 is that of no word.
        self._table = jnp.zeros((1, self._width), self._dtype)
        self._owners: dict[int, _Known] = {}

    @property
    def stats(self) -> CacheStats:
        """What it has done so far."""
        return CacheStats(self._hits, self._misses, len(self._rows), self.limit)

    def read(self, params: Any, chars_NWC: np.ndarray) -> jax.Array:
        """Returns the vectors [N, W, D] of words; zeros where there is none.

        Args:
          params: those of the intra-word encoder, arrays that do not change in place; who they are is part of the key.
          chars_NWC: uint16 character ids, 0 pads; slot 0 is 0 where there is no word.

        Raises:
          ValueError: when a word is longer than the last bucket.
        """
        chars_MC = np.ascontiguousarray(chars_NWC.reshape(-1, chars_NWC.shape[-1]))
        with self._lock:
            keys, first = _distinct(chars_MC, self._owner(params))
            if len(first) > self.limit:  # more than may be kept
                self._misses += len(first)
                kept = WordCache(self._encode, self._width, self._dtype, self._buckets, max_words=len(first))
                return kept.read(params, chars_NWC)
            missing = self._fill(params, chars_MC, first)
            self._hits += len(first) - missing
            self._misses += missing
            rows_M = [0 if key is None else self._rows[key] for key in keys]
            return _gather(self._table, np.array(rows_M, np.int32).reshape(chars_NWC.shape[:-1]))

    def warm(self, params: Any, chars_UC: np.ndarray) -> None:
        """Computes the vectors of words that are not there yet; of more than there is room for, the last ones.

        These words count neither as hits nor as misses.
        """
        chars_UC = np.ascontiguousarray(chars_UC)
        with self._lock:
            owner = self._owner(params)
            last = {key: row for row, key in enumerate(_distinct(chars_UC, owner)[0]) if key is not None}
            kept = sorted(last.items(), key=lambda item: item[1])[-self.limit :]
            self._fill(params, chars_UC, dict(kept))

    def _fill(self, params: Any, chars_MC: np.ndarray, first: dict[Key, int]) -> int:
        """Puts words that are missing into the table, and returns their number.

        Args:
          first: the keys of all words, no more than there is room for, and where each stands.
        """
        missing = [key for key in first if key not in self._rows]
        for key in first:
            if key in self._rows:
                self._rows.move_to_end(key)
        if not missing:
            return 0
        encoded = list(self._encoded(params, chars_MC[[first[key] for key in missing]]))  # first: it may fail
        try:
            self._put(missing, encoded)
        except BaseException:  # memory that is full, Ctrl-C: rows and table no longer belong together
            self._forget()
            raise
        return len(missing)

    def _put(self, missing: list[Key], encoded: list[tuple[np.ndarray, jax.Array]]) -> None:
        while len(self._rows) + len(missing) > self.limit:
            self._free.append(self._rows.popitem(last=False)[1])
        self._grow(len(self._rows) + len(missing))
        rows_U = np.array([self._free.pop() for _ in missing], np.int32)
        for part, vectors_PD in encoded:
            row_P = np.full(len(vectors_PD), self._table.shape[0], np.int32)  # out of range: dropped
            row_P[: len(part)] = rows_U[part]
            self._table = _write(self._table, row_P, vectors_PD)
        self._rows.update(zip(missing, rows_U.tolist(), strict=True))

    def _grow(self, words: int) -> None:
        rows = self._table.shape[0]
        if words <= rows - 1:
            return
        new = max(words, min(self.limit, max(FIRST_ROWS, 2 * rows))) + 1
        self._table = jnp.concatenate([self._table, jnp.zeros((new - rows, self._width), self._dtype)])
        self._free.extend(range(new - 1, rows - 1, -1))

    def _encoded(self, params: Any, chars_UC: np.ndarray) -> Iterator[tuple[np.ndarray, jax.Array]]:
        """Yields which words were encoded together, and their vectors, with rows of padding after them."""
        slots_U = (chars_UC != 0).sum(axis=1)
        if slots_U.max() > self._buckets[-1]:
            raise ValueError(f"a word of {slots_U.max()} slots, expected at most {self._buckets[-1]}")
        for part, rows, slots in _cheapest(slots_U, self._buckets):
            chars_PC = np.zeros((rows, slots), chars_UC.dtype)
            chars_PC[: len(part), : chars_UC.shape[1]] = chars_UC[part, :slots]
            yield part, self._encode(params, chars_PC)

    def _owner(self, params: Any) -> int:
        """Returns the number of these parameters: the same as long as every array is the same object."""
        for number, known in list(self._owners.items()):
            if known.gone():
                del self._owners[number]  # nobody can ask for its words again; they make room as they grow old
            elif known.are(params):
                return number
        number = next(self._numbers)
        self._owners[number] = _Known(params)
        return number


class OncePerParams:
    """A function of parameters that is computed again only when one of their arrays is another object.

    Args:
      compute: the function; arrays do not change in place. The last parameters and their result are kept.
    """

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute
        self._known: tuple[_Known, Any] | None = None

    def __call__(self, params: Any) -> Any:
        """Returns `compute(params)`."""
        known = self._known
        if known is None or not known[0].are(params):
            known = self._known = _Known(params), self._compute(params)  # one assignment: threads see both or neither
        return known[1]


class _Known:
    """Parameters, recognised by their names and by who their arrays are; it does not keep them alive."""

    def __init__(self, params: Any) -> None:
        leaves, self._names = jax.tree.flatten(params)
        self._arrays = [weakref.ref(leaf) for leaf in leaves]

    def gone(self) -> bool:
        """Whether one of the arrays is no more."""
        return any(array() is None for array in self._arrays)

    def are(self, params: Any) -> bool:
        """Whether these are the parameters."""
        leaves, names = jax.tree.flatten(params)
        return names == self._names and all(a() is b for a, b in zip(self._arrays, leaves, strict=True))


def _distinct(chars_MC: np.ndarray, owner: int) -> tuple[list[Key | None], dict[Key, int]]:
    """Returns the key of every row, None where there is no word, and of every distinct one its first row."""
    text, width = chars_MC.tobytes(), chars_MC.shape[1] * chars_MC.itemsize
    is_word_M = (chars_MC[:, 0] != 0).tolist()
    # Zeros at the end pad: the same word may come with more or fewer of them.
    padded = (text[at : at + width] for at in range(0, len(text), width))
    keys = [(owner, word.rstrip(b"\0")) if is_word else None for word, is_word in zip(padded, is_word_M, strict=True)]
    first: dict[Key, int] = {}
    for m, key in enumerate(keys):
        if key is not None:
            first.setdefault(key, m)
    return keys, first


def _cheapest(slots_U: np.ndarray, buckets: tuple[int, ...]) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yields which words to encode together, and in how many rows and slots: the cheapest way, longest words first.

    Words of like length share an array; shorter ones fill the rows that longer ones leave. An array costs its slots,
    full or not, and `CALL_SLOTS`.
    """
    longest_first = np.argsort(-slots_U, kind="stable")
    width_U = np.asarray(buckets)[np.searchsorted(buckets, slots_U[longest_first])].tolist()
    cost, rows = {}, {}  # of all words from here on; and those of the first array
    for at in reversed(range(0, len(width_U), CHUNKS[-1])):
        cost[at], rows[at] = min((CALL_SLOTS + n * width_U[at] + cost.get(at + n, 0), n) for n in CHUNKS)
    at = 0
    while at < len(width_U):
        yield longest_first[at : at + rows[at]], rows[at], width_U[at]
        at += rows[at]


@jax.jit
def _gather(table_RD: jax.Array, index_NW: jax.Array) -> jax.Array:
    return table_RD[index_NW]


@functools.partial(jax.jit, donate_argnums=0)
def _write(table_RD: jax.Array, row_P: jax.Array, vectors_PD: jax.Array) -> jax.Array:
    return table_RD.at[row_P].set(vectors_PD.astype(table_RD.dtype), mode="drop")
