"""Runs pieces of work on the workers of Apache Beam, as pipelines for any of Beam's runners.

A piece of work writes its results to files of the cache, which get their final names only when they are complete. So a
runner may do a piece of work twice, or again after a failure. Open this module to change which flags Beam gets, or how
its errors are reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import io
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from charlm.core import extras
from charlm.core.durable import write_json
from charlm.core.files import clear_write_errors, is_stale
from charlm.core.reading import read_json

T = TypeVar("T")

DIRECT = "DirectRunner"
MOST_PIECES = 20_000  # of a pipeline, which holds them in its description: services take some 10 MB
DONE = "DONE"  # the state of a pipeline that did all its work


@dataclasses.dataclass(frozen=True)
class BeamWorkers:
    """Does pieces of work in pipelines of Beam; see `charlm.data.spreading.Workers`.

    Attributes:
      folder: folder of the cache, on a file system that all workers share. Errors of the work are left here.
      flags: flags of Beam, with its `--runner`; those of `beam_flags`.
    """

    folder: str
    flags: tuple[str, ...]

    def run(self, title: str, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Does a piece of work for each item; see `charlm.data.spreading.Workers`."""
        for start in range(0, len(items), MOST_PIECES):
            self._run_some(title, work, items[start : start + MOST_PIECES])

    def _run_some(self, title: str, work: Callable[[T], None], items: Sequence[T]) -> None:
        beam = load_beam()

        def build(pipeline: Any, guarded: Callable[[tuple[int, T]], None]) -> None:  # Beam has no types here
            pieces = pipeline | "Pieces" >> beam.Create(list(enumerate(items))) | "Spread" >> beam.Reshuffle()
            _ = pieces | title.capitalize() >> beam.Map(guarded)

        self.run_pipeline(title, work, build)

    def run_pipeline(
        self,
        title: str,
        work: Callable[[T], None],
        build: Callable[[Any, Callable[[tuple[int, T]], None]], None],  # Any: a pipeline, as in `run`
    ) -> None:
        """Runs a pipeline and waits for its end.

        Args:
          title: what the work is, in a word.
          work: takes an item; as in `charlm.data.spreading.Workers`.
          build: adds steps to a pipeline, given the pipeline and `work`, which then takes numbered items.

        Raises:
          ValueError: what `work` raised for the first item for which it raised something, or the pipeline failed.
        """
        beam = load_beam()
        options = extras.load("charlm.data.beam", "apache_beam.options.pipeline_options").PipelineOptions(self.flags)
        failures = os.path.join(self.folder, f"failures-{os.urandom(8).hex()}")
        with clear_write_errors(self.folder):
            os.makedirs(failures)
            for left in glob.glob(os.path.join(glob.escape(self.folder), "failures-*")):
                if is_stale(left):  # of a killed command
                    shutil.rmtree(left, ignore_errors=True)
        try:
            pipeline = beam.Pipeline(options=options)
            build(pipeline, Guarded(work, failures))
            try:
                state = pipeline.run().wait_until_finish()
            except Exception as error:  # Beam raises whatever a worker, a runner or a service raised
                _raise_first(failures)
                raise ValueError(f"Beam's pipeline {title!r} failed: {_reason(error)}") from error
            _raise_first(failures)
            if state != DONE:  # some runners tell, and do not raise
                raise ValueError(f"Beam's pipeline {title!r} ended as {state}, expected {DONE}")
        finally:
            shutil.rmtree(failures, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class Guarded(Generic[T]):
    """Work that leaves its mistakes in a file, where the command finds them; Beam would wrap them in its own errors.

    A mistake in the text ends only this piece: the others are done, and the next run need not do them again. Trouble
    with the file system may pass, so it is raised, and the runner may try again.
    """

    work: Callable[[T], None]
    failures: str

    def __call__(self, numbered: tuple[int, T]) -> None:
        """Does the work for an item."""
        number, item = numbered
        if not os.path.isdir(self.failures):
            folder = os.path.dirname(self.failures)
            raise RuntimeError(f"a worker does not see {folder}: all workers must share the file system of the cache")
        path = os.path.join(self.failures, f"{number:012d}.json")
        try:
            self.work(item)
        except (ValueError, OSError) as error:
            write_json(path, {"message": str(error)})
            if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
                raise
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def _raise_first(failures: str) -> None:
    names = sorted(name for name in os.listdir(failures) if name.endswith(".json"))
    if names:
        message = str(read_json(os.path.join(failures, names[0]))["message"])
        more = f" (and {len(names) - 1} more such errors; what could be done is kept)" if len(names) > 1 else ""
        raise ValueError(f"{message}{more}")


def _reason(error: Exception) -> str:
    """Returns the last line of an error of Beam, whose text holds the tracebacks of workers, too."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip("~^ ")]
    return (lines[-1] if lines else type(error).__name__)[:500]


def load_beam() -> Any:  # the module of Beam, whose types are open
    """Imports Beam; raises ValueError, with the extra to install, if it is missing."""
    return extras.load("charlm.data.beam", "apache_beam")


def beam_flags(runner: str, given: Iterable[str], processes: int) -> tuple[str, ...]:
    """Returns the flags of Beam for a runner.

    Args:
      runner: Beam's name of it.
      given: further flags, as the user wrote them.
      processes: processes of the DirectRunner; 0: one per CPU core.

    Raises:
      ValueError: Beam is missing, or does not take a flag.
    """
    load_beam()
    flags = [f"--runner={runner}", *given]
    if runner != DIRECT:  # which flags there are, the services of other runners know
        return tuple(flags)
    names = {flag.partition("=")[0] for flag in flags}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = processes or cores
    if not names & {"--direct_num_workers", "--direct_running_mode"} and processes > 1:
        flags += [f"--direct_num_workers={processes}", "--direct_running_mode=multi_processing"]
    # Without this flag (no step here has a trigger, so it changes nothing else), the DirectRunner first downloads
    # another runner, Prism, and runs that.
    flags.append("--allow_unsafe_triggers")
    if "--default_sdk_harness_log_level" not in names:
        flags.append("--default_sdk_harness_log_level=CRITICAL")
    _check(flags)
    return tuple(flags)


def _check(flags: Sequence[str]) -> None:
    """Raises ValueError for flags that Beam does not know, or with values that it refuses."""
    options = extras.load("charlm.data.beam", "apache_beam.options.pipeline_options").PipelineOptions([*flags])
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            known = options.get_all_options()
            every = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        reason = said.getvalue().strip().splitlines()[-1].partition("error: ")[2]
        raise ValueError(f"flags for Beam: {reason}") from None
    unknown = sorted(every.keys() - known.keys())
    stray = [flag for flag in flags if not flag.startswith("-")]
    if unknown or stray:
        what = f"--{unknown[0]}" if unknown else stray[0]
        raise ValueError(f"flags for Beam: it does not know {what!r}; flags are written --name=value")
