"""Profiles a few training steps (`--profile`): a trace of what the device did when.

Open it to change which steps are traced and what the trace contains.
"""

from __future__ import annotations

import logging
from pathlib import Path

import jax

from charlm.core.types import Tree

log = logging.getLogger("charlm")

SKIPPED = 5  # steps before the trace starts, so that it leaves out compilation and the filling of queues
TRACED = 3  # steps in the trace: enough to see what repeats, few enough to open the file


def trace_options() -> jax.profiler.ProfileOptions:
    """Returns profiler options that trace programs and the runtime, but not every Python call.

    Python calls would make up most of the trace, and tracing them in all threads slows steps down and has crashed
    processes.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return options


class StepProfiler:
    """Traces `TRACED` steps of a run, after its first `SKIPPED`.

    Args:
      folder: where the trace is written, in the formats of TensorBoard's profile plugin and of Perfetto; "": no trace.

    Raises:
      ValueError: the folder cannot be created.
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
        """Starts the trace if its first step follows; `number` counts the steps of this run from 1."""
        if self._folder and number == SKIPPED + 1:
            jax.profiler.start_trace(self._folder, create_perfetto_trace=True, profiler_options=trace_options())
            self._tracing = True

    def after(self, number: int, state: Tree) -> None:
        """Ends the trace if this was its last step."""
        if self._tracing and number >= SKIPPED + TRACED:  # more where the last one was a spike
            jax.block_until_ready(state)
            self.close()
            log.info(
                "%d steps traced in %s: its perfetto_trace.json.gz opens in ui.perfetto.dev, the folder in "
                "TensorBoard's profile plugin",
                TRACED, self._folder,
            )  # fmt: skip

    def close(self) -> None:
        """Writes the trace so far, if the run ends before the trace's last step."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()
