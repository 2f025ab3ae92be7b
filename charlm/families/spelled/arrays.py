"""The plain arrays of models that read some positions from a table of subwords and others from characters.

`charlm.export` makes programs of them. Open it to change what such a program reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import JsonObject
from charlm.families.arrays import ArrayInput, distinct, padded
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.subword.arrays import PieceArrays
from charlm.families.units import Joined


class SpelledArrays(PieceArrays):
    """The characters of distinct spellings, where each stands, and the rows of the table at the other positions."""

    table = True  # whether some positions read rows of a table of subwords

    @property
    def inputs(self) -> tuple[ArrayInput, ...]:
        """See `Arrays`."""
        shown = [
            ArrayInput("chars", ("words", self.units.buckets[-1]), "the characters of each distinct word, 0 pads"),
            ArrayInput("index", ("batch", "length"), "the row of chars at a position that is spelled, else -1"),
        ]
        if self.table:
            shown.append(ArrayInput("ids", ("batch", "length"), "the row of the table at other positions, else -1"))
        return (*shown, *self.segments)

    def of(self, rows: Sequence[Joined]) -> dict[str, np.ndarray]:
        """See `Arrays`."""
        codes = [row.content[:, 0] for row in rows]
        flat_N = np.concatenate(codes)
        spelled_N = flat_N < 0
        chars_UC = np.zeros((1, self.units.buckets[-1]), np.int32)
        index_N = np.full(len(flat_N), -1, np.int32)
        if spelled_N.any():
            found_UC, index_N[spelled_N] = distinct(self.units.spellings.rows(flat_N[spelled_N]))
            chars_UC = np.pad(found_UC, ((0, 0), (0, chars_UC.shape[1] - found_UC.shape[1])))
        ends = np.cumsum([len(one) for one in codes])[:-1]
        found = {"chars": chars_UC, "index": padded(np.split(index_N, ends))}
        if self.table:
            found["ids"] = padded([self.units.spellings.ids(one) for one in codes])
        return found | self.types_of(rows)

    def batch(self, arrays: Mapping[str, jax.Array]) -> SpelledBatch:
        """See `Arrays`."""
        index_BL = arrays["index"]
        ids_BL = arrays["ids"] if self.table else jnp.full_like(index_BL, -1)
        mask_BL = (index_BL >= 0) | (ids_BL >= 0)
        types_BL = self.types_in(arrays, index_BL)
        lay = lambda x: x[None]
        return SpelledBatch((lay(arrays["chars"]),), *map(lay, (jnp.maximum(index_BL, 0), ids_BL, types_BL, mask_BL)))

    def reading(self) -> JsonObject:
        """See `Arrays`."""
        return super().reading() | {"slots": self.units.buckets[-1]}
