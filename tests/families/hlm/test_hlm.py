"""Tests HLM: equal to the released code; word tables equal the plain reshape; padding and order have no effect."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from again import again
from flax import linen as nn
from flax import traverse_util
from golden_cases import case
from programs import initial

from charlm.config import get_config
from charlm.convert.heads import (
    FINE_TUNED,
    MASKED_LM,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)
from charlm.core.sharding import make_mesh, state_sharding
from charlm.core.trees import stack
from charlm.data.batching import BatchShape, ShardPacker, WordSequence, pack_all
from charlm.data.word_batch import WordBatch, reshape_batch
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.golden import ours_of, shape_of
from charlm.families.hlm.labels import (
    HLMForLabels,
    hlm_with_head,
)
from charlm.families.hlm.loss import masked_char_sums
from charlm.families.hlm.model import HLM, HLMForMaskedLM
from charlm.text.chars import CLS, SEP, WORD_CLS

SLOTS = 8
TINY = HLMConfig(
    vocab_size=64, hidden=16, heads=2, intra_layers=2, inter_layers=1, intra_ffn=24, inter_ffn=32, char_slots=SLOTS,
    position_buckets=8, max_relative_words=32, dropout=0.0, attention_dropout=0.0, initializer="torch",
)  # fmt: skip


@functools.partial(jax.jit, static_argnames="model")
def run(model, params, batch):
    """Returns the output of the `HLM` inside an `HLMForMaskedLM`, and the latter's logits."""
    is_hlm = lambda module, method: isinstance(module, HLM) and method == "__call__"
    logits, state = model.apply({"params": params}, batch, capture_intermediates=is_hlm)
    return state["intermediates"]["hlm"]["__call__"][0], logits


@functools.cache
def parameters(config: HLMConfig):
    batch = reshape_batch(np.ones((1, 2, 3), np.int32), np.ones((1, 2, 3), np.int32))
    return initial(HLMForMaskedLM(config), batch)


# ---- Texts ----


def texts(rng: np.random.Generator, lengths: tuple[int, ...], words: int = 12, rate: float = 0.4) -> list[WordSequence]:
    """Returns sequences of so many words, drawn from few distinct ones, some of them to be predicted."""
    lexicon = np.zeros((words, SLOTS), np.uint16)
    for i, row in enumerate(lexicon):
        row[0] = WORD_CLS
        row[1 : 2 + i % (SLOTS - 1)] = rng.integers(8, 64, 1 + i % (SLOTS - 1))
    edges = np.zeros((2, SLOTS), np.uint16)
    edges[:, 0] = CLS, SEP
    sequences = []
    for length in lengths:
        chars = np.concatenate([edges[:1], lexicon[rng.integers(0, words, length)], edges[1:]])
        is_masked = (rng.random(len(chars)) < rate) & (chars[:, 0] == WORD_CLS)
        labels = np.where((np.arange(SLOTS) > 0) & (chars != 0), rng.integers(8, 64, chars.shape), 0)
        sequences.append(WordSequence(chars, (labels * is_masked[:, None]).astype(np.uint16)))
    return sequences


def reshape_of(sequences: list[WordSequence], words: int, slots: int = SLOTS) -> WordBatch:
    """Returns the sequences as the paper's plain reshape."""
    arrays = np.zeros((2, len(sequences), words, slots), np.uint16)
    for b, sequence in enumerate(sequences):
        arrays[0, b, : len(sequence.chars_WC), :SLOTS] = sequence.chars_WC
        arrays[1, b, : len(sequence.chars_WC), :SLOTS] = sequence.labels_WC
    return reshape_batch(*arrays)


def valid(batch: WordBatch, output, logits, sequences: list[WordSequence]):
    """Returns r, w and the logits of the predicted characters, text by text and position by position."""
    mask_NW = np.asarray(output.mask_NW)
    lengths = [len(s.chars_WC) for s in sequences]
    assert mask_NW.sum(axis=1).tolist()[: len(lengths)] == lengths
    assert mask_NW.sum() == sum(lengths)
    _, B, W = batch.index_SBW.shape
    found = {}
    for bucket, logits_SMCV in zip(batch.masked, logits, strict=True):
        for s, m, c in np.argwhere(np.asarray(bucket.labels_SMC)[..., 1:]):
            key = s * B * W + bucket.position_SM[s, m], c
            assert key not in found
            found[key] = int(bucket.labels_SMC[s, m, c + 1]), np.asarray(logits_SMCV)[s, m, c]
    wanted = {
        (b * W + i, c): int(s.labels_WC[i, c + 1])
        for b, s in enumerate(sequences)
        for i, c in np.argwhere(s.labels_WC[:, 1:])
    }
    assert {key: label for key, (label, _) in found.items()} == wanted
    rows = np.array([found[key][1] for key in sorted(found)])
    return np.asarray(output.words_NWD)[mask_NW], np.asarray(output.context_NWD)[mask_NW], rows


