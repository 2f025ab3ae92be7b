"""A run in stages, one after another, each an ordinary run in a folder of its own that starts from the one before.

    runs/c2s/1_approximation  2_contextual  3_approximation

The same command goes on wherever it stopped: stages that are finished say so and are left as they are.
"""

from __future__ import annotations

import logging
from pathlib import Path

import ml_collections

from charlm import hosts
from charlm.pretraining.char2subword_config import CONTEXTUAL, of_stage
from charlm.pretraining.registry import prepare
from charlm.train import train
from charlm.workdir import newest_step

log = logging.getLogger("charlm")


def train_stages(config: ml_collections.ConfigDict, workdir: str, profile: str = "") -> bool:
    """Trains all stages that a config names; returns whether the last one is finished.

    Args:
      profile: as in `charlm.train.train`: of each stage that trains, in a folder of its own.

    Raises:
      ValueError: as `charlm.train.train`.
    """
    if config.stage:
        return train(of_stage(config, config.stage), workdir, profile)
    if config.resume:
        raise ValueError(f"resume={config.resume} is one stage's run: name the stage that goes on with it in `stage`")
    names = [f"{number}_{stage}" for number, stage in enumerate(config.stages, start=1)]
    if CONTEXTUAL in config.stages[1:] and newest_step(Path(workdir) / names[0]) is None:
        # What a later stage cannot do without, its text and a prediction head, is better missed before the first.
        hosts.primary_first(lambda: prepare(of_stage(config, CONTEXTUAL)))
    before = ""
    for number, (stage, name) in enumerate(zip(config.stages, names, strict=True), start=1):
        own = of_stage(config, stage)
        if before:
            own.init_from, own.resume = before, ""
        log.info("stage %d of %d: %s", number, len(config.stages), stage)
        folder = str(Path(workdir) / name)
        if not train(own, folder, str(Path(profile) / name) if profile else ""):
            return False
        before = folder
    return True
