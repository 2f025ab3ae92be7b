"""Records a run while it trains: its metrics, and how much of its time was useful (goodput).

Only one process of the run writes; in the others the methods do nothing. Open it to record something else.
"""

from __future__ import annotations

import logging

from charlm.core.metric_writer import MetricWriter
from charlm.training.goodput import Goodput
from charlm.training.saving import Saving

log = logging.getLogger("charlm")


class RunRecorder:
    """Records a run. If something cannot be written, it raises ValueError and says from where the run can go on.

    Args:
      writer: writer of metrics; None: another process writes them.
      goodput: account of the run's time; None: another process keeps it.
      saving: the checkpoints of the run.
    """

    def __init__(self, writer: MetricWriter | None, goodput: Goodput | None, saving: Saving) -> None:
        self._writer, self._goodput, self._saving = writer, goodput, saving

    def write(self, step: int, scalars: dict[str, float]) -> None:
        """Writes the metrics of a step."""
        if self._writer is not None:
            with self._saving.naming(step):
                self._writer.write(step, scalars)

    def sync(self, step: int) -> None:
        """Waits until the metrics so far are on disk."""
        if self._writer is not None:
            with self._saving.naming(step):
                self._writer.sync()

    def add_time(self, step: int, seconds: float) -> dict[str, float]:
        """Adds the time of the last steps to the account; returns the goodput, where this process has it."""
        if self._goodput is None:
            return {}
        with self._saving.naming(step):
            return {"goodput": self._goodput.add(step, seconds).share}

    def go_back(self, step: int) -> None:
        """Notes that the run goes on from this earlier step."""
        if self._writer is not None:
            self._writer.go_back(step)
        if self._goodput is not None:
            self._goodput.go_back(step)

    def log_time(self) -> None:
        """Logs what became of the time of the run."""
        if self._goodput is not None:
            log.info("%s", self._goodput.line())
