"""Tests that the benchmark does not favour charlm: the inputs of every path, what is timed, and PyTorch's set-up."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import types
from pathlib import Path

import jax.numpy as jnp
import pytest
from benchmark_jobs import CONFIG, NO_JOB, Clock, small_job
from small_run import write_text

from charlm.benchmark import bert, cases, hlm, spelled, worker
from charlm.benchmark.bert import BertInference, BertTraining
from charlm.benchmark.generator import decoder_config
from charlm.benchmark.hlm import HLMInference, hlm_config
from charlm.benchmark.paths import FULL_MODE, GENERATOR, INFERENCE, JOINED, PAGES, PATHS, TRAINING, Job, Runner, threads
from charlm.benchmark.rounds import WorkerAnswers, measure
from charlm.benchmark.spelled import FullMode, JoinedWords, SubwordTable
from charlm.config import load_config_file
from charlm.families.char2subword.tensors import bert_config
from charlm.families.hlm.config import model_config
from charlm.families.subword.bert import BertConfig
from charlm.families.xrayemb.decoder import XRDecoderConfig

EVERY_PATH = [(name, case) for name, info in PATHS.items() for case in info.cases]


class Noted(Runner):
    """Notes what it is asked for, each of which takes another time."""

    def __init__(self, job: Job, clock: Clock) -> None:
        super().__init__(job)
        self.clock, self.calls, self.made = clock, [], 0

    def _note(self, what: str, seconds: float) -> None:
        self.calls.append(what)
        self.clock.now += seconds

    def tokenise(self, texts, words):
        self._note("tokenise", 1)
        self.made += 1
        return f"text {self.made}"

    def pack(self, host):
        self._note(f"pack {host}", 2)
        self.made += 1
        return f"{host}, packed {self.made}"

    def forget(self):
        self._note("forget", 4)

    def run(self, host):
        self._note(f"run {host}", 8)

    def warm(self, host):
        self._note(f"warm {host}", 16)

    def tokens(self, host):
        return 4.0, 4


@pytest.mark.parametrize(("path", "case"), EVERY_PATH)
def test_every_path_is_warmed_and_timed_alike(monkeypatch, path, case):
    job, clock = dataclasses.replace(NO_JOB, path=path, case=case), Clock()
    products = []
    module = types.SimpleNamespace(
        make=lambda job: Noted(job, clock), bare_product=lambda dtype: products.append(dtype) or 5.0
    )
    monkeypatch.setattr(worker.importlib, "import_module", lambda name: module)
    monkeypatch.setattr(worker, "time", clock)
    runner, hosts = worker.prepare(job)
    assert runner.calls == ["tokenise", "forget", "pack text 1", "warm text 1, packed 2"]
    assert (products, runner.about["product_gflop"]) == ([job.dtype], 5.0)  # once, and not in the timed runs
    for _ in range(2):  # a second run does all of it again
        made = runner.made
        runner.calls.clear()
        times = worker.go(runner, job, hosts, 0)
        if case == INFERENCE:
            text = f"text {made + 1}"
            expected = ["tokenise", f"pack {text}", "forget", f"run {text}, packed {made + 2}"]
            timed = {"tokenise_seconds": 1, "tokenise_cpu_seconds": 2}
        else:
            expected = ["pack text 1", "forget", f"run text 1, packed {made + 1}"]
            timed = {"pack_seconds": 2, "pack_cpu_seconds": 4} if case == TRAINING else {}
        assert runner.calls == expected
        assert times == {"seconds": 8, "cpu_seconds": 16} | timed


@pytest.mark.parametrize("case", [*cases.CASES])
def test_every_path_has_the_same_job(monkeypatch, tmp_path, case):
    found = {}

    def take(commands, *more):
        for name, command in commands.items():
            under = {"huge_pages": ["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"],
                     "usual_pages": ["env", "-u", "GLIBC_TUNABLES"]}.get(name, [])  # fmt: skip
            assert command[:-1] == [*under, sys.executable, "-m", "charlm.benchmark.worker"]
            found[name] = (json.loads(Path(command[-1]).read_text()), more)
        return WorkerAnswers()

    monkeypatch.setattr(cases, "measure", take)
    runners = cases.RUNNERS_OF.get(case, case)
    paths = tuple(name for name, info in PATHS.items() if runners in info.cases)
    text = str(write_text(tmp_path / "text.txt"))
    settings = cases.BenchmarkSettings(CONFIG, text, 3, paths, batch=2, words=12, lengths=(6, 12), remat=True)
    cases.run(case, settings)
    assert set(found) == set(paths)
    for name, (job, more) in found.items():
        assert job.pop("path") == name
        assert (job["smoke"], job["dtype"], job["compile"]) == (False, "float32", case != cases.MEMORY)
        batches, rounds = (1, cases.MEMORY_RUNS) if case == cases.MEMORY else (2 if case == cases.SCALING else 1, 3)
        assert more[:2] == (batches, rounds)
        if runners in (TRAINING, PAGES):  # budgets of so many batches, not of the one that is measured
            budget = sum(len(text.split()) for texts in job["budget_texts"] for text in texts)
            assert budget > 12 * sum(len(text.split()) for text in job["texts"][0])
    first, *others = (job for job, _ in found.values())
    assert all(job == first for job in others)


@pytest.mark.parametrize(("dtype", "expected"), [("float32", {"bert", "onnx_bert"}), ("bfloat16", {"bert"})])
def test_onnxruntime_is_left_out_where_it_cannot_compute(monkeypatch, tmp_path, dtype, expected):
    found = set()
    monkeypatch.setattr(cases, "measure", lambda commands, *_: found.update(commands) or WorkerAnswers())
    monkeypatch.setattr(cases, "choose", lambda *_: (["bert", "onnx_bert"], {}))
    text = str(write_text(tmp_path / "text.txt"))
    cases.run(INFERENCE, cases.BenchmarkSettings(CONFIG, text, 1, batch=2, words=12, dtype=dtype))
    assert found == expected


ENVIRONMENT = """
import json, os, sys
print(json.dumps({"ready": dict(os.environ), "tokens": [[1.0, 1]], "work": None}), flush=True)
for line in sys.stdin:
    answer = {"peak_mib": 1} if line.startswith("quit") else {"seconds": 1.0, "cpu_seconds": 1.0}
    print(json.dumps(answer), flush=True)
