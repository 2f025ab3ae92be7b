"""Whether a run can go on from its newest checkpoint, and what becomes of one that is damaged."""

from __future__ import annotations

import logging
from pathlib import Path

from charlm.core.checkpoint import check_whole, complete_steps

log = logging.getLogger("charlm")

FLAG = "--skip_damaged"
SUFFIX = ".damaged"


def check_newest(folder: Path, skip_damaged: bool) -> None:
    """Checks that the newest checkpoint of a run is whole, before anything is built on it.

    Args:
      folder: of checkpoints. skip_damaged: set damaged ones aside, so that the newest is whole.

    Raises:
      ValueError: when it is damaged and may not be set aside, or there is no other; nothing is set aside then.
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
    for checkpoint in damaged:
        aside = _unused(checkpoint)
        checkpoint.rename(aside)
        log.warning("%s is set aside as %s", checkpoint, aside.name)


def _unused(checkpoint: Path) -> Path:
    number, aside = 1, checkpoint.with_name(checkpoint.name + SUFFIX)
    while aside.exists():
        number += 1
        aside = checkpoint.with_name(f"{checkpoint.name}{SUFFIX}{number}")
    return aside
