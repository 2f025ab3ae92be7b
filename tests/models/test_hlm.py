"""HLM: equal to the released code; word tables equal the plain reshape; padding, order and grouping change nothing."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from reference_weights import to_params
from safetensors.numpy import load_file

from charlm.batch import MaskedWords, WordBatch, reshape_batch
from charlm.data.batching import BatchShape, Sequence, ShardPacker, pack_all, stack
from charlm.models.heads import CharPredictionHead
from charlm.models.hlm import HLM, HLMConfig, HLMForMaskedLM, HLMForSequenceClassification
from charlm.tasks.mlm import masked_char_sums
from charlm.text.chars import CLS, SEP, WORD_CLS

TESTS = Path(__file__).resolve().parents[1]
SHARED = TESTS.parents[1] / "shared" / "golden" / "hlm"
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
    return jax.jit(HLMForMaskedLM(config).init)(jax.random.key(0), batch)["params"]


# ---- Texts ----


def texts(rng: np.random.Generator, lengths: tuple[int, ...], words: int = 12, rate: float = 0.4) -> list[Sequence]:
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
        sequences.append(Sequence(chars, (labels * is_masked[:, None]).astype(np.uint16)))
    return sequences


def reshape_of(sequences: list[Sequence], words: int, slots: int = SLOTS) -> WordBatch:
    """Returns the sequences as the paper's plain reshape."""
    arrays = np.zeros((2, len(sequences), words, slots), np.uint16)
    for b, sequence in enumerate(sequences):
        arrays[0, b, : len(sequence.chars_WC), :SLOTS] = sequence.chars_WC
        arrays[1, b, : len(sequence.chars_WC), :SLOTS] = sequence.labels_WC
    return reshape_batch(*arrays)


def valid(batch: WordBatch, output, logits, sequences: list[Sequence]):
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


def outcome(batch: WordBatch, sequences: list[Sequence], config: HLMConfig = TINY):
    return valid(batch, *run(HLMForMaskedLM(config), parameters(config), batch), sequences)


def assert_same(got, want, atol: float = 1e-5) -> None:
    for name, a, b in zip(("r", "w", "logits"), got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=atol, err_msg=name)


TEXTS = texts(np.random.default_rng(0), (14, 3, 9, 1))


# ---- Equal to the released code ----


@functools.cache
def golden(case: str):
    """Returns configuration, state dict and arrays of a case of the released code."""
    if not SHARED.is_dir():
        pytest.skip(f"golden data of the released code not found at {SHARED}")
    meta = json.loads((SHARED / f"{case}.json").read_text())
    c = meta["config"]
    config = HLMConfig(
        wiring="reference" if c["use_projection"] else "paper",
        hidden=c["hidden_size"],
        heads=meta["hidden_heads_actually_used"],
        intra_layers=c["n_local_layer_first"],
        inter_layers=c["n_global_layer"],
        head_layers=c["n_local_layer_last"],
        intra_ffn=c["local_transformer_ff_size"],
        inter_ffn=c["transformer_ff_size"],
        max_relative_words=c["max_num_word"],
    )
    return config, load_file(SHARED / f"{case}.safetensors"), dict(np.load(SHARED / f"{case}.npz"))


