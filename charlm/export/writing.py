"""Writes an exported model into a new folder, whole or not at all: program, weights, vocabularies, example, page.

`FORMATS` has the formats; open it to add one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from charlm.convert.files import new_folder
from charlm.core import extras
from charlm.core.durable import write_json, write_text
from charlm.export import readme, stablehlo
from charlm.export.program import load

_BESIDE = {
    "program.json": "inputs, outputs, labels, and how texts become arrays",
    "example.npz": "arrays of two texts, and charlm's outputs for them, NaN at padding",
}


def write_stablehlo(path: str, output: str, platforms: Sequence[str] = stablehlo.PLATFORMS) -> str:
    """Writes a model as StableHLO with its weights; returns a line about it.

    Args:
      path: what `charlm.from_pretrained` reads.
      output: the folder to create.
      platforms: what the program can run on; see `charlm.export.stablehlo`.

    Raises:
      ValueError: there is no such model, its family cannot be exported, or the folder exists or cannot be written.
    """
    extras.check("charlm export", "flatbuffers")
    with new_folder(output) as folder:
        program = load(path)
        told = stablehlo.write(program, folder, platforms)
        program.arrays.write_beside(folder)
        write_json(folder / "program.json", program.about | {"platforms": list(platforms)})
        np.savez(folder / "example.npz", **(program.example | program.expected))  # pyright: ignore[reportArgumentType]  # as there
        files = {
            stablehlo.PROGRAM_FILE: f"StableHLO by `jax.export`, for {', '.join(platforms)}",
            stablehlo.WEIGHTS_FILE: "the weights, float32, by name",
        }
        known = [*files, *_BESIDE]
        others = {one.name: "of the vocabulary" for one in sorted(folder.iterdir()) if one.name not in known}
        page = readme.page(program, "A program for JAX", files | _BESIDE | others, readme.STABLEHLO)
        write_text(folder / "README.md", page)
    return f"{output}: {program.title}, {told}"
