"""Checks the newest checkpoint of a run before it resumes, and sets damaged checkpoints aside (`--skip_damaged`).

Open it when a run refuses to resume because of a damaged checkpoint.
"""

from __future__ import annotations

import logging
from pathlib import Path

from charlm.core import followers, hosts
from charlm.core.checkpoint import BEST_METRIC, check_whole, complete_steps
from charlm.core.reading import loads, read_bytes

log = logging.getLogger("charlm")

FLAG = "--skip_damaged"
SUFFIX = ".damaged"
METRICS = "metrics"  # orbax's name of a checkpoint's metrics, a folder and the JSON file in it


def check_newest_together(folder: Path, skip_damaged: bool) -> None:
    """Runs `check_newest` on process 0, while the others wait; every process must call it."""
    hosts.primary_first(lambda: check_newest(folder, skip_damaged) if hosts.is_primary() else None)
    if skip_damaged:
        followers.catch_up()


def check_newest(folder: Path, skip_damaged: bool) -> None:
    """Checks that the newest checkpoint of a run is undamaged, before the run resumes from it.

    Older ones are not read, but for their metrics, from which the best is known: one whose metrics cannot be read is
    renamed, too, since it would end the run.

    Args:
      folder: the folder of checkpoints.
      skip_damaged: rename damaged checkpoints, up to the newest undamaged one.

    Raises:
      ValueError: the newest checkpoint is damaged and `skip_damaged` is False, or all checkpoints are damaged; no
        checkpoint is renamed then.
    """
    damaged: list[Path] = []
    for step in sorted(complete_steps(folder), reverse=True):
        checkpoint = folder / str(step)
        try:
            check_whole(checkpoint)
            break
        except ValueError as error:
            if not skip_damaged:
                raise ValueError(f"{error}; {FLAG} sets damaged ones aside and goes on from a good one") from error
            log.warning("%s", error)
            damaged.append(checkpoint)
    else:
        if damaged:
            raise ValueError(f"no checkpoint in {folder} is whole: move {folder} away to start afresh")
        return
    for older in (folder / str(below) for below in complete_steps(folder) if below < step):
        if problem := _problem_of_metrics(older):
            log.warning("%s is damaged: %s", older, problem)
            damaged.append(older)
    for checkpoint in damaged:
        aside = _unused(checkpoint)
        checkpoint.rename(aside)
        log.warning("%s is set aside as %s", checkpoint, aside.name)


def _problem_of_metrics(checkpoint: Path) -> str:
    """Returns why orbax could not use the metrics of a checkpoint; "" if it can, or if there are none."""
    path = checkpoint / METRICS / METRICS
    try:
        metrics = loads(read_bytes(path)) if path.exists() else {BEST_METRIC: 0.0}
    except (ValueError, OSError) as error:
        return f"{path} cannot be read: {error}"
    if not isinstance(metrics, dict) or not isinstance(metrics.get(BEST_METRIC), int | float):
        return f"{path} has no number {BEST_METRIC!r}"
    return ""


def _unused(checkpoint: Path) -> Path:
    number, aside = 1, checkpoint.with_name(checkpoint.name + SUFFIX)
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f"{checkpoint.name}{SUFFIX}{number}")
    return aside
