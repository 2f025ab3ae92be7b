"""Pre-training in stages: each stage is an ordinary run in a folder of its own that starts from the stage before it.

    runs/c2s/1_approximation  2_contextual  3_approximation

The same command resumes wherever training stopped; finished stages are logged and left unchanged. Before anything
trains, the module checks that later stages can be built, and that no stage started from another checkpoint than the one
that the stage before it now has. Char2Subword is trained in stages; open this module to change how one stage hands over
to the next.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import ml_collections

from charlm.config.pretraining import set_by
from charlm.core import checkpoint as checkpoints
from charlm.core import followers, hosts
from charlm.families.family import family
from charlm.families.lookup import prepare
from charlm.training.run import build
from charlm.training.train import train
from charlm.training.workdir import folder_of, newest_step, origin_of

log = logging.getLogger("charlm")


class Stage(NamedTuple):
    """A stage of a run: its config with `init_from` set, its folder, and its latest saved step; None: not begun."""

    config: ml_collections.ConfigDict
    folder: Path
    done: int | None

    @property
    def finished(self) -> bool:
        """Whether the stage has done all its steps."""
        return self.done is not None and self.done >= self.config.train.steps


def pretrain(config: ml_collections.ConfigDict, workdir: str, profile: str = "", skip_damaged: bool = False) -> bool:
    """Trains a run of pre-training, in stages if its family has them; returns whether it is finished.

    Args:
      profile, skip_damaged: as in `train_stages`.

    Raises:
      ValueError: as in `train_stages`.
    """
    program = train_stages if family(config.family).has_stages else train
    return program(config, workdir, profile, skip_damaged)


def train_stages(
    config: ml_collections.ConfigDict, workdir: str, profile: str = "", skip_damaged: bool = False
) -> bool:
    """Trains all stages that a config names; returns whether the last one is finished.

    Args:
      profile: folder for traces, with a subfolder for each stage that trains; "": none.
      skip_damaged: as in `charlm.training.train.train`, for each stage.

    Raises:
      ValueError: as in `charlm.training.train.train`. Also, before anything trains: a later stage cannot be built, or
        started from another checkpoint than the stage before it has; names the folders to remove.
    """
    if config.stage:
        return train(family(config.family).of_stage(config, config.stage), workdir, profile, skip_damaged)
    if config.resume:
        raise ValueError(f"resume={config.resume} is one stage's run: name the stage that goes on with it in `stage`")
    stages = _plan(config, folder_of(workdir))
    _check_sources(stages)
    begun = max((at for at, stage in enumerate(stages) if stage.done is not None), default=0)
    for at, stage in enumerate(stages):
        log.info("stage %d of %d: %s", at + 1, len(stages), stage.config.stage)
        followers.catch_up()  # this stage starts from what the one before it has written
        if stage.done is None and at < begun:
            log.info("%s is gone; %s goes on without it", stage.folder, stages[begun].folder.name)
            continue
        if not stage.finished:
            _check_later(stage, stages[at + 1 :])
        own_profile = str(Path(profile) / stage.folder.name) if profile else ""
        if not train(stage.config, str(stage.folder), own_profile, skip_damaged):
            return False
    return True


def _plan(config: ml_collections.ConfigDict, workdir: Path) -> list[Stage]:
    stages: list[Stage] = []
    for number, name in enumerate(config.stages, start=1):
        own, folder = family(config.family).of_stage(config, name), workdir / f"{number}_{name}"
        if stages:
            own.init_from = str(stages[-1].folder)
        stages.append(Stage(own, folder, newest_step(folder)))
    return stages


def _check_sources(stages: Sequence[Stage]) -> None:
    """Checks that every started stage began with the final checkpoint of the stage before it, if that still exists."""
    for at, (before, stage) in enumerate(itertools.pairwise(stages), start=1):
        later = [s for s in stages[at:] if s.done is not None]
        if before.done is None or not later:
            continue
        origin = None if stage.done is None else origin_of(stage.folder)
        there = checkpoints.identity(before.folder)
        same = origin is None or origin == there
        if before.finished and same:
            continue
        now = f"now there is {there}"
        redo = f"remove {', '.join(str(s.folder) for s in later)} to redo {'it' if len(later) == 1 else 'them'}"
        if not before.finished:
            steps = set_by(before.config, "train.steps")
            now += f", to be trained on to {steps}={before.config.train.steps}"
            redo += f", or set {steps}={before.done}" if same else ""
        was = f" ({origin})" if origin else ""
        raise ValueError(f"{later[0].folder.name} started from {before.folder.name}{was}, but {now}: {redo}")


def _check_later(now: Stage, later: Sequence[Stage]) -> None:
    """Builds each later stage of another kind, so that missing data or a wrong config shows before anything trains."""
    kinds = {stage.config.stage: stage for stage in reversed(later) if stage.done is None}
    run = None if now.done is None else now.folder
    for kind, stage in kinds.items():
        if kind != now.config.stage:
            own = stage.config.copy_and_resolve_references()
            own.init_from = now.config.init_from
            build(own, hosts.primary_first(lambda own=own: prepare(own, run)))
