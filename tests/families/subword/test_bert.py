"""Tests what may change the states of BERT and RoBERTa; test_golden_hf.py tests equality with transformers."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from programs import applied, initial
from subword_cases import apply, case, ours

from charlm.config import get_config
from charlm.core.sharding import collectives, make_mesh, state_sharding
from charlm.families.subword.bert import Bert, BertConfig, BertForMaskedLM

EACH = pytest.mark.parametrize("family", ["bert", "roberta", "roformer"])
PAD = {"bert": 0, "roberta": 1, "roformer": 0}
ENCODER = "pooled_encoder"
NOISE = 2e-6


def batch(family, length=8):
    """Returns ids without padding [3, length]."""
    rng = np.random.default_rng(0)
    return rng.integers(3, 61, (3, length)).astype(np.int32)


def assert_close(one, other, atol=NOISE):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), one, other)


# ---- Padding and batches ----


@EACH
def test_padding_on_the_right_changes_nothing(family):
    ids = batch(family)
    alone = apply(family, ids, np.ones_like(ids, bool))
    padded = np.concatenate([ids, np.full((3, 4), PAD[family], np.int32)], axis=1)
    mask = np.arange(12)[None].repeat(3, 0) < 8
    inside = apply(family, padded, mask)
    assert_close(inside.logits[:, :8], alone.logits)
    assert_close(inside.transformer.states_BLD[:, :8], alone.transformer.states_BLD)
    without_mask = apply(family, padded)
    assert np.abs(without_mask.logits[:, :8] - alone.logits).max() > 0.01  # the mask is what keeps padding out


@EACH
def test_what_stands_at_padding_reaches_nothing_else_not_even_by_a_bit(family):
    z = case(family).arrays
    ids, mask = z["ids"], z["mask"]
    noise = np.random.default_rng(1).integers(3, 61, ids.shape).astype(np.int32)
    one = apply(family, ids, mask)
    other = apply(family, np.where(mask, ids, noise), mask)
    np.testing.assert_array_equal(one.logits[mask], other.logits[mask])
    assert (one.logits[~mask] != other.logits[~mask]).any()


def test_padding_on_the_left_shifts_the_positions_of_bert_unless_they_are_given():
    ids = batch("bert")
    alone = apply("bert", ids).logits
    padded, mask = np.pad(ids, ((0, 0), (4, 0))), np.arange(12)[None].repeat(3, 0) >= 4
    positions = np.maximum(np.arange(12, dtype=np.int32) - 4, 0)[None].repeat(3, 0)
    assert_close(apply("bert", padded, mask, position_ids_BL=positions).logits[:, 4:], alone)
    assert np.abs(apply("bert", padded, mask).logits[:, 4:] - alone).max() > 0.01


def test_padding_on_the_left_changes_nothing_for_roberta_whether_by_ids_or_by_embeddings():
    ids = batch("roberta")
    alone = apply("roberta", ids)
    padded, mask = np.pad(ids, ((0, 0), (4, 0)), constant_values=1), np.arange(12)[None].repeat(3, 0) >= 4
    assert_close(apply("roberta", padded, mask).logits[:, 4:], alone.logits)
    rows = embedded("roberta", padded)
    assert_close(apply("roberta", None, mask, embeddings_BLD=rows).logits[:, 4:], alone.logits)


def test_padding_on_the_left_changes_nothing_for_roformer_whose_scores_know_distances_alone():
    ids = batch("roformer")
    padded, mask = np.pad(ids, ((0, 0), (4, 0))), np.arange(12)[None].repeat(3, 0) >= 4
    alone = apply("roformer", ids).logits
    assert_close(apply("roformer", padded, mask).logits[:, 4:], alone, atol=1e-5)
    assert np.abs(apply("roformer", ids[:, ::-1]).logits[:, ::-1] - alone).max() > 0.1  # and their sides


@EACH
def test_rows_do_not_see_each_other(family):
    ids = batch(family)
    together = apply(family, ids).logits
    np.testing.assert_allclose(apply(family, ids[::-1]).logits[::-1], together, rtol=0, atol=NOISE)
    np.testing.assert_allclose(apply(family, ids[1:2]).logits, together[1:2], rtol=0, atol=NOISE)


# ---- What goes in ----


def embedded(family, ids):
    model, params = ours(family)
    return applied(model, method="embed_tokens")(params, ids)


@EACH
def test_embeddings_in_place_of_ids_give_the_same(family):
    z = case(family).arrays
    by_ids = apply(family, z["ids"], z["mask"])
    rows = embedded(family, z["ids"])
    assert rows.dtype == jnp.float32
    by_rows = apply(family, None, z["mask"], embeddings_BLD=rows)
    np.testing.assert_array_equal(by_rows.logits[z["mask"]], by_ids.logits[z["mask"]])


def test_segments_and_positions_are_read():
    ids = batch("bert")
    plain = apply("bert", ids).logits
    zeros, order = np.zeros_like(ids), np.arange(8, dtype=np.int32)[None].repeat(3, 0)
    np.testing.assert_allclose(apply("bert", ids, types_BL=zeros, position_ids_BL=order).logits, plain, atol=NOISE)
    assert np.abs(apply("bert", ids, types_BL=zeros + 1).logits - plain).max() > 0.01
    assert np.abs(apply("bert", ids, position_ids_BL=order[:, ::-1]).logits - plain).max() > 0.01


def test_an_id_outside_of_the_table_is_loud():
    ids = batch("bert")
    ids[1, 2] = 61
    logits = apply("bert", ids).logits
    assert np.isnan(logits[1]).all()
    assert np.isfinite(logits[::2]).all()


IDS = np.ones((2, 5), np.int32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected either ids_BL or embeddings_BLD, got neither"),
        ({"ids_BL": IDS, "embeddings_BLD": np.ones((2, 5, 24))}, "expected either .* got both"),
        ({"ids_BL": IDS[0]}, r"ids_BL is int32 \(5,\), expected integers \[batch, length\]"),
        ({"ids_BL": IDS.astype(np.float32)}, r"ids_BL is float32 \(2, 5\), expected integers"),
        ({"embeddings_BLD": np.ones((2, 5, 23))}, r"embeddings_BLD is \(2, 5, 23\), expected \[batch, length, 24\]"),
        (
            {"ids_BL": IDS, "mask_BL": IDS * 1.0},
            r"mask_BL is float64 \(2, 5\), expected bool \(True = real\), or .* \(2, 5\)",
        ),
        ({"ids_BL": IDS, "mask_BL": IDS[:, :4] > 0}, r"mask_BL is bool \(2, 4\), expected bool"),
        ({"ids_BL": IDS, "types_BL": IDS[:1]}, r"types_BL is int32 \(1, 5\), expected integers \(2, 5\)"),
        ({"ids_BL": IDS, "position_ids_BL": IDS > 0}, r"position_ids_BL is bool \(2, 5\), expected integers"),
        ({"ids_BL": np.ones((2, 17), np.int32)}, "17 positions, but the model has 16; cut the text"),
        ({"ids_BL": IDS, "positions_BM": IDS[:1]}, r"positions_BM is \(1, 5\), expected \[2, positions\]"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(arguments, message):
    model, params = ours("bert")
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: model.apply({"params": params}, **arguments))


def test_a_model_with_rotary_positions_has_no_rows_of_them():
    model, params = ours("roformer")
    with pytest.raises(ValueError, match="position_ids_BL: a model with rotary positions has no table of them"):
        jax.eval_shape(lambda: model.apply({"params": params}, IDS, position_ids_BL=IDS))
    with pytest.raises(ValueError, match="17 positions, but the model has 16; cut the text"):
        jax.eval_shape(lambda: model.apply({"params": params}, np.ones((2, 17), np.int32)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position": "relative"}, "bert: position='relative', expected absolute or rotary"),
        (
            {"position": "rotary", "hidden": 36},
            "an even width of heads .* got self.hidden=36 / self.heads=12 and 0",
        ),
        (
            {"position": "rotary", "position_offset": 2},
            "no position_offset, got .*=768 / self.heads=12 and 2",
        ),
    ],
)
def test_positions_that_no_model_has_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**fields)


def test_roberta_has_as_many_positions_as_its_table_beyond_the_offset():
    model, params = ours("roberta")
    shape = lambda length: jax.eval_shape(lambda: model.apply({"params": params}, np.ones((1, length), np.int32)))
    assert shape(14).logits.shape == (1, 14, 61)
    with pytest.raises(ValueError, match="15 positions, but the model has 14"):
        shape(15)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden": 20, "heads": 3}, "bert: hidden=20 is not a multiple of heads=3"),
        ({"layers": 0}, "bert: layers=0, expected a positive number"),
        ({"activation": "swish"}, "bert: activation='swish' is not one of gelu, gelu_new, relu"),
        ({"type_vocab": 0}, "bert: type_vocab=0"),
        ({"position_offset": 512}, "bert: position_offset=512"),
        ({"position_offset": 2, "pad_id": 600}, "bert: pad_id=600 has no row in a table of 512 positions"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**fields)


# ---- What comes out ----


def test_logits_at_some_positions_are_those_of_all():
    ids = batch("bert")
    positions = np.array([[1, 5], [7, 7], [0, 3]], np.int32)
    everywhere, some = (apply("bert", ids, **more).logits for more in ({}, {"positions_BM": positions}))
    assert some.shape == (3, 2, 61)
    np.testing.assert_allclose(some, np.take_along_axis(everywhere, positions[..., None], axis=1), atol=NOISE)


def test_states_and_probabilities_are_handed_out_on_request_alone():
    z = case("bert").arrays
    plain = apply("bert", z["ids"], z["mask"]).transformer
    assert (plain.layers, plain.attention, plain.cache) == ((), (), None)
    seen = apply("bert", z["ids"], z["mask"], return_layers=True, return_attention=True).transformer
    assert (len(seen.layers), len(seen.attention)) == (2, 1)
    np.testing.assert_array_equal(seen.layers[-1], seen.states_BLD)
    for probs in seen.attention:
        np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-5)
        hidden = np.broadcast_to(~z["mask"][:, None, None, :], probs.shape)
        assert (np.asarray(probs)[hidden] == 0).all()


def test_a_model_without_pooler_has_none():
    model, params = ours("bert", ENCODER)
    config = dataclasses.replace(model.config, pooler=False)
    rest = {name: value for name, value in params.items() if name != "pooler"}
    output = applied(Bert(config))(rest, batch("bert"))
    assert output.pooled_BD is None
    with pytest.raises(ValueError, match="next_sentence=True needs pooler=True"):
        jax.eval_shape(lambda: BertForMaskedLM(config, next_sentence=True).init(jax.random.key(0), batch("bert")))


# ---- Precision, memory, dropout ----


def test_bfloat16_stays_close_and_keeps_logits_in_float32():
    model, _ = ours("bert")
    changed = model.clone(config=dataclasses.replace(model.config, dtype=jnp.bfloat16))
    exact, rough = apply("bert", batch("bert")), apply("bert", batch("bert"), changed=changed)
    assert rough.logits.dtype == jnp.float32
    assert rough.transformer.states_BLD.dtype == jnp.bfloat16
    assert 1e-4 < np.abs(rough.logits - exact.logits).max() < 0.2


SMALL = BertConfig(vocab_size=11, hidden=8, layers=1, heads=2, ffn=12, max_positions=8, initializer="lecun")
SMALL_IDS = np.arange(12, dtype=np.int32).reshape(2, 6) % 11


def loss(config, params, seed=None):
    rngs = {} if seed is None else {"dropout": jax.random.key(seed)}
    model = BertForMaskedLM(config)
    logits = model.apply({"params": params}, SMALL_IDS, deterministic=seed is None, rngs=rngs).logits
    return -jax.nn.log_softmax(logits)[:, :, 5].mean()


@pytest.fixture(scope="module")
def small():
    return initial(BertForMaskedLM(SMALL), SMALL_IDS)


def test_computing_activations_again_changes_neither_loss_nor_gradients(small):
    again = dataclasses.replace(SMALL, remat=True)
    one, other = (jax.jit(jax.value_and_grad(functools.partial(loss, c)))(small, 0) for c in (SMALL, again))
    assert_close(one, other)
    program = jax.make_jaxpr(jax.grad(functools.partial(loss, again)))(small)
    assert "remat" in str(program) or "checkpoint" in str(program)


def test_dropout_follows_its_key(small):
    drawn = jax.jit(functools.partial(loss, SMALL))
    losses = [float(drawn(small, seed)) for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    assert losses[0] != float(jax.jit(functools.partial(loss, SMALL))(small))


def test_dropout_is_drawn_at_the_embeddings_and_three_times_a_layer(small, monkeypatch):
    """The embeddings, the attention probabilities, the outputs of attention and feed-forward (BERT, appendix A.2)."""
    drawn, right = [], jax.random.bernoulli
    keep = lambda key, p, shape: drawn.append((round(1 - float(p), 3), tuple(shape))) or right(key, p, shape)
    monkeypatch.setattr(jax.random, "bernoulli", keep)
    config = dataclasses.replace(SMALL, attention_dropout=0.3)
    jax.eval_shape(lambda: loss(config, small, 0))
    assert drawn == [(0.1, (2, 6, 8)), (0.3, (2, 2, 6, 6)), (0.1, (2, 6, 8)), (0.1, (2, 6, 8))]


def test_padding_has_no_gradient():
    model, params = ours("roberta")
    z = case("roberta").arrays
    rows = embedded("roberta", z["ids"])

    def loss(rows):
        logits = model.apply({"params": params}, None, z["mask"], embeddings_BLD=rows).logits
        return jnp.where(z["mask"][..., None], logits**2, 0).sum()

    gradient = np.asarray(jax.jit(jax.grad(loss))(rows))
    assert (gradient[~z["mask"]] == 0).all()
    assert (np.abs(gradient[z["mask"]]).max(axis=-1) > 0).all()


# ---- Several devices ----


def test_spread_over_devices_it_computes_the_same_and_sends_sums_alone(small):
    """Megatron's form: a layer's matrices take turns, so that each half ends in one sum (Shoeybi et al., 2019)."""
    config = get_config()
    config.mesh.update({"data": 4, "fsdp": 1, "model": 2})
    mesh = make_mesh(config)
    ids = np.tile(SMALL_IDS, (2, 1))
    run = jax.jit(lambda params, ids: BertForMaskedLM(SMALL).apply({"params": params}, ids).transformer.states_BLD)
    with jax.set_mesh(mesh):
        params = jax.device_put(small, state_sharding(small, mesh))
        spread = jax.device_put(ids, NamedSharding(mesh, P("data")))
        sent = collectives(run.lower(params, spread).compile().as_text())
        states = run(params, spread)
    assert {kind: len(shapes) for kind, shapes in sent.items()} == {"all-reduce": 2 * SMALL.layers}
    np.testing.assert_allclose(states, run(small, ids), rtol=0, atol=NOISE)
