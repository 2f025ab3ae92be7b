"""Tells sizes that are numbers from those that stand for any number, as in programs for batches of any shape.

`charlm.export` traces models with such sizes (`jax.export.symbolic_shape`). Code that would compare a size with a
number, or count with it outside of the program, asks here first. Open it when a model cannot be traced with such sizes.
"""

from __future__ import annotations

from jax import export


def is_symbolic(*sizes: int) -> bool:
    """Returns whether any of the sizes stands for any number."""
    return any(export.is_symbolic_dim(size) for size in sizes)
