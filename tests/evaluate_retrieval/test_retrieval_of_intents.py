"""Tests retrieval of classes: labelled texts as data, centroids and accuracy by hand, rivals, reports, the command."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.evaluate_retrieval.__main__ import main
from charlm.evaluate_retrieval.intents import centroids, read_intents
from charlm.evaluate_retrieval.measure import Bench, measure
from charlm.evaluate_retrieval.report import report_of, write_report
from charlm.evaluate_retrieval.settings import RetrievalSettings

HEADER = "id\tquery\tintent\n"
TRAIN = [("the cat sat on a mat", "cats"), ("we slept near every old tree", "trees"), ("a cat", "cats"),
         ("dogs run to town", "dogs"), ("zyzzogeton trees", "trees")]  # fmt: skip
DEV = [("where did the cat sit", "cats"), ("who slept near a tree", "trees"), ("the dogs run", "dogs"),
       ("a tree", "trees"), ("the old cat", "cats")]  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))


def table(path, rows, header=HEADER):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(header + "".join(f"{n}\t{text}\t{label}\n" for n, (text, label) in enumerate(rows)))
    return str(path)


@pytest.fixture
def files(tmp_path):
    return table(tmp_path / "train.tsv.gz", TRAIN), table(tmp_path / "dev.tsv", DEV)


def settings_of(files, out, **changed):
    usual = {"models": (str(release("bert")),), "noise": ("swap:0.3",), "samples": 20, "text": "query"}
    return RetrievalSettings(**(usual | {"label": "intent", "intents": files, "out": str(out)} | changed))


def value(results, noise, score):
    (found,) = [one["value"] for one in results["scores"] if (one["noise"], one["score"]) == (noise, score)]
    return found


def test_labelled_texts(files):
    data = read_intents(*files, "query", "intent")
    assert list(data.documents.values()) == [text for text, _ in TRAIN]
    assert list(data.queries.values()) == [text for text, _ in DEV]
    assert data.ranked == ["cats", "dogs", "trees"]
    assert list(data.relevant.values()) == [{label: 1.0} for _, label in DEV]
    for path, rows in zip(files, (TRAIN, DEV), strict=True):
        table(Path(path), rows, header="")
    assert list(read_intents(*files, "1", "2").documents.values()) == list(data.documents.values())


def test_a_class_is_the_unit_mean_of_its_texts(files):
    data = read_intents(*files, "query", "intent")
    texts = np.array([[1, 0], [0, 1], [0, 1], [-1, 0], [0, 1]], np.float32)
    found = centroids(texts, data)
    np.testing.assert_allclose(found, [[0.5**0.5, 0.5**0.5], [-1, 0], [0, 1]], atol=1e-7)
    assert found.dtype == np.float32
    with pytest.raises(ValueError, match="the class 'cats' cancel"):
        centroids(np.array([[1, 0], [0, 1], [-1, 0], [-1, 0], [0, 1]], np.float32), data)


def test_accuracy_is_that_of_the_nearest_centroid(files, tmp_path):
    settings = settings_of(files, tmp_path / "out", seeds=2, defence=("nfkc",), queries=4)
    assert (settings.metric, settings.split) == ("accuracy", "")
    results = measure(settings)
    assert (results["documents"], results["queries"], results["classes"]) == (5, 4, 3)
    encoder = charlm.load(settings.models[0])
    vectors = encoder.encode([text for text, _ in TRAIN], normalize=True)
    means = {name: vectors[[label == name for _, label in TRAIN]].mean(0) for name in ("cats", "dogs", "trees")}
    classes = {name: mean / np.linalg.norm(mean) for name, mean in means.items()}
    data = read_intents(*files, "query", "intent").some(4, 0)
    asked = encoder.encode(list(data.queries.values()), normalize=True)
    nearest = [max(classes, key=lambda name, row=row: classes[name] @ row) for row in asked]
    right = [next(iter(found)) for found in data.relevant.values()]
    expected = np.mean([a == b for a, b in zip(nearest, right, strict=True)])
    (clean,) = [one for one in results["scores"] if (one["system"], one["noise"], one["score"]) ==
                (settings.models[0], "clean", "accuracy")]  # fmt: skip
    assert clean["value"] == pytest.approx(expected)
    assert {one["score"] for one in results["scores"]} == {"accuracy", "mrr@10"}
    assert all(one["difference"] == 0 for one in results["comparisons"])  # ASCII stays as it is


def test_a_report_names_classes_and_their_nearest_texts(files, tmp_path):
    results = measure(settings_of(files, tmp_path / "out"))
    paths = write_report(results, tmp_path / "out")
    assert json.loads(paths[0].read_text(encoding="utf-8"))["metric"] == "accuracy"
    for path in paths[1:]:
        text = path.read_text(encoding="utf-8")
        assert "Classes by nearest centroid" in text
        assert "5 queries, 3 classes of 5 texts" in text
        assert "recall" not in text
    labels = dict(TRAIN)
    wrong = 1 - value(results, "swap:0.3", "accuracy")
    assert len(results["shown"]) == round(5 * wrong) > 0  # with one system: those on which it fails
    for one in results["shown"]:
        (found,) = one["found"]
        assert one["classes"] == [dict(DEV)[one["query"]]]
        assert found["rank"] > 1
        assert labels[found["nearest"]] == found["first"] not in one["classes"]
        assert found["nearest"] in paths[1].read_text(encoding="utf-8")
    assert report_of(results).subtitle.startswith("Measured: accuracy")


def test_rows_know_the_classes_of_the_texts(files, tmp_path):
    """The same texts with other classes are another measurement, although vectors and queries stay."""
    out = tmp_path / "out"
    measure(settings_of(files, out))
    before = {path.name for path in (out / "rows").iterdir()}
    measure(settings_of(files, out))
    assert {path.name for path in (out / "rows").iterdir()} == before
    turned = [(text, {"cats": "dogs", "dogs": "cats"}.get(label, label)) for text, label in TRAIN]
    table(tmp_path / "train.tsv.gz", turned)
    measure(settings_of(files, out))
    assert len(list((out / "rows").iterdir())) == 2 * len(before)


def test_rows_of_another_shape_are_measured_again(files, tmp_path):
    out = tmp_path / "out"
    settings = settings_of(files, out, noise=("swap:0.3",))
    expected = measure(settings)
    for path in (out / "rows").iterdir():
        np.save(path, np.ones((len(DEV), 7)))  # as rows of documents are, which have two values of K
    assert measure(settings) == expected


def test_spellers_know_the_training_texts_and_noise_leaves_them(files, tmp_path):
    settings = settings_of(files, tmp_path, defence=("speller-index",), documents=str(release("bert")))
    data = read_intents(*files, "query", "intent")
    bench = Bench(settings, data)
    assert bench.corrected(["a zyzogeton"], "speller-index") == ["a zyzzogeton"]
    alone, behind = bench.systems
    np.testing.assert_array_equal(alone.ranked_KD, behind.ranked_KD)
    assert alone.ranked_KD.shape == (3, alone.documents_ND.shape[1])


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ([("a cat", "cats"), ("b", "cats")], DEV, r"train\.tsv: column 'intent': expected at least two classes, got"),
        (TRAIN[:4], [("x", "cat")], r"dev\.tsv:2: column 'intent' has 'cat', which has no text in .*train\.tsv; "
         r"expected one of cats, dogs, trees; did you mean cats\?"),
        ([*TRAIN, (" ", "birds")], [("x", "birds")], "has 'birds', which has no text in"),
        ([(" ", "cats"), ("", "dogs")], DEV, r"train\.tsv: expected texts in column 'query', got only empty ones"),
        (TRAIN, [("", "cats")], r"dev\.tsv: expected texts"),
        (TRAIN, [("x", "")], r"dev\.tsv:2: column 'intent' has no label"),
        ([], DEV, r"train\.tsv: no rows"),
    ],
)  # fmt: skip
def test_wrong_files_are_named(tmp_path, train, dev, message):
    paths = table(tmp_path / "train.tsv", train), table(tmp_path / "dev.tsv", dev)
    with pytest.raises(ValueError, match=message) as raised:
        read_intents(*paths, "query", "intent")
    assert "\n" not in str(raised.value)


def test_missing_columns_and_empty_files_are_named(files, tmp_path):
    with pytest.raises(ValueError, match=r"no column 'intents' in the header; .*did you mean intent\?"):
        read_intents(*files, "query", "intents")
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(ValueError, match=r"empty\.tsv: file is empty; expected a header with"):
        read_intents(files[0], str(tmp_path / "empty.tsv"), "query", "intent")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"squad": ("s",)}, "expected one of .*, got --squad FILE and --intents TRAIN DEV"),
        ({"beir": "b"}, "expected one of .*, got --beir FOLDER and --intents TRAIN DEV"),
        ({"split": "dev"}, "--split dev: expected only with --beir, got --intents TRAIN DEV"),
        ({"intents": ("one",)}, r"expected two files, TRAIN and DEV"),
        ({"intents": "ab"}, r"expected two files, TRAIN and DEV"),
        ({"intents": (), "beir": "b"}, "--text query: expected only with --intents, got --beir FOLDER"),
        ({"intents": (), "beir": "b", "text": "", "label": "", "metric": "accuracy"}, "expected one of ndcg@10"),
        ({"metric": "map"}, "metric='map': expected one of accuracy, mrr@10"),
    ],
)
def test_wrong_settings_of_intents_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        settings_of(("train", "dev"), "out", **changed)


def test_usual_values_are_those_of_the_kind_of_data():
    by_class = settings_of(("a", "a"), "out", text="", label="")
    assert (by_class.intents, by_class.text, by_class.label) == (("a", "a"), "sentence", "label")
    by_document = settings_of((), "out", beir="b", text="", label="")
    assert (by_document.metric, by_document.split, by_document.text) == ("mrr@10", "test", "")


def test_the_command_with_intents(files, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--models", str(release("bert")), "--intents", *files, "--text", "query", "--out", str(out)]
    assert main([*arguments, "--label", "intent", "--noise", "swap:0.1", "--samples", "20"]) == 0
    found = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert (found["queries"], found["metric"], found["settings"]["intents"]) == (5, "accuracy", list(files))
    assert Path(out / "report.html").is_file()
    assert main([*arguments, "--label", "intend"]) == 1
    assert re.search(r"^error: .*train\.tsv\.gz:1: no column 'intend'", capsys.readouterr().err, re.MULTILINE)
    assert main([*arguments, "--label", "intent", "--write-beir", str(tmp_path / "beir")]) == 1
    assert "expected --squad FILE" in capsys.readouterr().err
    assert not (tmp_path / "beir").exists()