def outcome(batch: WordBatch, sequences: list[WordSequence], config: HLMConfig = TINY):
    return valid(batch, *run(HLMForMaskedLM(config), parameters(config), batch), sequences)


def assert_same(got, want, atol: float = 1e-5) -> None:
    for name, a, b in zip(("r", "w", "logits"), got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=atol, err_msg=name)


TEXTS = texts(np.random.default_rng(0), (14, 3, 9, 1))


# ---- Equal to the released code ----


def golden_sequences(z: dict[str, np.ndarray]) -> list[WordSequence]:
    """Returns the masked texts of a golden case, as the data layer would hold them."""
    chars_BWC = z["input_ids"].transpose(2, 1, 0).astype(np.uint16)
    labels_BWC = np.where(z["predict_indices"], z["orig_input_ids"], 0).transpose(2, 1, 0).astype(np.uint16)
    return [
        WordSequence(chars_WC[:length], labels_WC[:length])
        for chars_WC, labels_WC, length in zip(
            chars_BWC, labels_BWC, (chars_BWC[:, :, 0] != 0).sum(axis=1), strict=True
        )
    ]


@pytest.mark.parametrize("name", ["reference", "paper"])
def test_word_tables_equal_the_released_code(name):
    """The whole road: distinct words in length buckets, not the released code's reshape."""
    golden = case(name)
    z, (model, params, _) = golden.arrays, ours_of(golden, shape_of(golden), "masked_lm")
    sequences = golden_sequences(z)
    batch = pack_all(sequences, z["w"].shape[0], (4, 8, len(z["input_ids"])))
    assert sum(bucket.labels_SMC.any() for bucket in batch.masked) > 1, "several buckets take part"
    got = valid(batch, *run(model, params, batch), sequences)
    mask_BW = z["input_ids"][0].T != 0
    slots, words, texts = np.nonzero(z["predict_indices"])  # the golden's order of logits
    order = np.lexsort((slots, words, texts))
    want = [*(z[key].transpose(1, 0, 2)[mask_BW] for key in ("r", "w")), z["mlm_logits"][order]]
    assert_same(got, want, atol=2e-5)


# "reference" has all the parts of the other.
@pytest.mark.parametrize("name", ["reference", pytest.param("paper", marks=pytest.mark.slow)])
def test_token_classifier_with_word_tables_equals_the_released_code(name):
    golden = case(name)
    z, (model, params, _) = golden.arrays, ours_of(golden, shape_of(golden), "token_classification")
    mask_BW = z["orig_input_ids"][0].T != 0
    chars_BWC = z["orig_input_ids"].transpose(2, 1, 0).astype(np.uint16)
    texts = [chars_WC[row] for chars_WC, row in zip(chars_BWC, mask_BW, strict=True)]
    batch = pack_all([WordSequence(chars, chars) for chars in texts], mask_BW.shape[1], (4, 8, chars_BWC.shape[2]))
    assert not all(bucket.labels_SMC.any(axis=-1).all() for bucket in batch.masked), "some rows pad their bucket"
    logits = np.asarray(jax.jit(model.apply)({"params": params}, batch))[: len(texts)]
    np.testing.assert_allclose(logits[mask_BW], z["tokcls_nlast1_logits"][mask_BW], atol=2e-5)


# ---- Sizes ----


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (HLMForMaskedLM(HLMConfig()), 132_712_192),
        (HLMForMaskedLM(HLMConfig(wiring="reference")), 133_894_144),
        (HLMForLabels(HLMConfig(head_layers=0), 2, SEQUENCE_CLASSIFICATION), 125_031_170),  # the paper's "125M"
        again(HLMForLabels(HLMConfig(head_layers=0, wiring="reference"), 2, SEQUENCE_CLASSIFICATION), 126_213_122),
        again(HLMForLabels(HLMConfig(head_layers=0, wiring="reference"), 9, TOKEN_CLASSIFICATION), 126_218_505),
        (HLMForLabels(HLMConfig(wiring="reference"), 9, TOKEN_CLASSIFICATION), 132_521_481),
        again(HLMForLabels(HLMConfig(head_layers=0), 2, QUESTION_ANSWERING), 125_031_170),
    ],
    ids=["paper", "reference", "classifier", "classifier with projection", "tagger", "tagger with layer", "answers"],
)
def test_parameter_count_of_hlm_base(model, count):
    batch = reshape_batch(np.ones((1, 2, 3), np.int32), np.ones((1, 2, 3), np.int32))
    params = jax.eval_shape(model.init, jax.random.key(0), batch)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


