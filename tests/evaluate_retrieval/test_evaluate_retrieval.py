"""Tests the measurement of retrieval: files of BEIR and SQuAD, scores by hand, rivals, reports, and the command."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.evaluate_retrieval.__main__ import main
from charlm.evaluate_retrieval.data import RetrievalData, read_beir, read_squad_index, write_beir
from charlm.evaluate_retrieval.measure import Bench, measure
from charlm.evaluate_retrieval.report import write_report
from charlm.evaluate_retrieval.settings import RetrievalSettings
from charlm.text.noise.levels import planned

DOCUMENTS = {"a": "the cat sat on a mat", "b": "we slept near every old tree", "c": "dogs run to town", "d": "a tree"}
QUERIES = {"1": "where did the cat sit", "2": "who slept near a tree", "3": "no right one"}
JUDGED = "query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t2\n2\td\t1\n3\tc\t0\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": key, "title": "A title" * (key == "c"), "text": text} for key, text in DOCUMENTS.items()]
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    lines = "".join(f"{json.dumps({'_id': key, 'text': text})}\n" for key, text in QUERIES.items())
    with gzip.open(folder / "queries.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(lines)
    (folder / "qrels" / "test.tsv").write_text(JUDGED, encoding="utf-8")
    return folder


def test_the_layout_of_beir(beir, tmp_path):
    data = read_beir(beir)
    assert data.documents["c"] == "A title dogs run to town"
    assert list(data.queries) == ["1", "2"]  # the third has no right document
    assert data.relevant == {"1": {"a": 1.0}, "2": {"b": 2.0, "d": 1.0}}
    write_beir(data, tmp_path / "again")
    assert read_beir(tmp_path / "again") == data
    with pytest.raises(ValueError, match="exists already"):
        write_beir(data, tmp_path / "again")
    assert list(data.some(1, 0).queries) in (["1"], ["2"])
    assert data.some(5, 0) is data


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", '{"_id": "a"}\n', "corpus.jsonl:1: expected a text 'text'"),
        ("corpus.jsonl", "[1]\n", "corpus.jsonl:1: expected an object with a text _id"),
        ("corpus.jsonl", "{\n", "corpus.jsonl:1: invalid JSON"),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n', ":2: the _id 'a' is there twice"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1 a 1\n", "test.tsv:2: expected query, document and a number"),
        ("qrels/test.tsv", "1\ta\tnan\n", "is not a finite number"),
        ("qrels/test.tsv", "1\tx\t1\n", "'x' is not in corpus.jsonl"),
        ("qrels/test.tsv", "1\ta\t0\n", "no query has a right document"),
    ],
)
def test_damaged_files_are_named(beir, name, content, message):
    (beir / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as raised:
        read_beir(beir)
    assert "\n" not in str(raised.value)


def test_a_split_that_is_not_there(beir):
    with pytest.raises(ValueError, match=r"dev\.tsv: expected this file of BEIR's layout"):
        read_beir(beir, "dev")


@pytest.fixture
def squad(tmp_path):
    qas = lambda *texts: [{"id": text, "question": text, "answers": []} for text in texts]
    paragraphs = [
        {"context": DOCUMENTS["a"], "qas": qas("where is the cat")},
        {"context": DOCUMENTS["b"], "qas": qas("who slept", "near what")},
        {"context": DOCUMENTS["a"], "qas": qas("what sat")},
    ]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_questions_with_their_paragraphs(squad):
    data = read_squad_index([str(squad)])
    assert list(data.documents.values()) == [DOCUMENTS["a"], DOCUMENTS["b"]]
    (same,) = {*data.relevant["what sat"], *data.relevant["where is the cat"]}
    assert data.documents[same] == DOCUMENTS["a"]


def test_a_report(beir, tmp_path):
    out, model = tmp_path / "out", str(release("bert"))
    settings = RetrievalSettings(
        models=(model,), beir=str(beir), out=str(out), noise=("swap:0.3", "drop:0.2"), seeds=2, samples=50,
        defence=("nfkc",), command="the command",
    )  # fmt: skip
    results = measure(settings)
    assert (results["documents"], results["queries"], results["noise"]) == (4, 2, ["clean", "swap:0.3", "drop:0.2"])
    clean = {one["score"]: one for one in results["scores"] if one["noise"] == "clean" and one["system"] == model}
    data, encoder = read_beir(beir), charlm.load(model)
    documents = encoder.encode(data.documents.values(), normalize=True)
    scores = encoder.encode(data.queries.values(), normalize=True) @ documents.T
    first = [1 + int((scores[0] > scores[0, 0]).sum()), 1 + int((scores[1] > max(scores[1, 1], scores[1, 3])).sum())]
    assert clean["mrr@10"]["value"] == pytest.approx(np.mean([1 / rank for rank in first]))
    assert clean["recall@100"]["value"] == 1
    assert clean["mrr@10"]["low"] <= clean["mrr@10"]["value"] <= clean["mrr@10"]["high"]
    noisy = next(one for one in results["scores"] if one["noise"] == "swap:0.3" and one["score"] == "mrr@10")
    assert noisy["value"] == pytest.approx(np.mean(noisy["by_seed"]))
    assert len(noisy["by_seed"]) == 2
    assert all(one["difference"] == 0 for one in results["comparisons"])  # ASCII stays as it is
    *_, markdown, page = write_report(results, out)
    assert "Retrieval under typos" in markdown.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page.read_text(encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in (out / "rows").iterdir()}
    assert measure(settings) == results
    assert {path: path.stat().st_mtime_ns for path in (out / "rows").iterdir()} == before


def test_a_document_with_the_id_of_a_query_is_not_found_by_it(tmp_path):
    """As the queries of ArguAna, which are documents, too; BEIR's own evaluation leaves them out."""
    documents = {"q": "a cat sat on the mat", "right": "dogs run to town", "other": "we slept near a tree"}
    data = RetrievalData(documents, {"q": documents["q"], "p": documents["q"]}, {"q": {"right": 1.0}, "p": {"q": 1.0}})
    model = str(release("bert"))
    bench = Bench(RetrievalSettings(models=(model,), beir="-", out=str(tmp_path), noise=("drop",)), data)
    levels, _ = planned(("drop",), "")
    rows = bench.run(levels[:1]).by_seed[model, "clean"][0]
    scores = charlm.load(model).encode(documents.values(), normalize=True) @ bench.systems[0].documents_ND[0]
    assert rows[:, 1].tolist() == [1 / (1 + (scores[2] > scores[1])), 1.0]
    (found,) = bench._entry(levels[1], 0)["found"]
    assert found["first"] != documents["q"]
    assert found["rank"] <= 2


