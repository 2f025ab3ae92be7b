"""Runs workers in turn, one process for each path: A B C A B C ...

So a change in the speed of the machine affects all paths alike. Open it to change how workers are started, asked and
ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from charlm.core.types import JsonObject

log = logging.getLogger("charlm")

TAIL_LINES = 3  # lines of a dead worker's standard error that are reported
PATIENCE = 10  # seconds that a worker may take to end after `quit`


class WorkerDied(Exception):
    """Raised if a worker ended before it was told to; the message says how, in one line."""


@dataclasses.dataclass
class WorkerAnswers:
    """The answers of the workers.

    Attributes:
      ready: by path, its set-up.
      tokens: by path and batch, the mean number of tokens of a text and the padded length.
      work: by path and batch, the operations of a run; see `Runner.work`.
      rounds: by path and batch, the answers to `go`, one for each round; all paths have the same rounds.
      peaks: by path, the answer to `quit`.
      died: by path, why it has no figures.
      stopped: the interruption (Ctrl-C or SIGTERM) that ended the measurement early, if any. Then `rounds` has the
        rounds that all paths finished (no paths at all if there is no such round), and peaks may be missing.
    """

    ready: dict[str, JsonObject] = dataclasses.field(default_factory=dict)
    tokens: dict[str, list[tuple[float, int]]] = dataclasses.field(default_factory=dict)
    work: dict[str, list[dict[str, float]]] = dataclasses.field(default_factory=dict)
    rounds: dict[str, list[list[dict[str, float]]]] = dataclasses.field(default_factory=dict)
    peaks: dict[str, JsonObject] = dataclasses.field(default_factory=dict)
    died: dict[str, str] = dataclasses.field(default_factory=dict)
    stopped: KeyboardInterrupt | None = None

    def keep_whole_rounds(self) -> None:
        """Removes a round that not every path and batch has finished."""
        whole = min((len(rounds) for batches in self.rounds.values() for rounds in batches), default=0)
        self.rounds = {name: [rounds[:whole] for rounds in b] for name, b in self.rounds.items() if whole}
        log.info("stopped: %s finished %s kept", whole, "round is" if whole == 1 else "rounds are")


class Worker:
    """A process that answers commands with JSON lines; see `charlm.benchmark.worker`."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the worker
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            # With a process group of its own, Ctrl-C reaches only the parent, which ends all processes of the group.
            start_new_session=True,
            # Workers share an accelerator, so none may reserve most of its memory in advance.
            env=os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        )
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def ask(self, line: str) -> JsonObject:
        """Sends a command, unless it is "", and returns the answer.

        Raises:
          WorkerDied: the process ended without an answer.
        """
        with contextlib.suppress(BrokenPipeError):
            if line:
                self._questions.write(line + "\n")
                self._questions.flush()
        answer = self._answers.readline()
        if not answer.endswith("\n"):
            raise WorkerDied(self._last_words())
        return json.loads(answer)

    def _last_words(self) -> str:
        status = self._process.wait()
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").splitlines()
        tail = [line.strip() for line in lines if line.strip()][-TAIL_LINES:]
        return f"{self.name} died ({how}): {' | '.join(tail) or 'no word of why'}"

    def end(self) -> None:
        """Ends the process and all processes that it has started; may be called several times.

        After `quit`, waits up to `PATIENCE` seconds for the process to end by itself.
        """
        try:
            self._process.wait(timeout=PATIENCE if self._questions.closed else 0)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            with contextlib.suppress(BrokenPipeError):
                self._questions.close()
            self._answers.close()
            self._errors.close()

    def quit(self) -> JsonObject:
        """Sends `quit`, which ends the worker, and returns its peak memory."""
        answer = self.ask("quit")
        self._questions.close()
        return answer


def measure(
    commands: Mapping[str, Sequence[str]], batches: int, repeats: int, profile: dict[str, Path] | None = None
) -> WorkerAnswers:
    """Starts the workers one after another, then runs them in turn; a worker that dies is reported and left out.

    Ctrl-C, or a signal that is raised as a `KeyboardInterrupt`, ends the measurement early: see `Measured.stopped`.

    Args:
      commands: by path, the command of its worker.
      batches: the number of batches of each worker; every batch is run in every round.
      repeats: the number of rounds.
      profile: by path, the folder for a trace of one additional run.
    """
    measured, profile = WorkerAnswers(), profile or {}
    workers: dict[str, Worker] = {}
    try:
        for name, command in commands.items():
            log.info("%s: loading", name)
            workers[name] = Worker(name, command)
            with _reported(name, workers, measured):
                about = workers[name].ask("")
                measured.ready[name], measured.tokens[name] = about["ready"], about.get("tokens", [])
                measured.work[name] = about.get("work") or [{}] * batches
                measured.rounds[name] = [[] for _ in range(batches)]
        for number in range(repeats):
            log.info("round %s of %s", number + 1, repeats)
            for batch in range(batches):
                for name in list(workers):
                    with _reported(name, workers, measured):
                        measured.rounds[name][batch].append(workers[name].ask(f"go {batch}"))
        for name, worker in list(workers.items()):
            with _reported(name, workers, measured):
                if name in profile:
                    log.info("%s: trace in %s", name, worker.ask(f"profile 0 {profile[name]}")["profile"])
                measured.peaks[name] = worker.quit()
    except KeyboardInterrupt as stop:
        measured.stopped = stop
        measured.keep_whole_rounds()
    finally:
        for worker in workers.values():
            worker.end()
    return measured


@contextlib.contextmanager
def _reported(name: str, workers: dict[str, Worker], measured: WorkerAnswers) -> Iterator[None]:
    """If the worker dies in this context, reports it and removes it from `workers` and from the measurements."""
    try:
        yield
    except WorkerDied as error:
        workers.pop(name).end()
        for found in (measured.ready, measured.tokens, measured.work, measured.rounds):
            found.pop(name, None)
        measured.died[name] = str(error)
        log.error("error: %s; it has no figures", error)
