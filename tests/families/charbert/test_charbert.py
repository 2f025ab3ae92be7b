"""Tests that CharBERT equals its equations in every configuration, and that padding has no effect."""

import dataclasses

import charbert_equations as equations
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again
from programs import applied, initial

from charlm.convert.heads import FINE_TUNED, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.char_inputs import lay_out
from charlm.families.charbert.heads import (
    AdvBertForMaskedLM,
    CharBertForLabels,
    CharBertForMaskedLM,
)
from charlm.families.charbert.model import CharBert, CharBertConfig
from charlm.families.subword.bert import BertConfig, BertForMaskedLM

TINY = CharBertConfig(
    vocab_size=30, hidden=16, layers=2, heads=2, ffn=24, max_positions=20, char_vocab_size=12, char_hidden=6,
    word_vocab_size=9, dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
REFERENCE = dataclasses.replace(TINY, fusion="reference", windows=(3,))
CONFIGS = {
    "paper": TINY,
    "paper, windows of 1 and 2": dataclasses.replace(TINY, windows=(1, 2)),
    "paper, one fusion": dataclasses.replace(TINY, shared_fusion=True, windows=(3,)),
    "reference": REFERENCE,
    "on roberta": dataclasses.replace(
        REFERENCE, shared_head_norm=True, position_offset=2, pad_id=1, type_vocab=1, epsilon=1e-5
    ),
    "w/o GRU": dataclasses.replace(TINY, char_encoder="embedding", char_hidden=8),
    "w/o HI": dataclasses.replace(TINY, fusion="none"),
    "w/o NLM": dataclasses.replace(TINY, nlm=False),
}
LENGTHS = (5, 3)  # real tokens of the two sequences


def batch_of(cfg: CharBertConfig, padding: int = 0, slots: int = 30, junk: int = 0) -> CharBertBatch:
    """Returns two sequences with `padding` positions behind the longer one; `junk` is what stands at padding."""
    rng = np.random.default_rng(5)
    L = max(LENGTHS) + padding
    ids, types, mask = np.full((2, L), cfg.pad_id if cfg.position_offset else junk), np.zeros((2, L), int), None
    rows = []
    for b, real in enumerate(LENGTHS):
        ids[b, :real] = rng.integers(3, cfg.vocab_size, real)
        types[b, :real] = rng.integers(0, cfg.type_vocab, real)
        lengths = rng.integers(1, 4, real)
        row = lay_out(lengths, rng.integers(1, cfg.char_vocab_size, lengths.sum()), L, slots)
        beyond = np.arange(slots) > row.ends_L[:real].max()
        pads = np.arange(L) >= real
        rows.append(
            (np.where(beyond, junk, row.chars_N), *(np.where(pads, junk, x) for x in (row.starts_L, row.ends_L)))
        )
    mask = np.arange(L)[None] < np.array(LENGTHS)[:, None]
    arrays = [np.asarray(x, np.int32) for x in (ids, types, *map(np.stack, zip(*rows, strict=True)))]
    return CharBertBatch(arrays[0], arrays[1], mask, *arrays[2:])


def random_params(model, batch, seed=0):
    """Returns parameters that make every part matter: none is zero or one."""
    abstract = jax.eval_shape(lambda: model.init(jax.random.key(0), batch))["params"]
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        return rng.normal(path[-1].key == "scale", 0.2, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, abstract)


def in_doubles(params):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), params)


