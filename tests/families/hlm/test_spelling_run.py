"""Tests a run of a speller from config to corrections: it starts from an HLM, and every way to ask it agrees."""

from __future__ import annotations

import json

import numpy as np
import pytest
from serve.conftest import server_of
from small_run import on_devices, small_config

import charlm
import charlm.training.train
from charlm.api.results import Corrected
from charlm.config import check_resumable, from_dict, load_config_file
from charlm.evaluate_spelling.__main__ import main as evaluate
from charlm.families.hlm.misspelled import ROOM
from charlm.families.hlm.reading import Reader
from charlm.families.hlm.spelling import SpelledWords
from charlm.families.hlm.weighing import Weighing
from charlm.families.lookup import objective_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.predict import main

TEXTS = ["the cta sat on teh mat", "http://cta.org 3.14", ""]


def new_config(trained, folder):
    """Returns the config of a speller that starts from the run `trained`; writes its list into the folder."""
    config = trained.new_config()
    (folder / "list.txt").write_text("cat cta\nmat mta\ntown twon\nhouse huose\nslept slpet\nand adn\ntrees teres\n")
    config.objective = "spelling"
    config.init_from = str(trained.workdir)
    config.spelling.lists = (str(folder / "list.txt"),)
    config.data.bucket_slots = (8,)
    config.data.mask_rate = 0.3
    config.train.steps = config.train.eval_every = 4
    config.train.examples = 2
    return config


@pytest.fixture(scope="module")
def speller(trained, tmp_path_factory):
    """The workdir of a speller that was trained for four steps."""
    folder = tmp_path_factory.mktemp("speller")
    with on_devices(1):
        charlm.training.train.train(new_config(trained, folder), str(folder / "run"))
    return folder / "run"


def heldout(workdir):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["heldout_loss"] for line in lines if "heldout_loss" in line}


def test_the_config_names_the_objective(speller):
    assert objective_of(load_config_file("configs/speller.py")) is SpelledWords
    config = json.loads((speller / "config.json").read_text())
    assert config["objective"] == "spelling"
    lines = [json.loads(line) for line in (speller / "metrics.jsonl").read_text().splitlines()]
    held_out = [line for line in lines if "heldout_mended" in line]
    assert [line["step"] for line in held_out] == [0, 4]
    assert held_out[1]["heldout_loss"] < held_out[0]["heldout_loss"]


def test_a_broken_run_ends_as_the_unbroken_one(speller, trained, tmp_path):
    config = new_config(trained, tmp_path)
    config.train.steps, config.train.examples = 2, 0
    config.spelling.lists = (str(speller.parent / "list.txt"),)
    with on_devices(1):
        charlm.training.train.train(config, str(tmp_path / "run"))
        config.train.steps = 4
        charlm.training.train.train(config, str(tmp_path / "run"))
    assert heldout(tmp_path / "run")[4] == heldout(speller)[4]


@pytest.mark.parametrize("axes", [{"data": 2}, {"fsdp": 2}, {"model": 2}])
def test_more_devices_give_the_same_losses(trained, tmp_path, axes):
    """Tables in two shards, on one device and on two; a run that stops and goes on ends as one that does not."""
    config = new_config(trained, tmp_path)
    config.data.table_shards, config.train.examples, config.spelling.masked = 2, 0, 0.5
    with on_devices(1):
        charlm.training.train.train(config, str(tmp_path / "one"))
    config.mesh.update(axes)
    config.train.steps = 2
    with on_devices(2):
        charlm.training.train.train(config, str(tmp_path / "two"))
        config.train.steps = 4
        charlm.training.train.train(config, str(tmp_path / "two"))
    one, two = heldout(tmp_path / "one"), heldout(tmp_path / "two")
    assert one[4] < one[0]
    np.testing.assert_allclose([two[0], two[4]], [one[0], one[4]], rtol=1e-4)


def test_all_ways_to_ask_agree(speller, capsys):
    predictor = Predictor.from_checkpoint(speller)
    found = predictor.correct(TEXTS, threshold=0.0)
    assert [one.text for one in found] == TEXTS
    assert not found[1].edits
    assert not found[2].edits
    model = charlm.load(speller)
    assert model.abilities == ("encode", "fill_mask", "correct")
    several = model.correct(TEXTS, threshold=0.0)
    assert [one.corrected for one in several] == [one.corrected for one in found]
    one = model.correct(TEXTS[0], threshold=0.0)
    assert isinstance(one, Corrected)
    assert one == several[0]
    assert main(["correct", f"--checkpoint={speller}", "--threshold=0", *TEXTS[:2]]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["corrected"] for line in said] == [one.corrected for one in found[:2]]
    assert [list(line) for line in said] == [["text", "corrected", "edits"]] * 2
    for edit in said[0]["edits"]:
        assert TEXTS[0][edit["start"] : edit["end"]] == edit["word"]


def test_the_server_answers_the_same(speller):
    model = charlm.load(speller)
    with server_of(model) as (_, client):
        for words in (None, ["cat", "mat", "cat"], {"cat": 2, "mat": 1}):
            asked = {"texts": TEXTS[0], "threshold": 0, "words": words}
            (found,) = client.post("/v1/correct", json=asked).json()["results"]
            wanted = model.correct(TEXTS[0], 0, {"cat": 2, "mat": 1} if words else None)
            assert found["corrected"] == wanted.corrected
            assert [edit["probability"] for edit in found["edits"]] == pytest.approx(
                [edit.probability for edit in wanted.edits], abs=1e-5
            )
        refusals = (
            ({"cat": 0}, "count 0, expected a positive number"),
            ({"a b": 1}, "expected words, got 'a b'"),
            ("cat", "expected a list of words"),
        )
        for wrong, said in refusals:
            refused = client.post("/v1/correct", json={"texts": "a", "words": wrong})
            assert refused.status_code == 422
            assert said in refused.json()["error"]


