"""What a trained model says about held-out words, for a person to see: some masked, some misspelled."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import ml_collections
import numpy as np

from charlm.data.corpus import PreparedData
from charlm.data.pipeline import record_dataset
from charlm.data.records import EncodedRecord
from charlm.predict import Predictor
from charlm.text.chars import CharVocab

log = logging.getLogger("charlm")

CONTEXT = 6  # words shown on either side
SENTENCE_WORDS = (8, 40)  # sentences used, in words
MASKED_CHARS = (3, 9)  # words to mask, in characters
MISSPELLED_CHARS = (6, 12)  # words to misspell


def show_examples(config: ml_collections.ConfigDict, data: PreparedData, params: Any) -> None:
    """Logs the five likeliest words for `train.examples` masked and as many misspelled held-out words."""
    if not config.train.examples:
        return
    predictor = Predictor(config, data.vocab, params)
    sentences = list(itertools.islice(_sentences(data), 50 * config.train.examples))
    np.random.default_rng(config.seed).shuffle(sentences)
    for words, position in _targets(sentences, MASKED_CHARS, config.train.examples):
        fills = predictor.fill(words, position, hidden=[position])
        _show("masked", words, position, f"[{words[position]}]", fills)
    for words, position in _targets(sentences[::-1], MISSPELLED_CHARS, config.train.examples):
        right, typo = words[position], swap_inner(words[position])
        words[position] = typo
        _show("misspelled", words, position, f"[{typo} for {right}]", predictor.fill(words, position))


def swap_inner(word: str) -> str:
    """Returns the word with the first two different neighbours inside it swapped: the commonest slip of typists."""
    for i in range(1, len(word) - 2):
        if word[i] != word[i + 1]:
            return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return word


def _show(kind: str, words: list[str], position: int, shown: str, fills: list[Any]) -> None:
    before, after = words[max(0, position - CONTEXT) : position], words[position + 1 : position + 1 + CONTEXT]
    log.info("%s: %s", kind, " ".join([*before, shown, *after]))
    log.info("    -> %s", ", ".join(f"{fill.word} ({fill.score:.2f})" for fill in fills))


def _targets(sentences: list[list[str]], chars: tuple[int, int], count: int) -> Iterator[tuple[list[str], int]]:
    """Yields sentences with the position of their longest word of fitting length, every word once."""
    used: set[str] = set()
    for words in sentences:
        fitting = [i for i, w in enumerate(words) if chars[0] <= len(w) <= chars[1] and w.isalpha() and w not in used]
        if len(used) < count and fitting:
            position = max(fitting, key=lambda i: len(words[i]))
            used.add(words[position])
            yield list(words), position


def _sentences(data: PreparedData) -> Iterator[list[str]]:
    records = iter(record_dataset(data.heldout))
    try:
        for record in records:
            yield from (s for s in _decode(record, data.vocab) if SENTENCE_WORDS[0] <= len(s) <= SENTENCE_WORDS[1])
    finally:
        records.close()


def _decode(record: EncodedRecord, vocab: CharVocab) -> Iterator[list[str]]:
    ends = np.cumsum(record.words, dtype=np.int64)
    words = [vocab.decode(ids) for ids in np.split(record.chars, ends[:-1])]
    at = 0
    for length in record.sentences:
        yield words[at : at + length]
        at += length
