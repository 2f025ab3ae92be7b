"""Tests scores: they equal the losses of transformers and the model's own probabilities, for any length."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hf_reference import FILE
from tiny_models import POSITIONS, release, run_alone

from charlm.families.predictor import Predictor

NOISE = 5e-5
TEXTS = ["The birds had naïve words", "", "She", "\t2, 3!\n", "😀 größte"]
LONG = "unbelievable birds, running naïve storie " * 12


@pytest.fixture(scope="module")
def predictor():
    return Predictor.from_checkpoint(release("gpt2"))


def log_probs(ids):
    """Returns log-probabilities [L, V] of what follows each of at most `POSITIONS` ids."""
    return run_alone("gpt2", ids)[1]


def test_losses_are_those_of_transformers(predictor):
    golden = json.loads(FILE.read_text(encoding="utf-8"))["gpt2"]["loss"]
    for (text, loss), score in zip(golden.items(), predictor.score(golden, start=False), strict=True):
        assert math.isnan(score.log_probs_P[0])
        if loss is None:
            assert (len(score.pieces), score.log_prob, score.bits_per_char) == (1, 0, 0)
            continue
        assert -np.nanmean(score.log_probs_P) == pytest.approx(loss, abs=1e-5)
        first = len(score.pieces[0])  # ASCII
        assert score.chars == len(text) - first
        assert score.bits_per_char == pytest.approx(
            loss * (len(score.pieces) - 1) / math.log(2) / score.chars, rel=1e-5
        )


def test_every_piece_has_its_probability_after_the_end_of_text_token(predictor):
    tokenizer = predictor.tokenizer
    for text, score in zip(TEXTS, predictor.score(TEXTS), strict=True):
        item = tokenizer.encode(text)
        want = log_probs([tokenizer.id("<|endoftext|>"), *item.ids])[np.arange(len(item.ids)), list(item.ids)]
        np.testing.assert_allclose(score.log_probs_P, want, atol=NOISE)
        assert score.log_probs_P.dtype == np.float32
        assert score.pieces == [tokenizer.token(index) for index in item.ids]
        assert score.offsets == list(item.offsets)
        assert score.log_prob == pytest.approx(want.sum(), abs=NOISE)
        assert score.chars == len(text)
        assert score.bits_per_char == pytest.approx(-want.sum() / math.log(2) / max(1, len(text)), abs=NOISE)


def test_scores_do_not_depend_on_what_else_is_scored(predictor):
    together = predictor.score([*TEXTS, LONG])
    for text, want in zip([*TEXTS, LONG], together, strict=True):
        np.testing.assert_allclose(predictor.score([text])[0].log_probs_P, want.log_probs_P, atol=NOISE)
    for got, want in zip(predictor.score([LONG, *TEXTS[::-1]], 2)[::-1], together, strict=True):
        np.testing.assert_allclose(got.log_probs_P, want.log_probs_P, atol=NOISE)
    assert predictor.score([]) == []


@pytest.mark.parametrize("start", [True, False])
def test_a_piece_of_a_long_text_sees_all_before_it_or_half_a_window(predictor, start):
    tokenizer, half = predictor.tokenizer, POSITIONS // 2
    (score,) = predictor.score([LONG], start=start)
    ids = [tokenizer.id("<|endoftext|>")] * start + list(tokenizer.encode(LONG).ids)
    assert len(ids) > 3 * POSITIONS
    got = score.log_probs_P if start else score.log_probs_P[1:]
    for at in range(1, len(ids)):
        begin = half * max(0, -(-(at + 1 - POSITIONS) // half))
        assert begin == 0 or at - begin >= half
        want = log_probs(ids[begin:at])[-1, ids[at]]
        assert got[at - 1] == pytest.approx(want, abs=NOISE)


def test_score_refuses(predictor):
    with pytest.raises(ValueError, match=r"score takes a list of texts .* write \[text\]"):
        predictor.score("one text")
    with pytest.raises(ValueError, match="a positive batch_size"):
        predictor.score(["a"], 0)
