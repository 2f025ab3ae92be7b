"""Cleans corpora by Apache Beam: leaves out duplicates and what a filter refuses, and writes the rest as JSON lines.

It makes three passes. The first computes the features of every document (`charlm.data.beam.features`). The second finds
the documents to leave out; only here does Beam compare documents of different parts. The third writes the cleaned text,
one file for each part. Every pass keeps its results in a folder of the cache, which is named by a hash of the text and
the rules, so that a killed run goes on where it stopped. Open it to change which of several duplicates stays, or how
cleaned text is written.

The first of several duplicates stays, and held-out corpora come before training corpora. So no training text is a
(near) duplicate of held-out text, even if both come from one corpus: duplicates are left out before it is split.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import gzip
import io
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from charlm.core.durable import replacing, write_bytes, write_json
from charlm.core.files import cache_dir, clear_write_errors, remove_stale, stable_hash
from charlm.data.beam.features import EXACT_COLUMNS, Features, Measure, Rules, read_features, write_features
from charlm.data.beam.workers import BeamWorkers, load_beam
from charlm.data.digests import file_sha256
from charlm.data.parts import Part
from charlm.data.records import CorpusStats, is_encoded, read_counts, write_counts
from charlm.data.sources import Source, open_configured

REASONS = ("exact duplicate", "near duplicate", "refused by the filter")  # the first that holds is counted
_EXACT, _NEAR, _FILTERED = range(len(REASONS))
_BITS = 32  # of a document's number in its part; the rest of a key's 64 bits is the number of the part
log = logging.getLogger("charlm")


class Piece(NamedTuple):
    """One part of a corpus, and the file of its cleaned text.

    Attributes:
      number: counts the parts of all corpora, in the order in which the first of several duplicates is found.
      corpus: which of the corpora it is of.
      part: where the text is.
      path: where the cleaned text gets.
    """

    number: int
    corpus: int
    part: Part
    path: str


@dataclasses.dataclass(frozen=True)
class CleaningJob:
    """What a worker must know to clean a piece; `sources` are the corpora, without the lists of their parts."""

    sources: tuple[Source, ...]
    rules: Rules
    folder: str
    text_key: str

    def features(self, number: int) -> str:
        """Returns the file of the features of a piece."""
        return os.path.join(self.folder, "features", f"{number:07d}.npz")

    def left_out(self, number: int) -> str:
        """Returns the file that tells which documents of a piece are left out as duplicates."""
        return os.path.join(self.folder, "duplicates", f"{number:07d}.npy")

    def documents(self, piece: Piece) -> Iterator[str]:
        """Yields the documents of a piece."""
        return self.sources[piece.corpus].documents(piece.part)

    def finished(self, piece: Piece) -> CorpusStats | None:
        """Returns the counts of the cleaned text of a piece, None if it is not complete or damaged."""
        stats, digest = read_counts(piece.path) or (None, "")
        if stats is None or not os.path.exists(piece.path):
            return None
        return stats if file_sha256(piece.path, os.path.dirname(self.folder)) == digest else None


def clean(config: ml_collections.ConfigDict, rules: Rules, workers: BeamWorkers) -> CorpusStats:
    """Cleans the corpora of a config, and names the cleaned ones in it; returns what stayed and what was left out.

    Args:
      config: `data.train` and `data.heldout` become globs of JSON lines.
      rules: which documents are left out.
      workers: do the work.

    Raises:
      ValueError: a corpus cannot be read or has no text to clean, the filter fails, or the cache cannot be written.
    """
    root, specs = cache_dir(config), {key: config.data[key] for key in ("heldout", "train")}
    with clear_write_errors(root):
        sources = {(key, i): _open(spec, config, f"data.{key}") for key in specs for i, spec in enumerate(specs[key])}
        content = [(*place, source.fingerprint()) for place, source in sources.items()]
        settings = {"content": content, "text_key": config.data.text_key, **rules.settings()}
        folder = os.path.join(root, f"cleaned-{stable_hash(settings)[:16]}")
        pieces = list(_pieces(sources, folder))
        small = tuple(source.without_parts() for source in sources.values())
        job = CleaningJob(small, rules, folder, config.data.text_key)
        for name in ("features", "duplicates", *{os.path.dirname(piece.path) for piece in pieces}):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            remove_stale(os.path.join(folder, name))
    _clean_pieces(job, pieces, workers)
    found = [job.finished(piece) for piece in pieces]
    total = sum((stats for stats in found if stats is not None), CorpusStats())
    if None in found:
        raise ValueError(f"{folder}: cleaned text vanished while it was made; is the cache being deleted?")
    with clear_write_errors(folder):
        write_json(os.path.join(folder, "cleaned.json"), {"corpora": specs, "documents": total.documents,
            "left_out": total.skipped, "settings": settings})  # fmt: skip
    for key, names in specs.items():
        config.data[key] = tuple(
            os.path.join(glob.escape(folder), f"{key}-{i}", "*.jsonl.gz") for i in range(len(names))
        )
    log.info("cleaned text in %s: %s", folder, describe(total))
    return total


def describe(stats: CorpusStats) -> str:
    """Returns one line that says how many documents stay, and why others do not."""
    seen = stats.documents + sum(stats.skipped.values())
    left_out = "".join(f"; {reason}: {count:,}" for reason, count in sorted(stats.skipped.items()))
    return f"{stats.documents:,} of {seen:,} documents stay{left_out}"


def _open(spec: str, config: ml_collections.ConfigDict, key: str) -> Source:
    if is_encoded(spec):
        raise ValueError(f"{key}: {spec!r} is encoded already, and cannot be cleaned")
    source = open_configured(spec, config, "all", key)
    if source.parts[0].kind == "builtin":
        raise ValueError(f"{key}: {spec!r} has its own held-out text and no duplicates; only files are cleaned")
    return source


def _pieces(sources: dict[tuple[str, int], Source], folder: str) -> Iterator[Piece]:
    number = 0
    for corpus, ((key, i), source) in enumerate(sources.items()):
        for j, part in enumerate(source.parts):
            yield Piece(number, corpus, part, os.path.join(folder, f"{key}-{i}", f"part-{j:06d}.jsonl.gz"))
            number += 1


def _clean_pieces(job: CleaningJob, pieces: list[Piece], workers: BeamWorkers) -> None:
    """Takes the passes that are not done yet; those of other pieces are needed to find the duplicates of one."""
    todo = [piece for piece in pieces if job.finished(piece) is None]
    log.info("cleaning: %d of %d parts are done", len(pieces) - len(todo), len(pieces))
    if not todo:
        return
    duplicates = job.rules.exact or job.rules.near
    unknown = duplicates and any(not os.path.exists(job.left_out(piece.number)) for piece in pieces)
    needed = pieces if unknown else todo
    new = [piece for piece in needed if not os.path.exists(job.features(piece.number))]
    workers.run("features", functools.partial(write_piece_features, job), new)
    if unknown:
        log.info("finding duplicates in %d parts", len(pieces))
        build = lambda pipeline, guarded: _find_duplicates(pipeline, job, len(pieces), guarded)
        workers.run_pipeline("duplicates", functools.partial(write_left_out, job), build)
    workers.run("text", functools.partial(write_cleaned, job), todo)


def write_piece_features(job: CleaningJob, piece: Piece) -> None:
    """Writes the features of a piece."""
    measure = Measure(job.rules)
    kept, keys = [], []
    for number, text in enumerate(job.documents(piece)):
        kept.append(measure.keeps(text, f"document {number} of {piece.part.path}"))
        keys.append(measure.keys(text) if kept[-1] else [0] * measure.columns())
    shape = (len(keys), measure.columns())
    with clear_write_errors(job.folder):
        found = Features(np.asarray(kept, bool), np.asarray(keys, np.uint64).reshape(shape))
        write_features(job.features(piece.number), found)


def _find_duplicates(
    pipeline: Any,  # of Beam, as its steps, whose types are open
    job: CleaningJob,
    count: int,
    guarded: Callable[[tuple[int, tuple[int, list[tuple[int, int]]]]], None],
) -> None:
    """Adds the steps that bring together documents with the same key, and write which of them are left out."""
    beam = load_beam()
    numbers = pipeline | "Parts" >> beam.Create(range(count)) | "Spread" >> beam.Reshuffle()
    keyed = numbers | "Keys" >> beam.FlatMap(functools.partial(keys_of, job))
    left_out = keyed | "Twins" >> beam.GroupByKey() | "Later" >> beam.FlatMap(later_twins)
    every = {"left_out": left_out, "parts": numbers | "Every" >> beam.Map(lambda number: (number, None))}
    lists = every | "By part" >> beam.CoGroupByKey()
    numbered = lists | "Lists" >> beam.Map(lambda found: (found[0], (found[0], list(found[1]["left_out"]))))
    _ = numbered | "Write" >> beam.Map(guarded)


def keys_of(job: CleaningJob, number: int) -> Iterator[tuple[bytes, int]]:
    """Yields (key, document) of each kept document of a piece; a document is a number that orders all of them."""
    features = read_features(job.features(number))
    for index in np.flatnonzero(features.kept):
        document, keys = (number << _BITS) + int(index), features.keys[index]
        if job.rules.exact:
            yield bytes([_EXACT]) + keys[:EXACT_COLUMNS].tobytes(), document
        for band, key in enumerate(keys[EXACT_COLUMNS:]):
            yield bytes([_NEAR, band]) + key.tobytes(), document


def later_twins(found: tuple[bytes, Iterable[int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields (piece, (document in it, reason)) of all documents with a key but the first one."""
    key, documents = found
    first = min(documents)
    for document in documents:
        if document != first:
            yield document >> _BITS, (document & ((1 << _BITS) - 1), key[0])


