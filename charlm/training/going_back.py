"""Takes a run back to a checkpoint after a loss spike, and past the batches up to the spike.

`charlm.training.spikes` decides whether a run goes back and to which checkpoint, and stores the decision. Open this
module to change the order in which the parts of a run go back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from charlm.core.spikes import Seen
from charlm.core.state import TrainState
from charlm.training.course import Batches, Course
from charlm.training.first_state import Start
from charlm.training.records import RunRecorder
from charlm.training.saving import Saving
from charlm.training.spikes import Spikes

log = logging.getLogger("charlm")


class GoBack(Exception):
    """Raised within the training loop to go back to a checkpoint.

    Attributes:
      checkpoint: its step.
      spike: the step of the spike.
    """

    def __init__(self, checkpoint: int, spike: int) -> None:
        super().__init__(f"back to step {checkpoint}, before the spike of step {spike}")
        self.checkpoint, self.spike = checkpoint, spike


class GoingBack:
    """Takes the parts of a run back to a checkpoint; all processes must make the same calls.

    Args:
      spikes: the spikes of the run.
      saving: its checkpoints.
      recorder: its metrics and times.
      batches: its batches.
      course: its schedule.
      progress: told what was done last, so that a run that takes long is not taken for one that hangs.
    """

    def __init__(
        self,
        spikes: Spikes,
        saving: Saving,
        recorder: RunRecorder,
        batches: Batches,
        course: Course,
        progress: Callable[[str], None],
    ) -> None:
        self._spikes, self._saving, self._recorder = spikes, saving, recorder
        self._batches, self._course, self._progress = batches, course, progress

    def spike(self, step: int, loss: float, seen: Seen, earliest: int | None) -> None:
        """Logs a spike, whose update the step left out.

        Args:
          earliest: the first step that the run may go back to; None: it may not.

        Raises:
          GoBack: there is a checkpoint to go back to, and the run may.
          ValueError: one spike too many in a row.
        """
        with self._saving.naming(step):
            self._spikes.note(step, loss, seen)
        checkpoint = None if earliest is None else self._saving.last_planned(self._spikes.most(step))
        if checkpoint is not None and earliest is not None and checkpoint >= earliest:
            raise GoBack(checkpoint, step)

    def go_back(self, back: GoBack, abstract_state: TrainState) -> Start:
        """Goes back to a checkpoint and past the batches up to a spike; returns what the run goes on from.

        A run that is killed before the file is written comes to the same spike again, since later checkpoints are gone.

        Raises:
          ValueError: one return too many in a row, or a file cannot be written.
        """
        step = back.checkpoint
        with self._saving.naming(back.spike):
            restored = self._spikes.restored(step, back.spike)
        self._saving.remove_after(step)
        with self._saving.naming(back.spike):
            self._spikes.add(restored)
        log.warning("going back to step %d", step)
        start = self._saving.restore(step, abstract_state)
        self._recorder.go_back(step)
        self.pass_over(step)
        self._course.went_back(step)
        return start

    def pass_over(self, step: int) -> None:
        """Takes the batches that are passed over after a checkpoint, if it has any."""
        count = self._spikes.to_pass_over(step)
        if count:
            log.warning("passing over %d batches after step %d, up to a spike", count, step)
        for at in range(count):
            next(self._batches)
            self._progress(f"passing over batch {at + 1}")
