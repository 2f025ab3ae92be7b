"""Encodes the parts of a text source as shards of records, in this process or in several; used by `charlm.data.corpus`.

A shard gets its final name, with its counts beside it, only when it is complete. So encoding can be killed at any time,
and the next run continues with the missing shards. Open it to change how documents are cut into records, or how the
work is spread over processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from charlm.core.durable import replacing
from charlm.core.files import clear_write_errors, remove_stale
from charlm.data import spreading
from charlm.data.digests import file_sha256
from charlm.data.forms import EncodedItem, Form, RecordEncoder
from charlm.data.parts import Part
from charlm.data.records import CorpusStats, count_records, counts_file, read_counts, write_counts
from charlm.data.sources import Source
from charlm.text.sentences import sentence_ends
from charlm.text.words import Splitter, get_splitter

T = TypeVar("T")

WRITER_OPTIONS = "group_size:1"  # each record can be read alone, which shuffling needs
LOG_SECONDS = 5.0

Progress = Callable[[int, int, int, float], None]  # parts done, parts, words, seconds since the start

log = logging.getLogger("charlm")


@dataclasses.dataclass(frozen=True)
class EncodeJob:
    """Everything a process needs to encode parts of a corpus."""

    source: Source
    folder: str
    splitter: str
    language: str
    record_words: int
    form: Form

    def shard(self, index: int) -> str:
        """Returns the path of a shard."""
        return os.path.join(self.folder, f"part-{index:05d}.array_record")

    def finished(self, index: int) -> CorpusStats | None:
        """Returns the counts of a complete, undamaged shard, else None; a shard without records has no file."""
        shard = self.shard(index)
        found = read_counts(shard)
        if found is None:
            return None
        stats, digest = found
        if digest and os.path.exists(shard):
            whole = self.digest(index) == digest
        else:  # the shard was written by a version that kept no digests
            whole = count_records(shard) == stats.records
        if not whole:
            log.warning("%s is damaged or gone: it is encoded again", shard)
        return stats if whole else None

    def without_parts(self) -> EncodeJob:
        """Returns the job without the list of its parts, which would make it large to send."""
        return dataclasses.replace(self, source=self.source.without_parts())

    def digest(self, index: int) -> str:
        """Returns the sha256 (hex) of a shard; the cache keeps it while the shard's size and time stay the same."""
        return file_sha256(self.shard(index), os.path.dirname(self.folder))


def _sentences(text: str, splitter: Splitter, limit: int) -> Iterator[tuple[list[str], list[bool]]]:
    """Yields the sentences of a document, each of at most `limit` words, and which words have a space before them.

    Blank lines end sentences, too.
    """
    for paragraph in re.split(r"\n\s*\n", text):
        spans = splitter.spans(paragraph)
        words = [paragraph[start:end] for start, end in spans]
        spaces = [True, *(before[1] < after[0] for before, after in itertools.pairwise(spans))]
        start = 0
        for end in sentence_ends(words):
            for piece in range(start, end, limit):
                part = slice(piece, min(piece + limit, end))
                yield words[part], spaces[part]
            start = end


def _records(job: EncodeJob, part: Part, encoder: RecordEncoder, stats: CorpusStats) -> Iterator[EncodedItem]:
    """Yields the records of a part in document order, and counts its documents."""
    splitter = get_splitter(job.splitter, job.language)
    words: list[str] = []
    spaces: list[bool] = []
    sentences: list[int] = []
    for text in job.source.documents(part):
        stats.documents += 1
        for sentence, before in _sentences(text, splitter, job.record_words):
            if len(words) + len(sentence) > job.record_words:
                yield encoder.record(sentences, words, spaces)
                words, spaces, sentences = [], [], []
            words += sentence
            spaces += before
            sentences.append(len(sentence))
    if words:
        yield encoder.record(sentences, words, spaces)


def _encode_part(job: EncodeJob, index: int, part: Part, report: Callable[[int], None] | None = None) -> CorpusStats:
    """Writes one shard and its counts; calls `report` now and then with the number of words so far."""
    encoder = job.form.start()
    skipped = Counter(job.source.skipped)
    stats = CorpusStats()
    with clear_write_errors(job.folder):
        records = _records(job, part, encoder, stats)
        first = next(records, None)
        if first is not None:
            _write_shard(job.shard(index), itertools.chain([first], records), stats, report)
        encoder.finish(stats)
        stats.skipped = dict(job.source.skipped - skipped)
        write_counts(job.shard(index), stats, "" if first is None else job.digest(index))
    return stats


def _write_shard(
    path: str, records: Iterator[EncodedItem], stats: CorpusStats, report: Callable[[int], None] | None
) -> None:
    """Writes the records to `path`; the file appears when it is complete."""
    from array_record.python.array_record_module import ArrayRecordWriter

    with replacing(path) as temporary:
        writer = _write(ArrayRecordWriter, temporary, WRITER_OPTIONS)
        try:
            for record, data in records:
                _write(writer.write, data)
                stats.add_record(record)
                if report is not None:
                    report(stats.words)
        except BaseException:
            with contextlib.suppress(RuntimeError):  # closing flushes and may fail on a full disk: keep the first error
                writer.close()
            raise
        _write(writer.close)


