"""Tests the count of floating-point operations: by hand, against the compiler, and as a share of a chip's peak."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from charlm.core.flops import TotalLengths, full_lengths, layer, lengths_of, peak
from charlm.core.optimizer import with_frozen, without_frozen
from charlm.data.word_batch import MaskedWords, WordBatch, reshape_batch
from charlm.families.char2subword.flops import char2subword_forward, character_masked_training
from charlm.families.char2subword.model import Char2SubwordBertConfig, Char2SubwordForMaskedLM
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.charbert.batch import CharBertBatch, NoisyBatch
from charlm.families.charbert.flops import charbert_forward, charbert_training
from charlm.families.charbert.heads import CharBertForMaskedLM
from charlm.families.charbert.model import CharBertConfig
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.flops import hlm_forward, hlm_training, lengths_of_batch
from charlm.families.hlm.model import HLM, HLMForMaskedLM
from charlm.families.spelled.batch import MaskedBatch, SpelledBatch
from charlm.families.spelled.masked_loss import masked_sums
from charlm.families.subword.bert import Bert, BertConfig
from charlm.families.subword.flops import bert_forward
from charlm.families.xrayemb.batch import LearnedWords, WrittenWords, XRayBatch
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.encoder import XREncoderConfig
from charlm.families.xrayemb.flops import xr_decoder_forward, xr_encoder_forward, xray_training
from charlm.families.xrayemb.loss import LOSSES
from charlm.families.xrayemb.model import XRayEmbBertConfig

CONFIG = HLMConfig(
    vocab_size=300, hidden=192, heads=4, intra_layers=3, inter_layers=2, head_layers=1, intra_ffn=384, inter_ffn=768,
    char_slots=12, position_buckets=16, max_relative_words=64,
)  # fmt: skip


def words(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 300, shape).astype(np.uint16)


def masked_batch(table: int = 64, masked: int = 24, labels: int = 32) -> WordBatch:
    """A full batch: no position of it is padding, but for the slot 0 of labels."""
    label_SMC = words((1, labels, 12), 1)
    label_SMC[..., 0] = 0
    index = np.arange(labels, dtype=np.int32)[None]
    bucket = MaskedWords(words((1, masked, 12), 2), index, index % masked, label_SMC)
    return WordBatch((words((1, table, 12)),), (bucket,), np.zeros((1, 4, 32), np.int32), np.ones((1, 4, 32), bool))


def compiled(function, *arguments) -> float:
    """Returns the operations that the compiler counts."""
    return jax.jit(function).lower(*arguments).cost_analysis()["flops"]


def test_a_layer_by_hand():
    # 5 tokens, 2 of them ask: K, V: 5 x 2 products [4, 4]; Q, output: 2 x 2; feed-forward: 2 x ([4, 8] and [8, 4]).
    dense = 2 * (5 * 2 * 16 + 2 * 2 * 16 + 2 * 2 * 32)
    # 10 pairs: a score, two relative ones and the mixing, of width 4.
    assert layer(5, 2, 10, hidden=4, ffn=8, buckets=3) == dense + 10 * 4 * 2 * 4
    assert layer(5, 2, 10, hidden=4, ffn=8) == dense + 10 * 2 * 2 * 4
    # Two sequences of 5 in all, 13 pairs, but two positions for each word: 10 scores a relative term.
    assert layer(5, 2, 13, hidden=4, ffn=8, buckets=1) == dense + (13 * 2 + 10 * 2) * 2 * 4


def test_lengths_are_those_of_what_is_real():
    real = np.array([[[1, 1, 1], [0, 0, 0]], [[7, 0, 0], [2, 9, 0]]])
    assert lengths_of(real) == TotalLengths(3, 3 + 1 + 2, 9 + 1 + 4)
    assert full_lengths(real) == TotalLengths(4, 12, 36)
    batch = masked_batch()
    assert lengths_of_batch(batch) == lengths_of_batch(batch, padded=True)
    batch.masked[0].labels_SMC[0, 3:] = 0
    assert lengths_of_batch(batch).labels == TotalLengths(3, 3 * 12, 3 * 144)
    batch.chars[0][0, :, 5:] = 0
    assert lengths_of_batch(batch).table == TotalLengths(64, 64 * 5, 64 * 25)


def test_words_that_repeat_are_counted_once_and_padding_never():
    batch = masked_batch()
    assert hlm_training(CONFIG, batch) == 3 * hlm_forward(CONFIG, lengths_of_batch(batch))
    more = batch._replace(chars=(np.concatenate([batch.chars[0], np.zeros((1, 9, 12), np.uint16)], axis=1),))
    assert hlm_training(CONFIG, more) == hlm_training(CONFIG, batch)
    stacked = jax.tree.map(lambda x: np.stack([x, x, x]), batch)  # accumulation
    assert hlm_training(CONFIG, stacked) == 3 * hlm_training(CONFIG, batch)


@pytest.mark.parametrize("change", [{}, {"wiring": "reference"}, {"aggregation": "mean"}, {"head_transform": False}])
def test_the_compiler_counts_as_much(change):
    config = HLMConfig(**{**vars(CONFIG), **change})
    batch = masked_batch()
    model = HLMForMaskedLM(config)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), batch))["params"]
    counted = compiled(lambda p, b: model.apply({"params": p}, b), params, batch)
    assert 0.8 < hlm_forward(config, lengths_of_batch(batch)) / counted < 1.0
    if change:
        return  # a step is three times what was counted just now, whatever the model

    def loss(p, b):
        return sum(x.sum() for x in model.apply({"params": p}, b))

    assert 0.75 < hlm_training(config, batch) / compiled(jax.grad(loss), params, batch) < 1.05


def test_the_compiler_counts_as_much_for_an_encoder_alone_and_for_bert():
    batch = reshape_batch(words((2, 40, 12)))
    model = HLM(CONFIG)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), batch))["params"]
    counted = compiled(lambda p, b: model.apply({"params": p}, b).context_NWD, params, batch)
    assert 0.8 < hlm_forward(CONFIG, lengths_of_batch(batch)) / counted < 1.0
    far = HLMConfig(**{**vars(CONFIG), "position_buckets": 8, "max_relative_words": 32, "intra_layers": 1})
    long = reshape_batch(words((1, 600, 3)))
    params = jax.eval_shape(lambda: HLM(far).init(jax.random.key(0), long))["params"]
    counted = compiled(lambda p, b: HLM(far).apply({"params": p}, b).context_NWD, params, long)
    assert 0.8 < hlm_forward(far, lengths_of_batch(long)) / counted < 1.0
    config = BertConfig(vocab_size=100, hidden=256, layers=3, heads=4, ffn=1024, pooler=False)
    ids = np.ones((3, 50), np.int32)
    bert = Bert(config)
    params = jax.eval_shape(lambda: bert.init(jax.random.key(0), ids))["params"]
    counted = compiled(lambda p, i: bert.apply({"params": p}, i).states_BLD, params, ids)
    assert 0.9 < bert_forward(config, full_lengths(ids)) / counted < 1.0


def test_charbert_costs_what_its_paper_implies():
    """Two passes, and two linear layers and a convolution over three tokens in each layer: 2.7 times BERT."""
    released = CharBertConfig(fusion="reference", windows=(3,))
    words = TotalLengths(32, 32 * 53, 32 * 53)  # pairs left out, as in 12 D^2 a token and layer
    bert = bert_forward(BertConfig(), words)
    assert charbert_forward(released, words, 0) / bert == pytest.approx(32 / 12, rel=0.01)
    characters = charbert_forward(released, words, 6 * words.total) - charbert_forward(released, words, 0)
    assert characters / bert == pytest.approx(0.036, abs=0.003)


@pytest.mark.parametrize("change", [{}, {"fusion": "reference", "windows": (3,)}, {"fusion": "none"}, {"nlm": False}])
def test_the_compiler_counts_as_much_for_charbert(change):
    # It counts what a loop does once only, so there is no GRU.
    fields = {"vocab_size": 300, "hidden": 256, "layers": 2, "heads": 4, "ffn": 1024, "word_vocab_size": 500}
    fields |= {"char_vocab_size": 50, "char_hidden": 128, "char_encoder": "embedding", "pooler": False}
    config = CharBertConfig(**fields | change)
    ids, slots = np.ones((4, 60), np.int32), np.ones((4, 360), np.int32)
    inputs = CharBertBatch(ids, None, np.ones((4, 60), bool), slots, ids, ids)
    batch = NoisyBatch(
        inputs, np.zeros((1, 24), np.int32), np.ones((1, 24)), np.zeros((1, 60), np.int32), np.ones((1, 60))
    )
    positions = (batch.mlm_position_SM, batch.nlm_position_SP)
    model = CharBertForMaskedLM(config)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), inputs, *positions))["params"]

    def logits(params, inputs):
        output = model.apply({"params": params}, inputs, *positions)
        return output.mlm_logits_SMV, output.nlm_logits_SPT

    ours = charbert_training(config, batch) / 3
    assert 0.85 < ours / compiled(logits, params, inputs) < 1.05
    half = batch._replace(inputs=inputs._replace(mask_BL=np.arange(60) < np.full((4, 1), 30)))
    assert charbert_training(config, half) < 0.6 * charbert_training(config, batch)


def test_the_compiler_counts_as_much_for_contextual_pre_training():
    """The whole step's gradient: the frozen transformer passes it on, and its matrices have none."""
    characters = Char2SubwordConfig(char_vocab_size=50, hidden=128, layers=2, heads=4, output=256, char_slots=12)
    shape = {"vocab_size": 3000, "hidden": 256, "layers": 2, "heads": 4, "ffn": 1024, "max_positions": 64}
    config = Char2SubwordBertConfig(**shape, pooler=False, characters=characters)
    rng = np.random.default_rng(0)
    none = np.zeros((1, 4, 60), np.int32)
    index = rng.integers(0, 100, (1, 4, 60)).astype(np.int32)
    chars = rng.integers(8, 50, (1, 100, 12)).astype(np.uint16)
    inputs = SpelledBatch((chars,), index, none - 1, none, np.ones((1, 4, 60), bool))
    position = np.arange(36, dtype=np.int32)[None]
    batch = MaskedBatch(inputs, position, position)
    model = Char2SubwordForMaskedLM(config)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), inputs))["params"]
    frozen = ("^(bert|head)/",)
    loss = lambda own, params: masked_sums(model, with_frozen(own, params), batch, None).nats
    ours = character_masked_training(config, batch)
    assert 0.85 < ours / compiled(jax.grad(loss), without_frozen(params, frozen), params) < 1.05
    # By hand: with nothing to predict, twice the transformer, and attention's products a third time.
    lengths = TotalLengths(4, 240, 4 * 60**2)
    unasked = batch._replace(labels_SM=np.full((1, 36), -1))
    module = 3 * char2subword_forward(characters, TotalLengths(100, 1200, 100 * 144))
    pairs = 2 * 2 * 2 * lengths.squares * 256
    assert character_masked_training(config, unasked) == module + 2 * bert_forward(config, lengths) + pairs
    assert ours - character_masked_training(config, unasked) == 2 * 2 * 36 * 256 * (256 + 3000)


