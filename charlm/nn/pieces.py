"""The longest known piece that ends at each character of a word, found inside the program from characters alone.

A model that reads characters then also sees what the vocabulary of a subword tokenizer knows: each character gets the
row of the longest piece that ends there. Source: Bolmo (Minixhofer et al., 2025, arXiv 2512.15586, "Tokenization and
embedding"), which adds the row of the longest subword that ends at a byte. Pieces are found by two polynomial hashes of
32 bits each, so other characters are taken for a piece with a probability of 2^-64 a piece. `charlm.nn.embed` has the
table of vectors; `charlm.families.hlm.pieces` reads the pieces of a tokenizer. Open it to change how pieces are found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

FACTORS = (0x01000193, 0x9E3779B1)  # of the polynomials: the FNV hash's and, by the golden ratio, Knuth's
_TRIES = 1000


class PieceTable:
    """Immutable hashes of pieces, by which `piece_rows` finds them; equal pieces in equal order are equal tables.

    Attributes:
      size: number of pieces.
      longest: ids of the longest piece; 0: there is none.
      codes: uint32 [2, size], the hashes in ascending order; rows: int32 [size], the pieces they belong to.
      factors: of the polynomials.
      sharing: most pieces of one first hash, 1 or 2.
    """

    __slots__ = ("_digest", "codes", "factors", "longest", "rows", "sharing", "size")

    def __init__(self, pieces: Sequence[Sequence[int]]) -> None:
        """Takes the ids of each piece, all above 0; ValueError for an empty piece, or one that is there twice."""
        kept = [tuple(piece) for piece in pieces]
        if len(set(kept)) < len(kept) or not all(kept) or not all(min(piece) > 0 for piece in kept):
            raise ValueError("pieces: expected different ones of ids above 0")
        self.size, self.longest = len(kept), max(map(len, kept), default=0)
        ids = np.zeros((self.size, self.longest), np.uint32)
        for row, piece in zip(ids, kept, strict=True):
            row[self.longest - len(piece) :] = piece  # behind zeros, which change no polynomial
        self._digest = hashlib.sha256(repr(ids.shape).encode() + ids.tobytes()).digest()
        # Pieces are searched by the first hash, which a few of a large vocabulary share in pairs.
        for number in range(_TRIES):
            self.factors = (FACTORS[0] * (2 * number + 1) % 2**32, FACTORS[1])
            codes = np.stack([_polynomials(ids, factor) for factor in self.factors])
            order = np.lexsort(codes[::-1])
            first, second = codes[:, order]
            again = first[1:] == first[:-1]
            if not (again[1:] & again[:-1]).any() and not (again & (second[1:] == second[:-1])).any():
                break
        else:
            raise ValueError(f"{self.size:,} pieces cannot be told apart by their hashes")
        self.codes, self.rows, self.sharing = codes[:, order], order.astype(np.int32), 1 + int(again.any())

    def __bool__(self) -> bool:
        return self.size > 0

    def __eq__(self, other: object) -> bool:
        return self._digest == other._digest if isinstance(other, PieceTable) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"PieceTable({self.size} pieces)"


def _polynomials(ids: np.ndarray, factor: int) -> np.ndarray:
    """Returns the hash of each row of ids: the sum of id * factor^(places before its end)."""
    powers = np.ones(ids.shape[1], np.uint32)
    powers[1:] = np.uint32(factor)
    return (ids * np.cumprod(powers, dtype=np.uint32)[::-1]).sum(axis=1, dtype=np.uint32)


NO_PIECES = PieceTable(())


def piece_rows(chars: jax.Array, pieces: PieceTable) -> tuple[jax.Array, jax.Array]:
    """Returns the number of the longest piece that ends at each slot, and whether there is one; both [..., C].

    Args:
      chars: ids [..., C], 0 pads. No piece reaches over a 0.
      pieces: at least one.

    Returns:
      int32, the place of the piece in the list that `pieces` was made of, 0 where there is none; and bool.
    """
    ids = chars.astype(jnp.uint32)
    slots = ids.shape[-1]
    codes = [jnp.zeros_like(ids) for _ in pieces.factors]
    found, there = jnp.zeros(ids.shape, jnp.int32), jnp.zeros(ids.shape, bool)
    whole = jnp.ones(ids.shape, bool)
    sought, last = jnp.asarray(pieces.codes), pieces.size - 1
    longest = min(slots, pieces.longest) if isinstance(slots, int) else pieces.longest  # exported: of any length
    for back in range(longest):  # one more character to the left each time, so longer pieces win
        before = jnp.pad(ids, [*[(0, 0)] * (ids.ndim - 1), (back, 0)])[..., :slots]
        codes = [
            code + before * jnp.uint32(pow(factor, back, 2**32))
            for code, factor in zip(codes, pieces.factors, strict=True)
        ]
        whole &= before != 0
        first = jnp.searchsorted(sought[0], codes[0])
        for place in (jnp.minimum(first + nth, last) for nth in range(pieces.sharing)):
            same = whole & (sought[0][place] == codes[0]) & (sought[1][place] == codes[1])
            found, there = jnp.where(same, jnp.asarray(pieces.rows)[place], found), there | same
    return found, there