@pytest.mark.parametrize("wiring", ["paper", "reference"])
@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("head", [MASKED_LM, *FINE_TUNED])
def test_every_parameter_has_one_place_on_devices(head, layers, wiring):
    model = hlm_with_head(dataclasses.replace(TINY, head_layers=layers, wiring=wiring), head, labels=3)
    word = np.ones((1, 1, 3), np.int32)
    params = jax.eval_shape(model.init, jax.random.key(0), reshape_batch(word, word))["params"]
    mesh = make_mesh(get_config(), jax.devices()[:1])
    assert jax.tree.structure(state_sharding(params, mesh)) == jax.tree.structure(params)


@pytest.mark.parametrize(("hidden", "heads"), [(16, 3), (1024, 12)])
def test_width_that_heads_do_not_divide_is_refused(hidden, heads):
    with pytest.raises(ValueError, match=rf"model\.hidden={hidden} .* model\.heads={heads}"):
        HLMConfig(hidden=hidden, heads=heads)


# ---- The word table is the paper's reshape ----


BUCKETS = (2, 4, SLOTS)


# Of the other wiring, the outputs of word tables are compared with those of the released code above.
@pytest.mark.parametrize("wiring", ["paper", pytest.param("reference", marks=pytest.mark.slow)])
def test_word_tables_equal_the_reshape(wiring):
    config = dataclasses.replace(TINY, wiring=wiring)
    tables = pack_all(TEXTS, 16, BUCKETS)
    assert all(bucket.labels_SMC.any() for bucket in tables.masked), "every bucket takes part"
    assert_same(outcome(tables, TEXTS, config), outcome(reshape_of(TEXTS, 16), TEXTS, config))


