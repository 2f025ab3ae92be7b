"""The plain arrays that BERT, RoBERTa, RoFormer and GPT-2 read outside of charlm: ids of pieces, and segments if any.

`charlm.export` makes programs of them; other families that read pieces subclass `PieceArrays`. Open it to change what
such a program reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import JsonObject
from charlm.families.arrays import ArrayInput, Arrays, padded
from charlm.families.subword.units import SubwordRows
from charlm.families.units import Joined

TYPES = ArrayInput("types", ("batch", "length"), "segments: 0, and 1 for the second text of a pair")


class PieceArrays(Arrays):
    """Base class of the arrays of families whose rows are of a tokenizer's pieces, or partly so."""

    @property
    def segments(self) -> tuple[ArrayInput, ...]:
        """The array of segments, if the model has them."""
        return (TYPES,) if self.units.segments else ()

    def types_of(self, rows: Sequence[Joined]) -> dict[str, np.ndarray]:
        """Returns the array of segments, if the model has them."""
        return {"types": padded([row.content[:, 1] for row in rows], 0)} if self.units.segments else {}

    def types_in(self, arrays: Mapping[str, jax.Array], like_BL: jax.Array) -> jax.Array:
        """Returns the segments among a program's arrays, or zeros."""
        return arrays["types"] if self.units.segments else jnp.zeros_like(like_BL)

    def reading(self) -> JsonObject:
        """See `Arrays`; "before" and "after" are the ids around a text."""
        before, after = self.units.around
        return {"before": before, "after": after}

    def write_beside(self, folder: Path) -> None:
        """See `Arrays`."""
        self.pretrained.tokenizer().save(folder)


class SubwordArrays(PieceArrays):
    """Ids of pieces between the special tokens."""

    texts = "texts"
    recipe = """\
from tokenizers import Tokenizer  # pip install tokenizers

tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")


def arrays_of(texts):
    found = tokenizer.encode_batch(texts, add_special_tokens=False)
    ids = padded([[*reading["before"], *one.ids, *reading["after"]] for one in found])
    arrays = {"ids": ids, "types": np.zeros_like(ids)}
    return {name: arrays[name] for name in names}"""

    @property
    def inputs(self) -> tuple[ArrayInput, ...]:
        """See `Arrays`."""
        return (ArrayInput("ids", ("batch", "length"), "ids of tokenizer.json, -1 pads"), *self.segments)

    def of(self, rows: Sequence[Joined]) -> dict[str, np.ndarray]:
        """See `Arrays`."""
        return {"ids": padded([row.content[:, 0] for row in rows])} | self.types_of(rows)

    def batch(self, arrays: Mapping[str, jax.Array]) -> SubwordRows:
        """See `Arrays`."""
        ids_BL = arrays["ids"]
        read_BL = jnp.where(ids_BL >= 0, ids_BL, self.units.padding)
        return jax.tree.map(lambda x: x[None], SubwordRows(read_BL, self.types_in(arrays, ids_BL), ids_BL >= 0))
