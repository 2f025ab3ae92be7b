"""Logs what a trained HLM predicts for some masked and some misspelled held-out words, for a person to look at.

The objective calls it at the end of a run (`train.examples`). Open it to change which words are chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import ml_collections
import numpy as np

from charlm.core.types import Params
from charlm.data.corpus import EncodedCorpus, PreparedData
from charlm.data.pipeline import record_dataset
from charlm.data.records import EncodedRecord
from charlm.families.examples import in_context
from charlm.families.hlm.filling import WordGap
from charlm.families.hlm.frequent import is_word
from charlm.families.hlm.predictor import HLMPredictor
from charlm.families.predictor import Fill
from charlm.text.chars import CharVocab

log = logging.getLogger("charlm")

CONTEXT = 6  # words shown on either side
SENTENCE_WORDS = (8, 40)  # sentences used, in words
MASKED_CHARS = (1, 9)  # words to mask, in characters
MISSPELLED_CHARS = (6, 12)  # words to misspell
READ_WORDS = 1_000_000  # words that sentences are chosen from, even if the text is huge
TOGETHER = 16  # examples computed in one call, so that few programs are compiled


def show_examples(config: ml_collections.ConfigDict, data: PreparedData, params: Params, words: list[str]) -> None:
    """Logs the five likeliest known words for `train.examples` masked and as many misspelled held-out words.

    Args:
      words: the known words; see `frequent_words`.
    """
    count = config.train.examples
    if not count:
        return
    predictor = HLMPredictor(config, data.vocab, params, pieces=data.pieces)
    known = predictor.known_words(words)
    sentences = [s for s in _sentences(data.heldout, data.vocab) if SENTENCE_WORDS[0] <= len(s) <= SENTENCE_WORDS[1]]
    rng = np.random.default_rng(config.seed)
    gaps, shown = [], []
    for sentence, position in _targets(sentences, MASKED_CHARS, None, count, rng):
        gaps.append(WordGap(sentence, position, hidden=frozenset([position])))
        shown.append(("masked", f"[{sentence[position]}]"))
    for sentence, position in _targets(sentences, MISSPELLED_CHARS, set(words), count, rng):
        right, sentence[position] = sentence[position], swap_inner(sentence[position])
        gaps.append(WordGap(sentence, position))
        shown.append(("misspelled", f"[{sentence[position]}, right: {right}]"))
    log.info("held-out words and the five best of %s known words:", f"{len(known):,}")
    for at in range(0, len(gaps), TOGETHER):
        for gap, fills, (kind, word) in zip(
            gaps[at : at + TOGETHER],
            predictor.fill_all(gaps[at : at + TOGETHER], known=known),
            shown[at : at + TOGETHER],
            strict=True,
        ):
            _show(kind, gap.words, gap.position, word, fills)


def swap_inner(word: str) -> str:
    """Returns the word with its first two unequal inner neighbours swapped, the most common typing error."""
    for i in range(1, len(word) - 2):
        if word[i] != word[i + 1]:
            return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return word


def _show(kind: str, words: list[str], position: int, shown: str, fills: list[Fill]) -> None:
    log.info("%-10s  %s", kind, in_context(position, len(words), words.__getitem__, shown, CONTEXT))
    log.info("%-10s  %s", "", ", ".join(f"{fill.word} ({fill.score:.2f})" for fill in fills))


def _targets(
    sentences: list[list[str]],
    chars: tuple[int, int],
    among: set[str] | None,
    count: int,
    rng: np.random.Generator,
) -> Iterator[tuple[list[str], int]]:
    """Yields `count` random sentences, each with the position of a random word of letters.

    Args:
      chars: least and most characters of the word.
      among: the words to choose from; None: any.
    """
    found = 0
    for n in rng.permutation(len(sentences)):
        words = list(sentences[n])
        fitting = [
            i
            for i, word in enumerate(words)
            if chars[0] <= len(word) <= chars[1] and is_word(word) and (among is None or word in among)
        ]
        if fitting and found < count:
            found += 1
            yield words, int(rng.choice(fitting))


def _sentences(corpora: tuple[EncodedCorpus, ...], vocab: CharVocab) -> Iterator[list[str]]:
    records, read = iter(record_dataset(corpora)), 0
    try:
        for record in records:
            yield from _decode(record, vocab)
            read += len(record.words)
            if read >= READ_WORDS:
                break
    finally:
        records.close()


def _decode(record: EncodedRecord, vocab: CharVocab) -> Iterator[list[str]]:
    ends = np.cumsum(record.words, dtype=np.int64)
    words = [vocab.decode(ids) for ids in np.split(record.chars, ends[:-1])]
    at = 0
    for length in record.sentences:
        yield words[at : at + length]
        at += length
