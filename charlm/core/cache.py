"""Caches used in inference: a table of word vectors, and results that depend only on the parameters.

A word's vector depends only on its characters and the parameters, never on the context, so a cached vector equals a
fresh one up to rounding (which varies because each word is padded to the longest word it is encoded with). The table is
bounded: the least recently used words are evicted. Vectors stay on the device. The predictors use it; open it if a
repeated call of a predictor is slow, or takes too much memory.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from charlm.core.types import Params
from charlm.core.word_index import WordIndex
from charlm.core.word_table import WordTable

CHUNKS = (512, 128, 32)  # words per encoder call: few sizes, so few compiled programs; all are multiples of the last
CALL_SLOTS = 150  # fixed cost of an encoder call, in slots: each call reads the parameters from memory again
FIRST_CACHE_ROWS = 1024  # initial size; the table doubles when it is full, up to its limit
DEFAULT_BYTES = 2**28  # about 87,000 words of HLM-Base in float32

Encode = Callable[[Params, np.ndarray], jax.Array]
CacheKey = tuple[int, bytes]
T = TypeVar("T")


class CacheStats(NamedTuple):
    """Counts of a cache: `hits` and `misses` of distinct words per call, `words` now stored, and their `limit`."""

    hits: int
    misses: int
    words: int
    limit: int

    @property
    def hit_rate(self) -> float:
        """The share of distinct words that were found; 0 before the first read."""
        return self.hits / max(1, self.hits + self.misses)

    def __str__(self) -> str:
        """Returns a one-line summary."""
        read = self.hits + self.misses
        return (
            f"word cache: {self.hits:,} of {read:,} distinct words read were there ({100 * self.hit_rate:.1f} %), "
            f"it holds {self.words:,} of at most {self.limit:,}"
        )


class WordCache:
    """A table of word vectors on the device, keyed by characters and parameters; safe to share between threads.

    Args:
      encode: `encode(params, chars_UC)` -> vectors [U, D], compiled by the caller; rows of zeros pad.
      width: D, width of the vectors.
      dtype: dtype of the vectors.
      buckets: numbers of character slots that words are padded to, ascending; the last one fits the longest word.
      max_bytes: the largest size of the table.
      max_words: the largest number of words, used instead of `max_bytes`.

    Raises:
      ValueError: the table has no room for a single word.
    """

    def __init__(
        self,
        encode: Encode,
        width: int,
        dtype: DTypeLike,
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
        self._tables: list[tuple[_Known, WordTable]] = []
        self.clear()

    def read_first(self, table: WordTable, params: Params) -> None:
        """Reads words of a table from there, and encodes only the others, when these are the parameters.

        Such words are hits.

        Args:
          table: vectors that these parameters have computed; the caller compares `WordTable.identity`.

        Raises:
          ValueError: the table's vectors have another width.
        """
        if table.vectors_ND.shape[1] != self._width:
            raise ValueError(
                f"{table.folder}: vectors of {table.vectors_ND.shape[1]} numbers, the model's have {self._width}"
            )
        with self._lock:
            self._tables = [(known, other) for known, other in self._tables if not known.gone()]
            self._tables.append((_Known(params), table))

    def encoded(self, params: Params, chars_UC: np.ndarray) -> np.ndarray:
        """Returns the vectors [U, D] of words, computed anew, on the host; nothing is stored."""
        vectors_UD = np.zeros((len(chars_UC), self._width), np.float32)
        for part, vectors_PD in self._encoded(params, chars_UC):
            vectors_UD[part] = np.asarray(vectors_PD[: len(part)], np.float32)
        return vectors_UD

    def clear(self) -> None:
        """Removes all words; the counts of hits and misses stay."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._rows: OrderedDict[CacheKey, int] = OrderedDict()  # least recently read first
        self._free: list[int] = []
        # Row 0 stays zero: padding positions read it.
        self._table = jnp.zeros((1, self._width), self._dtype)
        self._owners: dict[int, _Known] = {}
        self._changed()

    def _changed(self) -> None:
        """Forgets the index of the table's words; it is made again once many words were read and none was added."""
        self._index: WordIndex | None = None
        self._read_since = 0
        self._touched: set[int] = set()

    @property
    def stats(self) -> CacheStats:
        """The counts so far."""
        return CacheStats(self._hits, self._misses, len(self._rows), self.limit)

    def read(self, params: Params, chars_NWC: np.ndarray) -> jax.Array:
        """Returns the vectors [N, W, D] of words; zeros at padding positions.

        Args:
          params: parameters of the intra-word encoder, arrays that do not change in place; their object identity is
            part of the cache key.
          chars_NWC: character ids of 16 bits, 0 pads; slot 0 is 0 where there is no word.

        Raises:
          ValueError: a word is longer than the last bucket, or an id does not fit into 16 bits.
        """
        chars_MC = _of_16_bits(chars_NWC.reshape(-1, chars_NWC.shape[-1]))
        with self._lock:
            owner = self._owner(params)
            if self._index is not None and (row_M := self._index.rows(owner, chars_MC)) is not None:
                used = set(np.unique(row_M).tolist()) - {0}
                self._hits += len(used)
                self._touched |= used
                return _gather(self._table, row_M.reshape(chars_NWC.shape[:-1]))
            keys, first = _distinct(chars_MC, owner)
            if len(first) > self.limit:  # more words than the table may hold: use a temporary cache for this call
                self._misses += len(first)
                kept = WordCache(self._encode, self._width, self._dtype, self._buckets, max_words=len(first))
                kept._tables = self._tables
                return kept.read(params, chars_NWC)
            self._read_since += len(keys)
            missing = self._fill(params, chars_MC, first)
            self._hits += len(first) - missing
            self._misses += missing
            # The index is made once as many words were read as it has, so that to make it costs less than they did.
            if self._index is None and 0 < len(self._rows) <= self._read_since:
                self._index = WordIndex(self._rows, self._rows.values(), self._buckets[-1])
            rows_M = [0 if key is None else self._rows[key] for key in keys]
            return _gather(self._table, np.array(rows_M, np.int32).reshape(chars_NWC.shape[:-1]))

    def warm(self, params: Params, chars_UC: np.ndarray) -> None:
        """Computes and stores the vectors of words that are missing; if they exceed the limit, only the last ones.

        These words count neither as hits nor as misses.
        """
        chars_UC = _of_16_bits(chars_UC)
        with self._lock:
            owner = self._owner(params)
            last = {key: row for row, key in enumerate(_distinct(chars_UC, owner)[0]) if key is not None}
            kept = sorted(last.items(), key=lambda item: item[1])[-self.limit :]
            self._fill(params, chars_UC, dict(kept))

    def _fill(self, params: Params, chars_MC: np.ndarray, first: dict[CacheKey, int]) -> int:
        """Puts the missing words into the table and returns how many of them were encoded.

        Args:
          first: the key of every distinct word, at most `limit`, and the row of `chars_MC` where it first occurs.
        """
        missing = [key for key in first if key not in self._rows]
        if self._touched:  # words that the index found are read, too; in which order is not known
            for key in [key for key, row in self._rows.items() if row in self._touched]:
                self._rows.move_to_end(key)
            self._touched = set()
        for key in first:
            if key in self._rows:
                self._rows.move_to_end(key)
        if not missing:
            return 0
        # Encode before the table is changed: encoding may fail.
        found, left = self._on_disk(params, missing)
        chars_UC = chars_MC[[first[missing[n]] for n in left]]
        found += [(left[part], vectors_PD) for part, vectors_PD in self._encoded(params, chars_UC)] if len(left) else []
        try:
            self._put(missing, found)
        except BaseException:  # out of memory or Ctrl-C: rows and table may be inconsistent now
            self._forget()
            raise
        return len(left)

    def _on_disk(
        self, params: Params, missing: list[CacheKey]
    ) -> tuple[list[tuple[np.ndarray, jax.Array]], np.ndarray]:
        """Returns the words that a table on disk has, as `_encoded` yields them, and the indices of the others."""
        tables = [table for known, table in self._tables if known.are(params)]
        if not tables:
            return [], np.arange(len(missing))
        row_U = tables[-1].rows([word for _, word in missing])
        (there,), (left,) = np.nonzero(row_U >= 0), np.nonzero(row_U < 0)
        if not len(there):
            return [], left
        rows = max(CHUNKS[-1], 1 << (len(there) - 1).bit_length())  # few sizes to compile for
        vectors_PD = np.zeros((rows, self._width), np.float32)
        vectors_PD[: len(there)] = tables[-1].vectors_ND[row_U[there]]
        return [(there, jnp.asarray(vectors_PD))], left

    def _put(self, missing: list[CacheKey], found: list[tuple[np.ndarray, jax.Array]]) -> None:
        self._changed()
        while len(self._rows) + len(missing) > self.limit:
            self._free.append(self._rows.popitem(last=False)[1])
        self._grow(len(self._rows) + len(missing))
        rows_U = np.array([self._free.pop() for _ in missing], np.int32)
        for part, vectors_PD in found:
            row_P = np.full(len(vectors_PD), self._table.shape[0], np.int32)  # out of range: padding rows are dropped
            row_P[: len(part)] = rows_U[part]
            self._table = _write(self._table, row_P, vectors_PD)
        self._rows.update(zip(missing, rows_U.tolist(), strict=True))

    def _grow(self, words: int) -> None:
        rows = self._table.shape[0]
        if words <= rows - 1:
            return
        new = max(words, min(self.limit, max(FIRST_CACHE_ROWS, 2 * rows))) + 1
        self._table = jnp.concatenate([self._table, jnp.zeros((new - rows, self._width), self._dtype)])
        self._free.extend(range(new - 1, rows - 1, -1))

    def _encoded(self, params: Params, chars_UC: np.ndarray) -> Iterator[tuple[np.ndarray, jax.Array]]:
        """Yields the indices of words that were encoded together, and their vectors, followed by rows of padding."""
        slots_U = (chars_UC != 0).sum(axis=1)
        if slots_U.max() > self._buckets[-1]:
            raise ValueError(f"a word of {slots_U.max()} slots, expected at most {self._buckets[-1]}")
        for part, rows, slots in _cheapest(slots_U, self._buckets):
            chars_PC = np.zeros((rows, slots), chars_UC.dtype)
            chars_PC[: len(part), : chars_UC.shape[1]] = chars_UC[part, :slots]
            yield part, self._encode(params, chars_PC)

    def _owner(self, params: Params) -> int:
        """Returns a number that identifies these parameters: the same as long as every array is the same object."""
        for number, known in list(self._owners.items()):
            if known.gone():
                del self._owners[number]  # its words cannot be read again; they are evicted as they age
            elif known.are(params):
                return number
        number = next(self._numbers)
        self._owners[number] = _Known(params)
        return number


