"""The frequent words of a training text, which lie beside an HLM: gaps are filled with them, and typos mended to them.

Open it to change how many are kept, or what counts as a word.
"""

from __future__ import annotations

import contextlib
import itertools
import unicodedata
from collections import Counter

import ml_collections
import numpy as np

from charlm.data.corpus import EncodedCorpus, PreparedData
from charlm.data.pipeline import record_dataset

READ_WORDS = 1_000_000  # words of text that are read for them, even if the corpora are huge
MOST = 20_000  # words that are kept
LEAST_COUNT = 3  # occurrences from which on a word is known
JOINERS = "\u200c\u200d"  # zero-width characters inside words of many scripts


def frequent_words(
    config: ml_collections.ConfigDict, data: PreparedData, most: int = MOST, read: int = READ_WORDS
) -> list[str]:
    """Returns the most frequent words of the training text that consist of letters, the most frequent first.

    Each corpus counts by its share of training, but is read once at most: a word that a small corpus has once is not
    known because training repeats that corpus. Words that fill all slots are left out, since they may have been cut.

    Args:
      most: words that are returned.
      read: words of text that are read; of a smaller text, as many as it has.
    """
    sizes = [corpus.stats.words for corpus in data.train]
    weights = list(config.data.weights) or sizes
    found: Counter[bytes] = Counter()
    frequency: dict[bytes, float] = {}
    for corpus, weight in zip(data.train, weights, strict=True):
        wanted = read * weight / sum(weights)
        counts, words = _counts(corpus, wanted, config.seed)
        found.update(counts)
        for ids, count in counts.items():
            frequency[ids] = frequency.get(ids, 0.0) + count * wanted / words
    known = (ids for ids in sorted(frequency, key=lambda ids: -frequency[ids]) if found[ids] >= LEAST_COUNT)
    whole = (np.frombuffer(ids, np.uint16) for ids in known)
    written = (data.vocab.decode(ids_C) for ids_C in whole if len(ids_C) < config.model.char_slots - 1)
    return list(itertools.islice(filter(is_word, written), most))


def _counts(corpus: EncodedCorpus, wanted: float, seed: int) -> tuple[Counter[bytes], int]:
    """Returns how often each word stands in records drawn from a corpus, and the words that these have in all."""
    counts: Counter[bytes] = Counter()
    words = 0
    with contextlib.closing(iter(record_dataset((corpus,), seed=seed, shuffle=True))) as records:
        for record in records:
            chars = record.chars.astype(np.uint16, copy=False).tobytes()
            ends = [0, *(2 * np.cumsum(record.words, dtype=np.int64)).tolist()]
            counts.update(chars[a:b] for a, b in itertools.pairwise(ends))
            words += len(record.words)
            if words >= wanted:
                break
    return counts, words


def is_word(text: str) -> bool:
    """Says whether a text is letters and their marks (Hindi's vowel signs are marks, which `isalpha` refuses)."""
    return text[:1].isalpha() and all(c.isalpha() or unicodedata.category(c)[0] == "M" or c in JOINERS for c in text)
