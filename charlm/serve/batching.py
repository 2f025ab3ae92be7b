"""Joins requests into batches: a thread a model computes, and all that came meanwhile and fits together is the next.

A request that is more than a batch is computed in parts, and after each the others have their turn; it is dropped when
nobody waits for it any more. A request that the model refuses fails alone: if a joined batch fails, its requests are
computed one by one. Open it to change which requests share a batch, or what happens when too many wait.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

from charlm.serve.abilities import ABILITIES
from charlm.serve.limits import Limits, Refused
from charlm.serve.models import Key

Compute = Callable[[Key, list[Any]], list[Any]]  # results of items that share a key, in their order
Count = Callable[[Key, int, int, float], None]  # tells of a batch: its key, requests, texts and seconds
Check = Callable[[list[Any]], None]  # raises Refused if the results so far are more than the response may have


MOST_PAUSE = 0.003  # seconds to wait for as many requests as there were; half as long as the last batch took, at most


MOST_CHARACTERS = 16_384  # of a batch of several items: others should not wait for seconds


@dataclasses.dataclass(eq=False)
class Job:
    """A request that waits: its key, items and number of texts, where its results go, and those found so far.

    `check` is called with those found so far, after each part.
    """

    key: Key
    items: list[Any]  # as the ability has them
    texts: int
    check: Check
    results: Future[list[Any]] = dataclasses.field(default_factory=Future)  # as the ability has them
    found: list[Any] = dataclasses.field(default_factory=list)  # as the ability has them

    @property
    def over(self) -> bool:
        """Whether it has its results or its error, or nobody waits for them."""
        return self.results.done()

    def next_items(self, most_texts: int) -> list[Any]:  # as the ability has them
        """Returns the items of the next part: one, or more that are together no more than a batch may have."""
        rest = self.items[len(self.found) :]
        if not ABILITIES[self.key.ability].together:
            return rest[:1]
        part, characters = rest[: max(1, most_texts * len(self.items) // max(1, self.texts))], 0
        for n, item in enumerate(part):
            characters += _characters(item)
            if n and characters > MOST_CHARACTERS:
                return part[:n]
        return part


class Part(NamedTuple):
    """What is computed of a request in one batch."""

    job: Job
    items: list[Any]  # as the ability has them

    @property
    def texts(self) -> int:
        """The number of texts of its items."""
        return self.job.texts * len(self.items) // max(1, len(self.job.items))


class Batcher:
    """Computes requests of a model in one thread, joined into batches.

    Args:
      compute: computes items that share a key; raises ValueError for an item that the model refuses.
      limits: how many texts a batch has, and how many requests may wait.
      count: told of every batch that was computed.
      name: of the thread.
    """

    def __init__(self, compute: Compute, limits: Limits, count: Count, name: str = "batches") -> None:
        self._compute, self._limits, self._count = compute, limits, count
        self._jobs: deque[Job] = deque()
        self._running: list[Job] = []
        self._expected, self._pause = 1, 0.0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread; requests that came before are computed first."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of requests that wait and whose clients do, without those being computed."""
        with self._changed:
            return sum(not job.over for job in self._jobs)

    def submit(
        self,
        key: Key,
        items: list[Any],  # as the ability has them
        texts: int,
        check: Check = lambda found: None,
    ) -> Future[list[Any]]:  # as the ability has them
        """Returns where the results of a request will be; one that is cancelled there is not computed.

        Args:
          key: requests with equal keys may share a batch.
          items: what the results are computed from, one each.
          texts: how many texts they hold.
          check: ends the request, by raising Refused, when what was found so far is too much for a response.

        Raises:
          Refused: too many requests wait, or the server stops.
        """
        with self._changed:
            if self._stopping:
                raise Refused(503, "the server is stopping", retry_after=1)
            if len(self._jobs) >= self._limits.queue:
                self._jobs = deque(job for job in self._jobs if not job.over)
            if len(self._jobs) >= self._limits.queue:
                raise Refused(429, f"{len(self._jobs)} requests wait already (--queue)", retry_after=1)
            job = Job(key, items, texts, check)
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
                self._running = [part.job for part in batch]
            start = time.monotonic()
            if batch:
                self._answer(batch)
            with self._changed:
                self._jobs.extend(job for job in self._running if not job.over)  # behind those that came meanwhile
                self._expected = len(self._running) + len(self._jobs)
                self._running = []
            self._pause = min(MOST_PAUSE, (time.monotonic() - start) / 2) if self._expected > 1 else 0.0
            del batch  # or what it holds would be kept until the next request

    def _next(self) -> list[Part]:
        """Takes the oldest request, or a part of it, and those that may join it whole, in their order."""
        self._jobs = deque(job for job in self._jobs if not job.over)
        if not self._jobs:
            return []
        most, first = self._limits.max_batch, self._jobs.popleft()
        batch, others = [Part(first, first.next_items(most))], deque[Job]()
        texts, whole = batch[0].texts, len(first.found) + len(batch[0].items) == len(first.items)
        characters = sum(map(_characters, batch[0].items))
        while whole and ABILITIES[first.key.ability].together and self._jobs and texts < most:
            job = self._jobs.popleft()
            part = Part(job, job.items[len(job.found) :])
            more = sum(map(_characters, part.items))
            if job.key == first.key and texts + part.texts <= most and characters + more <= MOST_CHARACTERS:
                batch.append(part)
                texts, characters = texts + part.texts, characters + more
            else:
                others.append(job)
        self._jobs.extendleft(reversed(others))
        return batch

    def _answer(self, batch: list[Part]) -> None:
        start, key = time.monotonic(), batch[0].job.key
        try:
            results = self._compute(key, [item for part in batch for item in part.items])
        except BaseException as error:  # whatever the model raises, panics of other languages too: the thread goes on
            if len(batch) > 1:
                for part in batch:
                    self._answer([part])
                return
            _end(batch[0].job, error if isinstance(error, Exception) else RuntimeError(str(error)))
            return
        self._count(key, len(batch), sum(part.texts for part in batch), time.monotonic() - start)
        at = 0
        for job, items in batch:
            job.found += results[at : at + len(items)]
            at += len(items)
            try:
                job.check(job.found)
            except Refused as error:
                _end(job, error)
            if len(job.found) == len(job.items):
                _end(job, job.found)


