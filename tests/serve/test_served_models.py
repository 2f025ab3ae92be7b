"""Tests the server with models that have weights: what it answers is what their methods return, in few programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from robustness.conftest import Models
from serve.conftest import server_of
from small_run import ROOT
from tiny_models import release

import charlm
from charlm.core import extras
from charlm.serve.__main__ import limits_of, main, parser
from charlm.serve.limits import Limits
from charlm.serve.models import Served

TEXTS = ["the cat sat on a mat", "dog", "we slept near every old tree", "a small house", "ran to town"]


def test_an_hlm_answers_as_its_methods_do_without_new_programs(trained, log_lines):
    model = charlm.load(trained.workdir, 4)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _seconds, **_: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    limits = Limits(max_batch=4)
    Served("stub", model, limits).warm_up(lambda: False, [4])
    assert not log_lines.lines
    with server_of(model, max_batch=4) as (_, client):
        client.post("/v1/encode", json={"texts": TEXTS})  # its words are in the cache now, in a table of its size
        before = len(compiled)
        assert before
        for count in (1, 2, 3, 4, 5):
            found = client.post("/v1/encode", json={"texts": TEXTS[:count], "vectors": True}).json()["results"]
            for one, wanted in zip(found, model.encode(TEXTS[:count]), strict=True):
                assert one["words"] == list(wanted.words)
                np.testing.assert_allclose(one["vectors"], wanted.vectors, atol=1e-5)
                np.testing.assert_allclose(one["sentence"], wanted.sentence, atol=1e-5)
        assert len(compiled) == before
        asked = {"texts": "the [MASK:3] sat", "words": ["cat", "dog"], "top": 1}
        (gap,) = client.post("/v1/fill_mask", json=asked).json()["results"][0]
        wanted = model.fill_mask("the [MASK:3] sat", top=1, words=["cat", "dog"])[0]
        assert (gap["start"], gap["end"], gap["words"][0]["word"]) == (4, 12, wanted.word)
        none = client.post("/v1/fill_mask", json={"texts": "no gap"})
        assert (none.status_code, none.json()) == (422, {"error": "no \"[MASK]\" in the text 'no gap'"})
        many = client.post("/v1/fill_mask", json={"texts": "[MASK] " * 17})
        assert many.json() == {"error": "a text with 17 gaps: expected at most 16"}
        metrics = client.get("/metrics").text
    assert 'charlm_word_cache_words{model="stub"}' in metrics


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory):
    """Returns tiny BERTs with a random head for a task."""
    models = Models(tmp_path_factory.mktemp("models"), Path())  # no HLM
    return lambda task: charlm.load(models.untrained(task), batch_size=4)


def test_fine_tuned_models_answer_as_their_methods_do(fine_tuned):
    tagger = fine_tuned("tagging")
    served = Served("stub", tagger, Limits(max_batch=4))
    assert [*served.abilities][:2] == ["tag", "encode"]
    with server_of(tagger, max_batch=4) as (_, client):
        found = client.post("/v1/tag", json={"texts": TEXTS}).json()["results"]
        for text, words in zip(TEXTS, found, strict=True):
            wanted = tagger.tag(text)
            assert [word["label"] for word in words] == [tag.label for tag in wanted]
            assert [word["start"] for word in words] == [tag.start for tag in wanted]
    ranker = fine_tuned("ranking")
    with server_of(ranker, max_batch=4) as (_, client):
        found = client.post("/v1/rank", json={"query": "which animal", "passages": TEXTS}).json()["results"]
        wanted = ranker.rank("which animal", TEXTS)
        assert [one["index"] for one in found] == [one.index for one in wanted]
        np.testing.assert_allclose([one["score"] for one in found], [one.score for one in wanted], atol=1e-5)
    reader = fine_tuned("question_answering")
    with server_of(reader, max_batch=4) as (_, client):
        asked = {"questions": ["which animal ?", "who ?"], "contexts": TEXTS[0]}
        found = client.post("/v1/answer", json=asked).json()["results"]
        assert [one["text"] for one in found] == [one.text for one in reader(asked["questions"], TEXTS[0])]
        assert {"text", "start", "end", "probability"} == found[0]["candidates"][0].keys()


def test_a_causal_model_scores_and_writes_the_same_beside_others():
    model = charlm.load(release("gpt2"), 4)
    drawn = {"max_new": 3, "temperature": 1.0, "seed": 7}
    with server_of(model, max_batch=4) as (_, client):
        alone = client.post("/v1/generate", json={"texts": TEXTS[0], **drawn}).json()["results"]
        both = client.post("/v1/generate", json={"texts": [TEXTS[1], TEXTS[0]], **drawn}).json()["results"]
        assert alone[0]["text"] == both[1]["text"] == model.generate(TEXTS[0], 3, temperature=1.0, seed=7).text
        (score,) = client.post("/v1/score", json={"texts": TEXTS[0]}).json()["results"]
        assert score["log_prob"] == pytest.approx(model.score(TEXTS[0]).log_prob, abs=1e-4)
        assert len(score["pieces"]) == len(model.score(TEXTS[0]).pieces)
        long = client.post("/v1/generate", json={"texts": TEXTS[0], "max_new": 256})
        assert long.status_code == 422
        assert long.json()["error"].startswith("max_new=256: the model has 40 positions")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "a", "--timeout", "0"], "--timeout=0.0: expected a number above 0"),
        (["--model", "a", "--timeout", "nan"], "--timeout=nan: expected a number above 0"),
        (["--model", "a", "--port", "99999"], "--port=99999: expected 0 to 65535"),
        (["--model", "a", "--warm-words", "0"], "--warm-words=0: expected at least 1"),
        (["--model", "ftp://a/b"], "--model: ftp://a/b is not an address that charlm reads"),
        (["--model", "a", "--host", "no.such.host.invalid", "--port", "0"], "--host=no.such.host.invalid: "),
        (["--model", "nowhere", "--port", "0"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")


def test_a_missing_package_is_told_before_a_model_is_loaded(monkeypatch, capsys):
    there = extras.importlib.util.find_spec
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    assert main(["--model", "nowhere"]) == 1
    error = 'error: charlm serve: uvicorn is not installed: pip install -e ".[serve]"\n'
    assert capsys.readouterr().err == error


def test_the_help_needs_neither_jax_nor_starlette():
    assert limits_of(parser().parse_args(["--model", "a"])) == Limits()
    code = "import sys, charlm.serve.__main__ as m\ntry: m.main(['--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit(bool({'jax', 'starlette', 'uvicorn', 'prometheus_client'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "There is no authentication" in done.stdout