"""


def test_every_process_has_the_environment_of_its_parent():
    measured = measure({name: [sys.executable, "-c", ENVIRONMENT] for name in ("table", "bert", "hf_bert")}, 1, 1)
    ours, *theirs = measured.ready.values()
    assert all(found == ours for found in theirs)
    added = {name: value for name, value in ours.items() if os.environ.get(name) != value}
    added.pop("LC_CTYPE", None)  # Python's own
    assert added == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    assert set(os.environ) <= set(ours)


def test_all_processors_that_the_process_may_use_are_used(monkeypatch):
    if hasattr(os, "sched_getaffinity"):
        assert threads() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert threads() == os.cpu_count()


class Waited:
    """A result that notes whether somebody waits for it."""

    def __init__(self) -> None:
        self.ready = False

    def block_until_ready(self):
        self.ready = True
        return self


def test_inference_packs_in_every_run_and_waits(tmp_path, monkeypatch):
    done = []
    for name in ("pack_all", "reshape_batch"):
        original = getattr(hlm, name)
        noted = lambda *args, original=original, name=name: (done.append(name), original(*args))[1]
        monkeypatch.setattr(hlm, name, noted)
    job = small_job(tmp_path, "table")
    runner = HLMInference(job)
    host = runner.tokenise(job.texts[0], 14)
    runner._cache.read = lambda *args: done.append("read")
    runner._forward = runner._context = lambda *inputs: Waited()
    packing = {"table": "pack_all", "reshape": "reshape_batch", "cache_cold": "read", "cache_warm": "read"}
    for runner.path, expected in packing.items():
        for _ in range(2):
            done.clear()
            assert runner.run(runner.pack(host)).ready
            assert done == [expected]


def test_training_waits_and_packs_into_budgets_of_other_text(tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr(hlm.jax, "block_until_ready", lambda result: (waited.append(result), result)[1])
    shape = cases.TextShape(4, 20)
    runner = hlm.HLMTraining(small_job(tmp_path, "table", TRAINING, shape))
    runner._step = lambda state, host: ("state", "sums", "norm")
    assert runner.run(None) == "sums"
    assert waited == ["sums"]
    monkeypatch.undo()
    rows = {}
    # Much more of one word than the batch has, or of ever different ones: the tables are as long as those need.
    varied = " ".join(f"{n:x}" for n in range(4096, 4096 + 24 * 80))
    for name, text in (("usual", runner.job.budget_texts[0][0]), ("varied", varied)):
        job = dataclasses.replace(runner.job, budget_texts=[[text]])
        other = hlm.HLMTraining(job)
        batch = other.pack(other.tokenise(job.texts[0], 20))
        rows[name] = sum(table.shape[-2] for table in batch.chars)
        assert other.about["budgets"] == "measured, as in training"
    assert rows["varied"] > rows["usual"]


def test_tokenisation_meets_every_word_for_the_first_time(tmp_path, monkeypatch):
    made, original = [], hlm.WordEncoder
    job = small_job(tmp_path, "cache_warm")
    runner = HLMInference(job)
    monkeypatch.setattr(hlm, "WordEncoder", lambda *args: made.append(original(*args)) or made[-1])
    for number in (1, 2):
        runner.tokenise(job.texts[0], 14)
        assert len(made) == number
        assert made[-1].words_total == 3 * 12  # this one read all, [CLS] and [SEP] aside


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_smoke_shapes_are_the_published_ones_in_the_dtype_asked_for(tmp_path, monkeypatch, dtype):
    asked = {"smoke": False, "dtype": dtype}
    ours = model_config(hlm_config(small_job(tmp_path, "table", **asked)))
    config = load_config_file(CONFIG)
    config.model.dtype = dtype
    assert ours == model_config(config)
    assert (ours.hidden, ours.intra_layers, ours.inter_layers, ours.intra_ffn) == (768, 4, 12, 1536)
    monkeypatch.setattr(bert, "on_processor", lambda make: {})  # of such a size nothing is drawn here
    monkeypatch.setattr(spelled, "_random", lambda model, *inputs: {"xr_enc": {}})
    base = BertConfig(vocab_size=30_522, pooler=False, dtype=jnp.dtype(dtype))
    assert (base.layers, base.hidden, base.heads, base.ffn, base.max_positions) == (12, 768, 12, 3072, 512)
    assert BertInference(small_job(tmp_path, "bert", **asked))._shape(14) == base
    training = BertTraining(small_job(tmp_path, "bert", TRAINING, **asked))
    assert training._model.config == base
    assert ours.dropout == ours.attention_dropout == base.dropout == base.attention_dropout == 0.1
    for kind, path in ((FullMode, "full_cached"), (SubwordTable, "subword_table")):
        assert bert_config(kind(small_job(tmp_path, path, FULL_MODE, **asked)).config) == base
    for path in ("policy_all_multi", "policy_none"):
        assert BertConfig(**JoinedWords(small_job(tmp_path, path, JOINED, **asked)).shape()) == base
    job = dataclasses.replace(NO_JOB, path="generator_slots", case=GENERATOR, **asked)
    assert decoder_config(job) == XRDecoderConfig(dtype=jnp.dtype(dtype))