class Batchers:
    """A `Batcher` for each model, so that one that compiles, or has much to do, keeps no other waiting.

    Args:
      models: their names, as keys have them.
      compute, limits, count: as those of `Batcher`; `compute` is called from a thread for each model.
    """

    def __init__(self, models: Iterable[str], compute: Compute, limits: Limits, count: Count) -> None:
        self._batchers = {name: Batcher(compute, limits, count, f"batches of {name}") for name in models}

    def start(self) -> None:
        """Starts the threads."""
        for one in self._batchers.values():
            one.start()

    @property
    def waiting(self) -> int:
        """The number of requests that wait, of all models."""
        return sum(one.waiting for one in self._batchers.values())

    def of(self, model: str) -> Batcher:
        """Returns the batcher of a model, which takes its requests."""
        return self._batchers[model]

    def stop(self, seconds: float) -> bool:
        """Stops all batchers within some seconds together; see `Batcher.stop`."""
        end = time.monotonic() + seconds
        stopped = [one.stop(max(0.0, end - time.monotonic())) for one in self._batchers.values()]
        return all(stopped)


def _characters(item: Any) -> int:  # as the ability has it
    """Returns how many characters the texts of an item have."""
    if isinstance(item, str):
        return len(item)
    return sum(map(_characters, item)) if isinstance(item, list | tuple) else 0


def _end(job: Job, found: list[Any] | Exception) -> None:  # results as the ability has them
    """Gives a request its results or its error, unless it was ended before."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(found, Exception):
            job.results.set_exception(found)
        else:
            job.results.set_result(found)
