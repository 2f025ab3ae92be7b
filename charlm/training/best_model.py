"""Keeps the best model of a run as a checkpoint of its own, beside the states that the run resumes from.

For runs whose states hold more than the model, or less than all that it needs. Open it to change how such a model is
stored.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from charlm.convert.files import PARTIAL, new_folder
from charlm.core import checkpoint as checkpoints
from charlm.core import checksums, hosts
from charlm.core.types import Params
from charlm.families.pretrained import Pretrained


def keep_best(
    folder: Path,
    step: int,
    model: Pretrained,
    params: Params,
    beside: Callable[[Path], object] = lambda folder: None,
    *,
    anew: bool = False,
) -> None:
    """Saves a model as the best so far, and removes the previous best once it is complete; all processes must call it.

    Args:
      folder: the run's folder.
      step: the step that it was trained for.
      model: the model, with its metadata; its own parameters are not read.
      params: its parameters.
      beside: writes further files into the checkpoint's folder.
      anew: whether a model that was kept of the same step is replaced: that of a run that went back after a spike has
        seen other batches. Otherwise it is the same one, of a run that was killed and goes on.

    Raises:
      ValueError: it cannot be written, or the folder that the model was read from is gone.
    """
    params = params if hosts.alone() else hosts.on_host(params)
    place = folder / checkpoints.FOLDER
    if anew and hosts.is_primary():
        shutil.rmtree(place / str(step), ignore_errors=True)
    before = hosts.from_primary(checkpoints.complete_steps(place))
    if hosts.is_primary():
        for left in place.glob(f".*{PARTIAL}"):  # by a run that was killed while it saved
            shutil.rmtree(left, ignore_errors=True)
    if step not in before and hosts.is_primary():
        with new_folder(place / str(step), key="") as made:
            dataclasses.replace(model, params=params).save_pretrained(made)
            beside(made)
            checksums.write(made)  # of what lies beside the parameters, too
    elif step not in before:
        checkpoints.save_beside(params)
    if hosts.is_primary():
        for older in before:
            if older != step:
                shutil.rmtree(place / str(older), ignore_errors=True)
