"""The character vocabulary of a run: read from a file, or built from the characters of the training corpora.

Open it to change which characters a vocabulary gets; `charlm.text.chars` defines what a vocabulary is.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import shutil
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import ml_collections
import numpy as np

from charlm.core.durable import write_text
from charlm.core.files import cache_dir, clear_write_errors, load_cached, stable_hash
from charlm.core.reading import read_json
from charlm.data import spreading
from charlm.data.parts import Part
from charlm.data.records import ENCODER_VERSION, is_encoded, shard_paths
from charlm.data.sources import Source, open_configured
from charlm.data.spreading import Workers
from charlm.text.chars import CharVocab

log = logging.getLogger("charlm")

RELEASED = "released"
BY_BYTES = "bytes"  # of `text.unknown`


def load_or_build_vocab(config: ml_collections.ConfigDict, known: CharVocab | None = None) -> CharVocab:
    """Returns the vocabulary that `text.char_vocab` names, or builds that of the training corpora (or finds it cached).

    The name "released" stands for the vocabulary of HLM's released code, which ships with charlm.

    Args:
      known: taken in place of that of the training corpora, if these are not encoded already.

    Raises:
      ValueError: the file is missing or not a vocabulary, or the vocabulary does not fit into `model.vocab_size`, or
        has bytes where `text.unknown` says otherwise, or none.
    """
    encoded = [spec for spec in config.data.train if is_encoded(spec)]
    path, origin = config.text.char_vocab, "data.train" if known is None else "init_from"
    if not path and encoded:  # encoded shards already fix the ids: no characters are counted
        path = os.path.join(os.path.dirname(shard_paths(encoded[0], "data.train")[0]), "vocab.json")
        if not os.path.exists(path):
            raise ValueError(f"data.train: {encoded[0]!r} has no vocab.json beside it; set text.char_vocab")
    if path == RELEASED:
        vocab = CharVocab.released()
    elif path:
        try:
            vocab = CharVocab.load(os.path.expanduser(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"text.char_vocab={path!r}: cannot be read as a character vocabulary: {error}") from error
    elif known is not None:
        vocab = known
    else:
        split = "all" if config.data.heldout else "train"
        vocab = build_char_vocab([open_configured(s, config, split, "data.train") for s in config.data.train], config)
    if vocab.size > config.model.vocab_size:
        raise ValueError(
            f"the character vocabulary {path or f'of {origin}'} has {vocab.size} entries, but model.vocab_size is "
            f"{config.model.vocab_size}"
        )
    if vocab.by_bytes != (config.text.unknown == BY_BYTES):
        raise ValueError(
            f"text.unknown={config.text.unknown!r}, but the character vocabulary {path or f'of {origin}'} has "
            f"{'' if vocab.by_bytes else 'no '}bytes"
        )
    return vocab


def build_char_vocab(sources: Sequence[Source], config: ml_collections.ConfigDict) -> CharVocab:
    """Builds the vocabulary of `model.vocab_size` entries from the characters of the sources; cached by their content.

    Raises:
      ValueError: a source cannot be read, or the cache cannot be written.
    """
    root = cache_dir(config)
    with clear_write_errors(root):
        content = [(source.fingerprint(), source.split, source.heldout_fraction) for source in sources]
        settings = [config.text.normalize, config.model.vocab_size, ENCODER_VERSION]
        by_bytes = config.text.unknown == BY_BYTES
        settings += [BY_BYTES] * by_bytes
        path = os.path.join(root, f"vocab-{stable_hash(content, settings)[:16]}.json")

        def make() -> None:
            os.makedirs(root, exist_ok=True)
            if (workers := spreading.current()) is None:
                counts = count_chars(sources, config.text.normalize)
            else:
                counts = _count_spread(sources, config.text.normalize, workers, f"{path}.counts")
            vocab = CharVocab.build(counts, config.model.vocab_size, by_bytes)
            vocab.save(path)
            shutil.rmtree(f"{path}.counts", ignore_errors=True)
            log.info("character vocabulary: %d entries of %d distinct characters; %s", vocab.size, len(counts), path)

        return load_cached(path, CharVocab.load, make)


def count_chars(sources: Sequence[Source], normalize: str) -> Counter[str]:
    """Counts the characters of words, in a histogram of code points: several times faster than a Counter of str."""
    documents = (source.documents(part) for source in sources for part in source.parts)
    return _count(itertools.chain.from_iterable(documents), normalize)


def _count(texts: Iterable[str], normalize: str) -> Counter[str]:
    histogram, documents = np.zeros(sys.maxunicode + 1, np.int64), iter(texts)
    while batch := list(itertools.islice(documents, 1000)):
        text = "\n".join(batch)
        if normalize == "nfc":
            text = unicodedata.normalize("NFC", text)
        codes, counts = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_counts=True)
        histogram[codes] += counts
    found = {chr(code): int(histogram[code]) for code in np.flatnonzero(histogram)}
    return Counter({char: count for char, count in found.items() if not char.isspace()})


def _count_spread(sources: Sequence[Source], normalize: str, workers: Workers, folder: str) -> Counter[str]:
    """Counts as `count_chars` does, by workers; the counts of a part are kept in a file of `folder`."""
    os.makedirs(folder, exist_ok=True)
    total: Counter[str] = Counter()
    for number, source in enumerate(sources):
        parts = {os.path.join(folder, f"{number}-{i}.json"): part for i, part in enumerate(source.parts)}
        missing = [item for item in parts.items() if _read_counts(item[0]) is None]
        workers.run("characters", _CountPart(source.without_parts(), normalize), missing)
        for path in parts:
            if (counts := _read_counts(path)) is None:
                raise ValueError(f"{path} vanished while characters were counted; is the cache being deleted?")
            total.update(counts)
    return total


@dataclasses.dataclass(frozen=True)
class _CountPart:
    """Writes the characters of a part and their counts to a file."""

    source: Source
    normalize: str

    def __call__(self, item: tuple[str, Part]) -> None:
        path, part = item
        counts = _count(self.source.documents(part), self.normalize)
        with clear_write_errors(os.path.dirname(path)):
            write_text(path, json.dumps(counts))


def _read_counts(path: str) -> dict[str, int] | None:
    """Returns what `_CountPart` wrote, None if it is missing or damaged."""
    try:
        return {char: int(count) for char, count in read_json(path).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