def test_an_xrayemb_by_hand():
    """A convolution costs what the rows of the table do where these are fewer; else what the characters do."""
    words = TotalLengths(10, 60, 400)
    conv = XREncoderConfig(char_vocab_size=20, char_embedding=6, hidden=5, output=8, projections=2)
    dense = 2 * 10 * (15 * 8 + 8 * 8)
    assert xr_encoder_forward(conv, words) == dense + 2 * 20 * (2 + 3 + 4) * 6 * 5
    many = dataclasses.replace(conv, char_vocab_size=99)
    assert xr_encoder_forward(many, words) == dense + 2 * 60 * (2 + 3 + 4) * 6 * 5
    lstm = dataclasses.replace(conv, kind="lstm", layers=2)
    assert xr_encoder_forward(lstm, words) == 2 * 60 * 2 * 20 * (6 + 5 + 10 + 5) + 2 * 10 * (10 * 10 + 10 * 8)
    decoder = XRDecoderConfig(char_vocab_size=20, char_embedding=6, hidden=5, layers=2, vector=8)
    steps = 2 * 20 * (6 + 5 + 5 + 5) + 2 * 19 * (5 + 19)
    assert xr_decoder_forward(decoder, 10, 50) == 10 * 2 * 8 * 2 * 5 + 50 * steps


