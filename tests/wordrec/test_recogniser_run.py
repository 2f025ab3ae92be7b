"""Tests the training of a recogniser, its use as a defence of a report, and its command, on a few words."""

from __future__ import annotations

import json
import re

import jax
import numpy as np
import pytest
from robustness.conftest import Models
from small_run import on_devices, python, write_text
from tiny_models import release

from charlm.core import checkpoint as checkpoints
from charlm.evaluate_retrieval.data import read_beir
from charlm.evaluate_retrieval.measure import Bench
from charlm.evaluate_retrieval.settings import RetrievalSettings
from charlm.robustness.measure import measure
from charlm.text.noise import Noise, Noiser
from charlm.wordrec.__main__ import main
from charlm.wordrec.config import load
from charlm.wordrec.defence import WordRecognition
from charlm.wordrec.recogniser import TrainedRecogniser
from charlm.wordrec.run import train

SETTINGS = (
    "train.steps=150", "train.log_every=50", "train.eval_every=50", "train.checkpoint_every=50", "train.examples=1",
    "data.max_length=16", "data.batch_size=8", "data.table_shards=1", "data.encode_processes=1", "model.hidden=16",
    "optim.learning_rate=2e-2", "data.heldout_fraction=0.1",
)  # fmt: skip


def config_of(folder, *settings):
    return load(
        "wordrec:mixed", [f"data.train={folder / 'text.txt'}", f"data.cache_dir={folder}", *SETTINGS, *settings]
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, and that of its text."""
    folder = tmp_path_factory.mktemp("recogniser")
    write_text(folder / "text.txt")
    with on_devices(1):
        assert train(config_of(folder), folder / "run")
    return folder / "run", folder


def params_of(run):
    return jax.tree.map(np.asarray, checkpoints.stored_params(checkpoints.find(run)))


def values_of(run):
    recogniser = TrainedRecogniser.load(run)
    return jax.tree.map(np.asarray, recogniser._params)


def test_it_learns_to_read_misspelled_words(trained):
    run, _ = trained
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    held = [line for line in lines if "heldout_loss" in line]
    assert held[0]["heldout_changed_accuracy"] < 0.2
    assert held[-1]["heldout_changed_accuracy"] > 0.8
    assert held[-1]["heldout_loss"] < held[0]["heldout_loss"] / 3
    recogniser = TrainedRecogniser.load(run)
    assert recogniser.recognise(["tehcatsat", "ran", "tonw", "."])[1::2] == ("ran", ".")
    noiser = Noiser(Noise.parse("charbert:1"), 7)
    words = ["every", "small", "house", "in", "town", "while", "we", "slept", "near", "old", "trees"]
    read = noiser.words(words, 0).words
    corrected = WordRecognition(recogniser).words(read, 0).words
    right = lambda found: sum(a == b for a, b in zip(found, words, strict=True))
    assert right(corrected) > right(read)


def test_a_long_text_is_read_in_pieces(trained):
    recogniser = TrainedRecogniser.load(trained[0])
    words = ("the cat sat on a mat and dog ran to every small house in town while " * 3).split()
    whole = recogniser.recognise(words)
    assert len(whole) == len(words)
    pieces = [recogniser.recognise(words[at : at + 16]) for at in range(0, len(words), 16)]
    assert whole == tuple(word for piece in pieces for word in piece)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(trained, tmp_path):
    run, folder = trained
    with on_devices(1):
        assert train(config_of(folder, "train.steps=70"), tmp_path / "run")
        first = values_of(tmp_path / "run")
        assert train(config_of(folder), tmp_path / "run")
    same = jax.tree.map(lambda a, b: bool((a == b).all()), values_of(run), values_of(tmp_path / "run"))
    assert all(jax.tree.leaves(same))
    differs = jax.tree.map(lambda a, b: bool((a != b).any()), values_of(run), first)
    assert all(jax.tree.leaves(differs))
    assert TrainedRecogniser.load(run).digest == TrainedRecogniser.load(tmp_path / "run").digest
    assert WordRecognition(TrainedRecogniser.load(run)).version.startswith("wordrec 1 ")


def test_a_finished_run_is_left_alone_and_another_config_refused(trained):
    run, folder = trained
    before = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")}
    with on_devices(1):
        assert train(config_of(folder), run)
        with pytest.raises(ValueError, match=r"model\.hidden is 8, there 16"):
            train(config_of(folder, "model.hidden=8"), run)
        with pytest.raises(ValueError, match=r"data\.noise is \('drop:0\.1',\), there "):
            train(config_of(folder, "data.noise=drop:0.1"), run)
    assert {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")} == before


def test_a_report_measures_models_behind_it(trained, tmp_path):
    run, _ = trained
    models = Models(tmp_path, tmp_path)
    tagger, behind = models.untrained("classification"), f"wordrec:{run}"
    results = measure(
        [tagger], [models.data("classification")], str(tmp_path / "out"), noise=("drop:0.3",), levels=(0, 0.3),
        seeds=1, samples=20, batch_size=8, defence=(behind, f"nfkc+{behind},neutral=a"),
    )  # fmt: skip
    assert [one["defence"] for one in results["models"]] == ["", behind, f"nfkc+{behind},neutral=a"]
    assert len({row["model"] for row in results["noise"]}) == 3


def test_queries_are_corrected_before_a_search(trained, tmp_path):
    behind = f"wordrec:{trained[0]}"
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "the cat sat on a mat"}\n', encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "house in town"}\n', encoding="utf-8")
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n", encoding="utf-8")
    model = str(release("bert"))
    settings = RetrievalSettings(models=(model,), beir=str(tmp_path), out=str(tmp_path / "out"), defence=(behind,))
    bench = Bench(settings, read_beir(tmp_path))
    assert [one.spec for one in bench.systems] == ["", behind]
    text = "evrey smll 3.14"
    expected = WordRecognition(TrainedRecogniser.load(trained[0])).text(text, 0).text
    assert bench.corrected([text], behind) == [expected]
    assert bench.corrected([text], "") == [text]
    assert expected.endswith(" 3.14")


def test_other_models_are_refused(trained, tmp_path):
    models = Models(tmp_path, tmp_path)
    with pytest.raises(ValueError, match="holds a model of the family bert, expected a word recogniser"):
        TrainedRecogniser.load(models.untrained("classification"))
    with pytest.raises(ValueError, match="holds no complete checkpoint"):
        TrainedRecogniser.load(tmp_path)


def test_the_command_measures(trained, capsys):
    run, folder = trained
    arguments = ["measure", "--data", str(folder / "text.txt"), "--heldout=.1"]
    assert (
        main([*arguments, "--noise", "charbert:1", "drop:0", "--defence", f"wordrec:{run}", f"nfkc+wordrec:{run}"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    none, recognised, chained = (re.split(r" {2,}", line) for line in lines[2:5])
    assert none[0] == "none"
    assert recognised[:1] + chained[:1] == [f"wordrec:{run}", f"nfkc+wordrec:{run}"]
    assert float(recognised[2]) > 80 > 50 > float(none[2]) == 0
    assert none[3] == "100.0"
    assert chained[1:4] == recognised[1:4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "wordrec", "--workdir=", "--set", "train.steps=1"], "--workdir= is empty"),
        (["train", "wordrek", "--workdir=x"], "'wordrek' is neither a config of charlm"),
        (["train", "wordrec", "--workdir=x", "--set", "lr=1"], "--set lr=1: a word recogniser has no key lr"),
        (["measure", "--data=/none.txt", "--defence=nfkc"], "/none.txt"),
        (["measure", "--data=x", "--defence=wordrec:/none"], "there is no folder '/none'"),
        (["measure", "--data=x", "--heldout=1"], "--heldout=1.0: expected a share"),
        (["measure", "--data=x", "--words=-1"], "--words=-1: expected"),
        (["measure", "--data=x", "--noise=keybord"], "did you mean keyboard"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().splitlines()[-1].startswith("error: ")


def test_help_needs_no_jax():
    code = "import sys, charlm.wordrec.__main__ as m\ntry: m.main(['--help'])\nfinally: print('jax' in sys.modules)"
    found = python("-c", code)
    assert "data.noise" in found.stdout
    assert "wordrec" in found.stdout
    assert found.stdout.strip().endswith("False")