class OncePerParams(Generic[T]):
    """A function of parameters that is recomputed only when one of their arrays is a different object.

    Args:
      compute: the function; the parameters' arrays must not change in place. Only the latest result is kept.
    """

    def __init__(self, compute: Callable[[Params], T]) -> None:
        self._compute = compute
        self._known: tuple[_Known, T] | None = None

    def __call__(self, params: Params) -> T:
        """Returns `compute(params)`."""
        known = self._known
        if known is None or not known[0].are(params):
            # A single assignment, so that other threads see parameters and result together.
            known = self._known = _Known(params), self._compute(params)
        return known[1]


class _Known:
    """Recognises parameters by their names and the identity of their arrays, without keeping the arrays alive."""

    def __init__(self, params: Params) -> None:
        leaves, self._names = jax.tree.flatten(params)
        self._arrays = [weakref.ref(leaf) for leaf in leaves]

    def gone(self) -> bool:
        """Returns whether one of the arrays has been freed."""
        return any(array() is None for array in self._arrays)

    def are(self, params: Params) -> bool:
        """Returns whether `params` are the parameters this object was made from."""
        leaves, names = jax.tree.flatten(params)
        return names == self._names and all(a() is b for a, b in zip(self._arrays, leaves, strict=True))


def _of_16_bits(chars_MC: np.ndarray) -> np.ndarray:
    """Returns character ids as uint16, side by side in memory; raises ValueError if one does not fit."""
    if chars_MC.dtype != np.uint16 and chars_MC.size and not 0 <= chars_MC.min() <= chars_MC.max() < 2**16:
        raise ValueError(f"character ids from {chars_MC.min()} to {chars_MC.max()}, expected 0 to {2**16 - 1}")
    return np.ascontiguousarray(chars_MC, np.uint16)


