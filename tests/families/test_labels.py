"""Tests heads for labels beside the linear one: they compute what NumPy does; no text sees padding or its neighbour."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lstm_equations import linear, tagged
from programs import applied, drawn
from subword_cases import ours

from charlm.convert.heads import LINEAR, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.families.subword.labels import BertForLabels, GPT2ForLabels

LABELS = 3
IDS = np.random.default_rng(0).integers(5, 60, (3, 7)).astype(np.int32)
LENGTHS = np.array([7, 4, 2])
MASK = np.arange(7)[None] < LENGTHS[:, None]
MODELS = {"bert": BertForLabels, "gpt2": GPT2ForLabels}
FAMILIES = pytest.mark.parametrize("family", MODELS)
KINDS = {
    "perceptron": SEQUENCE_CLASSIFICATION,
    "mean": SEQUENCE_CLASSIFICATION,
    "lstm": TOKEN_CLASSIFICATION,
    "lstm768": TOKEN_CLASSIFICATION,
}
WIDTHS = {"lstm": 128, "lstm768": 768}  # of each direction
TAGGERS = pytest.mark.parametrize("label_head", WIDTHS)


def headed(family, label_head):
    """Returns a model with a head of random parameters, and the states that it reads for `IDS`."""
    language_model, params = ours(family)
    module = MODELS[family](language_model.config, LABELS, KINDS[label_head], label_head=label_head)
    shapes = drawn(module, IDS, MASK, scale=0.05 if label_head == "lstm768" else 0.5)
    own = {name: value for name, value in shapes.items() if name != family}
    params = own | {family: params[family]}
    assert jax.tree.structure(params) == jax.tree.structure(shapes)
    encoder = MODELS[family].encoder(language_model.config)
    return module, params, np.asarray(applied(encoder)(params[family], IDS, MASK).states_BLD, np.float64)


@FAMILIES
def test_a_perceptron_is_two_layers_with_relu_over_the_state_of_a_text(family):
    module, params, states = headed(family, "perceptron")
    at = np.zeros(3, int) if family == "bert" else LENGTHS - 1  # [CLS], or the last token
    wanted = linear(np.maximum(linear(states[range(3), at], params["transform"]), 0), params["label"])
    found = applied(module)(params, IDS, MASK)
    assert found.shape == (3, LABELS)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.ptp(wanted, axis=0).min() > 1e-2  # texts differ


@FAMILIES
def test_a_mean_is_over_the_states_of_a_text_alone(family):
    module, params, states = headed(family, "mean")
    layer = {"bias": np.zeros(LABELS)} | params["label"]  # GPT-2's has none
    wanted = linear(np.stack([states[row, :length].mean(axis=0) for row, length in enumerate(LENGTHS)]), layer)
    found = applied(module)(params, IDS, MASK)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert np.ptp(wanted, axis=0).min() > 1e-2  # texts differ
    shared = np.concatenate([IDS[0, :7], IDS[1, :4], IDS[2, :2], [9]])[None]
    (together,) = applied(module)(params, shared, np.repeat([1, 2, 3, 0], [7, 4, 2, 1])[None].astype(np.int32))
    for row, begin in enumerate((0, 7, 11)):
        alike = np.broadcast_to(found[row], (LENGTHS[row], LABELS))  # wherever the logits of a text are read
        np.testing.assert_allclose(together[begin : begin + LENGTHS[row]], alike, atol=2e-5)


@FAMILIES
@pytest.mark.parametrize("label_head", ["", "perceptron", "lstm"])
def test_logits_of_a_model_in_bfloat16_are_float32(family, label_head):
    """Rounded ones would tie, and differ from those of the same states by half a hundredth of their size."""
    module, params, _ = headed(family, label_head) if label_head else headed(family, "perceptron")
    if not label_head:
        module = module.clone(label_head=LINEAR, kind=QUESTION_ANSWERING)
        params = {name: value for name, value in params.items() if name != "transform"}
        params["label"] = {"kernel": params["label"]["kernel"], "bias": np.linspace(0, 1, LABELS)}
    rounded = module.clone(config=dataclasses.replace(module.config, dtype=jnp.dtype("bfloat16")))
    logits = applied(rounded)(params, IDS, MASK)
    assert logits.dtype == np.float32
    assert (np.asarray(logits) != np.asarray(logits.astype(jnp.bfloat16).astype(np.float32))).mean() > 0.5


@FAMILIES
@TAGGERS
def test_an_lstm_reads_the_words_of_each_text_from_both_ends(family, label_head):
    module, params, states = headed(family, label_head)
    assert params["lstm"]["layer_1"]["backward"]["state_kernel"].shape == (w := WIDTHS[label_head], 4 * w)
    found = applied(module)(params, IDS, MASK)
    assert found.shape == (3, 7, LABELS)
    assert np.ptp(found, axis=(0, 1)).min() > 1e-2  # words differ
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(found[row, :length], tagged(states[row, :length], params), atol=1e-4)


@FAMILIES
@pytest.mark.parametrize("label_head", KINDS)
def test_padding_and_the_order_of_rows_change_nothing(family, label_head):
    module, params, _ = headed(family, label_head)
    found = applied(module)(params, IDS, MASK)
    wide = np.concatenate([np.where(MASK, IDS, 9), np.full((3, 4), 11, np.int32)], axis=1)
    order = [2, 0, 1]
    other = applied(module)(params, wide[order], np.pad(MASK, ((0, 0), (0, 4)))[order])
    for at, row in enumerate(order):
        real = slice(LENGTHS[row]) if label_head in WIDTHS else slice(None)
        np.testing.assert_allclose(other[at][real], found[row][real], atol=2e-5)
    (alone,) = applied(module)(params, IDS[2:, :2])
    np.testing.assert_allclose(alone, found[2][: len(alone)], atol=2e-5)


@FAMILIES
def test_texts_that_share_a_row_have_the_tags_of_rows_of_their_own(family):
    module, params, _ = headed(family, "lstm")
    found = applied(module)(params, IDS, MASK)
    shared = np.concatenate([IDS[0, :7], IDS[1, :4], IDS[2, :2], [9]])[None]
    (together,) = applied(module)(params, shared, np.repeat([1, 2, 3, 0], [7, 4, 2, 1])[None].astype(np.int32))
    for row, begin in enumerate((0, 7, 11)):
        length = LENGTHS[row]
        np.testing.assert_allclose(together[begin : begin + length], found[row, :length], atol=2e-5)


@FAMILIES
@pytest.mark.parametrize("label_head", KINDS)
def test_every_parameter_of_a_head_gets_a_gradient_and_dropout_is_between_lstms_of_xrayemb_alone(family, label_head):
    module, params, _ = headed(family, label_head)
    rates = {name: 0.0 for name in ("dropout", "attention_dropout", "embed_dropout") if hasattr(module.config, name)}
    module = module.clone(config=dataclasses.replace(module.config, **rates))

    def loss(params, seed):
        rngs = {"dropout": jax.random.key(seed)}
        logits = module.apply({"params": params}, IDS, MASK, deterministic=False, rngs=rngs)
        return jnp.square(logits[:, :2] if label_head in WIDTHS else logits).sum()

    run = jax.jit(jax.value_and_grad(loss))
    (one, gradient), (other, _) = run(params, 0), run(params, 1)
    own = {name: value for name, value in gradient.items() if name != family}
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(own))
    assert (one != other) == (label_head == "lstm")
