"""Where a fine-tuning run stands, and what it says on its way."""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import numpy as np

from charlm.tasks.base import TaskSums


class Stopped(Exception):
    """A signal asked the run to stop; everything is saved."""


class Place(NamedTuple):
    """The next batch: of which epoch, from 0, and which of its batches."""

    epoch: int
    batch: int


class Position:
    """Where a run stands, as `charlm.checkpoint_store.Checkpoints` saves and restores it."""

    def __init__(self) -> None:
        self.place = Place(0, 0)

    def get_state(self) -> dict[str, int]:
        """Returns it as JSON."""
        return self.place._asdict()

    def set_state(self, state: dict[str, int]) -> None:
        """Goes there."""
        self.place = Place(**state)


class Window:
    """Sums since the last progress line."""

    def __init__(self) -> None:
        self._sums, self._norm, self._steps = np.zeros(3), 0.0, 0
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
        self._sums += np.array([float(x) for x in sums])
        self._norm, self._steps = self._norm + float(norm), self._steps + 1

    def pause(self, seconds: float) -> None:
        """Leaves time out of the speed."""
        self._started += seconds

    def scalars(self) -> dict[str, float]:
        """Returns the metrics of the window."""
        seconds = time.perf_counter() - self._started
        loss, weight, right = self._sums.tolist()
        steps = max(self._steps, 1)
        return {
            "loss": loss / max(weight, 1),
            "right": right / max(weight, 1),
            "grad_norm": self._norm / steps,
            "ms_per_step": 1000 * seconds / steps,
        }


def shown(scores: dict[str, float]) -> str:
    """Returns scores as people read them."""
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items() if isinstance(value, int | float))
