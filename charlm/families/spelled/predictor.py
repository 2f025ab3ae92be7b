"""What predictors share whose units are rows of a table of subwords, or spellings (`charlm.families.spelled.units`)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from charlm.core.cache import CacheStats, WordCache
from charlm.families.spelled.units import SpelledUnits
from charlm.families.units import Joined


def read_codes(
    units: SpelledUnits, cache: WordCache | None, module_params: Any, codes_BL: np.ndarray, mask_BL: np.ndarray
) -> tuple[tuple[Any, ...], str | None]:
    """Returns what the model reads, and the method of it that does.

    Args:
      units: that know the spellings. cache: of their vectors; None: all of the batch runs as one program.
      module_params: of what makes the vectors. codes_BL: units of B rows. mask_BL: bool, where there is one.
    """
    if cache is None:
        lengths = mask_BL.sum(axis=1).tolist()
        rows = [
            Joined(np.stack([row[:n], np.zeros(n, np.int32)], axis=1), n, 0, 0, 0)
            for row, n in zip(codes_BL, lengths, strict=True)
        ]
        packed = units.pack(rows, units.measure([rows], *codes_BL.shape))
        return (jax.tree.map(lambda x: x[None], packed),), None
    chars_BLC = units.spellings.rows(np.where(mask_BL, codes_BL, 0))
    spelled_BLD = cache.read(module_params, chars_BLC)
    return (spelled_BLD, np.maximum(codes_BL, -1), np.zeros_like(codes_BL), mask_BL), "contextualize"


def put_in(cache: WordCache, module_params: Any, units: SpelledUnits, codes: np.ndarray) -> CacheStats:
    """Puts the vectors of spellings into a cache; returns what it holds then. Rows of the table need none."""
    if (codes < 0).any():
        cache.warm(module_params, units.spellings.rows(codes[codes < 0]))
    return cache.stats
