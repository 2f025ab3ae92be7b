"""Layers as one loop: every model computes what it does layer by layer, both ways, on one device and on eight."""

from __future__ import annotations

import dataclasses
import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from again import again
from golden_cases import case as hlm_case
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from programs import drawn
from subword_cases import case as subwords_case

from charlm.config import get_config
from charlm.convert.heads import MASKED_LM
from charlm.convert.rules import export_state
from charlm.core.hashed_keys import hashed
from charlm.core.sharding import collectives, make_mesh, state_sharding
from charlm.data.word_batch import reshape_batch
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.heads import CharBertForMaskedLM
from charlm.families.charbert.model import CharBertConfig
from charlm.families.hlm import golden as hlm_golden
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.loss import masked_char_sums
from charlm.families.hlm.model import HLMForMaskedLM
from charlm.families.subword import golden as hf_golden
from charlm.families.subword.bert import BertConfig, BertForMaskedLM
from charlm.families.subword.conversion import TABLES
from charlm.families.subword.gpt2 import GPT2Config, GPT2LMHeadModel
from charlm.families.xrayemb.encoder import XREncoder, encoder_config
from charlm.nn.attention import PROJECTED
from charlm.nn.scan import in_turn
from charlm.nn.transformer import Encoder, EncoderConfig

SMALL = {"hidden": 16, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
SHAPE = SMALL | {"layers": 2, "ffn": 24, "vocab_size": 30, "max_positions": 12}
BERT = BertConfig(**SHAPE)
CHARBERT = CharBertConfig(**SHAPE, char_vocab_size=12, char_hidden=6, word_vocab_size=9)
IDS = np.random.default_rng(0).integers(1, 12, (2, 6)).astype(np.int32)
MASK = np.array([[True] * 6, [True] * 4 + [False] * 2])
CHARS = np.where(MASK, IDS, 0)
WORDS = reshape_batch(*[np.where(MASK[:, :, None], IDS[:, :, None] + np.arange(4), 0).astype(np.uint16)] * 2)
SLOTS = np.tile(np.arange(6, dtype=np.int32), (2, 1))
MODELS = {
    "hlm": (
        HLMForMaskedLM(
            HLMConfig(
                **SMALL, vocab_size=30, intra_layers=3, inter_layers=2, head_layers=1, intra_ffn=24, inter_ffn=24,
                char_slots=4, position_buckets=4, max_relative_words=8,
            )
        ),
        (WORDS,),
    ),
    "bert": (BertForMaskedLM(BERT), (IDS, MASK)),
    "gpt2": (GPT2LMHeadModel(GPT2Config(**SHAPE, embed_dropout=0.0)), (IDS, MASK)),
    "charbert": (CharBertForMaskedLM(CHARBERT), (CharBertBatch(IDS, None, MASK, IDS, SLOTS, SLOTS),)),
    "charbert, one fusion": (
        CharBertForMaskedLM(dataclasses.replace(CHARBERT, fusion="reference", windows=(3,))),
        (CharBertBatch(IDS, None, MASK, IDS, SLOTS, SLOTS),),
    ),
    "charbert, no fusion": (
        CharBertForMaskedLM(dataclasses.replace(CHARBERT, fusion="none")),
        (CharBertBatch(IDS, None, MASK, IDS, SLOTS, SLOTS),),
    ),
    "char2subword": (
        Char2Subword(Char2SubwordConfig(char_vocab_size=12, hidden=16, layers=2, heads=2, output=12, char_slots=6)),
        (CHARS,),
    ),
    "xr-enc": (
        XREncoder(
            encoder_config(
                "transformer", char_vocab_size=12, hidden=16, layers=2, heads=2, ffn=24, output=12, dropout=0.0
            )
        ),
        (CHARS,),
    ),
}  # fmt: skip


def scanned(model, **changes):
    return model.clone(config=dataclasses.replace(model.config, scan_layers=True, **changes))


def loss(model, params, *inputs, **more):
    leaves = jax.tree.leaves(model.apply({"params": params}, *inputs, **more))
    return sum((x.astype(jnp.float32) ** 2).mean() for x in leaves if jnp.issubdtype(x.dtype, jnp.floating))


@functools.cache
def parameters(name):
    model, inputs = MODELS[name]
    return drawn(model, *inputs, scale=0.3)


@functools.cache
def outcome(name, scan, remat=False):
    """Returns loss and gradients."""
    model, inputs = MODELS[name]
    model = scanned(model, **({"remat": True} if remat else {})) if scan else model
    return jax.jit(jax.value_and_grad(lambda p: loss(model, p, *inputs)))(parameters(name))


def assert_equal_but_for_rounding(got, want, rtol=3e-6):
    """Compares each array with the size of its largest number, and arrays that are zero but for rounding with all."""
    largest = max(np.abs(x).max() for x in jax.tree.leaves(want))

    def compare(path, got, want):
        atol = rtol * max(np.abs(want).max(), 0.01 * largest)
        np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=jax.tree_util.keystr(path))

    jax.tree_util.tree_map_with_path(compare, got, want)


