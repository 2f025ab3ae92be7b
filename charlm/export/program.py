"""A loaded model as one function of weights and plain arrays, with an example to check what is written against.

Open it to change what an exported model computes. The arrays are those of the model's family
(`charlm.families.arrays`); the function runs what fine-tuning and prediction run, `Units.apply` and `Units.states`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from flax import traverse_util

from charlm.convert.heads import FINE_TUNED
from charlm.core.types import Array, JsonObject, Params, Tree
from charlm.core.version import __version__
from charlm.families.arrays import ArrayInput, Arrays
from charlm.families.family import family
from charlm.families.lookup import units_of
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.units import Joined, Units
from charlm.finetune.model import held_params
from charlm.tasks.classification import Classification
from charlm.tasks.create import task_of_model
from charlm.tasks.tagging import Tagging
from charlm.text.speller.files import FILE as SPELLER

EXAMPLES = ("The cat sat on the mat.", "It did not see teh dog, which is anothr word.")
TOLERANCE = 1e-5  # relative to the largest number

Named = dict[str, jax.Array]


class Program(NamedTuple):
    """A model that is to be written.

    Attributes:
      pretrained: the model.
      arrays: the arrays that it reads.
      logits: whether it gives logits, as a fine-tuned model does; if not, the vectors of all positions.
      probabilities: whether it also gives probabilities of labels.
      weights: its parameters by name, float32 on the host.
      example: the arrays of two texts.
      expected: what charlm computes for them, by name.
      about: what `program.json` says of it.
    """

    pretrained: Pretrained
    arrays: Arrays
    logits: bool
    probabilities: bool
    weights: dict[str, np.ndarray]
    example: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    about: JsonObject

    @property
    def title(self) -> str:
        """What the model is, for users."""
        task = self.about["task"]
        return f"{self.pretrained.title}, {task['name'] if task else 'pre-trained'}"

    def run(self, weights: Mapping[str, jax.Array], inputs: Mapping[str, jax.Array]) -> Named:
        """Returns the model's outputs by name.

        Args:
          weights: as in `weights`.
          inputs: as in `example`, of any sizes.
        """
        params = traverse_util.unflatten_dict(dict(weights), sep="/")
        return self.outputs(
            _computed(self.pretrained, self.arrays.units, self.logits, params, self.arrays.batch(inputs))
        )

    def outputs(self, found: jax.Array) -> Named:
        """Returns logits, perhaps with their probabilities, or vectors by their names."""
        if not self.logits:
            return {"vectors": found}
        return {"logits": found} | ({"probabilities": jax.nn.softmax(found)} if self.probabilities else {})

    def check(self, found: Mapping[str, Array], by: str, tolerance: float = TOLERANCE) -> float:
        """Compares outputs for the example with charlm's at real positions, and returns the largest difference.

        It is relative to the largest number of an output.

        Raises:
          ValueError: it is above the tolerance.
        """
        worst = 0.0
        for name, expected in self.expected.items():
            apart = np.abs(np.asarray(found[name]) - expected)[np.isfinite(expected)].max(initial=0.0)
            worst = max(worst, float(apart / np.abs(expected).max(initial=0.0, where=np.isfinite(expected))))
        if not worst <= tolerance:
            raise ValueError(
                f"{by} gives other numbers than charlm: {worst:.1e} apart, expected at most {tolerance:.0e}"
            )
        return worst


def load(path: str | os.PathLike[str]) -> Program:
    """Loads a model, anything that `charlm.from_pretrained` reads, as a program in float32.

    Raises:
      ValueError: there is no model, its family cannot be exported, or it reads through a speller.
    """
    pretrained = from_pretrained(path, dtype="float32", attention_kernel="einsum")
    if (pretrained.folder / SPELLER).is_file():
        raise ValueError(
            f"{path} reads through a speller, which no program holds: export the encoder that it was made of"
        )
    units = units_of(pretrained)
    arrays = family(pretrained.family).get_arrays()(pretrained, units)
    logits = pretrained.head in FINE_TUNED
    task = task_of_model(pretrained) if logits else None
    labels = list(task.labels) if task else []
    rows = [units.join(encoded.part(0, units.room(False))) for encoded in units.encode(EXAMPLES)]
    weights = {name: np.asarray(value) for name, value in held_params(pretrained).items()}
    about: JsonObject = {
        "charlm": __version__,
        "jax": jax.__version__,
        "model": pretrained.title,
        "task": task.settings() if task else None,
        "labels": labels,
        "inputs": [_described(one) for one in arrays.inputs],
        "bounds": list(arrays.bounds),
        "reading": arrays.reading() | {"length": units.longest},
    }
    probable = isinstance(task, Classification | Tagging) and len(labels) > 1
    made = Program(pretrained, arrays, logits, probable, weights, arrays.of(rows), {}, about)
    expected = _expected(made, units, rows)
    about["outputs"] = [{"name": name, "axes": _axes(value, made)} for name, value in expected.items()]
    return made._replace(expected=expected)


def _computed(pretrained: Pretrained, units: Units, logits: bool, params: Params, batch: Tree) -> jax.Array:
    """Returns logits or vectors of a family's batch."""
    if logits:
        return units.apply(pretrained.model, params, batch)
    return units.states(pretrained.config, params, batch).astype(np.float32)


def _expected(made: Program, units: Units, rows: list[Joined]) -> dict[str, np.ndarray]:
    """Returns the outputs that charlm itself computes for rows, by its own packing; NaN at padding."""
    length = max(row.length for row in rows)
    packed = units.pack(rows, units.measure([rows], len(rows), length))
    batch = jax.tree.map(lambda x: x[None], packed)
    params = traverse_util.unflatten_dict(made.weights, sep="/")
    run = jax.jit(lambda params, batch: _computed(made.pretrained, units, made.logits, params, batch))
    outputs = made.outputs(run(params, batch))
    real_BL = np.arange(length)[None] < np.array([[row.length] for row in rows])
    return {
        name: np.where(real_BL[..., None], value, np.nan) if value.ndim == 3 else np.asarray(value)
        for name, value in outputs.items()
    }


def _described(one: ArrayInput) -> JsonObject:
    return {"name": one.name, "dtype": "int32", "axes": list(one.axes), "meaning": one.meaning}


def _axes(value: np.ndarray, made: Program) -> list[int | str]:
    return ["batch", *(["length"] if value.ndim == 3 else []), value.shape[-1]]
