"""Encoded corpora: text becomes words and characters once, and is kept in ArrayRecord shards.

A record holds consecutive sentences of one corpus, up to `data.max_words - 2` words, as three integer arrays in the
safetensors format. A folder of the cache is named by a hash of everything its content depends on, so a changed setting
or a changed file never reads stale records. Shards appear under their names only when complete, so preparation can be
killed at any time and goes on where it was.

Prepare by hand (training does it by itself):

    python -m charlm.data.corpus --config=configs/hlm_base.py --config.data.train='("books/*.txt.gz",)'
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import hashlib
import itertools
import json
import os
import re
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_collections
import numpy as np
from absl import logging

from charlm.data import sources as sources_lib
from charlm.text.chars import CharVocab, WordEncoder
from charlm.text.words import Splitter, get_splitter, sentence_ends

ENCODER_VERSION = 1  # raise it when records of the same text and settings would come out differently
WRITER_OPTIONS = "group_size:1"  # every record can be read alone, as shuffling does
STALE_SECONDS = 3600  # a temporary file that nobody has written to for so long is left from a killed run
LOG_SECONDS = 5.0

Progress = Callable[[int, int, int, float], None]  # parts done, parts, words, seconds since the start


class EncodedRecord(NamedTuple):
    """Consecutive sentences of one corpus, S of them with W words.

    Attributes:
      sentences: words of each sentence, uint16 or uint32 [S].
      words: characters of each word, uint8 [W].
      chars: character ids of all words, one after another, uint16 [sum of `words`].
    """

    sentences: np.ndarray
    words: np.ndarray
    chars: np.ndarray


def write_record(sentences: Sequence[int] | np.ndarray, words: np.ndarray, chars: np.ndarray) -> bytes:
    """Serializes an `EncodedRecord`; ValueError when the lengths do not add up."""
    from safetensors.numpy import save

    sentences = np.asarray(sentences, np.uint32)
    if sentences.sum() != len(words) or words.sum(dtype=np.int64) != len(chars):
        sizes = f"sentences of {sentences.sum()} words, {len(words)} words of {words.sum(dtype=np.int64)} characters"
        raise ValueError(f"inconsistent record: {sizes}, {len(chars)} characters")
    if sentences.max(initial=0) < 1 << 16:
        sentences = sentences.astype(np.uint16)
    arrays = {"sentences": sentences, "words": np.asarray(words, np.uint8), "chars": np.asarray(chars, np.uint16)}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_record(data: bytes) -> EncodedRecord:
    """Parses a record of `write_record` (about 10 µs); read-only arrays. ValueError when `data` is none."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        return EncodedRecord(arrays["sentences"], arrays["words"], arrays["chars"])
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not an encoded record of charlm: {error}") from error