def test_word_tables_over_several_shards_that_spill_to_longer_buckets_equal_the_reshape():
    shape = BatchShape(2, 2, 16, BUCKETS, (1, 2, 16), (8, 8, 8), (16, 16, 16))
    packers = [ShardPacker(shape), ShardPacker(shape)]
    for i, text in enumerate(TEXTS):
        assert packers[i // 2].add(text)
    tables = stack([p.build() for p in packers])
    assert ((tables.chars[1] != 0).sum(axis=-1) == 1).any(), "[CLS] or [SEP] lies among longer words"
    assert_same(outcome(tables, TEXTS), outcome(reshape_of(TEXTS, 16), TEXTS))


@functools.partial(jax.jit, static_argnames="config")
def gradients(config: HLMConfig, params, batch: WordBatch):
    grads = jax.grad(lambda p: masked_char_sums(HLMForMaskedLM(config), p, batch, None).nats)(params)
    return {k: v for k, v in traverse_util.flatten_dict(grads, sep="/").items() if not k.startswith("pooler")}


def test_gradients_of_word_tables_equal_those_of_the_reshape():
    config = dataclasses.replace(TINY, intra_layers=1)
    got = gradients(config, parameters(config), pack_all(TEXTS, 16, (4, SLOTS)))
    want = gradients(config, parameters(config), reshape_of(TEXTS, 16))
    assert got.keys() == want.keys()
    largest = max(np.abs(g).max() for g in want.values())
    for name, gradient in want.items():
        # A key's bias shifts all scores of a query alike: its gradient is zero but for noise.
        scale = np.abs(gradient).max() if np.abs(gradient).max() > 1e-4 * largest else largest
        np.testing.assert_allclose(got[name], gradient, atol=1e-5 * scale, err_msg=name)


def test_gradient_of_a_word_met_thousands_of_times_keeps_its_digits_in_bfloat16():
    """One row of the table collects thousands of terms: a sum in bfloat16 would lose most of them."""
    B, W = 4, 512
    words = np.unique(texts(np.random.default_rng(1), (60,), words=3)[0].chars_WC, axis=0)
    index = np.full((1, B, W), len(words) - 1, np.int32)
    index[:, :, ::40] = np.arange(len(words)).repeat(3)[: len(range(0, W, 40))]
    mask = np.ones((1, B, W), bool)
    table = WordBatch((words[None],), (), index, mask)
    reshape = WordBatch((words[index[0]].reshape(1, B * W, SLOTS),), (), np.arange(B * W).reshape(1, B, W), mask)
    assert (index == len(words) - 1).sum() > 1900
    weight = jax.random.normal(jax.random.key(2), (1, 1, TINY.hidden))

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(dtype, params, batch):
        config = dataclasses.replace(TINY, intra_layers=1, max_relative_words=512, dtype=dtype)
        loss = lambda params: (HLM(config).apply({"params": params}, batch).context_NWD * weight).sum()
        return jax.grad(loss)(params)

    # The reshape adds up inside matrix products. Rounding to 8 bits a few times costs up to 2 % of a gradient; sums in
    # bfloat16, as XLA for CPUs makes them where it may, 5 to 50 %.
    params = parameters(TINY)["hlm"]
    of = [(jnp.float32, table), (jnp.bfloat16, reshape), (jnp.bfloat16, table)]
    exact, *both = (traverse_util.flatten_dict(gradient(dtype, params, batch), sep="/") for dtype, batch in of)
    largest = max(np.abs(g).max() for g in exact.values())
    checked = [
        name for name, want in exact.items() if np.abs(want).max() > 1e-4 * largest
    ]  # others are zero but for noise
    assert sum(name.endswith("bias") for name in checked) >= 10
    for name in checked:
        for got in both:
            assert 0 < np.linalg.norm(got[name] - exact[name]) / np.linalg.norm(exact[name]) < 0.03, name


# ---- Padding and order ----


COMPANY = texts(np.random.default_rng(7), (11, 2), words=9)


@pytest.mark.parametrize(
    ("batch", "company"),
    [(reshape_of(TEXTS, 23, slots=13), []), (pack_all([*TEXTS, *COMPANY], 24, (3, 5, SLOTS)), COMPANY)],
    ids=["more words and slots", "more texts in other buckets"],
)
def test_padding_and_company_change_nothing(batch, company):
    config = dataclasses.replace(TINY, wiring="reference")  # has all the parts of the other
    want = outcome(reshape_of(TEXTS, 16), TEXTS, config)
    got = outcome(batch, [*TEXTS, *company], config)
    assert_same([x[: len(y)] for x, y in zip(got, want, strict=True)], want)


def test_permuted_texts_give_permuted_outputs():
    order = [2, 0, 3, 1]
    want, _ = run(HLMForMaskedLM(TINY), parameters(TINY), pack_all(TEXTS, 16, BUCKETS))
    permuted = [TEXTS[i] for i in order]
    got, _ = run(HLMForMaskedLM(TINY), parameters(TINY), pack_all(permuted, 16, BUCKETS))
    mask = np.asarray(got.mask_NW)
    for name in ("words_NWD", "context_NWD"):
        np.testing.assert_allclose(
            np.asarray(getattr(got, name))[mask], np.asarray(getattr(want, name))[np.array(order)][mask], atol=1e-5
        )
    assert np.abs(np.asarray(got.context_NWD) - want.context_NWD)[mask].max() > 0.1


def plain(chars_BWC: jax.Array) -> WordBatch:
    B, W, C = chars_BWC.shape
    index = jnp.arange(B * W).reshape(1, B, W)
    return WordBatch((chars_BWC.reshape(1, B * W, C),), (), index, chars_BWC[None, :, :, 0] != 0)


def test_order_of_words_and_of_characters_matters():
    chars = reshape_of(TEXTS[:1], 16).masked[0].chars_SPC.reshape(1, 16, SLOTS)
    params = parameters(TINY)["hlm"]
    hlm = jax.jit(lambda chars_BWC: HLM(TINY).apply({"params": params}, plain(chars_BWC)))
    words = chars.copy()
    words[0, [1, 2]] = chars[0, [2, 1]]
    assert np.abs(hlm(words).context_NWD[0, 5] - hlm(chars).context_NWD[0, 5]).max() > 1e-3
    swapped = chars.copy()
    long = int(np.argmax((chars[0] != 0).sum(axis=-1)))
    swapped[0, long, 1:3] = chars[0, long, 2:0:-1]
    assert np.abs(hlm(swapped).words_NWD[0, long] - hlm(chars).words_NWD[0, long]).max() > 1e-3


# ---- Switches ----


def encode(config: HLMConfig, chars_SUC: np.ndarray):
    """Returns the states of all characters, and the vectors of the words where nothing else of them is read."""
    encode_table = jax.jit(lambda params, *args: HLM(config).apply({"params": params}, *args, method="encode_table"))
    return [np.asarray(x) for x in encode_table(parameters(TINY)["hlm"], chars_SUC, chars_SUC)]


@pytest.mark.parametrize(("aggregation", "pool"), [("mean", np.mean), ("max", np.max), ("word_cls", None)])
def test_aggregation_equals_a_loop_over_characters_whatever_the_padding(aggregation, pool):
    chars = np.unique(np.concatenate([t.chars_WC for t in TEXTS]), axis=0)[None]
    config = dataclasses.replace(TINY, aggregation=aggregation)
    states, pooled = encode(config, chars)
    for row, h, vector in zip(chars[0], states[0], pooled[0], strict=True):
        slots = [c for c in range(1, SLOTS) if row[c]] or [0]  # [CLS] and [SEP] are nothing but slot 0
        want = h[0] if pool is None else pool([h[c] for c in slots], axis=0)
        np.testing.assert_allclose(vector, want, atol=1e-6)
    wider = np.pad(chars, ((0, 0), (0, 5), (0, 3)))
    _, in_company = encode(config, wider)
    np.testing.assert_allclose(in_company[:, : chars.shape[1]], pooled, atol=1e-5)
    assert np.isfinite(in_company).all()


def test_aggregation_works_alike_in_word_tables():
    config = dataclasses.replace(TINY, aggregation="mean", intra_layers=1)
    assert_same(outcome(pack_all(TEXTS, 16, BUCKETS), TEXTS, config), outcome(reshape_of(TEXTS, 16), TEXTS, config))


def test_word_residual_adds_the_word_vectors():
    batch = reshape_of(TEXTS, 16)
    plain, _ = run(HLMForMaskedLM(TINY), parameters(TINY), batch)
    with_residual, _ = run(HLMForMaskedLM(dataclasses.replace(TINY, word_residual=True)), parameters(TINY), batch)
    np.testing.assert_allclose(with_residual.words_NWD, plain.words_NWD, atol=1e-6)
    np.testing.assert_allclose(with_residual.context_NWD, plain.context_NWD + plain.words_NWD, atol=1e-6)


def test_dropout_depends_on_its_key_alone():
    config = dataclasses.replace(TINY, wiring="reference", intra_layers=1, dropout=0.2, attention_dropout=0.2)
    model, params, batch = HLMForMaskedLM(config), parameters(config), reshape_of(TEXTS[1:3], 12)

    @jax.jit
    def train(seed):
        key = jax.random.key(seed, impl="rbg")  # compiles faster
        return model.apply({"params": params}, batch, deterministic=False, rngs={"dropout": key})[0]

    first, again, other = (train(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.05


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(HLMForMaskedLM, id="masked_lm"),
        pytest.param(
            functools.partial(HLMForLabels, labels=3, kind=TOKEN_CLASSIFICATION, label_head="paper"), id="labels"
        ),
    ],
)
def test_every_part_drops_out_at_the_rate_of_the_config(model):
    """Which rates act where; what each of them does is tested in `tests/nn`."""
    config = dataclasses.replace(TINY, dropout=0.2, attention_dropout=0.3)
    made, batch, found = model(config), reshape_of(TEXTS[1:3], 12), Counter()

    def noting(call, args, kwargs, context):
        if isinstance(context.module, nn.Dropout):
            still = kwargs.get("deterministic", context.module.deterministic)
            assert still is False
            found["/".join(context.module.path[:-1]), context.module.rate] += 1
        return call(*args, **kwargs)

    def train(key):
        rngs = {"params": key, "dropout": key}
        params = made.init(rngs, batch)
        found.clear()
        with nn.intercept_methods(noting):
            return made.apply(params, batch, deterministic=False, rngs={"dropout": key})

    jax.eval_shape(train, jax.random.key(0))
    layers = [*(f"hlm/intra_word/layer_{n}" for n in range(TINY.intra_layers)), "hlm/inter_word/layer_0"]
    if model is HLMForMaskedLM:
        layers.append("head/encoder/layer_0")
    assert set(found) >= {("hlm/embed", 0.2)} | {(name, 0.2) for name in layers}
    for name in layers:
        calls = found[name, 0.2]  # of both residual branches
        assert calls % 2 == 0
        assert found[f"{name}/attention", 0.3] == calls // 2
        assert found[f"{name}/attention", 0.2] == calls // 2  # of the table of positions
    assert {rate for name, rate in found if not name.endswith("attention")} == {0.2}
    if model is not HLMForMaskedLM:
        assert found["", 0.2] == 1


# ---- Fine-tuned heads ----


@functools.cache
def fine_tuned(model):
    word = np.ones((1, 2, 3), np.int32)
    return initial(model, reshape_batch(word, word), seed=1)


def test_fine_tuned_model_reads_words_alike_in_tables_and_in_the_reshape():
    """Rows that pad a bucket name position 0: written there, they would replace its word."""
    model = HLMForLabels(dataclasses.replace(TINY, intra_layers=1), 2, QUESTION_ANSWERING)
    sequences = [text._replace(labels_WC=text.chars_WC) for text in TEXTS]
    params = fine_tuned(model)
    apply = jax.jit(lambda batch: model.apply({"params": params}, batch))
    tables, reshape = pack_all(sequences, 16, BUCKETS), reshape_of(sequences, 16)
    mask = np.asarray(reshape.mask_SBW[0])
    got, want = np.asarray(apply(tables))[: len(TEXTS)], np.asarray(apply(reshape))
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-5)
    assert np.abs(want[mask]).min() > 0, "no word was left out"


