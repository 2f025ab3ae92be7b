"""Tests sensitivity: the numbers of the definition, and none if nothing changed."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from charlm.finetune.predictor import FineTuned
from charlm.robustness.sensitivity import distances, sensitivity, sensitivity_of, word_states
from charlm.text.noise import KINDS, Noise, Noiser

SENTENCES = [("the", "cat", "sat"), ("old", "house"), ("we", "ran", "to", "every", "dog", "in", "the", "town")]


def test_distances_by_hand():
    a = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    b = np.array([[5.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    want = [0.0, 0.5, 1.0, 0.0, (1 - np.sqrt(0.5)) / 2]
    np.testing.assert_allclose(distances(a, b), want, atol=1e-12)
    assert sensitivity(a, b) == pytest.approx(np.mean(want))
    assert sensitivity(b, a) == pytest.approx(sensitivity(7 * a, b))


def test_zero_vectors_and_equal_ones_are_exact():
    a = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    assert (distances(a, a) == 0).all()
    zeros = np.zeros((1, 7))
    assert distances(zeros, zeros) == [0]
    assert distances(zeros, a[:1]) == [0.5]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((2, 3)), np.zeros((3, 3)), r"expected \[words, dimensions\] of the same words, got \(2, 3\)"),
        (np.zeros(3), np.zeros(3), r"got \(3,\) and \(3,\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "at least one word"),
    ],
)
def test_errors(a, b, message):
    with pytest.raises(ValueError, match=message):
        sensitivity(a, b)


@pytest.fixture(scope="module", params=["hlm", "bert", "gpt2"])
def model(request, models, taggers):
    names = {"hlm": taggers[0], "bert": taggers[1]}
    path = names.get(request.param) or models.untrained("tagging", request.param)
    return FineTuned.from_checkpoint(path, 8)


def test_equal_text_does_not_move_and_other_words_do(model):
    assert sensitivity_of(model, SENTENCES, SENTENCES) == (pytest.approx(0, abs=1e-6), None)
    noisy = [("the", "czt", "sat"), *SENTENCES[1:]]
    found = sensitivity_of(model, SENTENCES, noisy)
    assert 0 < found.all < found.changed <= 1
    assert sensitivity_of(model, [], []) == (None, None)
    with pytest.raises(ValueError, match="sentence 1: expected 2 noisy words, one for each, got 1"):
        sensitivity_of(model, SENTENCES, [SENTENCES[0], ("oldhouse",), SENTENCES[2]])


def test_all_and_changed_are_means_of_the_words_they_name(model):
    noisy = [("the", "cta", "sat"), ("old", "huose"), SENTENCES[2]]
    a, b = word_states(model, SENTENCES), word_states(model, noisy)
    assert a.shape == b.shape == (13, a.shape[1])
    moved = distances(a, b)
    found = sensitivity_of(model, SENTENCES, noisy)
    assert found == pytest.approx((moved.mean(), moved[[1, 4]].mean()))
    assert sensitivity_of(model, SENTENCES, noisy, clean_WD=a) == pytest.approx(found)
    assert moved[5:] == pytest.approx(np.zeros(8), abs=1e-6), "other sentences do not move"


def test_states_are_those_at_the_unit_that_speaks_for_the_word(model):
    """By hand: one sentence alone, its units looked up one by one."""
    words = ("the", "unbelievable", "cat")
    units = model.evaluator.units
    (encoded,) = units.encode_words([words])
    joined = units.join(encoded)
    shape = units.measure([[joined]], 1, joined.length)
    packed = units.pack([joined], shape)
    inputs = jax.tree.map(lambda x: x[None], packed)
    states = np.asarray(jax.jit(lambda x: units.states(model.pretrained.config, model.params, x))(inputs))[0]
    of_word = [[u for u, word in enumerate(encoded.words) if word == n] for n in range(3)]
    side = -1 if model.pretrained.family == "gpt2" else 0
    want = states[[joined.first + of_word[n][side] for n in range(3)]]
    np.testing.assert_allclose(word_states(model, [words]), want, atol=2e-5)
    if model.pretrained.family != "hlm":
        assert len(of_word[1]) > 1


def test_kinds_left_out_are_those_that_merge_or_cut_words():
    words = [f"word{n}" for n in range(40)]
    for kind in KINDS:
        if kind != "misspelling":
            noisy = [Noiser(Noise(kind, KINDS[kind].highest / 2), seed).words(words, "key").words for seed in range(5)]
            assert any(len(one) != len(words) for one in noisy) == KINDS[kind].resizes
