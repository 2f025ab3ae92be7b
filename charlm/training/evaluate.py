"""Evaluation of a pre-training run on its held-out text: all of it once, always with the same masks.

Open it to change how held-out text is read; what is measured there is up to the family's objective.
"""

from __future__ import annotations

import jax
import numpy as np

from charlm.core import hosts
from charlm.core.types import Params
from charlm.training.run import Run


def evaluate(run: Run, params: Params, most: int = 0) -> dict[str, float]:
    """Returns the objective's metrics over the held-out batches, and the amount of text read, under its unit's name.

    Args:
      most: stop once this many units (words, subwords) are read; 0: read all.
    """
    objective, iterator = run.objective, iter(run.heldout_batches)
    sums, read = [], 0
    try:
        while not most or read < most:
            batch = next(iterator, run.empty)
            found = hosts.total(objective.count(batch))
            if not found:
                break
            sums.append(run.eval_step(params, run.place(batch)))
            read += found
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    # Added in float64 on the host: float32 sums would lose digits over a long evaluation.
    columns = zip(*jax.device_get(sums), strict=True) if sums else [()] * len(objective.sums._fields)
    total = objective.sums(*(np.sum([np.float64(x) for x in column]) for column in columns))
    return objective.summarize(total) | {objective.unit: float(read)}
