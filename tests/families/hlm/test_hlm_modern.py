"""Tests HLM's newer parts, each alone and all together: what they compute, and that all else works with them."""

from __future__ import annotations

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again
from flax import traverse_util
from programs import applied, drawn, initial

from charlm.config import get_config, validate
from charlm.core.flops import full_lengths
from charlm.core.sharding import make_mesh, state_sharding
from charlm.data.batching import WordSequence, pack_all
from charlm.data.word_batch import reshape_batch
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.conversion import CONVERTER
from charlm.families.hlm.flops import between_words, feed_forward_width, hlm_forward, lengths_of_batch
from charlm.families.hlm.loss import masked_char_sums
from charlm.families.hlm.model import HLM, HLMForMaskedLM
from charlm.families.hlm.released_config import to_theirs
from charlm.nn.pieces import PieceTable
from charlm.nn.transformer import Encoder, EncoderConfig, EncoderLayer, gated_width
from charlm.text.chars import CLS, SEP, WORD_CLS

SLOTS, WORDS = 8, 16
TINY = HLMConfig(
    vocab_size=64, hidden=16, heads=2, intra_layers=2, inter_layers=3, intra_ffn=24, inter_ffn=36, char_slots=SLOTS,
    position_buckets=8, max_relative_words=32, dropout=0.0, attention_dropout=0.0, initializer="torch",
)  # fmt: skip
CHANGES = {
    "position": "rotary", "norm_position": "pre", "norm": "rms", "feed_forward": "geglu", "bias": False, "ngrams": 50,
    "local_words": 2,
}  # fmt: skip
PIECES = PieceTable([(WORD_CLS, 10, 11), (12, 13), (11, 12, 13), *((WORD_CLS, one) for one in range(8, 64))])
ALL = dataclasses.replace(TINY, **CHANGES, pieces=PIECES, global_every=2)


def texts(lengths: tuple[int, ...]) -> list[WordSequence]:
    """Sequences of so many words of a few different ones, of which some are to be predicted."""
    rng = np.random.default_rng(0)
    lexicon = np.zeros((9, SLOTS), np.uint16)
    for n, row in enumerate(lexicon):
        row[0], row[1 : 2 + n % (SLOTS - 1)] = WORD_CLS, rng.integers(8, 64, 1 + n % (SLOTS - 1))
    edge = lambda one: np.eye(1, SLOTS, dtype=np.uint16) * np.uint16(one)
    found = []
    for length in lengths:
        chars_WC = np.concatenate([edge(CLS), lexicon[rng.integers(0, 9, length)], edge(SEP)])
        asked_W = (rng.random(len(chars_WC)) < 0.4) & (chars_WC[:, 0] == WORD_CLS)
        found.append(WordSequence(chars_WC, chars_WC * (asked_W[:, None] & (np.arange(SLOTS) > 0))))
    return found


TEXTS = texts((14, 3, 9))


def reshaped(sequences: list[WordSequence], words: int = WORDS):
    """The sequences as the paper's plain reshape."""
    arrays = np.zeros((2, len(sequences), words, SLOTS), np.uint16)
    for b, sequence in enumerate(sequences):
        arrays[:, b, : len(sequence.chars_WC)] = sequence.chars_WC, sequence.labels_WC
    return reshape_batch(*arrays)


@functools.cache
def parameters(config: HLMConfig):
    """Drawn parameters, so that n-grams have vectors, too."""
    return drawn(HLMForMaskedLM(config), reshaped(TEXTS), scale=0.3)


def context(config: HLMConfig, batch) -> np.ndarray:
    """The contextual vectors of a batch."""
    return np.asarray(applied(HLM(config))(parameters(config)["hlm"], batch).context_NWD)


MASK = np.asarray(reshaped(TEXTS).mask_SBW[0])


@pytest.mark.parametrize(
    "change", [*({name: value} for name, value in CHANGES.items()), {"pieces": PIECES}, CHANGES], ids=str
)
def test_every_key_changes_the_model_and_has_places_for_its_parameters(change):
    config = dataclasses.replace(TINY, **change)
    names = lambda config: set(traverse_util.flatten_dict(parameters(config), sep="/"))
    shapes = lambda config: jax.tree.map(np.shape, parameters(config))
    same = names(config) == names(TINY) and shapes(config) == shapes(TINY)
    assert same == (set(change) == {"local_words"})
    if same:
        assert np.abs(context(config, reshaped(TEXTS)) - context(TINY, reshaped(TEXTS)))[MASK].max() > 1e-4
    mesh = make_mesh(get_config(), jax.devices()[:1])
    assert jax.tree.structure(state_sharding(parameters(config), mesh)) == jax.tree.structure(parameters(config))