def _write(function: Callable[..., T], *args: object) -> T:
    """Calls the ArrayRecord writer and turns its RuntimeError (full disk, missing folder) into an OSError."""
    try:
        return function(*args)
    except RuntimeError as error:
        raise OSError(str(error)) from error


def log_progress(done: int, parts: int, words: int, seconds: float) -> None:
    """Logs one line of progress."""
    speed = words / max(seconds, 1e-6)
    log.info("encoding: %d of %d parts, %s words, %s words/s", done, parts, f"{words:,}", f"{speed:,.0f}")


def encode(job: EncodeJob, todo: Sequence[int], processes: int, progress: Progress) -> None:
    """Encodes the parts numbered in `todo`; calls `progress` about every `LOG_SECONDS`, and at the end."""
    if processes < 0:
        raise ValueError(f"data.encode_processes={processes}: expected 0 (one per CPU core) or more")
    remove_stale(job.folder)
    if (workers := spreading.current()) is not None:
        with _watched(job, todo, progress):
            workers.run("encode", _EncodeItem(job.without_parts()), [(i, job.source.parts[i]) for i in todo])
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = min(processes or cores, len(todo))
    pace = _Pace(progress, len(job.source.parts), len(todo))
    if processes == 1:
        _encode_here(job, todo, pace)
    else:
        _encode_spread(job, todo, pace, processes)


@dataclasses.dataclass(frozen=True)
class _EncodeItem:
    """What a worker does with a part and its number."""

    job: EncodeJob

    def __call__(self, item: tuple[int, Part]) -> None:
        _encode_part(self.job, *item)


@contextlib.contextmanager
def _watched(job: EncodeJob, todo: Sequence[int], progress: Progress) -> Iterator[None]:
    """Reports progress while workers, which may be other machines, write shards: by the counts that appear."""
    import threading

    pace, ended, words = _Pace(progress, len(job.source.parts), len(todo)), threading.Event(), 0
    pending = {index: _written(job, index) for index in todo}

    def look() -> None:
        nonlocal words
        new = [index for index, before in pending.items() if _written(job, index) != before]
        for index in new:
            del pending[index]
            found = read_counts(job.shard(index))
            words += found[0].words if found else 0
        pace(len(todo) - len(pending), words)

    def watch() -> None:
        while not ended.wait(LOG_SECONDS):
            look()

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    look()


def _written(job: EncodeJob, index: int) -> int:
    """Returns when the counts of a shard were written (in nanoseconds), 0 if they were not."""
    try:
        return os.stat(counts_file(job.shard(index))).st_mtime_ns
    except OSError:
        return 0


class _Pace:
    """Passes progress on, at most once every `LOG_SECONDS`."""

    def __init__(self, progress: Progress, parts: int, todo: int) -> None:
        self._progress, self._parts, self._todo = progress, parts, todo
        self._start = self._last = time.monotonic()

    def __call__(self, done: int, words: int) -> None:
        """Takes how many of the parts are done, and their words so far; always reports the last part."""
        now = time.monotonic()
        if done == self._todo or now - self._last > LOG_SECONDS:
            self._last = now
            self._progress(self._parts - self._todo + done, self._parts, words, now - self._start)


def _encode_here(job: EncodeJob, todo: Sequence[int], pace: _Pace) -> None:
    words = 0
    for done, index in enumerate(todo):
        stats = _encode_part(
            job, index, job.source.parts[index], lambda now, done=done, before=words: pace(done, before + now)
        )
        words += stats.words
        pace(done + 1, words)


def _end_with_parent() -> None:
    """Ends this process when its parent is killed; the pool alone would leave it waiting for ever."""
    import multiprocessing
    import threading

    parent = multiprocessing.parent_process()
    assert parent is not None  # the pool calls this in the processes that it starts

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent ends them


def _encode_spread(job: EncodeJob, todo: Sequence[int], pace: _Pace, processes: int) -> None:
    """Encodes parts in several processes, which are spawned because threads, such as JAX's, do not survive a fork."""
    import multiprocessing
    from concurrent import futures

    words, small = 0, job.without_parts()
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent)
    try:
        pending = {pool.submit(_encode_part, small, index, job.source.parts[index]) for index in todo}
        while pending:
            done, pending = futures.wait(pending, LOG_SECONDS, futures.FIRST_COMPLETED)
            words += sum(future.result().words for future in done)
            pace(len(todo) - len(pending), words)
    except futures.process.BrokenProcessPool as error:
        raise ValueError(
            "a process that encodes a corpus died: out of memory, or the calling script lacks "
            'if __name__ == "__main__": (data.encode_processes=1 needs neither)'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
