"""Tests the paths of the benchmark: HLM's four paths agree, training masks are the same, and the peers run."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmark_jobs import small_job

from charlm.benchmark import worker
from charlm.benchmark.bert import BertInference, BertTraining
from charlm.benchmark.hlm import HLMInference, HLMTraining
from charlm.benchmark.paths import PATHS, TRAINING, UNPADDED, choose
from charlm.benchmark.text import PAIR, TextShape


def test_the_four_ways_of_hlm_give_the_same_vectors(tmp_path):
    found, work = {}, {}
    for path in ("reshape", "table", "cache_cold", "cache_warm"):
        job = small_job(tmp_path, path, shape=TextShape(4, 14))
        runner = HLMInference(job)
        host = runner.tokenise(job.texts[0], 14)
        runner.run(host)
        runner.forget()
        found[path] = np.asarray(runner.run(host))[:4]
        work[path] = runner.work(host)
        assert 0 < work[path]["useful_gflop"] <= work[path]["padded_gflop"]
        stats = runner._cache.stats
        expected = {"cache_cold": 0, "cache_warm": stats.words}.get(path, 0)
        assert stats.hits == expected  # cold: the second run finds nothing of the first one
    assert work["reshape"]["useful_gflop"] == work["table"]["useful_gflop"] == work["cache_cold"]["useful_gflop"]
    assert work["cache_warm"]["useful_gflop"] < work["cache_cold"]["useful_gflop"]
    assert found["reshape"].shape == (4, 14, 32)
    assert found["reshape"].std() > 0.1
    for path in ("table", "cache_cold", "cache_warm"):
        np.testing.assert_allclose(found[path], found["reshape"], atol=1e-5, rtol=0)


def guessed(batch):
    """Returns the masked positions of a batch [accumulation, S, ...] and the characters to be predicted there."""
    found = []
    for bucket in batch.masked:
        real = bucket.labels_SMC.any(axis=-1)
        found += zip(bucket.position_SM[real].tolist(), bucket.labels_SMC[real], strict=True)
    return sorted((position, labels[labels != 0].tobytes()) for position, labels in found)


def test_training_guesses_the_same_words_by_table_and_reshape(tmp_path):
    found, work = {}, {}
    for path in ("reshape", "table", "table_remat"):
        job = small_job(tmp_path, path, TRAINING, TextShape(4, 20))
        runner = HLMTraining(job)
        batch = runner.pack(runner.tokenise(job.texts[0], 20))
        found[path] = guessed(batch)
        work[path] = runner.work(batch)
        assert runner.config.model.remat == path.endswith("_remat")
        assert runner.tokens(batch) == (20.0, 20)
    assert work["reshape"]["useful_gflop"] == work["table"]["useful_gflop"] == work["table_remat"]["useful_gflop"]
    assert work["reshape"]["padded_gflop"] > work["table"]["padded_gflop"] > work["table"]["useful_gflop"]
    assert len(found["reshape"]) == pytest.approx(0.15 * 4 * 18, abs=3)
    assert found["table"] == found["table_remat"] == found["reshape"]
    assert runner.about["budgets"] == "measured, as in training"


def test_drawn_texts_are_padded_and_padding_changes_nothing(tmp_path):
    shape = TextShape(4, 14)
    alone = {}
    for path in ("reshape", "table", "cache_cold"):
        job = small_job(tmp_path, path, shape=shape, drawn=True)
        runner = HLMInference(job)
        host = runner.tokenise(job.texts[0], job.words[0])
        assert runner.tokens(host) == (14.0, 21)
        words_B = (host[..., 0] != 0).sum(axis=1)
        assert words_B.tolist() == shape.drawn_lengths()
        states = np.asarray(runner.run(host))
        for b, words in enumerate(words_B):
            if path == "reshape":
                alone[b] = np.asarray(runner.run(host[b : b + 1, :words]))[0]
            np.testing.assert_allclose(states[b, :words], alone[b], atol=1e-5, rtol=0)
        work = runner.work(host)
        assert work["padded_gflop"] > 1.2 * work["useful_gflop"]  # padding is computed and is no use


@pytest.mark.slow
def test_training_on_drawn_texts_guesses_the_same_words(tmp_path):
    found, work, shape = {}, {}, TextShape(6, 20)
    for path in ("reshape", "table"):
        job = small_job(tmp_path, path, TRAINING, shape, drawn=True)
        runner = HLMTraining(job)
        batch = runner.pack(runner.tokenise(job.texts[0], job.words[0]))
        assert runner.tokens(batch) == (20.0, 30)
        assert batch.mask_SBW.reshape(-1, 30).sum(axis=1).tolist() == shape.drawn_lengths()
        found[path], work[path] = guessed(batch), runner.work(batch)
        if path == "reshape":
            runner.warm(batch)
            assert 0 < float(runner.run(batch).nats) < float("inf")
    assert runner.about["budgets"] == "measured, as in training"
    assert found["table"] == found["reshape"]
    assert work["reshape"]["useful_gflop"] == work["table"]["useful_gflop"] < work["table"]["padded_gflop"]
    # Budgets are those of batches with so many words, not of full sequences: a full batch is half as large again.
    full = HLMTraining(small_job(tmp_path, "table", TRAINING, TextShape(6, 30)))
    guessed_rows = lambda batch: sum(bucket.labels_SMC.shape[-2] for bucket in batch.masked)
    assert guessed_rows(batch) < guessed_rows(full.pack(full.tokenise(full.job.texts[0], 30)))


def values(tree):
    """Returns how many numbers a tree of arrays holds."""
    return sum(x.size for x in jax.tree.leaves(tree))


class Watched:
    """A model that notes how it is applied, and the shapes of its logits."""

    def __init__(self, model):
        self._model, self.logits, self.options = model, [], []

    def __getattr__(self, name):
        return getattr(self._model, name)

    def apply(self, *args, **options):
        output = self._model.apply(*args, **options)
        self.logits.append(output.logits.shape)
        self.options.append(options)
        return output


@pytest.mark.slow
def test_a_training_step_moves_the_weights(tmp_path):
    job = small_job(tmp_path, "reshape", TRAINING)
    runner = HLMTraining(job)
    host = runner.pack(runner.tokenise(job.texts[0], 14))
    runner.warm(host)
    before = jax.tree.map(np.asarray, runner._state.params)
    assert float(runner.run(host).nats) > 0
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (before, runner._state.params)), strict=True))
    assert int(runner._state.step) == 2  # the warm-up and this one
    # The work of a run: AdamW with two numbers a weight, and dropout, another one in every step.
    state = jax.tree.map(np.array, runner._state)
    assert values(state.opt_state) >= 2 * values(state.params)
    losses = []
    for step in (5, 6, 5):
        runner._state = jax.tree.map(jnp.array, state._replace(step=np.int32(step)))
        losses.append(float(runner.run(host).nats))
    assert losses[0] == losses[2] != losses[1]


def test_a_batch_beyond_the_measured_budgets_says_so(tmp_path, monkeypatch):
    job = small_job(tmp_path, "table", TRAINING, TextShape(4, 20), budget_texts=[["a a a a a a a a"]])
    runner = HLMTraining(job)
    batch = runner.pack(runner.tokenise(job.texts[0], 20))
    assert runner.about["budgets"] == "this batch's own: it does not fit the measured ones"
    assert batch.mask_SBW.sum() == 80


def test_our_bert_reads_no_padding_and_learns(tmp_path):
    job = small_job(tmp_path, "bert", shape=TextShape(2, 14))
    job.texts = [[job.texts[0][0], "the cat"]]
    runner = BertInference(job)
    ids_BL, mask_BL = runner.tokenise(job.texts[0], 14)
    assert runner.tokens((ids_BL, mask_BL))[1] == ids_BL.shape[1] == mask_BL.sum(axis=1).max()
    states = runner.run((ids_BL, mask_BL))
    alone = runner.run((ids_BL[1:, :4], mask_BL[1:, :4]))
    np.testing.assert_allclose(states[1, :4], alone[0], atol=1e-5)
    training = BertTraining(small_job(tmp_path, "bert", TRAINING, TextShape(3, 24), drawn=True))
    host = training.tokenise(training.job.texts[0], 14)
    training._model = Watched(training._model)
    training.warm(host)
    assert np.isfinite(training.run(host))
    assert int(training._state[2]) == 2  # the warm-up and this one
    # No logits but where something is masked; no padding that the longest text does not need.
    assert {shape[:2] for shape in training._model.logits} == {host.positions_BM.shape}
    assert host.mask_BL.sum(axis=1).max() == host.ids_BL.shape[1]
    # As HLM: AdamW, and dropout, another one in every step. The loss is the mean of the masked pieces alone.
    state = jax.tree.map(np.array, training._state)
    assert values(state[1]) >= 2 * values(state[0])
    assert training.about["parameters_dtype"] == "float32"

    def loss(step=5, **fields):
        training._state = jax.tree.map(jnp.array, (*state[:2], np.int32(step)))
        return float(training.run(host._replace(**fields)))

    none_BM = host.weight_BM == 0
    assert none_BM.any()  # shorter texts have fewer of them
    assert loss() == loss(labels_BM=np.where(none_BM, 7, host.labels_BM)) != loss(step=6)
    assert loss() == pytest.approx(loss(weight_BM=2 * host.weight_BM), rel=1e-6)
    assert loss() == pytest.approx(np.log(training._model.config.vocab_size), rel=0.1)


@pytest.mark.parametrize("path", ["cache_warm", "cache_cold", "bert"])
def test_unpadded_paths_compute_the_same_with_less_padding(tmp_path, path):
    kind, states, padded_to = BertInference if path == "bert" else HLMInference, [], []
    for name in (path, path + UNPADDED):
        job = small_job(tmp_path, name, shape=TextShape(12, 30), drawn=True)
        runner = kind(job)
        host = runner.tokenise(job.texts[0], job.words[0])
        states.append(runner.run(host))
        padded_to.append(runner.tokens(host)[1])
        assert runner.program(host)
    assert padded_to[1] < padded_to[0]
    padded_BLD, calls = np.asarray(states[0]), [np.asarray(call_BLD) for call_BLD in states[1]]
    rows = np.concatenate([call_BLD.reshape(-1, call_BLD.shape[-1]) for call_BLD in calls])
    lengths = (host[1] if path == "bert" else host[..., 0] != 0).sum(axis=1)
    for text_LD, length in zip(padded_BLD, lengths, strict=True):  # every word has the state that it has when padded
        for state_D in text_LD[:length]:
            assert np.abs(rows - state_D).max(axis=1).min() < 1e-5


def test_one_run_has_wall_and_processor_seconds(tmp_path):
    job = small_job(tmp_path, "table")
    runner, hosts = worker.prepare(job)
    times = worker.go(runner, job, hosts, 0)
    assert set(times) == {"seconds", "cpu_seconds", "tokenise_seconds", "tokenise_cpu_seconds"}
    assert all(seconds > 0 for seconds in times.values())
    job.case = TRAINING  # there, masking is random: only packing and the step count
    assert set(worker.go(runner, job, hosts, 0)) == {"seconds", "cpu_seconds", "pack_seconds", "pack_cpu_seconds"}


def test_peers_that_are_not_installed_are_left_out_with_a_reason(monkeypatch):
    for package in ("torch", "transformers", "onnx", "onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    names, reasons = choose("inference", (), False, "")
    unpadded = ["cache_cold_unpadded", "cache_warm_unpadded"]
    assert names == [
        "reshape",
        "table",
        "cache_cold",
        "cache_warm",
        *unpadded,
        "bert",
        "bert_unpadded",
        "characterbert",
    ]
    exported = {n for n, info in PATHS.items() if info.module == "onnx_peers"}
    assert set(reasons) == {"hf_bert", "hf_bert_sorted", "canine", "byt5", "authors_hlm"} | exported
    said = 'torch and transformers are not installed: pip install -e ".[torch]" transformers'
    assert all(why.startswith("torch") and said in why for why in (reasons["hf_bert"], reasons["canine"]))
    assert all("torch" in why and "pip install" in why for why in reasons.values())
    names, _ = choose(TRAINING, (), True, "")
    assert names == ["reshape", "table", "reshape_remat", "table_remat", "bert"]


@pytest.mark.torch
def test_peers_read_what_their_tokenizers_give(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from charlm.benchmark.peers import code_points, utf8_bytes

    texts = ["naïve cat", "日本 🙂 it's"]
    for ours, tokenizer in (
        (code_points(texts, 4), transformers.CanineTokenizer()),
        (utf8_bytes(texts), transformers.ByT5Tokenizer()),
    ):
        for text, ids, mask in zip(texts, *ours, strict=True):
            assert ids[mask].tolist() == tokenizer(text)["input_ids"]
    pairs = [PAIR.join(texts), PAIR.join(reversed(texts))]
    for ours, tokenizer in (
        (code_points(pairs, 4), transformers.CanineTokenizer()),
        (utf8_bytes(pairs), transformers.ByT5Tokenizer()),
    ):
        for pair, ids, mask in zip(pairs, *ours, strict=True):
            assert ids[mask].tolist() == tokenizer(*pair.split(PAIR))["input_ids"]
    assert code_points(texts, 4)[0].shape[1] == 12  # 11 code points, to a multiple of four
    assert utf8_bytes(texts)[0].shape[1] == utf8_bytes(texts)[1].sum(axis=1).max()


@pytest.mark.torch
@pytest.mark.parametrize("name", [n for n, info in PATHS.items() if info.module == "peers"])
def test_peers_run_and_read_no_padding(tmp_path, name):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from charlm.benchmark import peers

    job = small_job(tmp_path, name, shape=TextShape(2, 14))
    job.texts = [[job.texts[0][0], "the cat"]]
    runner = peers.make(job)
    ids_BL, mask_BL = runner.tokenise(job.texts[0], 14)
    runner.warm((ids_BL, mask_BL))
    assert runner.about["torch_compile"] == ["not tried"]
    assert runner.about["attention"] == ("eager" if name == "canine" else "sdpa")
    states = runner.run((ids_BL, mask_BL))
    ids_BL[1, mask_BL[1].sum() :] = 7  # what stands in the padding makes no difference
    again = runner.run((ids_BL, mask_BL))
    length = int(mask_BL[1].sum())
    if name == "hf_bert_sorted":  # one call, in which the shorter text comes first
        (states,), (again,) = ([one.flip(0) for one in found] for found in (states, again))
    if name != "canine":  # its strided convolution sees the padding beside the last characters
        np.testing.assert_allclose(again[1, :length].numpy(), states[1, :length].numpy(), atol=1e-5)
    assert states.shape[:2] == ids_BL.shape


@pytest.mark.torch
def test_a_step_of_pytorchs_bert_moves_its_weights(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from charlm.benchmark import peers

    runner = peers.make(small_job(tmp_path, "hf_bert", TRAINING))
    host = runner.tokenise(runner.job.texts[0], 14)
    before = [p.detach().clone() for p in runner.model.parameters()]
    assert np.isfinite(float(runner.run(host)))
    moved = [bool((a != b).any()) for a, b in zip(before, runner.model.parameters(), strict=True)]
    assert sum(moved) > 0.9 * len(moved)
    assert runner.model.training
