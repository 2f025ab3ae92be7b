"""Where a fine-tuning run stands, and what it says on its way."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from charlm.tasks.base import TaskSums


class Stopped(Exception):
    """A signal asked the run to stop; everything is saved."""


class Place(NamedTuple):
    """The next batch: of which epoch, from 0, and which of its batches."""

    epoch: int
    batch: int


class Best:
    """The best development score so far, and how many epochs ago it was first reached."""

    def __init__(self, score: float = -math.inf, since: int = 0) -> None:
        self.score, self.since = score, since

    def add(self, score: float) -> bool:
        """Counts an epoch with its score; returns whether it is better than all before. An equal one is not."""
        better = score > self.score
        self.score, self.since = (score, 0) if better else (self.score, self.since + 1)
        return better


class Position:
    """Where a run stands, as `charlm.core.checkpoint_store.Checkpoints` saves and restores it."""

    def __init__(self) -> None:
        self.place = Place(0, 0)
        self.best: Best | None = Best()  # None: of a checkpoint that does not hold it

    def get_state(self) -> dict[str, Any]:
        """Returns it as JSON."""
        best = self.best and {"score": self.best.score, "since": self.best.since}
        return self.place._asdict() | {"best": best}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes there."""
        self.place = Place(state["epoch"], state["batch"])
        self.best = Best(**state["best"]) if state.get("best") else None

    def best_among(self, scores: Iterable[float]) -> Best:
        """Returns the best score; where the checkpoint did not hold it, that of these, of all epochs in order."""
        if self.best is None:
            self.best = Best()
            for score in scores:
                self.best.add(score)
        return self.best


class Window:
    """Sums since the last progress line.

    They travel with the checkpoints, so that the metrics of a resumed run are those of an unbroken one.

    Args:
      unreported: sums that were saved for the next line; empty: there are none.
    """

    def __init__(self, unreported: Sequence[float] = ()) -> None:
        # Loss, weight and right answers of the task, gradient norms, and steps.
        self.unreported = list(unreported or [0.0] * (len(TaskSums._fields) + 2))
        self._steps = 0  # of this process: they give the speed
        self.start()

    def start(self) -> None:
        """Starts the clock."""
        self._started = time.perf_counter()

    def read(self, unread: tuple[int, TaskSums, jax.Array] | None) -> None:
        """Adds the sums of a step; ValueError when they are not finite."""
        if unread is None:
            return
        step, sums, norm = unread
        sums, norm = jax.device_get((sums, norm))
        if not (np.isfinite(sums.loss) and np.isfinite(norm)):
            raise ValueError(
                f"step {step}: loss {sums.loss}, gradient norm {norm}; a smaller optim.learning_rate may help"
            )
        added = [*(float(x) for x in sums), float(norm), 1.0]
        self.unreported = [a + b for a, b in zip(self.unreported, added, strict=True)]
        self._steps += 1

    def pause(self, seconds: float) -> None:
        """Leaves time out of the speed."""
        self._started += seconds

    def scalars(self) -> dict[str, float]:
        """Returns the metrics of the window."""
        seconds = time.perf_counter() - self._started
        loss, weight, right, norms, steps = self.unreported
        return {
            "loss": loss / max(weight, 1),
            "right": right / max(weight, 1),
            "grad_norm": norms / max(steps, 1),
            "ms_per_step": 1000 * seconds / max(self._steps, 1),
        }


def shown(scores: dict[str, float]) -> str:
    """Returns scores as people read them."""
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if isinstance(value, int | float))
