"""Tests rule tables: they are one-to-one, work in both directions, and report all mismatches in one message."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

from charlm.convert.rules import Leave, Rule, build_table, describe, export_state, import_state

RULES = [
    Rule("enc.layer.{n}.dense.weight", "encoder/layer_{n}/dense/kernel", transpose=True),
    Rule("enc.layer.{n}.dense.bias", "encoder/layer_{n}/dense/bias"),
    Rule("bias", "head/bias"),
]
LEAVE = [Leave("lm.bias", "the same tensor as bias", same_as="bias"), Leave("position_ids", "a constant")]


def abstract(layers: int = 3):
    array = lambda *shape: jax.ShapeDtypeStruct(shape, np.float32)
    layer = {"dense": {"kernel": array(2, 5), "bias": array(5)}}
    return {"encoder": {f"layer_{n}": layer for n in range(layers)}, "head": {"bias": array(7)}}


def state(layers: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found = {"bias": rng.normal(size=7).astype(np.float32)}
    for n in range(layers):
        found[f"enc.layer.{n}.dense.weight"] = rng.normal(size=(5, 2)).astype(np.float32)
        found[f"enc.layer.{n}.dense.bias"] = rng.normal(size=5).astype(np.float32)
    return found


def load(tensors: dict[str, np.ndarray]):
    return import_state(build_table(RULES, abstract()), LEAVE, tensors, "FILE")


def test_matrices_are_turned_and_everything_comes_back_byte_for_byte():
    params = load(state())
    np.testing.assert_array_equal(
        params["encoder"]["layer_2"]["dense"]["kernel"], state()["enc.layer.2.dense.weight"].T
    )
    back = export_state(build_table(RULES, abstract()), LEAVE, params)
    assert back.keys() == {*state(), "lm.bias"}
    for name, value in state().items():
        assert back[name].flags.c_contiguous
        assert back[name].tobytes() == value.tobytes(), name
    np.testing.assert_array_equal(back["lm.bias"], state()["bias"])


def test_everything_that_does_not_fit_is_named_in_one_line():
    tensors = state() | {"pooler.weight": np.zeros(3, np.float32), "lm.bias": np.zeros(7, np.float32)}
    del tensors["bias"], tensors["enc.layer.1.dense.bias"]
    tensors["enc.layer.0.dense.weight"] = tensors["enc.layer.0.dense.weight"].T
    tensors["enc.layer.2.dense.bias"] = np.zeros(5, np.int8)
    with pytest.raises(ValueError, match="FILE does not hold the parameters") as error:
        load(tensors)
    message = str(error.value)
    assert "\n" not in message
    assert "missing bias, enc.layer.1.dense.bias" in message
    assert "unexpected pooler.weight" in message
    assert "enc.layer.0.dense.weight is (2, 5), expected (5, 2)" in message
    assert "enc.layer.2.dense.bias holds int8, expected floats" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_numbers_that_no_model_has_are_refused_by_name(value):
    tensors = state()
    tensors["bias"] = tensors["bias"].astype(np.float64)
    tensors["bias"][3] = value
    tensors["enc.layer.1.dense.bias"][0] = np.nan
    with pytest.raises(ValueError, match=r"^FILE holds NaN, infinite or too large numbers in .*dense\.bias") as e:
        load(tensors)
    assert "bias," in str(e.value) or ", bias" in str(e.value)


def test_names_of_many_layers_are_written_once():
    with pytest.raises(ValueError, match="FILE") as error:
        load({"bias": state()["bias"], "enc.layer.1.dense.bias": np.zeros(3, np.float32)})
    problems = str(error.value).split(": ")[1].split("; ")
    assert problems == [
        "missing enc.layer.[0,2].dense.bias, enc.layer.[0-2].dense.weight",
        "enc.layer.1.dense.bias is (3,), expected (5,)",
    ]
    with pytest.raises(ValueError, match=r"enc\.layer\.\[0-2\]\.dense\.bias is \(3,\), expected \(5,\)$"):
        load({name: np.zeros(3, np.float32) if "dense.bias" in name else value for name, value in state().items()})


def test_an_alias_must_equal_its_tensor_and_a_constant_is_left_out():
    assert load(state() | {"lm.bias": state()["bias"], "position_ids": np.arange(3)})["head"]["bias"].shape == (7,)
    with pytest.raises(ValueError, match=r"lm\.bias differs from bias"):
        load(state() | {"lm.bias": state()["bias"] + 1})


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats_become_float32(dtype):
    halves = {name: value.astype(dtype) for name, value in state().items()}
    bias = load(dict(halves))["head"]["bias"]
    assert bias.dtype == np.float32
    np.testing.assert_array_equal(bias, halves["bias"].astype(np.float32))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (RULES[:2], "0 rules name the parameter head/bias"),
        ([*RULES, Rule("other", "head/bias")], "2 rules name the parameter head/bias"),
        ([RULES[0], Rule("bias", "encoder/layer_{n}/dense/bias"), RULES[2]], "two parameters are named bias"),
    ],
)
def test_a_table_that_is_not_one_to_one_is_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        build_table(rules, abstract())


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("enc.layer.11.dense.weight", "encoder/layer_11/dense/kernel (transposed)"),
        ("bias", "head/bias"),
        ("lm.bias", "not imported: the same tensor as bias"),
        ("encXlayer.1.dense.bias", "not known: an import would refuse it"),
    ],
)
def test_a_tensor_is_described_without_a_model(name, meaning):
    assert describe(RULES, LEAVE, name) == meaning