def test_an_xrayemb_step_costs_what_it_computes():
    """Each loss adds its own; a step without cycles costs less, and padding nothing."""
    encoder = XREncoderConfig(char_vocab_size=20, char_embedding=6, hidden=5, output=8, char_slots=4)
    decoder = XRDecoderConfig(char_vocab_size=20, char_embedding=6, hidden=5, layers=2, vector=8, char_slots=4)
    shape = {"vocab_size": 30, "hidden": 8, "layers": 1, "heads": 2, "ffn": 16, "max_positions": 16, "pooler": False}
    config = XRayEmbBertConfig(**shape, encoder=encoder, generator=decoder)
    chars = np.array([[[19, 3, 19, 0], [19, 3, 4, 19], [0, 0, 0, 0]]], np.uint16)
    none = np.zeros((1, 2, 6), np.int32)
    inputs = SpelledBatch((chars,), none, none, none, np.ones((1, 2, 6), bool))
    labels = np.array([[4, 5, -1]])
    learned = LearnedWords(labels, labels[..., None])
    tables = chars[:, :1, :3], np.concatenate([chars[:, 1:], 0 * chars], axis=1)
    batch = XRayBatch(inputs, labels, labels, learned, (WrittenWords(labels, chars),), tables, labels >= 0)
    alone = {name: {**dict.fromkeys(LOSSES, 0.0), name: 1.0} for name in LOSSES}
    spelled, words = xr_encoder_forward(encoder, TotalLengths(2, 7, 25)), TotalLengths(2, 12, 72)
    written = xr_decoder_forward(decoder, 2, 5)
    costs = {name: xray_training(config, batch, weights) - 3 * spelled for name, weights in alone.items()}
    assert costs == {
        "language": 3 * (bert_forward(config, words) + 2 * 2 * 8 * (8 + 30)),
        "embedding": 0,
        "generation": 3 * (bert_forward(config, words) + written),
        "cycle_words": 3 * (spelled + written),
        "cycle_sphere": 3 * spelled + written,
    }
    quiet = batch._replace(cycle=(0 * chars,), points_SK=labels < -1)
    assert xray_training(config, quiet, alone["cycle_words"]) == 3 * spelled


def test_peaks_are_known_by_the_name_of_the_device():
    assert peak("NVIDIA H200", "bfloat16") == 989e12
    assert peak("NVIDIA H100 PCIe", "bfloat16") == 756e12
    assert peak("NVIDIA L40S", "bfloat16") == 362e12
    assert peak("TPU v5 lite", "bfloat16") == 197e12
    assert peak("TPU v5", "bfloat16") == 459e12
    assert peak("NVIDIA H100 NVL", "bfloat16") == 835e12
    assert peak("NVIDIA H100 80GB HBM3", "bfloat16") == 989e12
    assert peak("NVIDIA A100-SXM4-80GB", "bfloat16") == 312e12
    assert peak("TPU v6 lite", "bfloat16") == 918e12
    for other in ("NVIDIA A10G", "NVIDIA L40", "NVIDIA RTX A1000", "TPU v7"):
        assert peak(other, "bfloat16") is None, other
    assert peak("NVIDIA H200", "float32") is None
    assert peak("cpu", "bfloat16") is None