@dataclasses.dataclass
class CorpusStats:
    """Counts of an encoded corpus or shard; `a + b` merges.

    Attributes:
      documents, sentences, words, chars, records: how many were encoded (chars: those kept).
      words_cut: words longer than the character slots, which lost their ends.
      chars_unknown: characters that are not in the vocabulary.
      longest_record: words of the longest record.
      skipped: documents that could not be read, by reason.
      slots_histogram: [n] = words that occupy n character slots (their characters + 1).
    """

    documents: int = 0
    sentences: int = 0
    words: int = 0
    chars: int = 0
    records: int = 0
    words_cut: int = 0
    chars_unknown: int = 0
    longest_record: int = 0
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)
    slots_histogram: list[int] = dataclasses.field(default_factory=list)

    def __add__(self, other: CorpusStats) -> CorpusStats:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)}
        total = {name: a + b for name, (a, b) in pairs.items() if isinstance(a, int)}
        total["longest_record"] = max(pairs["longest_record"])
        total["skipped"] = dict(Counter(self.skipped) + Counter(other.skipped))
        columns = itertools.zip_longest(*pairs["slots_histogram"], fillvalue=0)
        total["slots_histogram"] = [a + b for a, b in columns]
        return CorpusStats(**total)

    def add_record(self, record: EncodedRecord) -> None:
        """Counts a record in place."""
        self.records += 1
        self.sentences += len(record.sentences)
        self.words += len(record.words)
        self.chars += len(record.chars)
        self.longest_record = max(self.longest_record, len(record.words))
        slots = np.bincount(record.words.astype(np.int64) + 1)
        self.slots_histogram += [0] * (len(slots) - len(self.slots_histogram))
        for n in np.flatnonzero(slots):
            self.slots_histogram[n] += int(slots[n])

    def to_json(self) -> str:
        """Returns the counts as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CorpusStats:
        """Inverse of `to_json`."""
        return cls(**json.loads(text))

    def describe(self) -> str:
        """Returns one line that says what was encoded and what was lost, as shares and counts."""
        text = f"{self.documents:,} documents, {self.words:,} words, {self.chars:,} characters"
        text += f"; cut words {_share(self.words_cut, self.words)}"
        text += f"; unknown characters {_share(self.chars_unknown, self.chars)}"
        seen = self.documents + sum(self.skipped.values())
        for reason, count in sorted(self.skipped.items()):
            text += f"; skipped documents, {reason}: {_share(count, seen)}"
        return text


def _share(count: int, total: int) -> str:
    return f"{100 * count / max(total, 1):.3g} % ({count:,})"


@dataclasses.dataclass(frozen=True)
class EncodedCorpus:
    """An encoded corpus: `paths` of its ArrayRecord shards (none is empty), and its counts."""

    name: str
    split: str
    folder: str
    paths: tuple[str, ...]
    stats: CorpusStats


class PreparedData(NamedTuple):
    """Everything the batches are made from."""

    vocab: CharVocab
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]


# ----------------------------------------------------------------------------------------------------------------------
# Files of the cache


def cache_dir(config: ml_collections.ConfigDict) -> str:
    """Returns the folder of encoded corpora: data.cache_dir, else $CHARLM_CACHE, else ~/.cache/charlm."""
    folder = config.data.cache_dir or os.environ.get("CHARLM_CACHE") or os.path.join("~", ".cache", "charlm")
    return os.path.abspath(os.path.expanduser(folder))


def _hash(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Gives a temporary name beside `path` that becomes `path` on success and is removed on any failure.

    The name is this process's own, so two processes that write the same file do not meet; the last one wins.
    """
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


def _write_text(path: str, text: str) -> None:
    with _replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def _clear_write_errors(folder: str) -> Iterator[None]:
    """Turns errors of the file system into one that says where and what to do."""
    try:
        yield
    except OSError as error:
        advice = "set data.cache_dir to a writable folder with free space"
        raise ValueError(f"cannot write the corpus cache {folder}: {error}; {advice}") from error


def _remove_stale(folder: str) -> None:
    """Removes temporary files of killed runs; recent ones may be another process at work."""
    for path in glob.glob(os.path.join(glob.escape(folder), "*.tmp")):
        with contextlib.suppress(OSError):
            if time.time() - os.path.getmtime(path) > STALE_SECONDS:
                os.remove(path)


# ----------------------------------------------------------------------------------------------------------------------
# Encoding


@dataclasses.dataclass(frozen=True)
class _Job:
    """What a process needs to encode parts of a corpus."""

    source: sources_lib.Source
    folder: str
    vocab: dict[str, Any]
    splitter: str
    language: str
    normalize: str
    char_slots: int
    record_words: int

    def shard(self, index: int) -> str:
        return os.path.join(self.folder, f"part-{index:05d}.array_record")

    def finished(self, index: int) -> CorpusStats | None:
        """Returns the counts of a shard when it is complete (an empty one has no file)."""
        try:
            with open(f"{self.shard(index)}.json", encoding="utf-8") as file:
                stats = CorpusStats.from_json(file.read())
        except FileNotFoundError:
            return None
        return stats if not stats.records or os.path.exists(self.shard(index)) else None


def _sentences(text: str, splitter: Splitter, limit: int) -> Iterator[list[str]]:
    """Yields the sentences of a document as lists of at most `limit` words; blank lines end sentences too."""
    for paragraph in re.split(r"\n\s*\n", text):
        words = [paragraph[start:end] for start, end in splitter.spans(paragraph)]
        start = 0
        for end in sentence_ends(words):
            for piece in range(start, end, limit):
                yield words[piece : min(piece + limit, end)]
            start = end


