"""Tests what a speller's training counts: characters and ends, and words that are mended or kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from charlm.data.word_batch import MaskedWords
from charlm.families.hlm.misspelled import END
from charlm.families.hlm.spelling_loss import SpellingSums, _bucket_sums, summarize
from charlm.text.chars import MASK, WORD_CLS

C, V = 6, 14
READ = [[8, 9, 10], [8, 9], [11, 11, 12], [9], [MASK, MASK], [MASK]]  # characters of the words in the table
# The row that is read at each position, the word meant, and the word that the model predicts.
ROWS = [(0, [8, 10, 9], [8, 10, 9]), (0, [8, 9, 10], [8, 9, 10]), (1, [8, 9, 13], [8, 9]), (2, [11, 12], [11, 12]),
        (3, [9], [10]), (4, [9, 10], [9, 10]), (5, [9], [8])]  # fmt: skip


@pytest.fixture(scope="module")
def bucket():
    table_PC = np.zeros((1, 7, C), np.uint16)
    for row, ids in enumerate(READ):
        table_PC[0, row, : len(ids) + 1] = [WORD_CLS, *ids]
    labels = np.zeros((1, 8, C), np.uint16)
    for m, (_, meant, _) in enumerate(ROWS):
        labels[0, m, 1 : len(meant) + 2] = [*meant, END]
    rows = np.array([[*(row for row, _, _ in ROWS), 4]], np.int32)  # the last is no word
    return MaskedWords(table_PC, np.zeros_like(rows), rows, labels)


@pytest.fixture(scope="module")
def logits():
    found = np.random.default_rng(0).normal(size=(1, 8, C - 1, V)).astype(np.float32)
    for m, (_, _, predicted) in enumerate(ROWS):
        for place, one in enumerate([*predicted, END]):
            found[0, m, place, one] += 9
    return found


def test_sums_equal_a_loop_over_words(bucket, logits):
    sums = _bucket_sums(logits, bucket)
    nats = chars = 0.0
    for m, (_, meant, _) in enumerate(ROWS):
        for place, one in enumerate([*meant, END]):
            row_V = logits[0, m, place].astype(np.float64)
            nats += math.log(np.exp(row_V).sum()) - row_V[one]
            chars += 1
    np.testing.assert_allclose(float(sums.nats), nats, rtol=1e-5)
    assert float(sums.chars) == chars
    # The first, third and fourth word are misspelled, and the third is not mended; the last two are masked.
    assert [float(x) for x in sums[2:]] == [3, 2, 2, 1, 2, 1]


def test_a_summary_has_the_shares():
    found = summarize(SpellingSums(*(np.float32(x) for x in (8.0, 4, 10, 4, 20, 19, 8, 2))))
    assert found == pytest.approx(
        {"loss": 2.0, "bits_per_char": 2 / math.log(2), "mended": 0.4, "kept": 0.95, "guessed": 0.25}
    )
    nothing_hidden = summarize(SpellingSums(*(np.float32(x) for x in (8.0, 4, 10, 4, 20, 19, 0, 0))))
    assert "guessed" not in nothing_hidden
    with pytest.raises(ValueError, match="no word was predicted"):
        summarize(SpellingSums(*(np.float32(0) for _ in range(8))))
