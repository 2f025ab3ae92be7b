"""Trains an aligned student, and keeps the best as a model that every command of charlm reads.

    runs/student/checkpoints/STEP   the best student so far: a model, with the files that say how texts become vectors
    runs/student/state/STEP         what the run resumes from: student, teacher and optimizer

`python -m charlm.align` calls it; the same call goes on where a run stopped. Open it to change what is kept; the loop
is `charlm.training.loop`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import ml_collections
from jax.interpreters import partial_eval

from charlm.align.config import STUDENT, TASK
from charlm.align.objective import TEACHER, StudentAlignment, StudentData
from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.optimizer import frozen
from charlm.core.state import TrainState
from charlm.core.types import JsonObject, Params
from charlm.data.digests import stable_hash
from charlm.families.family import family
from charlm.families.lookup import converter_of
from charlm.families.objective import Objective, RunData
from charlm.families.origin import described, origin_at
from charlm.families.sentences import write_settings
from charlm.training import workdir as workdirs
from charlm.training.apart import Job, train_apart
from charlm.training.assembly import Setup
from charlm.training.best_model import keep_best
from charlm.training.course import Judgement
from charlm.training.run import Run
from charlm.training.train import PreTraining

STATES = "state"  # folder in the workdir
MODELS = "models"  # in the description of states: which models the run began with
FROZEN = f"^{TEACHER}/"


def align(config: ml_collections.ConfigDict, workdir: str | os.PathLike[str], skip_damaged: bool = False) -> bool:
    """Trains as `config` says, or resumes the run in `workdir`; see `charlm.training.apart.train_apart`."""
    smaller = (
        f"lower data.batch_size (now {config.data.batch_size}) or data.max_length (now {config.data.max_length}), or "
        f"raise data.accumulation (now {config.data.accumulation})"
    )
    config.optim.freeze = tuple(dict.fromkeys((*config.optim.freeze, FROZEN)))
    hosts.primary_first(lambda: _check_states(Path(workdir)))
    job = Job(STUDENT, StudentAlignment, smaller, STATES, spared, check_text, changed)
    return train_apart(config, workdir, job, skip_damaged)


def _check_states(folder: Path) -> None:
    """Raises ValueError if there is a student without states: a run would begin anew, and replace it."""
    place = folder / checkpoints.FOLDER
    if checkpoints.complete_steps(place) and not checkpoints.complete_steps(folder / STATES):
        raise ValueError(
            f"{folder} holds a student without {STATES}/, which its run would go on from; choose another --workdir, or "
            f"remove {place} to begin anew"
        )


def spared(data: StudentData) -> tuple[str, ...]:
    """Returns the names of the student's parameters without weight decay, as regular expressions."""
    return (*family(data.student.family).undecayed, *StudentAlignment.idle)


def check_text(checkpoint: Path, objective: type[Objective], data: RunData) -> None:
    """Checks that a run goes on with the text, the student and the teacher that it began with.

    Raises:
      ValueError: one of them changed; names it.
    """
    stored, advice = checkpoints.description(checkpoint), "choose another --workdir"
    workdirs.check_same_text(checkpoint, stored, data, advice)
    for key, known in _models(data).items():
        if known != stored[MODELS][key]:
            raise ValueError(f"{key} is not the model, or reads text otherwise, that {checkpoint} began with; {advice}")


def _models(data: StudentData) -> JsonObject:
    """Returns the identity of both models and how they read text, JSON-able."""
    found: JsonObject = {}
    for key, model in (("init_from", data.student), ("teacher", data.teacher)):
        characters = [model.metadata.get("char_vocab"), *model.metadata.get("pieces", ())]
        tokenizer = converter_of(model.family).open_tokenizer(model.folder)
        reads = [stable_hash(*characters), None if tokenizer is None else tokenizer.digest()]
        source = model.folder.parent if model.folder.name == checkpoints.FILES else model.folder
        found[key] = {"model": described(origin_at(source)), "reads": reads}
    return json.loads(json.dumps(found))


def changed(setup: Setup, run: Run) -> Setup:
    """Returns the parts of a run that resumes from states and keeps its best model apart."""
    config, folder, objective = setup.config, setup.folder, run.objective
    assert isinstance(objective, StudentAlignment)
    check_something_learns(objective, run.abstract_state.params, config.optim.freeze)
    metadata: JsonObject = {"config": setup.metadata["config"], **workdirs.text_of(objective.data)}
    metadata |= {"family": TASK, MODELS: _models(objective.data)}  # no family has that name: states are no model
    return dataclasses.replace(
        setup, metadata=metadata, states=STATES, write_files=None, course=lambda: Aligning(config, run, folder)
    )


def check_something_learns(objective: StudentAlignment, params: Params, freeze: Sequence[str]) -> None:
    """Raises ValueError if nothing that the student's vectors depend on is trained.

    Args:
      params: the shapes of all parameters.
      freeze: `optim.freeze`.
    """
    batch = jax.tree.map(lambda x: x[0], objective.sample())
    loss = lambda params: objective.loss_sums(params, batch, None).loss
    traced = jax.make_jaxpr(loss)(params).jaxpr
    _, used = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    kept = jax.tree.leaves(frozen(params, freeze))
    if not any(reaches and not stays for reaches, stays in zip(used, kept, strict=True)):
        raise ValueError(
            f"optim.freeze={tuple(freeze)} leaves nothing to be trained that the student's vectors depend on; the "
            "variant frozen is for a CharBERT, a Char2Subword or an XRayEmb"
        )


class Aligning(PreTraining):
    """The course of alignment: as in pre-training, but the best student is kept as a model."""

    _better = False

    def evaluate(self, step: int, state: TrainState) -> tuple[Judgement, dict[str, float]]:
        """Evaluates on held-out text; see `PreTraining.evaluate`."""
        found, metrics = super().evaluate(step, state)
        self._better = found.worth_saving
        return found, metrics

    def judged(self, step: int, state: TrainState, metrics: dict[str, float]) -> None:
        """Logs the held-out metrics, and keeps the student if it is the best so far."""
        super().judged(step, state, metrics)
        if not self._better:
            return
        config, objective = self._objective.config, self._objective
        assert isinstance(objective, StudentAlignment)
        model, params, settings = objective.student_of(state.params)
        about = {"alignment": config.to_dict(), "started_from": workdirs.started_from(config)}
        model = dataclasses.replace(model, metadata={**model.metadata, **about})
        beside = lambda made: write_settings(made, settings, objective.width)
        keep_best(self._folder, step, model, params, beside, anew=config.train.spike_policy == "restore")
