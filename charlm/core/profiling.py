"""A trace of a few training steps: what the device did when."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import jax

log = logging.getLogger("charlm")

SKIPPED = 5  # steps before the trace: compilation and first fillings of queues are not what one wants to see
TRACED = 3  # steps: enough to see what repeats, little enough to open


def trace_options() -> jax.profiler.ProfileOptions:
    """Returns what is traced: programs and what the runtime does, not every call of Python.

    Those would make most of the trace, and following them in all threads slows steps down and has ended processes.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return options


class StepProfiler:
    """Traces `TRACED` steps of a run, after its first `SKIPPED`.

    Args:
      folder: where the trace goes, in the format of TensorBoard's profile plugin and of Perfetto; "": no trace.

    Raises:
      ValueError: when the folder cannot be made.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._tracing = False
        if folder:
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(f"--profile={folder} cannot be written: {error.strerror}") from error

    def before(self, number: int) -> None:
        """Begins the trace when it is time; `number` counts the steps of this run from 1."""
        if self._folder and number == SKIPPED + 1:
            jax.profiler.start_trace(self._folder, create_perfetto_trace=True, profiler_options=trace_options())
            self._tracing = True

    def after(self, number: int, state: Any) -> None:
        """Ends the trace when the last of its steps is done."""
        if self._tracing and number == SKIPPED + TRACED:
            jax.block_until_ready(state)
            self.close()
            log.info(
                "%d steps traced in %s: its perfetto_trace.json.gz opens in ui.perfetto.dev, the folder in "
                "TensorBoard's profile plugin",
                TRACED, self._folder,
            )  # fmt: skip

    def close(self) -> None:
        """Writes what was traced, if the run ends before its last step."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()
