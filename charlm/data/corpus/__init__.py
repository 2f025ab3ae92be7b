"""Encoded corpora: text is split into words and characters once, and the result is kept in ArrayRecord shards.

Open this module to see where encoded text is cached, and which changes make charlm encode it again.

A record holds consecutive sentences of one corpus, up to `data.max_words - 2` words, as three integer arrays in the
safetensors format. The cache folder of a corpus is named by a hash of everything its content depends on, so that after
a change of settings or files no stale record is read. A shard gets its final name only when it is complete, so
preparation can be killed at any time, and the next run continues with the missing shards. Training prepares by itself;
`python -m charlm.data.corpus` does it by hand.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import ml_collections

from charlm.core.durable import write_text
from charlm.core.files import cache_dir, clear_write_errors, stable_hash
from charlm.core.reading import loads, read_bytes
from charlm.core.types import JsonObject
from charlm.data.digests import file_sha256
from charlm.data.encode import EncodeJob, Progress, encode, log_progress
from charlm.data.forms import CharForm, Form, SpacedForm, TextForm
from charlm.data.records import (
    DESCRIPTION_FILE,
    ENCODER_VERSION,
    CorpusStats,
    is_encoded,
    read_counts,
    read_shard,
    remedy_of,
    shard_paths,
)
from charlm.data.sources import open_configured
from charlm.data.vocab import load_or_build_vocab
from charlm.text.chars import CharVocab
from charlm.text.words import get_splitter

log = logging.getLogger("charlm")


@dataclasses.dataclass(frozen=True)
class EncodedCorpus:
    """An encoded corpus: the `paths` of its ArrayRecord shards, each with at least one record, and its counts.

    `content` is a hash (hex) of the documents and their order, wherever their files are.
    """

    name: str
    split: str
    folder: str
    paths: tuple[str, ...]
    stats: CorpusStats
    content: str


class PreparedData(NamedTuple):
    """Everything that batches are made from, and the subword pieces that the model knows beside its characters."""

    vocab: CharVocab
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]
    pieces: tuple[str, ...] = ()


def prepare(
    config: ml_collections.ConfigDict,
    progress: Progress = log_progress,
    known: CharVocab | None = None,
    needs_spaces: str = "",
) -> PreparedData:
    """Prepares everything a training run reads: the vocabulary, `data.train` and the held-out corpora.

    Args:
      progress: see `prepare_corpus`.
      known: the vocabulary to use if the config names none; None: that of the training corpora.
      needs_spaces: the reason why the reader needs to know where spaces are (`SpacedForm`), for messages; "": it does
        not.

    Raises:
      ValueError: no training corpus, nothing held out, or any error of `prepare_corpus` and `load_or_build_vocab`.
    """
    check_readable(config, needs_spaces)
    vocab = load_or_build_vocab(config, known)

    def get_one(spec: str, split: str, key: str) -> EncodedCorpus:
        if is_encoded(spec):
            return _open_encoded(spec, config, vocab, key)
        return prepare_corpus(spec, config, split, vocab, progress, key, bool(needs_spaces))

    return PreparedData(vocab, *split_corpora(config, get_one))


def check_readable(config: ml_collections.ConfigDict, only_text: str = "") -> None:
    """Opens every corpus that a config names, and its splitter, so that a missing one is reported before hours of work.

    Args:
      only_text: the reason why encoded words cannot be read, for messages, such as "CharBERT misspells text"; "": they
        can be read.

    Raises:
      ValueError: there is no training corpus; a file, a data set or a package is missing; a corpus holds encoded words
        and these cannot be read.
    """
    if not config.data.train:
        raise ValueError('data.train is empty: expected at least one corpus, such as "builtin"')
    get_splitter(config.text.splitter, config.text.language)
    for key in ("data.train", "data.heldout"):
        for spec in config.data[key.removeprefix("data.")]:
            if not is_encoded(spec):
                open_configured(spec, config, "all", key)
            elif only_text:
                raise ValueError(f"{key}: {spec!r} holds words that are encoded; {only_text}: name that")
            else:
                shard_paths(spec, key)


def split_corpora(
    config: ml_collections.ConfigDict, get_one: Callable[[str, str, str], EncodedCorpus]
) -> tuple[tuple[EncodedCorpus, ...], tuple[EncodedCorpus, ...]]:
    """Returns the training corpora and the held-out corpora (`data.heldout`, or else a part of `data.train`).

    Args:
      get_one: encodes a corpus or finds it in the cache, given its spec, its split and the config key that names it.

    Raises:
      ValueError: nothing is held out.
    """

    def get(specs: Sequence[str], split: str, key: str) -> tuple[EncodedCorpus, ...]:
        corpora = []
        for spec in specs:
            corpus = get_one(spec, split, key)
            log.info("corpus %s (%s): %s; in %s", spec, corpus.split, corpus.stats.describe(), corpus.folder)
            corpora.append(corpus)
        return tuple(corpora)

    if config.data.heldout:
        train = get(config.data.train, "all", "data.train")
        heldout = get(config.data.heldout, "all", "data.heldout")
    else:  # shards that are encoded already cannot be split by document
        train = get(config.data.train, "train", "data.train")
        heldout = get([spec for spec in config.data.train if not is_encoded(spec)], "heldout", "data.train")
    heldout = tuple(corpus for corpus in heldout if corpus.paths)
    if not heldout:
        raise ValueError(
            f"no held-out text: data.heldout is empty and data.heldout_fraction={config.data.heldout_fraction} of "
            f"data.train={tuple(config.data.train)} holds no document; set data.heldout to a corpus, or raise "
            "data.heldout_fraction"
        )
    return train, heldout


def prepare_corpus(
    spec: str,
    config: ml_collections.ConfigDict,
    split: str,
    vocab: CharVocab,
    progress: Progress = log_progress,
    key: str = "data.train",
    spaces: bool = False,
) -> EncodedCorpus:
    """Encodes a corpus, or finds it in the cache.

    Args:
      spec: a corpus as `sources.open_source` reads it.
      config: the `text` and `data` sections and `model.char_slots` are read.
      split: "train", "heldout" or "all".
      vocab: the characters that get an id.
      progress: called about every 5 s while encoding, and at its end.
      key: config key of `spec`, for messages.
      spaces: whether to keep where spaces are, see `SpacedForm`.

    Raises:
      ValueError: unreadable corpus; a corpus without documents (only a held-out split may be empty); a cache that
        cannot be written.
    """
    kind = SpacedForm if spaces else CharForm
    form = kind(vocab.to_dict(), config.model.char_slots, config.text.normalize)
    record_words = _record_words(config)
    corpus = encode_corpus(spec, config, split, form, record_words, progress, key)
    path = os.path.join(corpus.folder, "vocab.json")  # lets shards be used without their text
    if not os.path.exists(path):
        with clear_write_errors(corpus.folder):
            vocab.save(path)
    return corpus


def prepare_texts(
    config: ml_collections.ConfigDict, reader: str, progress: Progress = log_progress
) -> tuple[tuple[EncodedCorpus, ...], tuple[EncodedCorpus, ...]]:
    """Returns the training and the held-out corpora as text, in records of about the length of a sequence.

    Args:
      reader: the reason why the reader needs text, for messages, such as "CharBERT misspells text".

    Raises:
      ValueError: as in `prepare_corpus`, or a corpus holds encoded words.
    """
    check_readable(config, reader)
    words = max(config.data.max_length - 2, 1)

    def get_one(spec: str, split: str, key: str) -> EncodedCorpus:
        return encode_corpus(spec, config, split, TextForm(), words, progress, key)

    return split_corpora(config, get_one)


def encode_corpus(
    spec: str,
    config: ml_collections.ConfigDict,
    split: str,
    form: Form,
    record_words: int,
    progress: Progress = log_progress,
    key: str = "data.train",
) -> EncodedCorpus:
    """Encodes a corpus in any form, or finds it in the cache.

    Args:
      spec: a corpus as `sources.open_source` reads it.
      config: the `text` and `data` sections are read.
      split, progress, key: as in `prepare_corpus`.
      form: how words are stored.
      record_words: most words of a record.

    Raises:
      ValueError: as in `prepare_corpus`.
    """
    root = cache_dir(config)
    with clear_write_errors(root):
        source = open_configured(spec, config, split, key)
        settings = {
            "fingerprint": source.fingerprint(),
            "split": split,
            "heldout_fraction": float(config.data.heldout_fraction),
            "splitter": config.text.splitter,
            "language": config.text.language,
            **form.settings(),
            "record_words": record_words,
            "encoder_version": ENCODER_VERSION,
        }
        folder = os.path.join(root, stable_hash(settings)[:16])
        os.makedirs(folder, exist_ok=True)
    job = EncodeJob(source, folder, config.text.splitter, config.text.language, record_words, form)
    shards = [job.finished(i) for i in range(len(source.parts))]
    todo = [i for i, stats in enumerate(shards) if stats is None]
    if todo:
        encode(job, todo, config.data.encode_processes, progress)
        shards = [job.finished(i) for i in range(len(source.parts))]
    whole = [shard for shard in shards if shard is not None]
    if len(whole) < len(shards):
        raise ValueError(f"corpus cache {folder}: a shard vanished while it was prepared; is it being deleted?")
    stats = sum(whole, CorpusStats())
    paths = tuple(job.shard(i) for i, shard in enumerate(whole) if shard.records)
    if not paths and split != "heldout":
        raise ValueError(f"{key}: corpus {spec!r} holds no document ({stats.describe()})")
    if todo or not os.path.exists(os.path.join(folder, DESCRIPTION_FILE)):
        names = [os.path.basename(path) for path in paths]
        content = {"name": spec, "paths": names, "stats": dataclasses.asdict(stats), "settings": settings}
        with clear_write_errors(folder):
            write_text(os.path.join(folder, DESCRIPTION_FILE), json.dumps(content, indent=1))
    content = stable_hash(*(settings[key] for key in ("fingerprint", "split", "heldout_fraction")))
    return EncodedCorpus(spec, split, folder, paths, stats, content)


def _record_words(config: ml_collections.ConfigDict) -> int:
    if config.data.max_words < 3:
        raise ValueError(f"data.max_words={config.data.max_words}: expected at least 3 ([CLS], a word, [SEP])")
    return config.data.max_words - 2


def _open_encoded(spec: str, config: ml_collections.ConfigDict, vocab: CharVocab, key: str) -> EncodedCorpus:
    """Checks shards that are encoded already and returns them as a corpus."""
    paths = shard_paths(spec, key)
    folder, *others = dict.fromkeys(map(os.path.dirname, paths))
    known = _check_encoding(folder, spec, vocab, key)
    for other in others:  # a glob may match shards of several commands
        _check_encoding(other, spec, vocab, key)
    for path in paths:
        _, digest = read_counts(path) or (None, "")
        if digest and file_sha256(path, cache_dir(config)) != digest:
            raise ValueError(f"{key}: {path} is damaged: it is not what was encoded; {remedy_of(spec)}")
        next(read_shard(path, key))
    if sorted(known.get("paths", [])) == [os.path.basename(path) for path in paths]:
        stats = CorpusStats(**known["stats"])
    else:
        stats = CorpusStats()
        for record in itertools.chain.from_iterable(read_shard(path, key) for path in paths):
            stats.add_record(record)
    for name, got, limit in (
        ("data.max_words - 2", stats.longest_record, _record_words(config)),
        ("model.char_slots", len(stats.slots_histogram) - 1, config.model.char_slots),
    ):
        if got > limit:
            raise ValueError(f"{key}: {spec!r} was encoded for longer input: {got}, but {name} is {limit}")
    content = stable_hash(*(file_sha256(path, cache_dir(config)) for path in paths))
    return EncodedCorpus(spec, "all", folder, tuple(paths), stats, content)


def _check_encoding(folder: str, spec: str, vocab: CharVocab, key: str) -> JsonObject:
    """Returns the description of a folder of shards; ValueError if their ids are others, or not of characters alone."""
    known = _read_corpus_json(folder)
    settings = known.get("settings", {})
    digest = settings.get("vocab_digest", vocab.digest())
    if digest != vocab.digest():
        raise ValueError(
            f"{key}: {spec!r} was encoded with another character vocabulary: digest {digest}, expected "
            f"{vocab.digest()}; set text.char_vocab to {os.path.join(folder, 'vocab.json')!r}, or encode the text again"
        )
    if form := settings.get("form"):
        raise ValueError(
            f"{key}: {spec!r} was encoded in the form {form!r}, which models that write read; expected words as "
            "characters alone: name the text"
        )
    return known


def _read_corpus_json(folder: str) -> JsonObject:
    """Returns the description that lies beside encoded shards, {} when there is none."""
    path = os.path.join(folder, DESCRIPTION_FILE)
    try:
        return loads(read_bytes(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: damaged description of an encoded corpus ({error})") from error


def table(corpora: Iterable[EncodedCorpus]) -> str:
    """Returns a table of the prepared corpora for printing."""
    rows = [("corpus", "split", "documents", "words", "chars", "cut %", "unknown %", "skipped", "shards", "folder")]
    for corpus in corpora:
        s = corpus.stats
        cut, unknown = 100 * s.words_cut / max(s.words, 1), 100 * s.chars_unknown / max(s.chars, 1)
        counts = (f"{s.documents:,}", f"{s.words:,}", f"{s.chars:,}", f"{cut:.3g}", f"{unknown:.3g}")
        skipped = f"{sum(s.skipped.values()):,}"
        rows.append((corpus.name, corpus.split, *counts, skipped, str(len(corpus.paths)), corpus.folder))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