def assert_near(got, want, atol=2e-5):
    np.testing.assert_allclose(got, want, atol=atol)


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_are_those_of_the_equations(name):
    cfg = CONFIGS[name]
    model, batch = CharBertForMaskedLM(cfg), batch_of(cfg, padding=2, junk=1)
    params = random_params(model, batch)
    output = jax.jit(lambda p: model.apply({"params": p}, batch))(params)
    double = in_doubles(params)
    for b, real in enumerate(LENGTHS):
        ends = batch.ends_BL[b, :real]
        chars = batch.chars_BN[b, : ends.max() + 1]  # clean: the sequence ends with its last token
        row = (x[b, :real] for x in (batch.ids_BL, batch.types_BL))
        x, h = equations.encode(double["charbert"], cfg, *row, chars, batch.starts_BL[b, :real], ends, real)
        assert_near(output.states.tokens_BLD[b, :real], x)
        assert_near(output.states.chars_BLD[b, :real], h)
        mlm, words = equations.predict(double, cfg, x, h)
        assert_near(output.mlm_logits_SMV[b, :real], mlm)
        if cfg.nlm:
            assert_near(output.nlm_logits_SPT[b, :real], words)
    assert (output.nlm_logits_SPT is None) == (not cfg.nlm)
    pooled = np.tanh(equations.dense(double["charbert"]["pooler"]["dense"], np.asarray(output.states.chars_BLD[:, 0])))
    assert_near(output.states.char_pooled_BD, pooled)


@pytest.mark.parametrize("name", ["paper", "reference", "on roberta"])
def test_with_compat_reference_padding_takes_part(name):
    cfg = dataclasses.replace(CONFIGS[name], compat_reference=True)
    model, batch = CharBertForLabels(cfg, 3, SEQUENCE_CLASSIFICATION), batch_of(cfg, padding=2, junk=1)
    params = random_params(model, batch)
    logits = jax.jit(lambda p: model.apply({"params": p}, batch))(params)
    double = in_doubles(params)
    for b, real in enumerate(LENGTHS):
        arrays = (batch.ids_BL, batch.types_BL, batch.chars_BN, batch.starts_BL, batch.ends_BL)
        channels = equations.encode(double["charbert"], cfg, *(x[b] for x in arrays), real)
        mean = np.concatenate(channels, axis=1).mean(axis=0)
        assert_near(logits[b], equations.dense(double["label"], mean))
    clean = applied(CharBertForLabels(CONFIGS[name], 3, SEQUENCE_CLASSIFICATION))(params, batch)
    assert np.abs(clean - logits).max() > 1e-2


def losses(model, params, batch):
    """Returns a number that all logits of real positions decide."""
    output = model.apply({"params": params}, batch)
    if isinstance(model, CharBertForMaskedLM):
        real = jnp.asarray(batch.mask_BL)[:, :, None]
        parts = [x for x in (output.mlm_logits_SMV, output.nlm_logits_SPT) if x is not None]
        return sum(jnp.where(real, jnp.sin(x), 0).sum() for x in parts)
    if output.ndim == 3:
        output = jnp.where(jnp.asarray(batch.mask_BL)[:, :, None], output, 0)
    return jnp.sin(output).sum()


SLOW = [again(name) for name in ("on roberta", "reference", "w/o GRU")]  # parts of the first


# Of the others, the outputs above are computed with padding; their parts have the same gradients as these.
@pytest.mark.parametrize("name", ["paper", *SLOW])
def test_padding_changes_no_output_and_no_gradient(name):
    cfg = dataclasses.replace(CONFIGS[name], layers=1)
    check_padding(CharBertForMaskedLM(cfg), cfg)


# Answers are labels of positions, as tags are; a text's label is read at its first position.
@pytest.mark.parametrize("head", [head if head == TOKEN_CLASSIFICATION else again(head) for head in FINE_TUNED])
def test_padding_changes_no_label(head):
    cfg = dataclasses.replace(TINY, layers=1)
    check_padding(CharBertForLabels(cfg, 2, head), cfg)


def check_padding(model, cfg):
    params = random_params(model, batch_of(cfg))
    run = jax.jit(lambda p, b: jax.value_and_grad(lambda p: losses(model, p, b))(p))
    value, gradients = run(params, batch_of(cfg))
    other, changed = run(params, batch_of(cfg, padding=6, slots=41, junk=2))
    assert_near(other, value, 1e-4)
    jax.tree.map(assert_near, changed, gradients)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))