def test_documents_of_another_model(beir, tmp_path):
    one, other = str(release("bert")), tmp_path / "other"
    shutil.copytree(one, other)
    config = json.loads((other / "config.json").read_text(encoding="utf-8"))
    (other / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.01}), encoding="utf-8")
    base = RetrievalSettings(models=(one, str(other)), beir=str(beir), out=str(tmp_path / "out"), documents=one)
    bench = Bench(base, read_beir(beir))
    np.testing.assert_array_equal(bench.systems[0].documents_ND, bench.systems[1].documents_ND)
    assert bench.systems[0].key != bench.systems[1].key
    with pytest.raises(ValueError, match="makes vectors of 16 numbers, the documents' have 24"):
        Bench(RetrievalSettings(models=(str(release("bert", hidden=16)),), beir=str(beir), out="x", documents=one),
              read_beir(beir))  # fmt: skip


def test_a_speller_that_knows_the_documents(beir, tmp_path):
    pytest.importorskip("symspellpy")
    (beir / "corpus.jsonl").write_text('{"_id": "a", "text": "Zyzzogeton flies"}\n', encoding="utf-8")
    (beir / "qrels" / "test.tsv").write_text("1\ta\t1\n", encoding="utf-8")
    settings = RetrievalSettings(
        models=(str(release("bert")),), beir=str(beir), out=str(tmp_path), defence=("symspell", "symspell-index")
    )
    bench = Bench(settings, read_beir(beir))
    assert bench.corrected(["the zyzogeton"], "symspell-index") == ["the zyzzogeton"]
    assert bench.corrected(["the zyzzogeton"], "symspell-index") == ["the zyzzogeton"]
    assert "zyzzogeton" not in bench.corrected(["the zyzogeton"], "symspell")[0]
    assert [one.spec for one in bench.systems] == ["", "symspell", "symspell-index"]
    other = str(release("bert", hidden=16))
    some = dataclasses.replace(settings, models=(*settings.models, other), defended=(other,))
    found = [(one.model.path, one.spec) for one in Bench(some, read_beir(beir)).systems]
    assert found == [(settings.models[0], ""), (other, ""), (other, "symspell"), (other, "symspell-index")]


def test_the_noisy_channel_knows_the_documents(beir, tmp_path):
    (beir / "corpus.jsonl").write_text('{"_id": "a", "text": "Zyzzogeton flies"}\n', encoding="utf-8")
    (beir / "qrels" / "test.tsv").write_text("1\ta\t1\n", encoding="utf-8")
    models, defence = (str(release("bert")),), ("nfkc+speller-index",)
    settings = RetrievalSettings(models=models, beir=str(beir), out=str(tmp_path), defence=defence)
    bench = Bench(settings, read_beir(beir))
    assert bench.corrected(["a Zyzog3ton fleis", "flies"], defence[0]) == ["a Zyzzogeton flies", "flies"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise": ("keybord",)}, "did you mean keyboard"),
        ({"noise": ("misspelling",)}, "needs a list of misspellings"),
        ({"defence": ("symspel",)}, "did you mean symspell"),
        ({"metric": "f1"}, "expected one of ndcg@10"),
        ({"defended": ("other",), "defence": ("nfkc",)}, "--defended other: expected one of the models"),
        ({"defended": ("m",)}, "--defended needs --defence"),
        ({"seeds": 0}, "seeds=0"),
        ({"beir": ""}, "expected one of --beir FOLDER, --squad FILE, --intents TRAIN DEV, got none"),
        ({"beir": "", "squad": ("s",), "split": "dev"}, "--split dev: expected only with --beir, got --squad FILE"),
    ],
)
def test_wrong_settings_are_named(changed, message):
    def check():
        settings = RetrievalSettings(**({"models": ("m",), "out": "o", "beir": "b"} | changed))
        planned(settings.noise, settings.misspellings)

    with pytest.raises(ValueError, match=message):
        check()


def test_the_command(squad, tmp_path, capsys):
    assert main(["--squad", str(squad), "--write-beir", str(tmp_path / "beir")]) == 0
    assert "2 documents, 4 queries" in capsys.readouterr().out
    out = tmp_path / "out"
    arguments = ["--models", str(release("bert")), "--beir", str(tmp_path / "beir"), "--out", str(out)]
    assert main([*arguments, "--noise", "swap:0.1", "--samples", "20", "--queries", "3"]) == 0
    found = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert found["queries"] == 3
    assert Path(out / "report.html").is_file()
    assert main(["--models", "nowhere", "--beir", str(tmp_path / "none"), "--out", str(out)]) == 1
    assert re.search(r"^error: .*corpus\.jsonl: expected this file", capsys.readouterr().err, re.MULTILINE)