def test_sequence_classifier_with_head_layers_needs_cls_alone_among_the_masked():
    model = HLMForLabels(dataclasses.replace(TINY, intra_layers=1), 3, SEQUENCE_CLASSIFICATION)
    params = fine_tuned(model)
    apply = jax.jit(lambda batch: model.apply({"params": params}, batch))
    every = [text._replace(labels_WC=text.chars_WC) for text in TEXTS]
    first = [
        text._replace(labels_WC=text.chars_WC * (np.arange(len(text.chars_WC)) == 0)[:, None].astype(np.uint16))
        for text in TEXTS
    ]
    np.testing.assert_allclose(apply(reshape_of(first, 16)), apply(reshape_of(every, 16)), atol=1e-5)


def test_a_mean_is_over_the_words_of_a_text_as_the_papers_head_reads_them():
    config = dataclasses.replace(TINY, intra_layers=1)
    mean = HLMForLabels(config, 3, SEQUENCE_CLASSIFICATION, label_head="mean")
    of_words = HLMForLabels(config, 3, TOKEN_CLASSIFICATION, label_head="paper")
    params, batch = fine_tuned(mean), reshape_of(TEXTS, 16)
    logits_NWL = np.asarray(
        jax.jit(of_words.apply)({"params": params}, batch)
    )  # linear, so their mean is that of texts
    mask_NW = np.asarray(batch.mask_SBW[0])
    wanted = np.stack([logits_W[mask_W].mean(axis=0) for logits_W, mask_W in zip(logits_NWL, mask_NW, strict=True)])
    apply = jax.jit(mean.apply)
    np.testing.assert_allclose(apply({"params": params}, batch), wanted, atol=1e-5)
    assert np.ptp(wanted, axis=0).min() > 1e-3  # texts differ
    tables = np.asarray(apply({"params": params}, pack_all(TEXTS, 16, BUCKETS)))[: len(TEXTS)]
    np.testing.assert_allclose(tables, wanted, atol=1e-5)


def test_fine_tuned_model_without_head_layers_reads_w_and_no_characters():
    config = dataclasses.replace(TINY, intra_layers=1, head_layers=0, wiring="reference")
    model = HLMForLabels(config, 5, TOKEN_CLASSIFICATION)
    params, batch = fine_tuned(model), reshape_batch(reshape_of(TEXTS, 16).masked[0].chars_SPC.reshape(4, 16, SLOTS))
    logits = jax.jit(model.apply)({"params": params}, batch)
    w = jax.jit(HLM(config).apply)({"params": params["hlm"]}, batch).context_NWD
    np.testing.assert_allclose(
        logits, w @ params["label"]["kernel"] + np.asarray(params["label"]["bias"])[None, None], atol=1e-5
    )
    assert set(params["head"]) == {"projection", "projection_norm"}, "held for checkpoints, read by nothing"


def test_fine_tuned_model_with_head_layers_refuses_a_batch_without_masked_words():
    model = HLMForLabels(TINY, 2, TOKEN_CLASSIFICATION)
    with pytest.raises(ValueError, match=r"model\.head_layers >= 1.*`masked`"):
        jax.eval_shape(model.apply, {"params": fine_tuned(model)}, reshape_batch(np.ones((1, 2, 3), np.int32)))