def operations(jaxpr):
    """Returns the names of all operations of a program, those of inner programs, too."""
    inner = (operations(sub) for e in jaxpr.eqns for sub in jaxprs_in_params(e.params))
    return {e.primitive.name for e in jaxpr.eqns}.union(*inner)


def products(model, params, *inputs):
    """Returns the number of matrix products in the program of a loss; those of a loop count once."""
    return str(jax.make_jaxpr(lambda p: loss(model, p, *inputs))(params)).count("dot_general[")


# ---- The same result ----


# CharBERT's values are compared below, with its intermediate ones.
@pytest.mark.parametrize("name", ["hlm", "bert", *(again(name) for name in MODELS if name not in ("hlm", "bert"))])
def test_a_loop_computes_what_single_layers_do(name):
    assert_equal_but_for_rounding(outcome(name, scan=True), outcome(name, scan=False))


@pytest.mark.parametrize("name", MODELS)
def test_a_program_holds_fewer_products(name):
    model, inputs = MODELS[name]
    assert products(scanned(model), parameters(name), *inputs) < products(model, parameters(name), *inputs)


def test_a_program_holds_a_layer_once_however_many_there_are():
    (model, inputs), deep = MODELS["bert"], BertForMaskedLM(dataclasses.replace(BERT, layers=5))
    one, other = ((scanned(m), jax.eval_shape(m.init, jax.random.key(0), *inputs)["params"]) for m in (model, deep))
    assert products(*one, *inputs) == products(*other, *inputs)


def test_parameters_are_the_same_ones():
    for model, inputs in (MODELS["hlm"], MODELS["charbert"]):
        one, other = (jax.eval_shape(m.init, jax.random.key(0), *inputs)["params"] for m in (model, scanned(model)))
        assert jax.tree.structure(one) == jax.tree.structure(other)
        assert jax.tree.leaves(one) == jax.tree.leaves(other)


@pytest.mark.parametrize("name", ["bert", again("charbert")])
def test_activations_may_be_computed_again(name):
    assert_equal_but_for_rounding(outcome(name, scan=True, remat=True), outcome(name, scan=False))


def test_a_loop_keeps_less_for_the_backward_pass_and_less_still_with_remat():
    model, inputs = MODELS["bert"]

    def stored(model):
        apply = lambda p: loss(model, p, *inputs)
        backward = jax.eval_shape(lambda p: jax.vjp(apply, p)[1], parameters("bert"))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(backward))

    one_by_one, loop, again = (stored(m) for m in (model, scanned(model), scanned(model, remat=True)))
    assert one_by_one > loop > again


def test_dropout_masks_are_drawn_again_in_the_backward_pass_and_are_the_same():
    model, inputs = MODELS["bert"]
    drops = scanned(model, dropout=0.2, attention_dropout=0.2)
    of = lambda p: loss(drops, p, *inputs, deterministic=False, rngs={"dropout": hashed(jax.random.key(0))})
    program = jax.make_jaxpr(jax.grad(of))(parameters("bert")).jaxpr
    forward, backward = (e for e in program.eqns if e.primitive.name == "scan")
    assert all("random_bits" in operations(e.params["jaxpr"].jaxpr) for e in (forward, backward))
    kept = [x.aval.shape for x in backward.invars if x.aval.dtype == bool]
    assert not [shape for shape in kept if math.prod(shape) > MASK.size]  # no mask of dropout
    params = parameters("bert")
    gradient, direction = jax.jit(jax.grad(of))(params), jax.tree.map(jnp.sign, jax.jit(jax.grad(of))(params))
    moved = lambda step: jax.jit(of)(jax.tree.map(lambda p, d: p + step * d, params, direction))
    slope = float(moved(1e-3) - moved(-1e-3)) / 2e-3  # other masks on the way back would give another one
    assert optax.tree.vdot(gradient, direction) == pytest.approx(slope, rel=0.02)


# ---- Golden values ----


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_logits_in_a_loop_are_the_golden_ones(family):
    golden = subwords_case(family)
    model, params, _ = hf_golden.ours_of(golden, TABLES[family])
    logits = jax.jit(lambda p, ids: scanned(model).apply({"params": p}, ids).logits)(params, golden.arrays["ids"])
    np.testing.assert_allclose(logits, golden.arrays["bare_logits"], rtol=0, atol=hf_golden.ATOL)


def test_loss_and_gradients_in_a_loop_are_the_golden_ones():
    golden = hlm_case("paper")
    model, params, table = hlm_golden.ours_of(golden, hlm_golden.shape_of(golden), MASKED_LM)
    chars, hidden, labels = (golden.arrays[name] for name in ("input_ids", "predict_indices", "orig_input_ids"))
    batch = reshape_batch(chars.transpose(2, 1, 0), np.where(hidden, labels, 0).transpose(2, 1, 0))

    def mean(params):
        sums = masked_char_sums(scanned(model), params, batch, None)
        return sums.nats / sums.chars

    value, gradients = jax.jit(jax.value_and_grad(mean))(params)
    np.testing.assert_allclose(value, golden.arrays["mlm_loss"], atol=hlm_golden.ATOL)
    ours = export_state(table, (), gradients)
    theirs = {name: golden.arrays.get(hlm_golden.GRADIENT + name) for name in ours}
    known = {name: want for name, want in theirs.items() if want is not None}
    assert sum("global_layer.layer." in name for name in known) > 20
    assert_equal_but_for_rounding({name: ours[name] for name in known}, known, hlm_golden.GRADIENT_TOLERANCE)


