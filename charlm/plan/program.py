"""Builds the training step of a run from shapes instead of arrays; open it to plan a new kind of run.

Everything comes from the run's own code: the objective or the fine-tuning, the batch with the budgets of its text, the
optimizer, the mesh and the jitted step. Only the devices are descriptions (`charlm.plan.topology`), and no array of the
training state is made.
"""

from __future__ import annotations

import glob
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import jax
import ml_collections
import numpy as np
from jax import dtypes
from jax.sharding import Mesh

from charlm.config import is_fine_tuning
from charlm.core import stores
from charlm.core.extras import missing
from charlm.core.hashed_keys import hashed
from charlm.core.learning import Batch, Learning
from charlm.core.local_paths import is_address
from charlm.core.optimizer import without_frozen
from charlm.core.sharding import batch_sharding, make_mesh, table_shards
from charlm.core.state import TrainState, stream_key
from charlm.core.types import JsonObject, Option, Tree
from charlm.families.family import family
from charlm.families.lookup import prepare
from charlm.finetune.run import first_run
from charlm.plan.topology import Device
from charlm.training.program import Program
from charlm.training.run import build

log = logging.getLogger("charlm")

Learned = TypeVar("Learned", bound=Learning)


class Planned(NamedTuple):
    """A step to be compiled, and what a run does with it.

    Attributes:
      step: the run's jitted step.
      state, batch: the arguments of the step: abstract arrays with their sharding.
      mesh: the mesh of the described devices.
      learning: the loss.
      freeze: the value of `optim.freeze`.
      unit: the unit of speed, such as "words".
      units: the number of these units in a batch.
      useful: FLOPs of a batch that count for MFU; 0: not known.
      steps: the number of steps of the run, over all its seeds and folds.
      notes: what the plan assumes, for the user.
    """

    step: jax.stages.Wrapped
    state: TrainState
    batch: Batch
    mesh: Mesh
    learning: Learning
    freeze: tuple[str, ...]
    unit: str
    units: float
    useful: float
    steps: int
    notes: tuple[str, ...]

    def lower(self) -> jax.stages.Lowered:
        """Traces the step for the described devices."""
        with jax.default_device(self.mesh.devices.flat[0]):  # what the model asks which machine it is traced for
            return self.step.lower(self.state, self.batch)

    def saved(self) -> float:
        """Returns the bytes on each chip that the forward pass of a micro-batch asks to keep for the backward pass.

        The compiler may keep less, because it fuses operations and computes some values again.
        """
        params, learning = self.state.params, self.learning
        trained = without_frozen(params, self.freeze)
        micro = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self.batch)

        def backward(params: Tree, micro: Tree) -> Tree:
            key = hashed(stream_key(0, "dropout"))
            return jax.vjp(lambda params: learning.loss_sums(params, micro, key)[0], params)[1]

        with jax.default_device(self.mesh.devices.flat[0]):
            kept = jax.tree.leaves(jax.eval_shape(backward, params, micro))
        own = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(trained))
        spread = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        # Weights themselves are kept, too, but they are counted with the parameters.
        return max(sum(x.size * x.dtype.itemsize for x in kept) - own, 0) / spread


Planner = Callable[[ml_collections.ConfigDict, Sequence[Device]], Planned]


def bytes_on_chip(tree: Tree) -> float:
    """Returns the bytes that abstract arrays with a sharding take on one chip."""
    sizes = (math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))
    return float(sum(sizes))


def stages_of(config: ml_collections.ConfigDict) -> Iterator[tuple[str, ml_collections.ConfigDict]]:
    """Yields the name and config of each different stage of a run; ("", config) if the run has no stages."""
    if is_fine_tuning(config) or not family(config.family).has_stages:
        yield "", config
        return
    names = [config.stage] if config.stage else dict.fromkeys(config.stages)
    for name in names:
        yield name, family(config.family).of_stage(config, name)


