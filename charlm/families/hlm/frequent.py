"""The frequent words of a training text, which lie beside an HLM: gaps are filled with them, and typos mended to them.

Open it to change how many are kept, or what counts as a word.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter

import ml_collections
import numpy as np

from charlm.data.corpus import PreparedData
from charlm.data.pipeline import training_records

READ_WORDS = 1_000_000  # words of text that are read for them, even if the corpora are huge
MOST = 20_000  # words that are kept
LEAST_COUNT = 3  # occurrences from which on a word is known
JOINERS = "\u200c\u200d"  # zero-width characters inside words of many scripts


def frequent_words(
    config: ml_collections.ConfigDict, data: PreparedData, most: int = MOST, read: int = READ_WORDS
) -> list[str]:
    """Returns the most frequent words of the training text that consist of letters, the most frequent first.

    They are counted as training reads them, from all corpora in their shares.

    Args:
      most: words that are returned.
      read: words of text that are read; of a smaller text, as many as it has.
    """
    left = min(read, sum(corpus.stats.words for corpus in data.train))
    counts: Counter[bytes] = Counter()
    with training_records(config, data.train) as records:
        for record in records:
            chars = record.chars.astype(np.uint16, copy=False).tobytes()
            ends = [0, *(2 * np.cumsum(record.words, dtype=np.int64)).tolist()]
            counts.update(chars[a:b] for a, b in itertools.pairwise(ends))
            left -= len(record.words)
            if left <= 0:
                break
    known = (data.vocab.decode(np.frombuffer(ids, np.uint16)) for ids, n in counts.most_common() if n >= LEAST_COUNT)
    return list(itertools.islice(filter(is_word, known), most))


def is_word(text: str) -> bool:
    """Says whether a text is letters and their marks (Hindi's vowel signs are marks, which `isalpha` refuses)."""
    return text[:1].isalpha() and all(c.isalpha() or unicodedata.category(c)[0] == "M" or c in JOINERS for c in text)
