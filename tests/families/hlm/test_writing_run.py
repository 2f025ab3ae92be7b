"""Tests a run of an HLM that writes, from config to text: it learns, resumes, and every way to ask it agrees."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from small_run import on_devices, small_config, write_text

import charlm
import charlm.convert
import charlm.training.train
from charlm.config import load_config_file
from charlm.convert.heads import CAUSAL_LM
from charlm.core import checkpoint as checkpoints
from charlm.families.hlm.flops import writing_training
from charlm.families.hlm.writing import NextWords
from charlm.families.hlm.writing_predictor import WritingPredictor
from charlm.families.lookup import objective_of, units_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.predict import main


def new_config(folder):
    config = small_config(write_text(folder / "text.txt"), folder)
    config.objective = "next_word"
    config.model.position = "rotary"
    config.data.table_shards = 2
    config.train.examples = 1
    config.optim.learning_rate = 1e-2
    config.data.max_words = 24
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The workdir of a model that was trained for twelve steps, and its config."""
    folder = tmp_path_factory.mktemp("writer")
    config = new_config(folder)
    with on_devices(1):
        charlm.training.train.train(config, str(folder / "run"))
    return folder / "run", config


def heldout(workdir):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "heldout_bits_per_char" in line]


def test_the_loss_falls_and_examples_are_shown(run):
    workdir, _ = run
    lines = heldout(workdir)
    assert [line["step"] for line in lines] == [0, 6, 12]
    assert lines[-1]["heldout_bits_per_char"] < 0.85 * lines[0]["heldout_bits_per_char"]
    assert lines[0]["heldout_loss"] > 3


def test_examples_go_on_from_heldout_text(run, log_lines):
    _, config = run
    objective = NextWords(config, NextWords.prepare(config), 2)
    objective.show_examples(Predictor.from_checkpoint(run[0])._params)
    said = str(log_lines)
    assert [line[:10].rstrip() for line in said.splitlines()[-3:]] == ["text", "likeliest", "drawn"]


def test_the_config_names_the_objective():
    for variant in ("", ":tiny"):
        assert objective_of(load_config_file(f"configs/hlm_writer.py{variant}")) is NextWords


def test_a_broken_run_ends_as_the_unbroken_one(run, tmp_path):
    workdir, config = run
    shorter = config.copy_and_resolve_references()
    shorter.train.steps, shorter.train.examples = 6, 0
    with on_devices(1):
        charlm.training.train.train(shorter, str(tmp_path / "run"))
        shorter.train.steps = 12
        charlm.training.train.train(shorter, str(tmp_path / "run"))
    assert heldout(tmp_path / "run")[-1]["heldout_loss"] == heldout(workdir)[-1]["heldout_loss"]


def test_more_devices_give_the_same_losses(run, tmp_path):
    workdir, config = run
    spread = config.copy_and_resolve_references()
    spread.mesh.data, spread.train.examples = 2, 0
    with on_devices(2):
        charlm.training.train.train(spread, str(tmp_path / "run"))
    found, expected = ([line["heldout_loss"] for line in heldout(folder)] for folder in (tmp_path / "run", workdir))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_all_ways_to_ask_agree(run, capsys):
    workdir, _ = run
    pretrained = from_pretrained(workdir)
    assert pretrained.head == CAUSAL_LM
    predictor = Predictor.from_checkpoint(workdir)
    assert isinstance(predictor, WritingPredictor)
    model = charlm.load(workdir)
    assert model.abilities == ("score", "generate")
    (written,) = predictor.generate(["the cat "], 4)
    assert model.generate("the cat ", 4).text == written.text
    assert main(["generate", f"--checkpoint={workdir}", "--max-new=4", "the cat "]) == 0
    assert json.loads(capsys.readouterr().out)["generated"] == written.text
    (score,) = predictor.score(["the cat sat."])
    assert model.score("the cat sat.").bits_per_char == score.bits_per_char
    assert main(["score", f"--checkpoint={workdir}", "--total-only", "the cat sat."]) == 0
    assert json.loads(capsys.readouterr().out)["bits_per_char"] == pytest.approx(score.bits_per_char, abs=1e-5)
    typos, clean = (predictor.score([text])[0].bits_per_char for text in ("xqe zzt sat.", "the cat sat."))
    assert typos > clean


def test_the_heldout_metric_is_the_score_of_the_text(run):
    """Bits per character of the evaluation are those that `score` gives for the held-out texts, up to their order."""
    workdir, config = run
    prepared = NextWords.prepare(config)
    objective = NextWords(config, prepared, 2)
    predictor = Predictor.from_checkpoint(workdir)
    nats, chars = 0.0, 0
    for batch in objective.heldout_batches((0, 1)):
        for shard in range(2):
            texts = predictor.texts_of(jax.tree.map(lambda x, shard=shard: x[0, shard : shard + 1], batch))
            for score in predictor.score([text for text in texts if text]):
                nats, chars = nats - score.log_prob, chars + score.chars
    assert nats / chars / np.log(2) == pytest.approx(heldout(workdir)[-1]["heldout_bits_per_char"], rel=1e-3)


def test_useful_operations_are_those_of_the_layers(run):
    """Without padding every product of the model counts; the number is compared with one that is counted by hand."""
    _, config = run
    objective = NextWords(config, NextWords.prepare(config), 2)
    batch = objective.sample()
    shape = objective.model.config
    assert shape.causal
    labels = sum(int((bucket.labels_SMC != 0).sum()) for bucket in batch.masked)
    output = 6 * labels * shape.hidden * (shape.vocab_size + shape.hidden)
    whole = writing_training(shape, batch)
    assert output < whole < 100 * output


def test_it_is_saved_loaded_and_not_exported(run, tmp_path, capsys):
    workdir, _ = run
    pretrained = from_pretrained(workdir)
    pretrained.save_pretrained(tmp_path / "saved")
    first, second = (Predictor.from_checkpoint(folder) for folder in (workdir, tmp_path / "saved"))
    assert first.generate(["a "], 3)[0].ids == second.generate(["a "], 3)[0].ids
    with pytest.raises(ValueError, match="the released code has no HLM that writes"):
        pretrained.save_pretrained(tmp_path / "theirs", format="pytorch")
    assert not (tmp_path / "theirs").exists()


def test_it_is_not_fine_tuned(run):
    with pytest.raises(ValueError, match="is an HLM that writes, which is not fine-tuned"):
        units_of(from_pretrained(run[0]))


def test_encoded_words_do_not_say_where_spaces_are(run, tmp_path):
    workdir, config = run
    other = config.copy_and_resolve_references()
    other.data.train = (f"{next(iter(NextWords.prepare(config).train)).paths[0]}",)
    with pytest.raises(ValueError, match="objective=next_word writes spaces"):
        charlm.training.train.train(other, str(tmp_path / "run"))
    assert checkpoints.find(workdir)