# ---- What is read besides the output ----


def test_states_and_probabilities_of_all_layers_can_be_read():
    model, inputs = MODELS["bert"]
    read = lambda m: jax.jit(
        lambda p: m.apply({"params": p}, *inputs, return_layers=True, return_attention=True).transformer
    )(parameters("bert"))
    jax.tree.map(np.testing.assert_array_equal, read(scanned(model)), read(model))
    assert len(read(model).layers) == 3


@pytest.mark.parametrize("name", ["hlm", "charbert"])
def test_intermediates_keep_their_names_and_values(name):
    model, inputs = MODELS[name]
    seen = lambda m: jax.eval_shape(
        lambda p: m.apply({"params": p}, *inputs, mutable=["intermediates"])[1], parameters(name)
    )
    one, other = seen(scanned(model)), seen(model)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert len(jax.tree.leaves(one)) > 4


def test_projections_of_positions_that_are_kept_are_read():
    config = EncoderConfig(layers=3, max_distance=6, position_buckets=4, ffn=24, **SMALL, scan_layers=True)
    x, model = np.random.default_rng(1).normal(size=(2, 6, 16)).astype(np.float32), Encoder(config)
    params = drawn(model, x, MASK)
    kept = model.apply({"params": params}, method="project_positions", mutable=PROJECTED)[1]
    other = jax.tree.map(lambda leaf: 2 * leaf, kept)  # of other parameters, so that it shows
    run = jax.jit(lambda more: model.apply({"params": params, **more}, x, MASK))
    np.testing.assert_allclose(run(kept), run({}), atol=1e-5)
    assert np.abs(run(other) - run({})).max() > 1e-2


# ---- Dropout ----


class Noise(nn.Module):
    """Writes its dropout mask of ones into a row."""

    @nn.compact
    def __call__(self, rows_NK, n):
        scale = self.param("scale", nn.initializers.ones, ())
        return rows_NK.at[n].set(scale * nn.Dropout(0.25, deterministic=False)(jnp.ones(rows_NK.shape[1])))


class Noises(nn.Module):
    """Rows of masks: of three layers, and of a second module of each layer."""

    def setup(self):
        self.one, self.two = ([Noise() for _ in range(3)] for _ in range(2))

    def __call__(self, scan):
        step = lambda states, one, two: (two(one(states[0], states[1]), states[1] + 3), states[1] + 1)
        return in_turn(self, step, (jnp.zeros((6, 400)), jnp.asarray(0)), self.one, self.two, scan=scan, remat=False)[0]


def test_every_module_of_every_layer_draws_its_own_mask():
    params = Noises().init({"params": jax.random.key(0), "dropout": jax.random.key(0)}, False)["params"]
    draw = lambda seed: np.asarray(Noises().apply({"params": params}, True, rngs={"dropout": jax.random.key(seed)}))
    rows_NK = draw(1)
    assert set(np.unique(rows_NK)) == {0, np.float32(1 / 0.75)}
    assert (np.abs((rows_NK == 0).mean(axis=1) - 0.25) < 0.08).all()
    assert len({row.tobytes() for row in rows_NK}) == 6
    np.testing.assert_array_equal(draw(1), rows_NK)
    assert (draw(2) != rows_NK).mean() > 0.2


# ---- Several devices ----


def test_spread_parameters_are_gathered_one_layer_at_a_time():
    config = get_config()
    config.mesh.update({"data": 2, "fsdp": 4, "model": 1})
    mesh, (model, _) = make_mesh(config), MODELS["bert"]
    ids, mask = np.tile(IDS, (4, 1)), np.tile(MASK, (4, 1))
    params, rows = parameters("bert"), NamedSharding(mesh, P(("data", "fsdp")))

    def run(model):
        step = jax.jit(jax.value_and_grad(lambda p, i, m: loss(model, p, i, m)), out_shardings=(None, placed))
        with jax.set_mesh(mesh):
            compiled = step.lower(*given).compile()
        return compiled(*given), collectives(compiled.as_text())

    placed = state_sharding(params, mesh)
    given = jax.device_put(params, placed), jax.device_put(ids, rows), jax.device_put(mask, rows)
    (one, sent), (other, sent_alone) = run(scanned(model)), run(model)
    assert_equal_but_for_rounding(one, other)
    assert_equal_but_for_rounding(one[0], outcome("bert", scan=False)[0])
    assert sent.keys() <= sent_alone.keys()
    for kind in ("all-gather", "all-reduce"):
        assert set(sent[kind]) <= set(sent_alone[kind]), "not the parameters or gradients of a single layer"