def test_the_paper_is_the_default():
    config = get_config()
    for name, value in CHANGES.items():
        assert config.model[name] != value
        assert config.model[name] == getattr(HLMConfig(), name)


def test_without_biases_only_outputs_and_poolers_have_one():
    names = traverse_util.flatten_dict(parameters(dataclasses.replace(TINY, bias=False)), sep="/")
    assert {name for name in names if "bias" in name} == {"head/output_bias", "pooler/dense/bias"}


# ---- Parts by NumPy ----


def test_a_layer_with_all_parts_is_the_formula():
    """x + attention(rms(x)), then x + (gelu(x V) * x W) U of rms(x); attention is silent here."""
    config = EncoderConfig(1, 16, 2, 36, 8, dropout=0.0, norm_position="pre", norm="rms", feed_forward="geglu",
                           bias=False, position="rotary", epsilon=1e-3)  # fmt: skip
    x = np.random.default_rng(1).normal(size=(2, 5, 16)).astype(np.float32)
    mask = np.ones((2, 5), bool)
    params = drawn(EncoderLayer(config), x, mask, None, 5, True)
    params["attention"]["output"]["kernel"][:] = 0
    got = applied(EncoderLayer(config), queries=5, deterministic=True, positions_RD=None)(params, x, mask)
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * params["ffn_norm"]["scale"]
    kernel = lambda name: params[name]["kernel"]
    gate = np.asarray(jax.nn.gelu(normed @ kernel("ffn_in"), approximate=False))
    np.testing.assert_allclose(got, x + gate * (normed @ kernel("ffn_value")) @ kernel("ffn_out"), atol=1e-5)
    assert kernel("ffn_in").shape == (16, 24)


def test_pre_norm_ends_with_a_norm():
    config = dataclasses.replace(ALL, norm="layer", bias=True).inter
    x, mask = np.random.default_rng(1).normal(size=(1, 5, 16)).astype(np.float32), np.ones((1, 5), bool)
    params = initial(Encoder(config), x, mask)
    out = np.asarray(applied(Encoder(config))(params, x, mask))
    np.testing.assert_allclose([out.mean(-1), out.std(-1)], [np.zeros((1, 5)), np.ones((1, 5))], atol=1e-4)
    assert (params["norm"]["scale"].shape, "norm" in initial(Encoder(TINY.inter), x, mask)) == ((16,), False)


@pytest.mark.parametrize("ffn", [24, 256, 512, 1536, 3072, 4096])
def test_a_gated_layer_has_as_many_parameters(ffn):
    assert gated_width(ffn) % 8 == 0
    assert abs(3 * gated_width(ffn) - 2 * ffn) <= 12


@pytest.mark.parametrize("position", ["rotary", "disentangled"])
def test_a_local_layer_does_not_see_beyond_its_window_and_a_global_one_does(position):
    config = dataclasses.replace(TINY, position=position, local_words=2, inter_layers=2, global_every=2).inter
    assert (config.window(0), config.window(1)) == (0, 2)
    x, mask, at = np.random.default_rng(2).normal(size=(1, 13, 16)).astype(np.float32), np.ones((1, 13), bool), 6
    params = drawn(Encoder(config), x, mask)
    last = jax.jit(lambda x: Encoder(config).apply({"params": params}, x, mask, 13, method="last"))
    slope = np.abs(jax.grad(lambda x: last(x)[0, at].sum())(x)).sum(axis=(0, 2))
    near = np.abs(np.arange(13) - at) <= 2
    np.testing.assert_array_equal(slope > 0, near)
    whole = jax.jit(lambda x: Encoder(config).apply({"params": params}, x, mask))
    assert (np.abs(jax.grad(lambda x: whole(x)[0, at].sum())(x)).sum(axis=(0, 2)) > 0).all()


# ---- All that works with the paper's model works with these ----


