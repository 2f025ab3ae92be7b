"""Tests the benchmark's path of CharacterBERT: it reads HLM's words, each distinct one once, and no padding."""

from __future__ import annotations

import jax
import numpy as np
from benchmark_jobs import small_job

from charlm.benchmark.characterbert import CharacterBertInference
from charlm.benchmark.hlm import HLMInference
from charlm.benchmark.text import PAIR, TextShape, sentences
from charlm.families.characterbert.characters import CLS_WORD, SEP_WORD
from charlm.text.words import RulesSplitter

PAIRS = [PAIR.join(["the cat", "The dog sat"]), PAIR.join(["a small house by the sea", "ok"])]


def spelled(host, units):
    """Returns the characters of all words of a batch, and of [CLS] and [SEP]."""
    rows = lambda words: units.spellings.rows(units.spellings.codes(words))
    return host.units.spellings.rows(np.where(host.mask_BL, host.codes_BL, 0)), rows((CLS_WORD, SEP_WORD))


def test_it_reads_the_words_of_hlm(tmp_path):
    shape = TextShape(4, 14)
    job = small_job(tmp_path, "characterbert", shape=shape, drawn=True)
    runner, hlm = CharacterBertInference(job), HLMInference(small_job(tmp_path, "table", shape=shape, drawn=True))
    host, chars_BWC = runner.tokenise(job.texts[0], 21), hlm.tokenise(job.texts[0], 21)
    np.testing.assert_array_equal(host.mask_BL, chars_BWC[..., 0] != 0)
    assert runner.tokens(host) == hlm.tokens(chars_BWC) == (14.0, 21)
    states_BLD = np.asarray(runner.run(host))
    assert states_BLD.std() > 0.1
    for b, text in enumerate(job.texts[0]):  # alone, without padding and without the others' words
        alone = np.asarray(runner.run(runner.tokenise([text], 21)))[0]
        np.testing.assert_allclose(states_BLD[b, : len(alone)], alone, atol=1e-5)
    work = runner.work(host)
    assert 0 < 1.2 * work["useful_gflop"] < work["padded_gflop"]
    assert runner.program(host)


def test_equal_words_are_one_row_and_pairs_have_a_mark_between(tmp_path):
    runner = CharacterBertInference(small_job(tmp_path, "characterbert"))
    host = runner.tokenise(PAIRS, 14)
    assert host.mask_BL.sum(axis=1).tolist() == [3 + 5, 3 + 7]
    chars_BLC, (cls_C, sep_C) = spelled(host, host.units)
    for pair, chars_LC in zip(PAIRS, chars_BLC, strict=True):
        first, second = (RulesSplitter().spans(part) for part in sentences(pair))
        marks = [n for n, row_C in enumerate(chars_LC) if (row_C == sep_C).all()]
        assert marks == [1 + len(first), 2 + len(first) + len(second)]
        assert (chars_LC[0] == cls_C).all()
    batch = runner._batch(host)
    distinct = {part[a:b].lower() for pair in PAIRS for part in sentences(pair) for a, b in RulesSplitter().spans(part)}
    real = sum(int(chars[0].any(axis=-1).sum()) for chars in batch.chars)
    assert real == len(distinct) + 2  # "the" and "The" are one for an uncased model; [CLS] and [SEP]
    assert jax.tree.leaves(runner._params)
