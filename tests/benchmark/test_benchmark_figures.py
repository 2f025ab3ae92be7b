"""Tests the cases `charbert`, `calls`, `pages` and `counts` of the benchmark."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter, defaultdict

import jax.numpy as jnp
import numpy as np
import pytest
from benchmark_jobs import CONFIG, small_job
from small_run import write_text

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import hlm_settings
from charlm.benchmark.bert import subwords
from charlm.benchmark.charbert import CharBertInference
from charlm.benchmark.hlm import HLMTraining
from charlm.benchmark.hlm_settings import Calls
from charlm.benchmark.paths import CALLS, CHARBERT, PAGES, PATHS, TRAINING, missing
from charlm.benchmark.rounds import measure
from charlm.benchmark.text import TextShape
from charlm.families import windows
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import RulesSplitter

pytestmark = pytest.mark.usefixtures("log_lines")


def test_charbert_reads_the_pieces_of_bert_and_no_padding(tmp_path, monkeypatch):
    job = small_job(tmp_path, "charbert_paper", CHARBERT, TextShape(3, 14), drawn=True)
    runner = CharBertInference(job)
    host = runner.tokenise(job.texts[0], job.words[0])
    ids_BL, mask_BL = subwords(SubwordTokenizer.load(job.tokenizer), job.texts[0])
    np.testing.assert_array_equal(host.ids_BL, ids_BL)
    np.testing.assert_array_equal(host.mask_BL, mask_BL)
    assert runner.tokens(host) == (mask_BL.sum(axis=1).mean(), mask_BL.sum(axis=1).max())
    states = np.asarray(runner.run(host))
    assert states.std() > 0.1
    shortest = int(mask_BL.sum(axis=1).argmin())
    alone = runner.tokenise(job.texts[0][shortest : shortest + 1], 0)
    length = alone.ids_BL.shape[1]
    assert length < ids_BL.shape[1]
    np.testing.assert_allclose(runner.run(alone)[0], states[shortest, :length], atol=1e-5)
    monkeypatch.setattr("charlm.benchmark.charbert.on_processor", lambda make: {})
    released = CharBertInference(small_job(tmp_path, "charbert_reference", CHARBERT, TextShape(3, 14), drawn=True))
    work, less = runner.work(host), released.work(host)
    assert 0 < less["useful_gflop"] < work["useful_gflop"] < work["padded_gflop"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_charbert_has_the_published_shapes(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr("charlm.benchmark.charbert.on_processor", lambda make: {})
    for path, fusion, sizes in (("charbert_paper", "paper", (3,)), ("charbert_reference", "reference", (3,))):
        config = CharBertInference(small_job(tmp_path, path, CHARBERT, smoke=False, dtype=dtype)).config
        assert (config.layers, config.hidden, config.heads, config.ffn, config.char_hidden) == (12, 768, 12, 3072, 256)
        assert (config.vocab_size, config.dtype, config.pooler) == (30_522, jnp.dtype(dtype), False)
        assert (config.fusion, config.windows, config.compat_reference) == (fusion, sizes, False)


def test_calls_differ_and_vectors_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "CPU_POSITIONS", 64)
    found = {}
    for path in ("short_calls", "calls_of_32"):
        job = small_job(tmp_path, path, CALLS, TextShape(24, 14))
        runner = Calls(job)
        host = runner.tokenise(job.texts[0], 14)
        runner.warm(host)
        calls, states = [], runner.predictor._states
        monkeypatch.setattr(
            runner.predictor,
            "_states",
            lambda *given, states=states, calls=calls: calls.append(given) or states(*given),
        )
        misses = runner.predictor.cache.stats.misses
        found[path] = runner.run(host)
        assert (max(call.rows for call, *_ in calls) == 1) == (path == "short_calls")
        assert runner.predictor.cache.stats.misses == misses > 0
        assert runner.tokens(host) == (14.0, 14)
        splitter = RulesSplitter()
        assert [len(e.words) for e in found[path]] == [len(splitter.spans(text)) for text in host]
    for short, whole in zip(*found.values(), strict=True):
        np.testing.assert_allclose(short.vectors_WD, whole.vectors_WD, atol=1e-5)
        assert short.vectors_WD.std() > 0.1


PAGES_OF = """
import json, os, sys
ready = {"pages": os.environ.get("GLIBC_TUNABLES")}
print(json.dumps({"ready": ready, "tokens": [[1.0, 1]], "work": None}), flush=True)
for line in sys.stdin:
    answer = {"peak_mib": 1} if line.startswith("quit") else {"seconds": 1.0, "cpu_seconds": 1.0}
    print(json.dumps(answer), flush=True)