@pytest.mark.parametrize("config", [ALL, again(dataclasses.replace(ALL, position="disentangled"))], ids=["all", "d"])
def test_word_tables_and_company_change_nothing(config):
    want = context(config, reshaped(TEXTS))[MASK]
    tables = pack_all([*TEXTS, *texts((20, 2))], 24, (3, 5, SLOTS))
    mask = np.asarray(tables.mask_SBW[0])[: len(TEXTS)]
    np.testing.assert_allclose(context(config, tables)[: len(TEXTS)][mask], want, atol=2e-5)


def test_texts_in_one_row_are_those_of_rows_of_their_own():
    config = ALL
    words = np.random.default_rng(3).normal(size=(2, 7, 16)).astype(np.float32)
    contextualize = applied(HLM(config), method="contextualize")
    params = parameters(config)["hlm"]
    alone = contextualize(params, words, np.ones((2, 7), bool))
    together = contextualize(params, words.reshape(1, 14, 16), np.arange(2).repeat(7)[None] + 1)
    np.testing.assert_allclose(together[0], alone.reshape(14, 16), atol=2e-5)


def test_equal_words_have_equal_vectors_and_ngrams_count():
    config = dataclasses.replace(TINY, ngrams=50)
    chars = np.array([[[WORD_CLS, 10, 11, 12, 13, 0, 0, 0], [WORD_CLS, 13, 12, 11, 10, 0, 0, 0]]] * 2, np.uint16)
    encode = applied(HLM(config), method="encode_words")
    params = dict(parameters(config)["hlm"])
    found = np.asarray(encode(params, chars.reshape(4, SLOTS)))
    np.testing.assert_array_equal(found[:2], found[2:])
    without = params | {"embed": params["embed"] | {"ngrams": {"embedding": np.zeros((50, 16), np.float32)}}}
    assert np.abs(encode(without, chars.reshape(4, SLOTS)) - found).max(axis=1).min() > 1e-3


def test_a_piece_changes_the_words_that_hold_it_alone():
    config = dataclasses.replace(TINY, pieces=PieceTable([(11, 12), (WORD_CLS, 13)]))
    words = ([9, 11, 12, 9, 9], [13, 11, 9, 9, 9], [11, 13, 12, 9, 9])
    chars_UC = np.array([[WORD_CLS, *word, 0, 0] for word in words])
    encode = applied(HLM(config), method="encode_words")
    params = dict(parameters(config)["hlm"])
    found = encode(params, chars_UC)
    for row, (changed, others) in enumerate([(0, (1, 2)), (1, (0, 2))]):
        table = np.array(params["embed"]["pieces"]["embedding"])
        table[row] += np.linspace(-1, 1, 16)
        other = encode(params | {"embed": params["embed"] | {"pieces": {"embedding": table}}}, chars_UC)
        assert np.abs(other - found)[changed].max() > 1e-3
        np.testing.assert_array_equal(other[np.array(others)], found[np.array(others)])


@pytest.mark.parametrize(
    "change", [{"scan_layers": True}, {"remat": True}, {"remat": True, "scan_layers": True}], ids=str
)
def test_a_loop_over_layers_and_remat_compute_the_same(change):
    config = dataclasses.replace(ALL, inter_layers=5).inter  # two turns of two layers, and one more
    x, mask = np.random.default_rng(4).normal(size=(2, 9, 16)).astype(np.float32), np.ones((2, 9), bool)
    params = drawn(Encoder(config), x, mask)
    loss = lambda config, params: (Encoder(config).apply({"params": params}, x, mask) * x[::-1]).sum()
    grad = lambda config: jax.jit(jax.value_and_grad(functools.partial(loss, config)))(params)
    (value, gradient), (other, others) = grad(config), grad(dataclasses.replace(config, **change))
    np.testing.assert_allclose(other, value, rtol=1e-4)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradient))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * largest), others, gradient)


def test_several_devices_compute_the_same_loss():
    """Two by two by two: the batch, parameters and single matrices are split."""
    config = dataclasses.replace(ALL, inter_layers=2)
    batch = pack_all(texts((14, 9, 5, 6)), WORDS, (SLOTS,))
    several = jax.tree.map(lambda *x: np.concatenate(x), *[batch] * 4)  # four table shards
    sums = lambda params, batch: masked_char_sums(HLMForMaskedLM(config), params, batch, None)
    run = get_config()
    run.mesh.data = run.mesh.fsdp = run.mesh.model = 2
    mesh = make_mesh(run)
    params = jax.device_put(parameters(config), state_sharding(parameters(config), mesh))
    assert params["hlm"]["inter_word"]["layer_0"]["ffn_value"]["kernel"].sharding.spec == jax.sharding.PartitionSpec(
        "fsdp", "model"
    )
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(("data", "fsdp")))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        got = jax.jit(sums)(params, jax.device_put(several, rows))
    want = jax.jit(sums)(parameters(config), batch)
    np.testing.assert_allclose(got.nats, 4 * want.nats, rtol=1e-5)
    assert int(got.chars) == 4 * int(want.chars)


