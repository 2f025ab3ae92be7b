"""Runs the jobs of a league side by side, each in a process of its own, and stops them so that they save.

A job that fails stops those that need it; the others go on. Open it to change how jobs are started, stopped or placed
on devices.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from charlm.core import interrupts
from charlm.league.events import BEGIN, DONE, FAILED, STOPPED, Events
from charlm.league.jobs import Job
from charlm.league.places import Places

PAUSE = 0.2  # seconds between two looks at the processes
_DEVICES = "CUDA_VISIBLE_DEVICES"
_MEMORY = "XLA_CLIENT_MEM_FRACTION"  # share of a GPU's memory that a process takes at its start
_MEMORY_SET = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE")  # what else a user may have said
_SHARED_MEMORY = 0.9  # of a GPU, for all jobs on it
_DEVICE = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")  # a number, or the name that nvidia-smi -L gives
_PARENT_DIES = 1  # Linux: PR_SET_PDEATHSIG of prctl

log = logging.getLogger("charlm")


class Outcome(NamedTuple):
    """What became of the jobs.

    Attributes:
      done: names of the jobs whose results are there.
      failed: of each job that failed, why.
      waiting: names of the jobs that were not run, because others failed, or because of a signal.
      stopped: the number of the signal that stopped the league; 0: none did.
    """

    done: list[str]
    failed: dict[str, str]
    waiting: list[str]
    stopped: int


def chosen(jobs: Sequence[Job], names: Iterable[str]) -> list[Job]:
    """Returns the jobs of these names and all that they need, in the order of `jobs`."""
    by_name = {job.name: job for job in jobs}
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += by_name[name].needs
    return [job for job in jobs if job.name in wanted]


def slots_of(jobs: int, devices: str) -> list[dict[str, str]]:
    """Returns the environment variables of each place where a job can run.

    Args:
      jobs: number of jobs side by side; 0: one for each device, one where there are none. Jobs that share a device
        share its memory, unless the environment says how JAX takes it.
      devices: "auto": the GPUs of this machine, or those of CUDA_VISIBLE_DEVICES; "none"; or numbers between commas.

    Raises:
      ValueError: `jobs` is negative, or `devices` names none.
    """
    if jobs < 0:
        raise ValueError(f"--jobs={jobs}: expected a number from 0 on")
    if devices not in ("auto", "none") and not all(_DEVICE.fullmatch(one) for one in devices.split(",")):
        raise ValueError(f'--devices={devices}: expected "auto", "none", or numbers such as 0,1')
    found = _gpus() if devices == "auto" else [] if devices == "none" else devices.split(",")
    if not found:
        return [{}] * (jobs or 1)
    jobs = jobs or len(found)
    sharing = -(-jobs // len(found))
    memory = {}
    if sharing > 1 and not any(os.environ.get(name) for name in (_MEMORY, *_MEMORY_SET)):
        memory = {_MEMORY: f"{_SHARED_MEMORY / sharing:.3f}"}  # the first job would take three quarters of all
    return [{_DEVICES: found[number % len(found)]} | memory for number in range(jobs)]


def _gpus() -> list[str]:
    if (named := os.environ.get(_DEVICES)) is not None:
        return [device for device in named.split(",") if device.strip()]
    if not shutil.which("nvidia-smi"):
        return []
    told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    lines = told.stdout.splitlines() if not told.returncode else []
    return [str(number) for number, _ in enumerate(line for line in lines if line.startswith("GPU "))]


@contextlib.contextmanager
def alone(places: Places) -> Iterator[int]:
    """Locks a workdir against a second league; yields the descriptor that jobs inherit.

    The first lock is the league's, the second one is also held by its jobs: if a league is killed, its jobs save and
    end, and the next league waits for them.

    Raises:
      ValueError: another league is running there.
    """
    league = os.open(places.root / "league.lock", os.O_RDWR | os.O_CREAT, 0o666)
    jobs = os.open(places.root / "jobs.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _locked(league):
            raise ValueError(f"--workdir={places.root}: another league is running there")
        told = False
        while not _locked(jobs):
            if not told:
                log.info("waiting for the jobs of a league that was killed to save and end")
            told = True
            time.sleep(PAUSE)
        yield jobs
    finally:
        os.close(jobs)
        os.close(league)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Runner:
    """Runs jobs until all are done or can be done no more.

    Args:
      places: where logs lie.
      slots: environment variables of each place where a job can run.
      lock: descriptor that the jobs inherit.
      events: the log of the league.
    """

    def __init__(self, places: Places, slots: Sequence[Mapping[str, str]], lock: int, events: Events) -> None:
        self._places, self._slots, self._lock, self._events = places, slots, lock, events
        self._running: dict[int, _Running] = {}  # by the number of the slot
        self._stopped = 0

    def run(self, jobs: Sequence[Job]) -> Outcome:
        """Runs the jobs, which come after those that they need."""
        done: list[str] = []
        failed: dict[str, str] = {}
        for job in jobs:  # what is done shows at once, and is not looked at again
            if set(job.needs) <= set(done) and job.finished():
                done.append(job.name)
        todo = [job for job in jobs if job.name not in done]
        log.info("%d of %d jobs are done", len(done), len(jobs))
        with self._listening():
            while todo or self._running:
                if not self._stopped:
                    todo = self._start(todo, done, failed)
                if not self._running:
                    break
                time.sleep(PAUSE)
                self._collect(done, failed, len(jobs))
        return Outcome(done, failed, [job.name for job in jobs if job.name not in (*done, *failed)], self._stopped)

    def _start(self, todo: Sequence[Job], done: Sequence[str], failed: dict[str, str]) -> list[Job]:
        """Starts jobs in the free places; returns those that are left."""
        left = []
        for job in todo:
            free = next((number for number in range(len(self._slots)) if number not in self._running), None)
            if free is None or not set(job.needs) <= set(done):
                left.append(job)
                continue
            try:
                self._running[free] = one = self._begin(job, self._slots[free])
            except (ValueError, KeyError) as error:  # the result of another job is damaged
                self._fail(job.name, " ".join(str(error).split()), failed)
                continue
            if self._stopped:  # the signal came while the process was being made
                one.end(signal.SIGTERM)
        return left

    def _begin(self, job: Job, slot: Mapping[str, str]) -> _Running:
        path = self._places.log(job.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        command = job.command()
        self._events.add(BEGIN, job=job.name, **slot)
        log.info("begin   %s", job.name)
        with open(path, "ab") as output:
            output.write(f"$ {' '.join(command)}\n".encode())
            output.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **slot},
                start_new_session=True,  # Ctrl-C is for the league, which asks its jobs once to save and end
                pass_fds=(self._lock,),
                preexec_fn=_ending_with_parent(),
            )
        return _Running(job, process, path, time.monotonic())

    def _collect(self, done: list[str], failed: dict[str, str], total: int) -> None:
        """Takes note of the jobs that have ended."""
        for number, one in list(self._running.items()):
            status = one.process.poll()
            if status is None:
                continue
            del self._running[number]
            name, seconds = one.job.name, round(time.monotonic() - one.since, 1)
            if not status and one.job.finished():
                done.append(name)
                self._events.add(DONE, job=name, seconds=seconds)
                log.info("done    %s, %d of %d", name, len(done), total)
            elif self._stopped:
                self._events.add(STOPPED, job=name, seconds=seconds)
                log.info("stopped %s", name)
            else:
                why = last_line(one.log) if status else "it ended before its result was there"
                self._fail(name, why, failed, seconds=seconds, status=status)

    def _fail(self, name: str, why: str, failed: dict[str, str], **said: float) -> None:
        failed[name] = why
        self._events.add(FAILED, job=name, why=why, **said)
        log.info("failed  %s: %s", name, why)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Lets the first signal ask all jobs to save and end, and the second one end them at once."""

        def receive(number: int, frame: FrameType | None) -> None:
            again, self._stopped = self._stopped, number
            for one in list(self._running.values()):
                one.end(signal.SIGKILL if again else signal.SIGTERM)

        # Not those that are ignored, as nohup does with SIGHUP, and a shell with SIGINT of what runs behind it.
        asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handled = [number for number in asked if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, receive) for number in handled}
        try:
            with interrupts.deferred():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclasses.dataclass
class _Running:
    """A job that runs; `told` are the signals that it got, each once: a second SIGTERM would end it unsaved."""

    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    since: float
    told: set[int] = dataclasses.field(default_factory=set)

    def end(self, number: int) -> None:
        """Sends a signal to the processes of the job."""
        if number not in self.told:
            self.told.add(number)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


def last_line(path: Path) -> str:
    """Returns the last line of a log that says something; "" if there is none."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 65536))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return next((line.strip().removeprefix("error: ") for line in reversed(lines) if line.strip()), "")


def _ending_with_parent() -> Callable[[], None] | None:
    """Returns what a new process does first, on Linux: ask for SIGTERM when the league is killed, so that it saves."""
    if not sys.platform.startswith("linux"):
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PARENT_DIES, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed in between
            os._exit(1)

    return ask
