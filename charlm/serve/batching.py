"""Joins requests into batches: one thread computes, and all that came meanwhile and fits together is the next batch.

A request that the model refuses fails alone: if a joined batch fails, its requests are computed one by one. Open it to
change which requests share a batch, or what happens when too many wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

from charlm.serve.limits import Limits, Refused
from charlm.serve.models import Key

Compute = Callable[[Key, list[Any]], list[Any]]  # results of items that share a key, in their order
Count = Callable[[Key, int, int, float], None]  # tells of a batch: its key, requests, texts and seconds


MOST_PAUSE = 0.003  # seconds to wait for as many requests as there were; half as long as the last batch took, at most


class Job(NamedTuple):
    """A request that waits: its key, items and number of texts, and where its results go."""

    key: Key
    items: list[Any]  # as the ability has them
    texts: int
    results: Future[list[Any]]  # as the ability has them


class Batcher:
    """Computes requests in one thread, joined into batches.

    Args:
      compute: computes items that share a key; raises ValueError for an item that the model refuses.
      limits: how many texts a batch has, and how many requests may wait.
      count: told of every batch that was computed.
    """

    def __init__(self, compute: Compute, limits: Limits, count: Count) -> None:
        self._compute, self._limits, self._count = compute, limits, count
        self._jobs: deque[Job] = deque()
        self._running: list[Job] = []
        self._expected, self._pause = 1, 0.0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)

    def start(self) -> None:
        """Starts the thread; requests that came before are computed first."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of requests that wait, without those being computed."""
        return len(self._jobs)

    def submit(self, key: Key, items: list[Any], texts: int) -> Future[list[Any]]:  # as the ability has them
        """Returns where the results of a request will be; one that is cancelled there is not computed.

        Args:
          key: requests with equal keys may share a batch.
          items: what the results are computed from, one each.
          texts: how many texts they hold.

        Raises:
          Refused: too many requests wait, or the server stops.
        """
        with self._changed:
            if self._stopping:
                raise Refused(503, "the server is stopping", retry_after=1)
            if len(self._jobs) >= self._limits.queue:
                self._jobs = deque(job for job in self._jobs if not job.results.cancelled())
            if len(self._jobs) >= self._limits.queue:
                raise Refused(429, f"{len(self._jobs)} requests wait already (--queue)", retry_after=1)
            job = Job(key, items, texts, Future())
            self._jobs.append(job)
            if len(self._jobs) in (1, self._expected):
                self._changed.notify()
        return job.results

    def stop(self, seconds: float) -> bool:
        """Takes no further requests, and returns whether all that waited were computed within some seconds.

        Those that were not are refused.
        """
        end = time.monotonic() + seconds
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(max(0.0, end - time.monotonic()))
        with self._changed:
            left, self._jobs = [*self._running, *self._jobs], deque()
        for job in left:
            _end(job, Refused(503, "the server has stopped", retry_after=1))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._stopping)
                if not self._jobs:
                    return
                # Clients that were just answered ask again at once: together they are cheaper than one after another.
                self._changed.wait_for(lambda: len(self._jobs) >= self._expected or self._stopping, self._pause)
                batch = self._next()
                self._running = [job for job in batch if job.results.set_running_or_notify_cancel()]
                del batch  # or what it holds would be kept until the next request
            start = time.monotonic()
            if self._running:
                self._answer(self._running)
            self._expected = len(self._running) + len(self._jobs)
            self._pause = min(MOST_PAUSE, (time.monotonic() - start) / 2) if self._expected > 1 else 0.0
            self._running = []

    def _next(self) -> list[Job]:
        """Takes the oldest request, and those that may join it in their order."""
        first = self._jobs.popleft()
        batch, texts, others = [first], first.texts, deque[Job]()
        while self._jobs and texts < self._limits.max_batch:
            job = self._jobs.popleft()
            if job.key == first.key and texts + job.texts <= self._limits.max_batch:
                batch.append(job)
                texts += job.texts
            else:
                others.append(job)
        self._jobs.extendleft(reversed(others))
        return batch

    def _answer(self, batch: list[Job]) -> None:
        start = time.monotonic()
        try:
            results = self._compute(batch[0].key, [item for job in batch for item in job.items])
        except Exception as error:  # whatever the model raises: the thread must go on
            if len(batch) > 1:
                for job in batch:
                    self._answer([job])
                return
            _end(batch[0], error)
            return
        self._count(batch[0].key, len(batch), sum(job.texts for job in batch), time.monotonic() - start)
        at = 0
        for job in batch:
            _end(job, results[at : at + len(job.items)])
            at += len(job.items)


def _end(job: Job, found: list[Any] | Exception) -> None:  # results as the ability has them
    """Gives a request its results or its error, unless it was ended before."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(found, Exception):
            job.results.set_exception(found)
        else:
            job.results.set_result(found)
