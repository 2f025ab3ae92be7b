"""The plain arrays that a CharBERT reads outside of charlm: ids of pieces, and their characters as one stream.

`charlm.export` makes programs of them. Open it to change what such a program reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import JsonObject
from charlm.families.arrays import ArrayInput
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.conversion import SYMBOLS_FILE, symbols_of
from charlm.families.charbert.units import CharBertUnits
from charlm.families.subword.arrays import PieceArrays
from charlm.families.units import Joined


class CharBertArrays(PieceArrays):
    """Pieces between the special tokens, and the characters of all of them end to end."""

    units: CharBertUnits
    texts = (
        "ids are of tokenizer.json, with reading.before and reading.after around a text. The characters of all tokens "
        "stand end to end in chars, each the number of its line in the file of characters, with a 0 after every token; "
        "special tokens are one 0; the ## of a piece is left out. starts and ends are the first and last slot of each "
        "token"
    )

    @property
    def inputs(self) -> tuple[ArrayInput, ...]:
        """See `Arrays`."""
        return (
            ArrayInput("ids", ("batch", "length"), "ids of tokenizer.json, -1 pads"),
            ArrayInput("chars", ("batch", "slots"), "the characters of all tokens end to end, 0 between them"),
            ArrayInput("starts", ("batch", "length"), "the slot of each token's first character, 0 at padding"),
            ArrayInput("ends", ("batch", "length"), "the slot of each token's last character, 0 at padding"),
            *self.segments,
        )

    def of(self, rows: Sequence[Joined]) -> dict[str, np.ndarray]:
        """See `Arrays`."""
        found = self.units.pack(rows, (len(rows), max(row.length for row in rows)))
        ids_BL = np.where(found.real_BL, found.ids_BL, -1)
        arrays = {"ids": ids_BL, "chars": found.chars_BN, "starts": found.starts_BL, "ends": found.ends_BL}
        return arrays | self.types_of(rows)

    def batch(self, arrays: Mapping[str, jax.Array]) -> CharBertBatch:
        """See `Arrays`."""
        ids_BL = arrays["ids"]
        read_BL = jnp.where(ids_BL >= 0, ids_BL, self.units.padding)
        beside = (arrays[name] for name in ("chars", "starts", "ends"))
        found = CharBertBatch(read_BL, self.types_in(arrays, ids_BL), ids_BL >= 0, *beside)
        return jax.tree.map(lambda x: x[None], found)

    def reading(self) -> JsonObject:
        """See `Arrays`."""
        return super().reading() | {"characters": SYMBOLS_FILE}

    def write_beside(self, folder: Path) -> None:
        """See `Arrays`."""
        super().write_beside(folder)
        symbols_of(self.pretrained).save(folder / SYMBOLS_FILE)