def test_every_parameter_learns_but_the_first_character():
    model, batch = CharBertForMaskedLM(dataclasses.replace(TINY, layers=1)), batch_of(TINY, padding=1)
    params = random_params(model, batch)
    gradients = jax.jit(jax.grad(lambda p: losses(model, p, batch)))(params)
    table = gradients["charbert"]["char"]["table"]["embedding"]
    assert batch.chars_BN.min() == 0
    assert not table[0].any()
    assert all(table[i].any() for i in np.unique(batch.chars_BN) if i)
    without = {"pooler"}  # which no head reads
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        names = {key.key for key in path}
        bias_of_keys = {"key", "bias"} <= names  # softmax does not see it
        assert np.abs(gradient).max() > 1e-6 or names & without or bias_of_keys, names


def test_logits_at_positions_are_those_of_everywhere():
    model, batch = CharBertForMaskedLM(TINY), batch_of(TINY, padding=1)
    params = random_params(model, batch)
    apply = lambda *positions: applied(model)(params, batch, *positions)
    everywhere = apply()
    rows = apply(np.array([[0, 3], [2, 2]]), np.array([[4], [1]]))  # S = B: positions of each sequence
    mlm, nlm = (np.asarray(x) for x in everywhere[:2])
    assert_near(rows.mlm_logits_SMV, np.stack([mlm[0, [0, 3]], mlm[1, [2, 2]]]))
    assert_near(rows.nlm_logits_SPT, np.stack([nlm[0, [4]], nlm[1, [1]]]))
    flat = apply(np.array([[0, 3, 8]]), np.array([[4, 7]]))  # one list for all
    assert_near(flat.mlm_logits_SMV[0], mlm.reshape(-1, 30)[np.array([0, 3, 8])])
    assert_near(flat.nlm_logits_SPT[0], nlm.reshape(-1, 9)[np.array([4, 7])])
    with pytest.raises(ValueError, match=r"positions are \(3, 1\), expected \[S, M\] with S a divisor of the 2"):
        apply(np.zeros((3, 1), int), np.zeros((1, 1), int))


def test_rematerialised_and_bfloat16_models_compute_the_same():
    batch, cfg = batch_of(TINY, padding=1), dataclasses.replace(TINY, layers=1)
    model = CharBertForMaskedLM(cfg)
    params = random_params(model, batch)
    run = lambda model: jax.jit(jax.value_and_grad(lambda p: losses(model, p, batch)))(params)
    value, gradients = run(model)
    other, same = run(CharBertForMaskedLM(dataclasses.replace(cfg, remat=True)))
    assert_near(other, value)
    jax.tree.map(assert_near, same, gradients)
    half = CharBertForMaskedLM(dataclasses.replace(cfg, dtype=jnp.bfloat16))
    full, short = (jax.device_get(applied(m)(params, batch)) for m in (model, half))
    assert short.states.tokens_BLD.dtype == jnp.bfloat16
    assert short.mlm_logits_SMV.dtype == jnp.float32
    scale = np.abs(full.mlm_logits_SMV).max()
    assert 0 < np.abs(short.mlm_logits_SMV - full.mlm_logits_SMV)[batch.mask_BL].max() < 0.05 * scale


def test_dropout_reaches_layers_and_heads():
    cfg = dataclasses.replace(TINY, dropout=0.5)
    model, batch = CharBertForLabels(cfg, 2, SEQUENCE_CLASSIFICATION), batch_of(TINY)
    params = random_params(model, batch)
    apply = jax.jit(lambda key: model.apply({"params": params}, batch, deterministic=False, rngs={"dropout": key}))
    draw = lambda seed: apply(jax.random.key(seed))
    assert np.abs(draw(0) - draw(1)).max() > 1e-3
    assert_near(draw(0), draw(0), 0)


def test_the_control_is_a_bert():
    cfg = BertConfig(vocab_size=30, hidden=16, layers=1, heads=2, ffn=24, max_positions=20, pooler=False)
    batch = batch_of(TINY, padding=1)
    params = random_params(AdvBertForMaskedLM(cfg), batch)
    at = np.array([[0, 3], [2, 2]])
    got = applied(AdvBertForMaskedLM(cfg))(params, batch, at)
    bert = applied(BertForMaskedLM(cfg))
    want = bert(params, batch.ids_BL, batch.mask_BL, types_BL=batch.types_BL, positions_BM=at)
    assert_near(got.mlm_logits_SMV, want.logits, 0)
    assert got.nlm_logits_SPT is None


