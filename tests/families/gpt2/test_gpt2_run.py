"""Tests the pre-training of a GPT-2: it learns, resumes, spreads, starts from another one, and is one afterwards."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from small_run import on_devices, short, write_text

import charlm
import charlm.training.train
from charlm.config import get_config, load_config_file, validate
from charlm.families.gpt2.objective import NextPieces
from charlm.families.lookup import objective_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained


def new_config(folder):
    config = short(get_config("gpt2"), write_text(folder / "text.txt"), folder)
    config.text.pieces = 320
    config.data.max_length = config.model.max_positions = 24
    config.data.batch_size = 8
    config.data.table_shards = 2
    config.model.hidden = 16
    config.model.heads = 2
    config.model.layers = 2
    config.model.ffn = 32
    config.model.dropout = config.model.attention_dropout = config.model.embed_dropout = 0.1
    config.train.examples = 1
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The workdir of a model that was trained for eight steps, and its config."""
    folder = tmp_path_factory.mktemp("gpt2")
    config = new_config(folder)
    with on_devices(1):
        charlm.training.train.train(config, str(folder / "run"))
    return folder / "run", config


def heldout(workdir):
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "heldout_bits_per_char" in line]


def changed(config, **changes):
    other = config.copy_and_resolve_references()
    other.train.examples = 0
    other.update_from_flattened_dict({key.replace("__", "."): value for key, value in changes.items()})
    return other


def test_the_loss_falls(run):
    lines = heldout(run[0])
    assert [line["step"] for line in lines] == [0, 4, 8]
    assert lines[0]["heldout_loss"] == pytest.approx(np.log(320), abs=0.1)
    assert lines[-1]["heldout_bits_per_char"] < 0.95 * lines[0]["heldout_bits_per_char"]


def test_the_configs_are_gpt2s():
    for variant in ("", ":tiny"):
        assert objective_of(load_config_file(f"configs/gpt2_base.py{variant}")) is NextPieces


def test_a_broken_run_ends_as_the_unbroken_one(run, tmp_path):
    workdir, config = run
    with on_devices(1):
        charlm.training.train.train(changed(config, train__steps=4), str(tmp_path / "run"))
        charlm.training.train.train(changed(config), str(tmp_path / "run"))
    assert heldout(tmp_path / "run")[-1]["heldout_loss"] == heldout(workdir)[-1]["heldout_loss"]


def test_more_devices_give_the_same_losses(run, tmp_path):
    workdir, config = run
    with on_devices(2):
        charlm.training.train.train(changed(config, mesh__data=2), str(tmp_path / "run"))
    found, expected = ([line["heldout_loss"] for line in heldout(folder)] for folder in (tmp_path / "run", workdir))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_batches_hold_the_text_behind_the_end_of_another(run):
    _, config = run
    objective = NextPieces(config, NextPieces.prepare(config), 2)
    tokenizer, texts = objective.data.tokenizer, []
    for batch in objective.heldout_batches((0, 1)):
        ids_BL, mask_BL, chars_B = (np.asarray(x)[0].reshape(-1, *x.shape[3:]) for x in batch)
        for ids_L, mask_L, chars in zip(ids_BL, mask_BL, chars_B, strict=True):
            if mask_L.any():
                assert ids_L[0] == tokenizer.special.eos
                texts.append(tokenizer.decode(ids_L[1 : mask_L.sum()].tolist()))
                assert len(texts[-1]) == chars
    read = "".join(texts)
    assert read.count("supercalifragilistic") > 5
    assert sum(line.count(".") for line in texts) >= 30


def test_the_heldout_metric_is_the_score_of_the_text(run):
    """Bits per character of the evaluation are those that `score` gives for the texts of the batches."""
    workdir, config = run
    objective = NextPieces(config, NextPieces.prepare(config), 2)
    predictor, nats, chars = Predictor.from_checkpoint(workdir), 0.0, 0
    for batch in objective.heldout_batches((0, 1)):
        ids_BL, mask_BL = (np.asarray(x)[0].reshape(-1, x.shape[-1]) for x in (batch.ids_BL, batch.mask_BL))
        texts = [objective.data.tokenizer.decode(i[1 : m.sum()].tolist()) for i, m in zip(ids_BL, mask_BL, strict=True)]
        for score in predictor.score([text for text in texts if text]):
            nats, chars = nats - score.log_prob, chars + score.chars
    assert nats / chars / np.log(2) == pytest.approx(heldout(workdir)[-1]["heldout_bits_per_char"], rel=1e-2)


def test_it_is_a_gpt2(run, tmp_path):
    """It writes, scores, and comes back from the format of transformers with the same scores."""
    workdir, _ = run
    pretrained = from_pretrained(workdir)
    assert (pretrained.family, pretrained.head) == ("gpt2", "causal_lm")
    model = charlm.load(workdir)
    assert model.abilities == ("encode", "score", "generate")
    assert model.generate("the cat", 3).text
    pretrained.save_pretrained(tmp_path / "theirs", format="pytorch")
    there = charlm.load(tmp_path / "theirs")
    assert there.score("the cat sat.").bits_per_char == pytest.approx(model.score("the cat sat.").bits_per_char)


def test_it_starts_from_another_gpt2(run, tmp_path):
    workdir, config = run
    with on_devices(1):
        charlm.training.train.train(changed(config, init_from=str(workdir)), str(tmp_path / "run"))
    assert heldout(tmp_path / "run")[0]["heldout_loss"] == pytest.approx(heldout(workdir)[-1]["heldout_loss"], rel=1e-5)


def test_another_shape_or_other_subwords_are_refused(run, tmp_path):
    workdir, config = run
    NextPieces.prepare(changed(config, text__pieces=310)).tokenizer.save(tmp_path / "pieces")
    wider = changed(config, init_from=str(workdir), model__ffn=64)
    other = changed(config, init_from=str(workdir), text__tokenizer=str(tmp_path / "pieces"))
    with on_devices(1):
        with pytest.raises(ValueError, match=r"gpt2/.* is .*, expected"):
            charlm.training.train.train(wider, str(tmp_path / "wider"))
        with pytest.raises(ValueError, match="other subwords"):
            charlm.training.train.train(other, str(tmp_path / "other"))


def test_longer_sequences_than_positions_are_refused(run):
    with pytest.raises(ValueError, match=r"data.max_length=25 must lie in \[8, 24\]"):
        validate(changed(run[1], data__max_length=25))


def test_subwords_of_another_kind_are_refused(tmp_path, run):
    from tiny_models import release

    with pytest.raises(ValueError, match="subwords of the family bert; expected gpt2"):
        NextPieces.prepare(changed(run[1], text__tokenizer=str(release("bert"))))


def test_useful_operations_are_those_of_the_layers(run):
    _, config = run
    objective = NextPieces(config, NextPieces.prepare(config), 2)
    batch = objective.sample()
    lengths = np.asarray(batch.mask_BL).sum(axis=-1).ravel().astype(float)
    D, F, V = 16, 32, objective.model.config.vocab_size
    pairs = (lengths**2 + lengths).sum() / 2
    layer = 2 * lengths.sum() * (4 * D * D + 2 * D * F) + 4 * pairs * D
    expected = 3 * (2 * layer + 2 * (lengths - 1).clip(0).sum() * D * V)
    assert objective.training_flops(jax.tree.map(np.asarray, batch)) == pytest.approx(expected)
