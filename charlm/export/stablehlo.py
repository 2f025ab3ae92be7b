"""Writes a model as StableHLO: a program of `jax.export` for batches of any shape, with its weights beside it.

Open it to change for which platforms it is compiled, or which files it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from jax import export

from charlm.core.durable import write_bytes
from charlm.export.program import Program

PLATFORMS = ("cpu", "cuda", "tpu")
PROGRAM_FILE, WEIGHTS_FILE = "model.stablehlo", "weights.npz"


def write(program: Program, folder: Path, platforms: Sequence[str] = PLATFORMS) -> str:
    """Writes the program and its weights, and runs what was written on the example; returns a line about it.

    Args:
      platforms: names that `jax.export` knows; the machine need not have them.

    Raises:
      ValueError: it computes other numbers than charlm, or cannot be compiled for a platform.
    """
    np.savez(folder / WEIGHTS_FILE, **program.weights)  # pyright: ignore[reportArgumentType]  # names may be anything
    try:
        made = export.export(jax.jit(program.run), platforms=list(platforms))(program.weights, abstract(program))
    except NotImplementedError as error:  # a platform lacks an operation
        raise ValueError(f"it cannot be compiled for {', '.join(platforms)}: {error}") from error
    data = bytes(made.serialize())
    write_bytes(folder / PROGRAM_FILE, data)
    read = export.deserialize(bytearray(data))
    apart = program.check(jax.jit(read.call)(program.weights, program.example), "the exported program")
    return f"a program of {len(data):,} bytes for {', '.join(platforms)}, {apart:.0e} from charlm's numbers"


def abstract(program: Program) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the inputs of a program with sizes that stand for any number, within the bounds of the family."""
    names = dict.fromkeys(axis for one in program.arrays.inputs for axis in one.axes if isinstance(axis, str))
    sizes = dict(zip(names, export.symbolic_shape(", ".join(names), constraints=program.arrays.bounds), strict=True))
    return {
        one.name: jax.ShapeDtypeStruct([sizes[axis] if isinstance(axis, str) else axis for axis in one.axes], np.int32)
        for one in program.arrays.inputs
    }