def test_shapes_that_cannot_be_are_refused():
    batch = batch_of(TINY)
    for wrong, message in (
        (batch._replace(chars_BN=batch.chars_BN[:1]), r"chars_BN is int32 \(1, 30\), expected integers \[2, slots\]"),
        (batch._replace(chars_BN=batch.chars_BN + 0.5), r"chars_BN is float32 \(2, 30\)"),
        (batch._replace(starts_BL=batch.starts_BL[:, :2]), r"starts_BL is int32 \(2, 2\), expected integers \(2, 5\)"),
        (batch._replace(mask_BL=batch.ids_BL * 1.0), "mask_BL is float"),
        (batch._replace(mask_BL=batch.ids_BL), r"mask_BL is int32 .*, expected bool \(True = real\): one text a row"),
        (batch_of(TINY, padding=16), "21 positions, but the model has 20"),
    ):
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(lambda b: CharBert(TINY).init(jax.random.key(0), b), wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fusion": "both"}, "charbert: fusion='both' is not one of paper, reference, none"),
        ({"char_encoder": "cnn"}, "charbert: char_encoder='cnn' is not one of gru, embedding"),
        ({"fusion": "reference"}, r"windows=\(3, 4, 5\), but fusion='reference' has one"),
        ({"windows": ()}, r"windows=\(\), expected positive numbers of tokens"),
        ({"windows": (3, 0)}, r"windows=\(3, 0\), expected positive"),
        ({"hidden": 18}, "hidden=18, expected a multiple of 4"),
        ({"char_encoder": "embedding"}, "char_hidden=6, but char_encoder='embedding' needs half of hidden=16"),
        ({"char_vocab_size": 0}, "char_vocab_size=0, expected a positive number"),
    ],
)
def test_configs_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


def test_new_parts_begin_as_in_the_released_code():
    cfg = CharBertConfig(vocab_size=50, layers=1, fusion="reference", windows=(3,))
    batch = batch_of(dataclasses.replace(TINY, char_vocab_size=900))
    params = jax.device_get(initial(CharBert(cfg), batch))

    def uniform(x, fan_in):
        bound = fan_in**-0.5
        assert 0.97 * bound < np.abs(x).max() <= bound
        assert abs(np.std(x) * 3**0.5 / bound - 1) < 0.1

    for x in params["char"]["gru"].values():
        uniform(x, 192)
    fusion = params["encoder"]["fusion"]
    uniform(fusion["convolution_0"]["kernel"], 4608)
    uniform(fusion["convolution_0"]["bias"], 4608)
    normal = [params["char"]["table"]["embedding"], *(fusion[f"{c}_linear"]["kernel"] for c in ("word", "char"))]
    for x in normal:
        assert abs(np.std(x) / 0.02 - 1) < 0.02
    assert np.abs(normal[0][0]).min() > 0  # row 0 is not zero
    new = sum(x.size for x in jax.tree.leaves([params["char"], fusion]))
    assert new == 5_497_088  # the 5M of the paper, counted in the released code


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        again({"fusion": "reference", "windows": (3,)}, 5_497_088),
        ({"shared_fusion": True, "windows": (1, 2, 3)}, 5_500_160),
        again({"shared_fusion": True, "windows": (3,)}, 6_679_808),
        ({"shared_fusion": True}, 7_859_456),
        again({"windows": (3,)}, 71_636_480),
        ({}, 85_792_256),
    ],
)
def test_parameters_beside_those_of_bert_base(fields, expected):
    """Section 4.1 says 5 M, which nothing explains but one fusion for all layers."""
    cfg = CharBertConfig(pooler=True, **fields)
    one = np.zeros((1, 1), np.int32)
    batch = CharBertBatch(one, None, None, one, one, one)
    params = jax.eval_shape(lambda: CharBert(cfg).init(jax.random.key(0), batch)["params"])
    bert = 108_310_272  # those of BERT-base, cased, with its pooler
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) - bert == expected
