"""The limits of what chooses the letters or tokens of a text that is written; the server knows them, too.

Open it to change a limit.
"""

from __future__ import annotations

import numbers

import numpy as np

LEAST_TEMPERATURE, MOST_TEMPERATURE = 1e-6, 1e6  # of drawing; 0: none is drawn, always the likeliest is taken
LEAST_TOP_P = 1e-6
MOST_TOP_K = 2**31 - 1
MOST_SEED = 2**32 - 1


def check_sampling(max_new: int, temperature: float, top_k: int, top_p: float) -> None:
    """Raises ValueError naming the argument that is out of range or no number."""
    if not _is_whole(max_new) or max_new < 1:
        raise ValueError(f"max_new={max_new!r}: expected a whole number from 1 on")
    if not _is_whole(top_k) or not 0 <= top_k <= MOST_TOP_K:
        raise ValueError(f"top_k={top_k!r}: expected a whole number from 0 (all) to {MOST_TOP_K}")
    hot = float(temperature) if _is_number(temperature) else -1.0
    if not (hot == 0 or LEAST_TEMPERATURE <= hot <= MOST_TEMPERATURE):
        raise ValueError(
            f"temperature={temperature!r}: expected 0 (always the likeliest), or from {LEAST_TEMPERATURE:g} to "
            f"{MOST_TEMPERATURE:g}"
        )
    if not _is_number(top_p) or not LEAST_TOP_P <= float(top_p) <= 1:
        raise ValueError(f"top_p={top_p!r}: expected a probability from {LEAST_TOP_P:g} to 1 (all)")


def check_seed(seed: object) -> None:
    """Raises ValueError unless it is a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed={seed!r}: expected a whole number from 0 to {MOST_SEED}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