def write_left_out(job: CleaningJob, found: tuple[int, list[tuple[int, int]]]) -> None:
    """Writes which documents of a piece are left out and why: int64 [n, 2], ascending and without repeats."""
    number, documents = found
    reasons: dict[int, int] = {}
    for document, reason in documents:
        reasons[document] = min(reason, reasons.get(document, reason))
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(sorted(reasons.items()), np.int64).reshape(-1, 2))
    with clear_write_errors(job.folder):
        write_bytes(job.left_out(number), buffer.getvalue())


def write_cleaned(job: CleaningJob, piece: Piece) -> None:
    """Writes the cleaned text of a piece, then its counts."""
    source, kept = job.sources[piece.corpus], read_features(job.features(piece.number)).kept
    reasons = dict.fromkeys(np.flatnonzero(~kept).tolist(), _FILTERED)
    if os.path.exists(job.left_out(piece.number)):
        reasons |= dict(np.load(job.left_out(piece.number)).tolist())
    skipped, seen = Counter(source.skipped), 0
    with clear_write_errors(job.folder), replacing(piece.path) as temporary:
        with _gzip(temporary) as file:
            for seen, text in enumerate(job.documents(piece), 1):
                if seen - 1 not in reasons:
                    file.write(json.dumps({job.text_key: text}, ensure_ascii=False).encode() + b"\n")
        if seen != len(kept):
            raise ValueError(f"{piece.part.path} changed meanwhile: it had {len(kept)} documents, now it has {seen}")
    left_out = Counter(REASONS[reason] for reason in reasons.values()) + Counter(source.skipped - skipped)
    stats = CorpusStats(documents=seen - len(reasons), skipped=dict(left_out))
    with clear_write_errors(job.folder):
        write_counts(piece.path, stats, file_sha256(piece.path, os.path.dirname(job.folder)))


@contextlib.contextmanager
def _gzip(temporary: str) -> Iterator[gzip.GzipFile]:
    """Opens a packed file for writing whose bytes depend on its content alone: neither on its name nor on the time."""
    with open(temporary, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        yield file