def planner_of(config: ml_collections.ConfigDict) -> Planner:
    """Returns a function (config, devices) that builds steps of configs like this one; text is read here, only once."""
    if is_fine_tuning(config):
        return _fine_tuning
    config, notes = with_text_here(config)
    data = prepare(config)
    # By all that machine and setting change of a batch: what the run measured on text, and a sample; both take seconds.
    batches: dict[tuple[str, int, int, int], tuple[JsonObject, Batch]] = {}

    def plan(config: ml_collections.ConfigDict, devices: Sequence[Device]) -> Planned:
        config = with_text_of(config, notes)
        mesh = make_mesh(config, devices)
        shards = table_shards(config, mesh)
        batch = (devices[0].platform, config.data.batch_size, config.data.accumulation, shards)
        if batch in batches:
            config.update_from_flattened_dict(batches[batch][0])
        run = build(config, data, devices)
        objective = run.objective
        if batch not in batches:
            batches[batch] = objective.measured(), objective.sample()
        sample = batches[batch][1]
        return _planned(
            run,
            mesh,
            shards,
            sample,
            config=config,
            unit=objective.unit,
            units=objective.count(sample) * shards,
            useful=objective.training_flops(sample) * shards,
            steps=config.train.steps,
            notes=tuple(notes.values()),
        )

    return plan


def _fine_tuning(config: ml_collections.ConfigDict, devices: Sequence[Device]) -> Planned:
    run, runs = first_run(config, devices)
    mesh = make_mesh(config, devices)
    packed = run.sample()
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    local = jax.tree.leaves(packed.batch)[0].shape[1]  # the shards of one host
    learning = run.program.learning
    useful = learning.training_flops(packed)
    return _planned(
        run.program,
        mesh,
        shards,
        packed.batch,
        config=config,
        unit=learning.unit,
        units=packed.rows * shards / local,
        useful=useful * shards / local,
        steps=run.steps * runs,
        notes=("planned for the batches of the longest rows: others take less",),
    )


def _planned(
    program: Program[Learned],
    mesh: Mesh,
    shards: int,
    sample: Batch,
    *,
    config: ml_collections.ConfigDict,
    **rest: Option,
) -> Planned:
    sharding = batch_sharding(mesh)

    def abstract(x: np.ndarray) -> jax.ShapeDtypeStruct:
        shape = (x.shape[0], shards, *x.shape[2:])
        return jax.ShapeDtypeStruct(shape, dtypes.canonicalize_dtype(x.dtype), sharding=sharding)

    return Planned(
        step=program.train_step,
        state=program.abstract_state,
        batch=jax.tree.map(abstract, sample),
        mesh=mesh,
        learning=program.learning,
        freeze=tuple(config.optim.freeze),
        **rest,
    )


def with_text_here(config: ml_collections.ConfigDict) -> tuple[ml_collections.ConfigDict, dict[str, str]]:
    """Returns the config with missing text and a missing splitter replaced, and by key what was replaced."""
    notes: dict[str, str] = {}
    absent = [spec for spec in config.data.train if not _is_here(spec)]
    if absent:
        notes["data.train"] = f"{absent[0]} is not here: batches are measured on the built-in text"
    needed = {"spacy": "spacy", "icu": "icu4py"}.get(config.text.splitter)
    if needed and missing(needed):
        notes["text.splitter"] = f"{needed} is not installed: text is split by the rules"
    return with_text_of(config, notes), notes


def with_text_of(config: ml_collections.ConfigDict, replaced: dict[str, str]) -> ml_collections.ConfigDict:
    """Returns a copy of a config with built-in text or the splitter "rules" for the keys in `replaced`."""
    own = config.copy_and_resolve_references()
    if "data.train" in replaced:
        own.data.train, own.data.heldout, own.data.weights = ("builtin",), (), ()
    if "text.splitter" in replaced:
        own.text.splitter = "rules"
    return own


def _is_here(spec: str) -> bool:
    if is_address(spec):
        try:
            return bool(stores.matching(spec, "data.train"))
        except (OSError, ValueError):  # no network, no rights, or a library that is not installed
            return False
    return spec == "builtin" or spec.startswith("tfds:") or bool(glob.glob(spec))