"""


def test_pages_are_asked_for_in_the_environment_alone(tmp_path, monkeypatch):
    if reason := missing("huge_pages", ""):
        pytest.skip(reason)
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")  # of whoever starts the benchmark
    names = ("huge_pages", "usual_pages")
    commands = {name: [*PATHS[name].under, sys.executable, "-c", PAGES_OF] for name in names}
    found = {name: ready["pages"] for name, ready in measure(commands, 1, 1).ready.items()}
    assert found == {"huge_pages": "glibc.malloc.hugetlb=1", "usual_pages": None}
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=2"
    for name in names:
        runner = hlm_settings.make(small_job(tmp_path, name, PAGES))
        assert (type(runner), runner.path, runner.job.case) == (HLMTraining, "table", TRAINING)


def test_without_glibc_there_are_no_huge_pages(capsys, monkeypatch):
    monkeypatch.setattr("charlm.benchmark.paths.platform.libc_ver", lambda: ("", ""))
    assert benchmark.main(["--case=pages", "--paths", "huge_pages"]) == 1
    assert "--paths: huge_pages: only the C library glibc" in capsys.readouterr().err


def test_counts_are_those_of_the_training_part(capsys, tmp_path):
    text = write_text(tmp_path / "text.txt", extra="supercalifragilisticexpialidocious")  # cut to 19 characters
    assert benchmark.main(["--case=counts", f"--config={CONFIG}", f"--text={text}"]) == 0
    found = {f["path"]: f for f in map(json.loads, capsys.readouterr().out.splitlines())}
    from charlm.benchmark.cases import load_config
    from charlm.data.corpus import prepare
    from charlm.data.sources import open_source

    config = load_config(CONFIG, str(text))
    config.data.heldout = ()
    rows, splitter = prepare(config).vocab.size, RulesSplitter()
    words = {}
    for split in ("train", "heldout"):
        source = open_source(str(text), split=split, heldout_fraction=config.data.heldout_fraction)
        documents = [document for part in source.parts for document in source.documents(part)]
        words[split] = [document[a:b][:19] for document in documents for a, b in splitter.spans(document)]
    total = sum(map(len, words["heldout"]))
    assert 0 < total < sum(map(len, words["train"])) / 10
    for name, key in {
        "length and place": lambda word, i: (len(word), i), "length": lambda word, i: len(word), "nothing": lambda *_: 0
    }.items():  # fmt: skip
        seen = defaultdict(Counter)
        for word in words["train"]:
            for i, char in enumerate(word):
                seen[key(word, i)][char] += 1
        bits = 0.0
        for word in words["heldout"]:
            for i, char in enumerate(word):
                counts = seen[key(word, i)]
                bits -= math.log2((counts[char] + 1) / (counts.total() + rows))
        assert found[f"{name} known"]["value"] == pytest.approx(bits / total, abs=2e-3)
        assert (found[f"{name} known"]["characters"], found[f"{name} known"]["unit"]) == (total, "bits/char")
    values = [found[f"{name} known"]["value"] for name in ("length and place", "length", "nothing")]
    assert values == sorted(values)
