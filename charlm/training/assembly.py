"""Puts a run together: checkpoints, first state, files and loop, the same way for pre-training and fine-tuning.

`charlm.training.train` and `charlm.finetune.fine_tuning` say in a `Setup` what differs between them. Open this module
to change what every run opens, writes or checks before its first step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ml_collections

from charlm.core import checkpoint as checkpoints
from charlm.core import hosts, run_log
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.frozen import at_start
from charlm.core.local_store import LocalCheckpoints
from charlm.core.memory import give_memory_back
from charlm.core.metric_writer import MetricWriter
from charlm.core.profiling import StepProfiler
from charlm.core.types import JsonObject
from charlm.training.course import Batches, Course
from charlm.training.first_state import Start, resumed
from charlm.training.goodput import Goodput
from charlm.training.loop import Loop
from charlm.training.program import Program
from charlm.training.records import RunRecorder
from charlm.training.saving import Saving
from charlm.training.spikes import Spikes, kept_to_go_back
from charlm.training.workdir import started_from


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a run is put together from.

    Attributes:
      config: config of the run.
      folder: the run's folder.
      program: the compiled step.
      batches: the batches of training; closed when the run ends.
      metadata: what is stored with each checkpoint.
      first: makes the state to start from if the folder holds no checkpoint.
      course: makes the run's schedule; called once the metrics in the folder end with the step that is started from.
      profiler: traces a few steps.
      workdir: the folder as the user named it; "": `folder`.
      keep: how many checkpoints are kept beside the best one.
      states: name of the folder in `folder` that holds the checkpoints to resume from.
      resumes: the checkpoint of another run that `first` resumes from; None: it resumes none.
      write_files: as in `charlm.core.checkpoint_store.Checkpoints`.
      write_start: writes the files that describe the run, on the first process.
    """

    config: ml_collections.ConfigDict
    folder: Path
    program: Program
    batches: Batches
    metadata: JsonObject
    first: Callable[[], Start]
    course: Callable[[], Course]
    profiler: StepProfiler
    workdir: str = ""
    keep: int = 1
    states: str = checkpoints.FOLDER
    resumes: Path | None = None
    write_files: Callable[[Path], None] | None = None
    write_start: Callable[[], None] = lambda: None


@contextmanager
def assembled(setup: Setup) -> Iterator[tuple[Loop, int, list[float]]]:
    """Yields the loop of a run, and its step and unreported sums to start from; closes the run's files afterwards.

    All processes must enter it.

    Raises:
      ValueError: the state to start from is not usable, or a file cannot be written.
    """
    config, folder, program, batches = setup.config, setup.folder, setup.program, setup.batches
    keep = max(setup.keep, kept_to_go_back(config.train))
    store = Checkpoints(folder, keep, setup.metadata, setup.states, setup.write_files)
    with ExitStack() as stack:
        stack.callback(store.close)
        stack.callback(batches.close)
        latest, local = store.latest, None
        if config.train.local_dir:
            local = LocalCheckpoints(config.train, folder, new=latest is None)
            stack.callback(local.close)
        source = setup.resumes if latest is None else store.folder(latest)
        past = {} if source is None else checkpoints.description(source)
        store.describe(started_from=past.get("started_from") or started_from(config))
        state, start, unreported = (
            setup.first() if latest is None else resumed(store, local, program.abstract_state, batches)
        )
        give_memory_back()
        frozen = at_start(state.params, config.optim.freeze, past)
        store.describe(frozen=frozen)
        writer = goodput = None
        if hosts.is_primary():
            setup.write_start()
            run_log.begin()
            # A new run evaluates step 0 again, so lines of step 0 are removed, too.
            writer = MetricWriter(folder, resume_step=start or -1)
            stack.callback(writer.close)
            goodput = Goodput(folder, start)
        stack.callback(setup.profiler.close)
        course, spikes = setup.course(), Spikes(config.train, folder, start)
        saving = Saving(store, local, batches, setup.workdir or folder)
        recorder = RunRecorder(writer, goodput, saving)
        loop = Loop(program, course, state, batches, saving, recorder, setup.profiler, frozen, spikes)
        del state  # the loop alone holds it, or it could not free its memory
        yield loop, start, unreported