def _records(job: _Job, part: sources_lib.Part, encoder: WordEncoder, stats: CorpusStats) -> Iterator[EncodedRecord]:
    """Yields the records of a part in document order, and counts its documents."""
    splitter = get_splitter(job.splitter, job.language)
    words: list[str] = []
    sentences: list[int] = []
    for text in job.source.documents(part):
        stats.documents += 1
        for sentence in _sentences(text, splitter, job.record_words):
            if len(words) + len(sentence) > job.record_words:
                yield EncodedRecord(np.asarray(sentences), *encoder.encode(words))
                words, sentences = [], []
            words += sentence
            sentences.append(len(sentence))
    if words:
        yield EncodedRecord(np.asarray(sentences), *encoder.encode(words))


def _encode_part(job: _Job, index: int, report: Callable[[int], None] | None = None) -> CorpusStats:
    """Writes one shard and its counts; `report` is called now and then with the words so far."""
    encoder = WordEncoder(CharVocab.from_dict(job.vocab), job.char_slots, job.normalize)
    skipped = Counter(job.source.skipped)
    stats = CorpusStats()
    with _clear_write_errors(job.folder):
        records = _records(job, job.source.parts[index], encoder, stats)
        first = next(records, None)
        if first is not None:
            _write_shard(job.shard(index), itertools.chain([first], records), stats, report)
        stats.words_cut, stats.chars_unknown = int(encoder.words_cut), int(encoder.chars_unknown)
        stats.skipped = dict(job.source.skipped - skipped)
        _write_text(f"{job.shard(index)}.json", stats.to_json())
    return stats


def _write_shard(
    path: str, records: Iterator[EncodedRecord], stats: CorpusStats, report: Callable[[int], None] | None
) -> None:
    """Writes the records to `path`, which appears when complete."""
    from array_record.python.array_record_module import ArrayRecordWriter

    with _replacing(path) as temporary:
        writer = _write(ArrayRecordWriter, temporary, WRITER_OPTIONS)
        try:
            for record in records:
                _write(writer.write, write_record(*record))
                stats.add_record(record)
                if report is not None:
                    report(stats.words)
        except BaseException:
            with contextlib.suppress(
                RuntimeError
            ):  # closing flushes to the disk that may be full: keep the first error
                writer.close()
            raise
        _write(writer.close)


def _write(function: Callable[..., Any], *args: Any) -> Any:
    """Calls the ArrayRecord writer, which reports a full disk or a missing folder as RuntimeError."""
    try:
        return function(*args)
    except RuntimeError as error:
        raise OSError(str(error)) from error


def log_progress(done: int, parts: int, words: int, seconds: float) -> None:
    """Logs one line of progress."""
    speed = words / max(seconds, 1e-6)
    logging.info("encoding: %d of %d parts, %s words, %s words/s", done, parts, f"{words:,}", f"{speed:,.0f}")


def _encode_here(job: _Job, todo: Sequence[int], parts: int, progress: Progress) -> CorpusStats:
    """Encodes parts in this process."""
    start = last = time.monotonic()
    total = CorpusStats()

    def report(words: int) -> None:
        nonlocal last
        if time.monotonic() - last > LOG_SECONDS:
            last = time.monotonic()
            progress(parts - len(todo) + done, parts, total.words + words, last - start)

    for done, index in enumerate(todo):
        total += _encode_part(job, index, report)
        report(0)
    progress(parts, parts, total.words, time.monotonic() - start)
    return total


