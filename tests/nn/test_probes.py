"""Tests that what is read of attention is what the layers multiply with, however the layers run."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import traverse_util

from charlm.families.subword.bert import Bert, BertConfig
from charlm.families.subword.gpt2 import GPT2, GPT2Config
from charlm.nn.probes import probed
from charlm.nn.transformer import Encoder, EncoderConfig

SMALL = {"hidden": 16, "layers": 2, "heads": 2, "ffn": 16, "initializer": "lecun"}
STACK = EncoderConfig(**SMALL, max_distance=8, position_buckets=4)


class OnIds(nn.Module):
    """An encoder with relative positions that, like the others, is called with ids and a mask."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, ids_BL, mask_BL):
        return Encoder(self.config, name="inner")(nn.Embed(11, self.config.hidden)(ids_BL), mask_BL)


MODELS = {
    "inner": OnIds(STACK),
    "encoder": Bert(BertConfig(**SMALL, vocab_size=11, max_positions=9)),
    "decoder": GPT2(GPT2Config(**SMALL, vocab_size=11, max_positions=9)),
}
IDS = np.random.default_rng(0).integers(0, 11, (2, 7))
MASK = np.arange(7)[None] < np.array([[7], [4]])


@pytest.fixture(scope="module", params=MODELS)
def called(request):
    """The name of a stack, its model with parameters, and its probabilities."""
    model = MODELS[request.param]
    params = jax.jit(model.init)(jax.random.key(0), IDS, MASK)["params"]
    output, stacks = jax.jit(lambda p: probed(model, p, IDS, MASK))(params)
    return request.param, model, params, output, stacks


def states(output):
    return getattr(output, "states_BLD", output)


def test_each_layer_has_its_probabilities(called):
    name, model, params, output, stacks = called
    assert stacks.keys() == {name}
    assert [layer.shape for layer in stacks[name]] == [(2, 2, 7, 7)] * 2
    for probs in stacks[name]:
        np.testing.assert_allclose(probs.sum(axis=-1), 1, atol=1e-5)
        assert not np.asarray(probs)[1, :, :, 4:].any(), "padding is not read"
    assert not np.allclose(*stacks[name], atol=1e-3)
    plain = jax.jit(model.apply)({"params": params}, IDS, MASK)
    np.testing.assert_allclose(states(output)[MASK], states(plain)[MASK], atol=1e-5)


def test_they_are_what_the_values_are_multiplied_with(called):
    name, model, params, _, stacks = called
    kept = lambda module, _: module.name in ("value", "output")
    run = lambda p: model.apply({"params": p}, IDS, MASK, capture_intermediates=kept, mutable=["intermediates"])[1]
    inner = traverse_util.flatten_dict(jax.jit(run)(params)["intermediates"], sep="/")
    of = traverse_util.flatten_dict(jax.tree.map(np.asarray, params), sep="/")
    for n, probs in enumerate(stacks[name]):
        where = f"{name}/layer_{n}/attention"
        (value_BLD,), (output_BLD,) = (inner[f"{where}/{part}/__call__"] for part in ("value", "output"))
        value_BLHK = np.asarray(value_BLD).reshape(2, 7, 2, 8)
        mixed_BLD = np.einsum("bhqn,bnhk->bqhk", probs, value_BLHK).reshape(2, 7, 16)
        again = mixed_BLD @ of[f"{where}/output/kernel"] + of[f"{where}/output/bias"]
        np.testing.assert_allclose(again, output_BLD, atol=1e-5)


@pytest.mark.parametrize("changes", [{"scan_layers": True}, {"remat": True}, {"attention_kernel": "pallas"}])
def test_they_are_the_same_however_the_layers_run(called, changes):
    name, model, params, _, stacks = called
    other = model.clone(config=dataclasses.replace(model.config, **changes))
    _, found = jax.jit(lambda p: probed(other, p, IDS, MASK))(params)
    for ours, theirs in zip(stacks[name], found[name], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
