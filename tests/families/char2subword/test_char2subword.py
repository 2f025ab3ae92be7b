"""Tests the Char2Subword module: golden outputs, padding without effect, and its config switches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import char2subword_equations as equations
import char2subword_goldens as goldens
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import applied
from safetensors.numpy import load_file

from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.nn.embed import sinusoids

GOLDENS = Path(__file__).parents[2] / "goldens" / "char2subword"
SHAPE = Char2SubwordConfig(char_vocab_size=58, hidden=16, layers=2, heads=4, output=12, char_slots=14)
PARTS = {"q": "attention/query", "k": "attention/key", "v": "attention/value", "o": "attention/output",
         "ff1": "ffn_in", "ff2": "ffn_out", "ln1": "attention_norm", "ln2": "ffn_norm"}  # fmt: skip


def golden_params():
    state = load_file(GOLDENS / "module_a.safetensors")
    params = {"chars": {"embedding": state["char_embs.weight"]}}
    for name, ours in {"proj": "projection", "ln_out": "norm"}.items():
        params[ours] = leaf(state, name)
    for layer in range(SHAPE.layers):
        parts = {ours: leaf(state, f"layers.{layer}.{theirs}") for theirs, ours in PARTS.items()}
        nested = {"attention": {}}
        for name, value in parts.items():
            *above, last = name.split("/")
            (nested["attention"] if above else nested)[last] = value
        params[f"layer_{layer}"] = nested
    return params


def leaf(state, name):
    weight = state[f"{name}.weight"]
    made = {"kernel": weight.T} if weight.ndim == 2 else {"scale": weight}
    return made | ({"bias": state[f"{name}.bias"]} if f"{name}.bias" in state else {})


def outputs(chars, **changes):
    return np.asarray(applied(Char2Subword(dataclasses.replace(SHAPE, **changes)))(golden_params(), chars))


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDENS / "module_a.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("scale", ["model", "head"])
def test_outputs_are_the_golden_ones(golden, scale):
    got = outputs(golden["char_ids"], attention_scale=scale)
    np.testing.assert_allclose(got, golden[f"out_scale_d_{scale}"], atol=1e-5, rtol=0)


def test_every_switch_changes_the_output(golden):
    chars = golden["char_ids"]
    want = outputs(chars)
    for change in ({"attention_scale": "head"}, {"residual": "plain"}, {"epsilon": 1e-1}):
        assert np.abs(outputs(chars, **change) - want).max() > 1e-3, change
    np.testing.assert_allclose(outputs(chars, remat=True), want, atol=1e-6)


def test_neither_padding_nor_other_words_are_read(golden):
    chars = golden["char_ids"]
    want = outputs(chars)
    np.testing.assert_allclose(outputs(np.pad(chars, ((0, 3), (0, 9))))[: len(chars)], want, atol=5e-6)
    for row in range(len(chars)):
        alone = chars[row : row + 1, : np.count_nonzero(chars[row])]
        np.testing.assert_allclose(outputs(alone)[0], want[row], atol=5e-6)


def test_a_row_without_characters_is_finite_and_has_finite_gradients():
    chars = np.array([[7, 0, 0, 0, 0], [0] * 5], np.int32)
    model, params = Char2Subword(SHAPE), golden_params()
    loss = lambda params: (((vectors := model.apply({"params": params}, chars)) ** 2).sum(), vectors)
    (value, vectors), grads = jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(params))
    assert np.isfinite(value)
    assert all(np.isfinite(grad).all() for grad in jax.tree.leaves(grads))
    assert np.abs(grads["chars"]["embedding"][7]).max() > 0
    np.testing.assert_array_equal(vectors[1], params["norm"]["bias"])


def test_order_matters_and_dropout_draws():
    model, params = Char2Subword(dataclasses.replace(SHAPE, dropout=0.5)), golden_params()
    chars = np.array([[5, 9, 14, 20], [20, 14, 9, 5]], np.int32)
    there, back = applied(model)(params, chars)
    assert np.abs(there - back).max() > 1e-2
    draw = jax.jit(lambda key: model.apply({"params": params}, chars, deterministic=False, rngs={"dropout": key}))
    one, other = (draw(jax.random.key(seed)) for seed in range(2))
    assert np.abs(one - other).max() > 1e-2


def test_size_of_the_papers_module():
    cfg = Char2SubwordConfig()
    shapes = jax.eval_shape(lambda: Char2Subword(cfg).init(jax.random.key(0), np.ones((1, 3), np.int32)))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 50_780_928  # 44.7 % less than mBERT's table
    one_dtype = {leaf.dtype for leaf in jax.tree.leaves(shapes)}
    assert one_dtype == {jnp.dtype("float32")}


def test_bfloat16_is_near_float32(golden):
    got = outputs(golden["char_ids"], dtype=jnp.bfloat16)
    assert got.dtype == np.float32
    error = np.linalg.norm(got - golden["out_scale_d_model"]) / np.linalg.norm(golden["out_scale_d_model"])
    assert 1e-4 < error < 3e-2


def test_sinusoids():
    got = sinusoids(50, 6)
    assert got.shape == (50, 6)
    np.testing.assert_allclose(got[:, 0], np.sin(np.arange(50)), atol=1e-6)
    np.testing.assert_allclose(got[7, 3], np.cos(7 / 10_000 ** (2 / 6)), atol=1e-6)
    np.testing.assert_allclose(got[31, 4], np.sin(31 / 10_000 ** (4 / 6)), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, "hidden=16 is not a multiple of heads=3"),
        ({"hidden": 9, "heads": 3}, "hidden=9 must be even"),
        ({"residual": "none"}, "residual='none' is not one of normalised, plain"),
        ({"attention_scale": ""}, "attention_scale='' is not one of model, head"),
    ],
)
def test_impossible_shapes(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SHAPE, **change)


def test_the_program_makes_the_golden_cases(tmp_path):
    """All that lies in the folder, from the seed on."""
    goldens.make(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in GOLDENS.iterdir()}
    for name in ("module_a.safetensors", "module_meta.json"):
        assert (tmp_path / name).read_bytes() == (GOLDENS / name).read_bytes(), name
    for name in ("module_a.npz", "losses.npz"):  # arrays, not bytes: libraries of compression differ
        old, new = (dict(np.load(folder / name)) for folder in (GOLDENS, tmp_path))
        assert old.keys() == new.keys()
        for key, value in old.items():
            np.testing.assert_array_equal(new[key], value, err_msg=key, strict=True)


@pytest.mark.parametrize("change", [{}, {"attention_scale": "head"}, {"remat": True}])
def test_attention_among_characters_is_that_of_the_equations(golden, change):
    chars = golden["char_ids"][:3]
    model = Char2Subword(dataclasses.replace(SHAPE, **change))
    found = applied(model, method="attention")(golden_params(), chars)
    assert found.shape == (3, SHAPE.layers, SHAPE.heads, *chars.shape[1:] * 2)
    p = {name: value.astype(np.float64) for name, value in load_file(GOLDENS / "module_a.safetensors").items()}
    for row, probs_LHCC in zip(chars, np.asarray(found), strict=True):
        n = int((row != 0).sum())
        _, expected = equations.module(p, row[:n], SHAPE.layers, SHAPE.heads, change.get("attention_scale", "model"))
        np.testing.assert_allclose(probs_LHCC[:, :, :n, :n], expected, atol=1e-5)
        np.testing.assert_array_equal(probs_LHCC[:, :, :n, n:], 0, "padding is not read")
