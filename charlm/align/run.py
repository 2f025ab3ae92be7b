"""Trains an aligned student, and keeps the best as a model that every command of charlm reads.

    runs/student/checkpoints/STEP   the best student so far: a model, with the files that say how texts become vectors
    runs/student/state/STEP         what the run resumes from: student, teacher and optimizer

`python -m charlm.align` calls it; the same call goes on where a run stopped. Open it to change what is kept; the loop
is `charlm.training.loop`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import ml_collections

from charlm.align.config import STUDENT
from charlm.align.objective import TEACHER, StudentAlignment, StudentData
from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.state import TrainState
from charlm.core.types import JsonObject
from charlm.families.family import family
from charlm.families.objective import Objective, RunData
from charlm.families.sentences import write_settings
from charlm.training import workdir as workdirs
from charlm.training.apart import Job, train_apart
from charlm.training.assembly import Setup
from charlm.training.best_model import keep_best
from charlm.training.course import Judgement
from charlm.training.progress import read_metrics
from charlm.training.run import Run
from charlm.training.train import PreTraining

STATES = "state"  # folder in the workdir
FROZEN = f"^{TEACHER}/"


def align(config: ml_collections.ConfigDict, workdir: str | os.PathLike[str], skip_damaged: bool = False) -> bool:
    """Trains as `config` says, or resumes the run in `workdir`; see `charlm.training.apart.train_apart`."""
    smaller = (
        f"lower data.batch_size (now {config.data.batch_size}) or data.max_length (now {config.data.max_length}), or "
        f"raise data.accumulation (now {config.data.accumulation})"
    )
    config.optim.freeze = tuple(dict.fromkeys((*config.optim.freeze, FROZEN)))
    hosts.primary_first(lambda: _check_states(Path(workdir), config.train.steps))
    job = Job(STUDENT, StudentAlignment, smaller, STATES, spared, check_text, changed)
    return train_apart(config, workdir, job, skip_damaged)


def _check_states(folder: Path, steps: int) -> None:
    """Raises ValueError if a run has ended and its states are gone: it would begin anew, and replace its student."""
    ended = max((int(line["step"]) for line in read_metrics(folder)), default=0) >= steps
    if ended and not checkpoints.complete_steps(folder / STATES):
        raise ValueError(
            f"{folder} holds a student that is trained, without {STATES}/, which more steps would go on from; choose "
            "another --workdir"
        )


def spared(data: StudentData) -> tuple[str, ...]:
    """Returns the names of the student's parameters without weight decay, as regular expressions."""
    return (*family(data.student.family).undecayed, *StudentAlignment.idle)


def check_text(checkpoint: Path, objective: type[Objective], data: RunData) -> None:
    """Checks that a run goes on with the text and the student that it began with; ValueError names what changed."""
    stored = checkpoints.description(checkpoint)
    before, now = stored.get("train_text"), workdirs.text_of(data)
    if before != now:
        raise ValueError(
            f"data.train changed since {checkpoint} was saved: [records, words] were {before}, are {now}; choose "
            "another --workdir"
        )


def changed(setup: Setup, run: Run) -> Setup:
    """Returns the parts of a run that resumes from states and keeps its best model apart."""
    config, folder = setup.config, setup.folder
    workdirs.check_source_kept(config, folder / STATES)
    metadata: JsonObject = {name: setup.metadata[name] for name in ("config", "train_text")}
    return dataclasses.replace(
        setup, metadata=metadata, states=STATES, write_files=None, course=lambda: Aligning(config, run, folder)
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
        keep_best(self._folder, step, model, params, lambda made: write_settings(made, settings, objective.width))
