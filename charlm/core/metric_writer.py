"""Writes the metrics of a run as JSON lines, and also as TensorBoard events if tensorboardX is installed.

Open it to change the format of `metrics.jsonl`; `charlm.training.progress` reads it again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from charlm.core.durable import write_text
from charlm.core.reading import loads

if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter

METRICS_FILE = "metrics.jsonl"

log = logging.getLogger("charlm")

_printed = False  # whether the command line asked for metrics on standard output


def print_metrics(wanted: bool) -> None:
    """Chooses whether runs of this process also print their metrics on standard output.

    A line is that of the file with the name of the run's folder, which tells runs of several seeds or folds apart. A
    run goes on if nobody reads them any more.
    """
    global _printed
    _printed = wanted


def _print(line: str) -> None:
    global _printed
    if sys.stdout is None:  # it was closed before the process began
        return
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except OSError as error:  # nobody reads on, or the disk is full
        _printed = False
        if not isinstance(error, BrokenPipeError):
            log.warning("standard output: %s; from now on metrics are in the file alone", error.strerror)
        # What is left in the buffer would fail again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse_line(line: str) -> dict[str, float] | None:
    """Returns the metrics of a line; None if it is damaged."""
    try:
        metrics = loads(line)
    except ValueError:
        return None
    if not isinstance(metrics, dict) or not isinstance(metrics.get("step"), int):
        return None
    return metrics if all(isinstance(value, int | float) for value in metrics.values()) else None


class MetricWriter:
    """Appends scalars to `<workdir>/metrics.jsonl`, one JSON object per line, with its step.

    Args:
      workdir: folder of the run.
      resume_step: lines of later steps are removed, so that a resumed run leaves the same file as an uninterrupted one.
    """

    def __init__(self, workdir: str | os.PathLike[str], resume_step: int = 0) -> None:
        self._path = Path(workdir) / METRICS_FILE
        self._open(resume_step)

    def _open(self, resume_step: int) -> None:
        self._cut_after(resume_step)
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close())
        self._board = _Board.open(self._path.parent / "tensorboard", resume_step)

    def go_back(self, step: int) -> None:
        """Removes the lines of later steps, since the run goes on from this one; ValueError if that fails."""
        self.close()
        try:
            self._open(step)
        except OSError as error:
            raise ValueError(f"{self._path.parent}: metrics cannot be written: {error.strerror}") from error

    def _cut_after(self, step: int) -> None:
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        read = [parse_line(line) if line.endswith("\n") else None for line in lines]
        kept = [n for n, metrics in enumerate(read) if metrics is not None and metrics["step"] <= step]
        if damaged := read[: kept[-1]].count(None) if kept else 0:  # the last line of all may be half of a later step's
            log.warning("%s: %d damaged lines left out; their metrics are lost", self._path, damaged)
        if len(kept) < len(lines):
            write_text(self._path, "".join(lines[n] for n in kept))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the scalars of a step.

        Raises:
          ValueError: they cannot be written.
        """
        line = json.dumps({"step": step, **scalars}) + "\n"
        try:
            self._file.write(line)
            self._file.flush()
            if self._board is not None:
                self._board.write(step, scalars)
        except OSError as error:
            raise ValueError(f"{self._path.parent}: metrics cannot be written: {error.strerror}") from error
        if _printed:
            _print(json.dumps({"run": self._path.parent.name, "step": step, **scalars}) + "\n")

    def sync(self) -> None:
        """Waits until all lines are on disk, where a power cut leaves them; ValueError if that fails."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ValueError(f"{self._path.parent}: metrics cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Closes the files; everything written was flushed already."""
        for file in (self._file, self._board):
            with contextlib.suppress(OSError):  # a full disk, which `write` has reported
                if file is not None:
                    file.close()


class _Board:
    """Writes TensorBoard events in the calling thread.

    tensorboardX's own writer uses a thread, in which a full disk causes a traceback at the end of the program.
    """

    def __init__(
        self, writer: EventsWriter, event: Callable[..., object], scalar: Callable[[str, float], object]
    ) -> None:
        """Takes an `EventsWriter`, its class of events, and a function that makes an event's content."""
        self._writer, self._event, self._scalar = writer, event, scalar

    @classmethod
    def open(cls, folder: Path, resume_step: int) -> _Board | None:
        """Returns a writer whose first event voids all events after `resume_step`; None without tensorboardX."""
        try:
            from tensorboardX import event_file_writer, summary

            # Protobuf creates these classes when the module is loaded, so pyright does not see them.
            from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        except ImportError:
            return None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            board = cls(event_file_writer.EventsWriter(str(folder / "events")), Event, summary.scalar)
            board._add(step=resume_step + 1, session_log=SessionLog(status=SessionLog.START))
        except OSError as error:
            raise ValueError(f"{folder} cannot be written: {error.strerror}") from error
        return board

    def _add(self, **content: object) -> None:
        self._writer.write_event(self._event(wall_time=time.time(), **content))
        self._writer.flush()

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.write_event(self._event(wall_time=time.time(), step=step, summary=self._scalar(name, value)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
