"""A small HLM with all newer parts, trained, resumed, applied, kept as a table and written as a program."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from small_run import WORDS, metrics_without_timings, on_devices, small_config, write_text

import charlm.training.train
from charlm.core import checkpoint as checkpoints
from charlm.core.word_table import FOLDER, WordTable, keys_of
from charlm.data.subword_building import build_wordpiece
from charlm.export.program import load
from charlm.export.stablehlo import write
from charlm.families.predictor import Predictor
from charlm.families.word_tables import write_table
from charlm.training.run import build
from charlm.training.train import train

TEXTS = ["the cat sat on a mat and dog ran to every small house", "a dog", "", "naïve cat, near old trees"]
LONG = " ".join(["the cat sat near", "old trees in town"] * 6)  # longer than three windows, and than a sequence


def modern(folder: Path):
    """The config of tests with every newer part."""
    config = small_config(folder / "text.txt", folder / "cache")
    model = {"position": "rotary", "norm_position": "pre", "norm": "rms", "feed_forward": "geglu", "bias": False}
    config.model.update(model | {"ngrams": 64, "local_words": 3, "global_every": 2, "inter_layers": 3})
    config.text.tokenizer = str(folder / "subwords")
    config.train.steps, config.train.eval_every, config.train.checkpoint_every = 12, 6, 6
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a finished run with its text, and the programs of the run."""
    folder = tmp_path_factory.mktemp("modern")
    write_text(folder / "text.txt")
    build_wordpiece(Counter(dict.fromkeys(WORDS, 9)), 200, str(folder / "subwords"))
    made = []
    keep = lambda *arguments: made.append(build(*arguments)) or made[0]
    with on_devices(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(charlm.training.train, "build", keep)
        train(modern(folder), str(folder / "run"))
    return folder, made[0]


@pytest.fixture(scope="module")
def model(run):
    """The predictor of the trained model, with weights so large that everything depends on what it may depend on."""
    predictor = Predictor.from_checkpoint(run[0] / "run")
    params = jax.tree.map(lambda x: x * 4 if x.ndim > 1 else x, predictor._params)
    return type(predictor)(predictor.config, predictor.vocab, params, pieces=predictor.pieces)


def test_the_loss_falls(run):
    losses = [line["heldout_loss"] for line in metrics_without_timings(run[0] / "run") if "heldout_loss" in line]
    assert losses[-1] < losses[0] - 0.1


def test_a_run_goes_on_to_the_bit(run, tmp_path, monkeypatch):
    folder, made = run

    def again(config, data):
        objective = copy.copy(made.objective)
        objective.data = data
        return dataclasses.replace(made, learning=objective)

    monkeypatch.setattr(charlm.training.train, "build", again)
    config = modern(folder)
    config.resume = str(folder / "run" / "checkpoints" / "6")
    with on_devices(1):
        train(config, str(tmp_path / "run"))
    loaded = [
        jax.device_get(checkpoints.load_params(checkpoints.find(where), made.abstract_state.params))
        for where in (tmp_path / "run", folder / "run")
    ]
    jax.tree.map(np.testing.assert_array_equal, *loaded)
    for part in ("ngrams", "pieces"):
        assert np.abs(loaded[0]["hlm"]["embed"][part]["embedding"]).max() > 1e-3


def test_cached_words_and_rows_of_several_texts_change_no_vector(model):
    """One by one without a cache is each text in a row of its own, with the characters of its words."""
    plain = copy.copy(model)
    plain.cache = None
    texts = [*TEXTS, LONG]
    alone = [plain.encode([text])[0] for text in texts]
    for found in (model.encode(texts), model.encode(texts, batch_size=2)):
        for got, want in zip(found, alone, strict=True):
            np.testing.assert_allclose(got.vectors_WD, want.vectors_WD, atol=2e-5)
    assert model.cache.stats.hits > 0


def test_attention_is_shown_and_local_layers_show_their_window(model):
    inside, between = model.views(TEXTS[0]).views
    (whole,) = between.maps
    place = np.arange(len(whole.readers))
    far = np.abs(place[:, None] - place) > 3
    assert len(whole.weights_LHQN) == 3
    for number, layer in enumerate(whole.weights_LHQN):
        np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-3)
        assert (layer[..., far].max() == 0) == bool(number % 2)
    assert len(inside.maps) == len(TEXTS[0].split())


@pytest.mark.parametrize("part", ["ngrams", "pieces"])
def test_a_table_of_words_has_their_ngrams_and_pieces(model, tmp_path, part):
    assert write_table(model, ["the", "cat", "house"], tmp_path) == 5  # [CLS] and [SEP] are words, too
    rows_UC = model.word_rows(["the", "cat", "house"])[1]
    table = WordTable(tmp_path / FOLDER)
    stored = np.asarray(table.vectors_ND[table.rows(keys_of(rows_UC))])
    np.testing.assert_allclose(stored, model.cache.encoded(model.word_params, rows_UC), atol=1e-6)
    embed = {**model.word_params["embed"]}
    embed[part] = jax.tree.map(np.zeros_like, embed[part])
    without = model.cache.encoded({**model.word_params, "embed": embed}, rows_UC)
    assert np.abs(without - stored)[:3].max(axis=1).min() > 1e-3


@pytest.mark.slow
def test_a_program_for_any_sizes_computes_the_same(run, tmp_path):
    pytest.importorskip("flatbuffers", reason="jax.export writes with flatbuffers")
    program = load(run[0] / "run")
    assert "a program of" in write(program, tmp_path, ("cpu",))