def released_order(batch: WordBatch, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns logits and labels of the predicted characters, slot by slot, word by word, as the released code does."""
    labels_MC, position_M = batch.masked[0].labels_SMC[0], batch.masked[0].position_SM[0]
    m, c = np.nonzero(labels_MC)
    b, w = np.divmod(position_M[m], batch.index_SBW.shape[2])
    order = np.lexsort((b, w, c))
    return np.asarray(logits)[0][m, c - 1][order], labels_MC[m, c][order]


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.mean(np.asarray(jax.nn.log_softmax(logits))[np.arange(len(labels)), labels]))


@pytest.mark.parametrize("case", ["case1", "case3"])
def test_equals_the_released_code(case):
    config, state, z = golden(case)
    labels = np.where(z["predict_indices"], z["orig_input_ids"], 0)
    batch = reshape_batch(z["input_ids"].transpose(2, 1, 0), labels.transpose(2, 1, 0))
    output, (logits,) = run(HLMForMaskedLM(config), to_params(state), batch)
    mask = np.asarray(output.mask_NW)
    np.testing.assert_allclose(np.asarray(output.words_NWD)[mask], z["r"].transpose(1, 0, 2)[mask], atol=5e-5)
    np.testing.assert_allclose(np.asarray(output.context_NWD)[mask], z["w"].transpose(1, 0, 2)[mask], atol=5e-5)
    got, labels = released_order(batch, logits)
    np.testing.assert_array_equal(labels, z["labels"])
    np.testing.assert_allclose(got, z["mlm_logits"], atol=5e-5)
    np.testing.assert_allclose(cross_entropy(got, labels), z["mlm_loss"], atol=1e-5)


@pytest.mark.parametrize("case", ["case1", "case3"])
def test_classifier_equals_the_released_code(case):
    config, state, z = golden(case)
    params = to_params(state)
    head = {name.removeprefix("heads.seqcls."): leaf for name, leaf in state.items() if name.startswith("heads.seqcls")}
    label = {"kernel": head["label_layer.weight"].T, "bias": head["label_layer.bias"]}
    params = {"hlm": params["hlm"], "pooler": params["pooler"], "label": label}
    model = HLMForSequenceClassification(config, labels=3)
    logits = jax.jit(model.apply)({"params": params}, reshape_batch(z["orig_input_ids"].transpose(2, 1, 0)))
    np.testing.assert_allclose(logits, z["seqcls_logits"], atol=5e-5)


def state_and_arrays(file: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    z = np.load(TESTS / "goldens" / file)
    arrays = {name.removeprefix("out."): z[name] for name in z if name.startswith("out.")}
    return {name: z[name] for name in z if not name.startswith("out.")}, arrays


def test_paper_wiring_equals_the_released_code_from_the_golden_here():
    config = HLMConfig(
        hidden=64, heads=4, intra_layers=2, inter_layers=3, intra_ffn=96, inter_ffn=160, max_relative_words=1024
    )
    state, z = state_and_arrays("hlm_paper_wiring.npz")
    batch = reshape_batch(z["input_ids"].transpose(2, 1, 0), z["orig"].transpose(2, 1, 0))
    output, (logits,) = run(HLMForMaskedLM(config), to_params(state), batch)
    by_word = lambda x: np.asarray(x).transpose(1, 0, 2)[np.asarray(output.mask_NW).T]  # the golden's order of words
    np.testing.assert_allclose(by_word(output.words_NWD), z["r"], atol=5e-5)
    np.testing.assert_allclose(by_word(output.context_NWD), z["w"], atol=5e-5)
    got, labels = released_order(batch, logits)
    np.testing.assert_allclose(got[np.arange(len(got)), labels], z["label_logits"], atol=5e-5)
    np.testing.assert_allclose(got[z["full_at"]], z["full_logits"], atol=5e-5)
    np.testing.assert_allclose(cross_entropy(got, labels), z["loss"], atol=1e-5)


def test_reference_wiring_equals_the_released_head_from_the_golden_here():
    state, z = state_and_arrays("hlm_reference_head.npz")
    config = HLMConfig(wiring="reference", hidden=96, heads=12, intra_ffn=128, vocab_size=len(state["bias"]))
    rows = np.arange(len(z["chars"]), dtype=np.int32)[None]
    masked = MaskedWords(z["chars"][None], rows, rows, None)
    head = jax.jit(lambda p, *args: CharPredictionHead(config).apply({"params": p}, *args, deterministic=True))
    logits = np.asarray(head(to_params(state)["head"], z["context"][None], z["states"][None], masked))[0]
    m, c = np.nonzero(z["pred"])
    np.testing.assert_allclose(logits[m, c - 1], z["logits"][z["order"][m, c]], atol=5e-5)


def test_layer_norm_epsilon_is_the_released_one():
    """1e-5 instead of 1e-7 moves outputs by 1e-4: parity would be lost unseen at a loose tolerance."""
    state, z = state_and_arrays("hlm_paper_wiring.npz")
    config = HLMConfig(
        hidden=64, heads=4, intra_layers=2, inter_layers=3, intra_ffn=96, inter_ffn=160, epsilon=1e-5,
        max_relative_words=1024,
    )  # fmt: skip
    batch = reshape_batch(z["input_ids"].transpose(2, 1, 0)[1:])
    output = jax.jit(HLM(config).apply)({"params": to_params(state)["hlm"]}, batch)
    mask = (z["input_ids"][0] != 0).T
    flat = np.zeros((*mask.T.shape, 64), np.float32)
    flat[mask.T] = z["w"]
    assert np.abs(np.asarray(output.context_NWD) - flat.transpose(1, 0, 2)[1:])[mask[1:]].max() > 6e-5


# ---- Sizes ----


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (HLMForMaskedLM(HLMConfig()), 132_712_192),
        (HLMForMaskedLM(HLMConfig(wiring="reference")), 133_894_144),
        (HLMForSequenceClassification(HLMConfig(), labels=2), 125_031_170),  # the paper's "125M"
    ],
    ids=["paper", "reference", "classifier"],
)
def test_parameter_count_of_hlm_base(model, count):
    batch = reshape_batch(np.ones((1, 2, 3), np.int32), np.ones((1, 2, 3), np.int32))
    params = jax.eval_shape(model.init, jax.random.key(0), batch)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


@pytest.mark.parametrize(("hidden", "heads"), [(16, 3), (1024, 12)])
def test_width_that_heads_do_not_divide_is_refused(hidden, heads):
    with pytest.raises(ValueError, match=rf"model\.hidden={hidden} .* model\.heads={heads}"):
        HLMConfig(hidden=hidden, heads=heads)


# ---- The word table is the paper's reshape ----


BUCKETS = (2, 4, SLOTS)


@pytest.mark.parametrize("wiring", ["paper", "reference"])
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
    config = dataclasses.replace(TINY, intra_layers=1, max_relative_words=512, dtype=jnp.bfloat16)
    weight = jax.random.normal(jax.random.key(2), (1, 1, TINY.hidden))

    @jax.jit
    def gradient(params, batch):
        loss = lambda params: (HLM(config).apply({"params": params}, batch).context_NWD * weight).sum()
        grads = jax.grad(loss)(params)
        return jax.flatten_util.ravel_pytree([grads["embed"], grads["intra_word"]])[0]

    # The reshape adds up inside matrix products, in float32. Either is about 1 % off the gradient in float32, by
    # rounding to 8 bits a few times.
    want = gradient(parameters(TINY)["hlm"], reshape)
    got = gradient(parameters(TINY)["hlm"], table)
    assert 0 < np.linalg.norm(got - want) / np.linalg.norm(want) < 0.03


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