def test_the_compiler_counts_as_many_operations():
    wide = {"hidden": 192, "heads": 4, "inter_layers": 3, "intra_ffn": 384, "inter_ffn": 768, "vocab_size": 300}
    config = dataclasses.replace(ALL, **wide, global_every=3, local_words=8)
    word = np.random.default_rng(0).integers(1, 64, (2, 60, SLOTS)).astype(np.uint16)
    batch = reshape_batch(word, word)
    model = HLMForMaskedLM(config)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), batch))["params"]
    counted = jax.jit(lambda p, b: model.apply({"params": p}, b)).lower(params, batch).cost_analysis()["flops"]
    # The compiler counts turns of positions, norms and activations, too, and blocks of three windows.
    assert 0.8 < hlm_forward(config, lengths_of_batch(batch, padded=True)) / counted < 1.0


def test_operations_by_hand():
    words = full_lengths(np.ones((2, 100)))
    layer = lambda pairs, ffn: 2 * (4 * 200 * 256 + 2 * 200 * 16 * ffn) + 2 * 2 * pairs * 16
    config = dataclasses.replace(ALL, global_every=3, local_words=4)
    assert feed_forward_width(config, 36) == 36
    assert between_words(config, words) == layer(20_000, 36) + 2 * layer(9 * 200, 36)
    paper = between_words(TINY, words)
    assert paper - 3 * layer(20_000, 36) == 3 * 2 * 2 * min(20_000, 2 * 8 * 200) * 16


# ---- What is refused ----


@pytest.mark.parametrize(("name", "value"), CHANGES.items())
def test_the_released_code_cannot_hold_any_of_it(name, value):
    config = get_config()
    config.model[name] = value
    message = f"here cannot be exported, the released code has no such model: model.{name}={value!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        to_theirs(config, "masked_lm", "here")


def test_models_with_all_parts_are_loaded_and_get_other_heads():
    config = get_config()
    config.model.update(
        {name: getattr(ALL, name) for name in (*CHANGES, "global_every", "hidden", "heads", "vocab_size")}
    )
    metadata = {"config": config.to_dict(), "head": "masked_lm"}
    for head in CONVERTER.heads:
        target = CONVERTER.target({**metadata, "head": head, "labels": 2}, "here")
        ours = {name for entry in target.table.values() for name in entry.ours}
        assert ours == set(traverse_util.flatten_dict(target.params, sep="/"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ngrams": 64, "ngram_sizes": ()},
            "model.ngram_sizes=(): expected different whole numbers from 2 to model.char_slots=20",
        ),
        ({"ngrams": 64, "ngram_sizes": (3, 3)}, "model.ngram_sizes=(3, 3): expected different"),
        ({"ngrams": 64, "ngram_sizes": (3, 21)}, "model.ngram_sizes=(3, 21): expected different"),
        ({"position": "rotray"}, "model.position='rotray' is not one of disentangled, rotary"),
        ({"rotary_base": 1.0}, "model.rotary_base=1.0 must be more than 1"),
        ({"local_words": -1}, "model.local_words=-1 must not be negative"),
        ({"global_every": 0}, "model.global_every=0 must be at least 1"),
        ({"local_words": 8, "global_every": 1}, "model.local_words=8, but with model.global_every=1 no layer is local"),
    ],
)
def test_a_wrong_value_is_named(changes, message):
    config = get_config()
    config.model.update(changes)
    with pytest.raises(ValueError, match=re.escape(message)):
        validate(config)


def test_sizes_of_ngrams_matter_only_where_there_are_some():
    config = get_config()
    config.model.char_slots = 4
    validate(config)


def test_heads_of_odd_width_cannot_be_turned():
    with pytest.raises(ValueError, match=r"model\.position=rotary turns pairs of columns, but a head has 3"):
        HLMConfig(hidden=12, heads=4, position="rotary")
    assert jnp.dtype(HLMConfig(hidden=12, heads=4).dtype) == jnp.float32