def _end_with_parent() -> None:
    """Ends this process when the one that started it is killed; the pool alone would leave it waiting for ever."""
    import multiprocessing
    import threading

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _encode_spread(job: _Job, todo: Sequence[int], parts: int, progress: Progress, processes: int) -> CorpusStats:
    """Encodes parts in processes of their own (spawned: threads of this one, such as jax's, do not survive a fork)."""
    import multiprocessing
    from concurrent import futures

    start = last = time.monotonic()
    total = CorpusStats()
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent)
    try:
        pending = {pool.submit(_encode_part, job, index) for index in todo}
        while pending:
            done, pending = futures.wait(pending, LOG_SECONDS, futures.FIRST_COMPLETED)
            for future in done:
                total += future.result()
            if time.monotonic() - last > LOG_SECONDS or not pending:
                last = time.monotonic()
                progress(parts - len(pending), parts, total.words, last - start)
    except futures.process.BrokenProcessPool as error:
        raise ValueError(
            "a process that encodes a corpus died: out of memory, or the calling script lacks "
            'if __name__ == "__main__": (data.encode_processes=1 needs neither)'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
    return total


# ----------------------------------------------------------------------------------------------------------------------
# Corpora


def _open(spec: str, config: ml_collections.ConfigDict, split: str, key: str) -> sources_lib.Source:
    data = config.data
    return sources_lib.open_source(
        spec,
        text_key=data.text_key,
        split=split,
        heldout_fraction=data.heldout_fraction,
        cache_dir=cache_dir(config),
        key=key,
    )


def prepare_corpus(
    spec: str,
    config: ml_collections.ConfigDict,
    split: str,
    vocab: CharVocab,
    progress: Progress = log_progress,
    key: str = "data.train",
) -> EncodedCorpus:
    """Encodes a corpus, or finds it in the cache.

    Args:
      spec: a corpus as `sources.open_source` reads it.
      config: the `text` and `data` sections and `model.char_slots` are read.
      split: "train", "heldout" or "all".
      vocab: characters of the encoding.
      progress: called about every 5 s while encoding, and at its end.
      key: config key of `spec`, for messages.

    Raises:
      ValueError: unreadable corpus; no document in it (a held-out split may be empty); cache that cannot be written.
    """
    root = cache_dir(config)
    record_words = _record_words(config)
    with _clear_write_errors(root):
        source = _open(spec, config, split, key)
        settings = {
            "fingerprint": source.fingerprint(),
            "split": split,
            "heldout_fraction": float(config.data.heldout_fraction),
            "splitter": config.text.splitter,
            "language": config.text.language,
            "normalize": config.text.normalize,
            "vocab_digest": vocab.digest(),
            "char_slots": config.model.char_slots,
            "record_words": record_words,
            "encoder_version": ENCODER_VERSION,
        }
        folder = os.path.join(root, _hash(settings))
        os.makedirs(folder, exist_ok=True)
    text = {name: settings[name] for name in ("splitter", "language", "normalize", "char_slots")}
    job = _Job(source, folder, vocab.to_dict(), record_words=record_words, **text)
    shards = [job.finished(i) for i in range(len(source.parts))]
    todo = [i for i, stats in enumerate(shards) if stats is None]
    if todo:
        _encode(job, todo, config.data.encode_processes, progress)
        shards = [job.finished(i) for i in range(len(source.parts))]
    if None in shards:
        raise ValueError(f"corpus cache {folder}: a shard vanished while it was prepared; is it being deleted?")
    stats = sum(shards, CorpusStats())
    paths = tuple(job.shard(i) for i, shard in enumerate(shards) if shard.records)
    if not paths and split != "heldout":
        raise ValueError(f"{key}: corpus {spec!r} holds no document ({stats.describe()})")
    if todo or not os.path.exists(os.path.join(folder, "corpus.json")):
        _write_corpus_json(folder, spec, paths, stats, settings, vocab)
        logging.info("corpus %s (%s): %s; in %s", spec, split, stats.describe(), folder)
    return EncodedCorpus(spec, split, folder, paths, stats)


def _record_words(config: ml_collections.ConfigDict) -> int:
    if config.data.max_words < 3:
        raise ValueError(f"data.max_words={config.data.max_words}: expected at least 3 ([CLS], a word, [SEP])")
    return config.data.max_words - 2


def _encode(job: _Job, todo: Sequence[int], processes: int, progress: Progress) -> None:
    """Encodes the missing shards."""
    if processes < 0:
        raise ValueError(f"data.encode_processes={processes}: expected 0 (one per CPU core) or more")
    _remove_stale(job.folder)
    parts = len(job.source.parts)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = min(processes or cores, len(todo))
    if processes == 1:
        _encode_here(job, todo, parts, progress)
    else:
        _encode_spread(job, todo, parts, progress, processes)


def _write_corpus_json(
    folder: str, spec: str, paths: Sequence[str], stats: CorpusStats, settings: dict[str, Any], vocab: CharVocab
) -> None:
    """Writes what a folder of shards needs to be used without its text: counts, settings and the vocabulary."""
    names = [os.path.basename(path) for path in paths]
    content = {"name": spec, "paths": names, "stats": dataclasses.asdict(stats), "settings": settings}
    with _clear_write_errors(folder):
        with _replacing(os.path.join(folder, "vocab.json")) as temporary:
            vocab.save(temporary)
        _write_text(os.path.join(folder, "corpus.json"), json.dumps(content, indent=1))


def _is_encoded(spec: str) -> bool:
    return spec.endswith(".array_record")


def _open_encoded(spec: str, config: ml_collections.ConfigDict, vocab: CharVocab, key: str) -> EncodedCorpus:
    """Checks shards that were encoded before and uses them as they are."""
    paths = _encoded_paths(spec, key)
    folder = os.path.dirname(paths[0])
    known = _read_corpus_json(folder)
    digest = known.get("settings", {}).get("vocab_digest", vocab.digest())
    if digest != vocab.digest():
        raise ValueError(
            f"{key}: {spec!r} was encoded with another character vocabulary: digest {digest}, expected {vocab.digest()}; "
            f"set text.char_vocab to {os.path.join(folder, 'vocab.json')!r}, or encode the text again"
        )
    for path in paths:
        next(_read_shard(path, key))
    if sorted(known.get("paths", [])) == [os.path.basename(path) for path in paths]:
        stats = CorpusStats(**known["stats"])
    else:
        stats = CorpusStats()
        for record in itertools.chain.from_iterable(_read_shard(path, key) for path in paths):
            stats.add_record(record)
    for name, got, limit in (
        ("data.max_words - 2", stats.longest_record, _record_words(config)),
        ("model.char_slots", len(stats.slots_histogram) - 1, config.model.char_slots),
    ):
        if got > limit:
            raise ValueError(f"{key}: {spec!r} was encoded for longer input: {got}, but {name} is {limit}")
    return EncodedCorpus(spec, "all", folder, tuple(paths), stats)


def _encoded_paths(spec: str, key: str) -> list[str]:
    path = os.path.expanduser(spec)
    paths = [path] if os.path.isfile(path) else sorted(glob.glob(path, recursive=True))
    if not paths:
        raise ValueError(f"{key}: no file matches {spec!r} (current directory: {os.getcwd()})")
    return [os.path.abspath(path) for path in paths]


def _read_corpus_json(folder: str) -> dict[str, Any]:
    """Returns the description beside encoded shards, {} when there is none."""
    path = os.path.join(folder, "corpus.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: damaged description of an encoded corpus ({error})") from error


def _read_shard(path: str, key: str) -> Iterator[EncodedRecord]:
    """Yields the records of a shard, at least one; ValueError when it holds none."""
    from array_record.python.array_record_module import ArrayRecordReader

    try:
        reader = ArrayRecordReader(path)
        size = reader.num_records()
        if not size:  # what a file that is no ArrayRecord at all looks like, too
            raise ValueError("it holds no record")
        for i in range(size):
            yield read_record(reader.read([i])[0])
        reader.close()
    except (RuntimeError, OSError, IndexError, ValueError) as error:
        raise ValueError(f"{key}: {path} is not an encoded corpus of charlm: {error}") from error


def prepare(config: ml_collections.ConfigDict, progress: Progress = log_progress) -> PreparedData:
    """Prepares everything a training run reads: the vocabulary, `data.train` and the held-out corpora.

    Raises:
      ValueError: no training corpus, nothing held out, or any error of `prepare_corpus` and `load_or_build_vocab`.
    """
    if not config.data.train:
        raise ValueError('data.train is empty: expected at least one corpus, such as "builtin"')
    vocab = load_or_build_vocab(config)

    def get(specs: Sequence[str], split: str, key: str) -> tuple[EncodedCorpus, ...]:
        return tuple(
            _open_encoded(spec, config, vocab, key)
            if _is_encoded(spec)
            else prepare_corpus(spec, config, split, vocab, progress, key)
            for spec in specs
        )

    if config.data.heldout:
        train = get(config.data.train, "all", "data.train")
        heldout = get(config.data.heldout, "all", "data.heldout")
    else:  # encoded corpora cannot be split by document any more
        train = get(config.data.train, "train", "data.train")
        heldout = get([spec for spec in config.data.train if not _is_encoded(spec)], "heldout", "data.train")
    heldout = tuple(corpus for corpus in heldout if corpus.paths)
    if not heldout:
        raise ValueError(
            f"no held-out text: data.heldout is empty and data.heldout_fraction={config.data.heldout_fraction} of "
            f"data.train={tuple(config.data.train)} holds no document; set data.heldout to a corpus, or raise "
            "data.heldout_fraction"
        )
    return PreparedData(vocab, train, heldout)


# ----------------------------------------------------------------------------------------------------------------------
# Vocabulary


def load_or_build_vocab(config: ml_collections.ConfigDict) -> CharVocab:
    """Returns the vocabulary of `text.char_vocab`, or builds (or finds in the cache) that of the training corpora.

    Raises:
      ValueError: the file is missing or no vocabulary, or the vocabulary does not fit into `model.vocab_size`.
    """
    encoded = [spec for spec in config.data.train if _is_encoded(spec)]
    path = config.text.char_vocab
    if not path and encoded:  # ids are fixed already: nothing to count
        path = os.path.join(os.path.dirname(_encoded_paths(encoded[0], "data.train")[0]), "vocab.json")
        if not os.path.exists(path):
            raise ValueError(f"data.train: {encoded[0]!r} has no vocab.json beside it; set text.char_vocab")
    if path:
        try:
            vocab = CharVocab.load(os.path.expanduser(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"text.char_vocab={path!r}: cannot be read as a character vocabulary: {error}") from error
    else:
        split = "all" if config.data.heldout else "train"
        vocab = build_char_vocab([_open(s, config, split, "data.train") for s in config.data.train], config)
    if vocab.size > config.model.vocab_size:
        raise ValueError(
            f"the character vocabulary {path or 'of data.train'} has {vocab.size} entries, but model.vocab_size is "
            f"{config.model.vocab_size}"
        )
    return vocab


def build_char_vocab(sources: Sequence[sources_lib.Source], config: ml_collections.ConfigDict) -> CharVocab:
    """Builds the vocabulary of `model.vocab_size` entries from the characters of the sources; cached by their content.

    Raises:
      ValueError: a source cannot be read, or the cache not written.
    """
    root = cache_dir(config)
    with _clear_write_errors(root):
        content = [(source.fingerprint(), source.split, source.heldout_fraction) for source in sources]
        settings = [config.text.normalize, config.model.vocab_size, ENCODER_VERSION]
        path = os.path.join(root, f"vocab-{_hash(content, settings)}.json")
        if os.path.exists(path):
            return CharVocab.load(path)
        os.makedirs(root, exist_ok=True)
        counts = _count_chars(sources, config.text.normalize)
        vocab = CharVocab.build(counts, config.model.vocab_size)
        with _replacing(path) as temporary:
            vocab.save(temporary)
    logging.info("character vocabulary: %d entries of %d distinct characters; %s", vocab.size, len(counts), path)
    return vocab


def _count_chars(sources: Sequence[sources_lib.Source], normalize: str) -> Counter[str]:
    """Counts the characters of words; a histogram of code points is several times faster than a Counter of str."""
    histogram = np.zeros(sys.maxunicode + 1, np.int64)
    for source in sources:
        documents = itertools.chain.from_iterable(source.documents(part) for part in source.parts)
        while batch := list(itertools.islice(documents, 1000)):
            text = "\n".join(batch)
            if normalize == "nfc":
                text = unicodedata.normalize("NFC", text)
            codes, counts = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_counts=True)
            histogram[codes] += counts
    found = {chr(code): int(histogram[code]) for code in np.flatnonzero(histogram)}
    return Counter({char: count for char, count in found.items() if not char.isspace()})


# ----------------------------------------------------------------------------------------------------------------------
# Command line


def _table(data: PreparedData) -> str:
    """Returns a table of the prepared corpora."""
    rows = [("corpus", "split", "documents", "words", "chars", "cut %", "unknown %", "skipped", "shards", "folder")]
    for corpus in (*data.train, *data.heldout):
        s = corpus.stats
        cut, unknown = 100 * s.words_cut / max(s.words, 1), 100 * s.chars_unknown / max(s.chars, 1)
        counts = (f"{s.documents:,}", f"{s.words:,}", f"{s.chars:,}", f"{cut:.3g}", f"{unknown:.3g}")
        skipped = f"{sum(s.skipped.values()):,}"
        rows.append((corpus.name, corpus.split, *counts, skipped, str(len(corpus.paths)), corpus.folder))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _main(argv: Sequence[str], config_flag: Any) -> int:
    """Prepares the corpora of the config and prints a table; errors become one line."""
    if len(argv) > 1 or config_flag.value is None:
        print(
            f"usage: python -m charlm.data.corpus --config=FILE [--config.KEY=VALUE]; got {argv[1:]}", file=sys.stderr
        )
        return 1
    logging.set_verbosity(logging.INFO)
    try:
        print(_table(prepare(config_flag.value)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    from absl import app
    from ml_collections import config_flags

    app.run(functools.partial(_main, config_flag=config_flags.DEFINE_config_file("config")))
