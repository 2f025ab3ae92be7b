"""Tests a run of an HLM that writes, from config to text: it learns, resumes, and every way to ask it agrees."""

from __future__ import annotations

import json
import re

import jax
import numpy as np
import pytest
from small_run import on_devices, small_config, write_text

import charlm
import charlm.convert
import charlm.training.train
from charlm.config import load_config_file
from charlm.convert.heads import CAUSAL_LM
from charlm.core.sharding import RULES
from charlm.core.trees import flat
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
    """The operations of a batch, counted from its masks and letters by the sizes of every layer."""
    _, config = run
    objective = NextWords(config, NextWords.prepare(config), 2)
    batch = jax.tree.map(np.asarray, objective.sample())
    D, F, V, P = 16, 32, 64, 8
    tables = [x for x in (*batch.chars, *(bucket.chars_SPC for bucket in batch.masked)) if x.size]
    length = np.concatenate([(x != 0).sum(axis=-1).ravel() for x in tables]).astype(float)
    length = length[length > 0]
    # One layer inside words, which computes slot 0 alone; P bounds how many rows of positions are scored.
    pairs = length.sum()
    inside = 4 * length.sum() * D * D + 4 * len(length) * D * D + 4 * len(length) * D * F
    inside += 2 * (2 * pairs + 2 * min(pairs, 2 * P * length.sum())) * D
    words = batch.mask_SBW.sum(axis=-1).ravel().astype(float)
    between = 8 * words.sum() * D * D + 4 * words.sum() * D * F + 4 * D * (words**2 + words).sum() / 2
    letters = np.concatenate([(bucket.labels_SMC != 0).sum(axis=-1).ravel() for bucket in batch.masked]).astype(float)
    writing = 8 * letters.sum() * D * D + 4 * letters.sum() * D * F + 4 * D * (letters**2 + letters).sum() / 2
    head = 2 * (letters > 0).sum() * D * D + 2 * letters.sum() * D * (D + V)
    assert writing_training(objective.model.config, batch) == pytest.approx(3 * (inside + between + writing + head))


def test_it_is_saved_loaded_and_not_exported(run, tmp_path):
    workdir, _ = run
    pretrained = from_pretrained(workdir)
    pretrained.save_pretrained(tmp_path / "saved")
    first, second = (Predictor.from_checkpoint(folder) for folder in (workdir, tmp_path / "saved"))
    assert first.generate(["a "], 3)[0].ids == second.generate(["a "], 3)[0].ids
    with pytest.raises(ValueError, match="the released code has no HLM that writes"):
        pretrained.save_pretrained(tmp_path / "theirs", format="pytorch")
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("axes", [{"data": 2}, {"fsdp": 2}, {"model": 2}])
def test_more_devices_give_the_same_losses(run, tmp_path, axes):
    workdir, config = run
    spread = config.copy_and_resolve_references()
    spread.mesh.update(axes)
    spread.train.examples, spread.train.steps = 0, 6
    with on_devices(2):
        charlm.training.train.train(spread, str(tmp_path / "run"))
    found, expected = ([line["heldout_loss"] for line in heldout(folder)] for folder in (tmp_path / "run", workdir))
    np.testing.assert_allclose(found, expected[:2], rtol=1e-4)


def test_every_parameter_has_its_place(run):
    _, config = run
    params = jax.eval_shape(NextWords(config, NextWords.prepare(config), 2).init_params, jax.random.key(0))
    places = {name: sum(bool(re.search(pattern, f"params/{name}")) for pattern, _ in RULES) for name in flat(params)}
    assert set(places.values()) == {1}, places


def test_a_model_of_another_objective_is_no_start(run, trained, tmp_path):
    other = run[1].copy_and_resolve_references()
    other.init_from = str(trained.workdir)
    with on_devices(1), pytest.raises(ValueError, match="is an HLM of objective=''; expected one that writes"):
        charlm.training.train.train(other, str(tmp_path / "run"))


def test_it_is_not_fine_tuned(run):
    with pytest.raises(ValueError, match="is an HLM that writes, which is not fine-tuned"):
        units_of(from_pretrained(run[0]))


def test_encoded_words_do_not_say_where_spaces_are(run, tmp_path):
    _, config = run
    other = config.copy_and_resolve_references()
    other.data.train = (f"{next(iter(NextWords.prepare(config).train)).paths[0]}",)
    with pytest.raises(ValueError, match="objective=next_word writes spaces"):
        charlm.training.train.train(other, str(tmp_path / "run"))