def test_candidates_are_scored_as_the_model_spells_them(speller):
    """The log-probabilities of a word do not depend on the other texts of its batch, nor on the bucket's padding."""
    asked = Predictor.from_checkpoint(speller).reader.asked
    alone = {one.span: one.log_probs_CV for one in asked(TEXTS[:1], 4)}
    together = [one for one in asked([*TEXTS, "a cat ran to every small house in old town"], 4) if not one.text]
    assert {one.span for one in together} == set(alone)
    for one in together:
        slots = min(one.span[1] - one.span[0] + ROOM, 7)
        np.testing.assert_allclose(one.log_probs_CV[:slots], alone[one.span][:slots], atol=2e-5)


def test_an_export_comes_back_as_a_speller(speller, tmp_path):
    from_pretrained(speller).save_pretrained(tmp_path / "theirs", format="pytorch")
    there, here = (charlm.load(folder) for folder in (tmp_path / "theirs", speller))
    assert there.abilities == here.abilities
    assert there.correct(TEXTS[0], threshold=0.0) == here.correct(TEXTS[0], threshold=0.0)


def test_weights_are_fitted_and_stay_with_the_model(speller, tmp_path, capsys):
    """The copy has the parameters of the model, and weights that its own copies have, too."""
    (tmp_path / "text.txt").write_text("The cat and dog ran to every mat. We slept near old trees and a house.\n" * 4)
    (tmp_path / "words.txt").write_text("cat 9\nmat 8\ntown 7\nhouse 6\nslept 5\nhome 4\n")
    told = ["--models", str(speller), "--fit", "--data", f"{tmp_path}/text.txt", "--words", f"{tmp_path}/words.txt"]
    told += ["--lists", str(speller.parent / "list.txt"), "--clean", "0", "--rate", "1", "--out", f"{tmp_path}/fitted"]
    assert evaluate([*told, "--heldout-words", "0.5"]) == 1
    said = capsys.readouterr().err
    assert "--heldout-words=0.5: expected less than the 0.2 of the words" in said
    assert not (tmp_path / "fitted").exists()
    assert evaluate([*told, "--heldout-words", "0.18"]) == 1
    assert "--lists: none of their words is kept from training (0.2) and from evaluations" in capsys.readouterr().err
    assert evaluate([*told, "--heldout-words", "0.0001"]) == 0
    before, fitted = (Predictor.from_checkpoint(path) for path in (speller, tmp_path / "fitted"))
    assert before.weighing == Weighing()
    assert fitted.weighing.own != Weighing().own != fitted.weighing.told
    from_pretrained(tmp_path / "fitted").save_pretrained(tmp_path / "again")
    again = Predictor.from_checkpoint(tmp_path / "again")
    assert again.weighing == fitted.weighing
    edits = lambda predictor: [one.edits for one in predictor.correct(TEXTS, threshold=0.0)]
    assert edits(again) == edits(fitted)
    before.weighing = fitted.weighing
    assert edits(before) == edits(fitted)
    assert evaluate([*told, "--heldout-words", "0.0001"]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_other_models_are_refused_in_one_line(trained, capsys):
    assert main(["correct", f"--checkpoint={trained.workdir}", "teh"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "not trained to correct" in said
    with pytest.raises(ValueError, match="was not trained to correct"):
        charlm.load(trained.workdir).correct("teh")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"spelling.lists": ("none.txt",)}, "spelling.lists: 'none.txt' does not exist"),
        ({"spelling.noise": ("spaces",)}, "join or cut words"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, changes, why):
    config = small_config(tmp_path / "none.txt", tmp_path)
    config.objective = "spelling"
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=why) as told:
        charlm.training.train.train(config, str(tmp_path / "run"))
    assert "\n" not in str(told.value)


def test_runs_from_before_masked_words_go_on():
    """Their configs lack the key: runs of other objectives resume, spellers with it at 0, and read nothing twice."""
    for name, changes in (("hlm_small", {}), ("speller", {"masked": 0.0})):
        config = load_config_file(f"configs/{name}.py")
        config.spelling.update(changes)
        stored = json.loads(config.to_json())
        del stored["spelling"]["masked"]
        saved = from_dict(stored)
        assert saved.spelling.masked == 0.0
        check_resumable(config, saved, where="runs/old")
    with pytest.raises(ValueError, match=r"spelling\.masked is 0\.5, there 0\.0"):
        check_resumable(load_config_file("configs/speller.py"), saved, where="runs/old")


@pytest.mark.parametrize(("hidden", "mask_rate", "twice"), [(0.5, 0.3, True), (0.0, 0.3, False), (0.5, 0.0, False)])
def test_models_that_learned_from_masked_words_read_doubtful_ones_twice(speller, hidden, mask_rate, twice, monkeypatch):
    predictor = Predictor.from_checkpoint(speller)
    predictor.config.spelling.masked, predictor.config.data.mask_rate = hidden, mask_rate
    asked = []
    contexts = Reader.contexts
    monkeypatch.setattr(
        Reader, "contexts", lambda self, texts, doubts, n: asked.extend(doubts) or contexts(self, texts, doubts, n)
    )
    predictor.correct(TEXTS, threshold=0.0)
    assert bool(asked) == twice