def _distinct(chars_MC: np.ndarray, owner: int) -> tuple[list[CacheKey | None], dict[CacheKey, int]]:
    """Returns the key of every row (None where there is no word), and the first row of every distinct key."""
    text, width = chars_MC.tobytes(), chars_MC.shape[1] * chars_MC.itemsize
    is_word_M = (chars_MC[:, 0] != 0).tolist()
    # Strip the padding: the same word may come with more or fewer zeros at its end.
    padded = (text[at : at + width] for at in range(0, len(text), width))
    keys = [(owner, word.rstrip(b"\0")) if is_word else None for word, is_word in zip(padded, is_word_M, strict=True)]
    first: dict[CacheKey, int] = {}
    for m, key in enumerate(keys):
        if key is not None:
            first.setdefault(key, m)
    return keys, first


def _cheapest(slots_U: np.ndarray, buckets: tuple[int, ...]) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yields the cheapest split of words into arrays, longest words first: (indices of words, rows, slots per row).

    Words of similar length share an array; shorter words fill the rows that longer words leave empty. The cost of an
    array is its number of slots, whether filled or not, plus `CALL_SLOTS`.
    """
    longest_first = np.argsort(-slots_U, kind="stable")
    width_U = np.asarray(buckets)[np.searchsorted(buckets, slots_U[longest_first])].tolist()
    cost, rows = {}, {}  # from each start on: the least cost of the remaining words, and the rows of their first array
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
