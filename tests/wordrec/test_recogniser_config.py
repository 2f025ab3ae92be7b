"""Tests the config of a recogniser: its variants, settings, and mistakes in one line."""

from __future__ import annotations

import pytest

from charlm.config import flatten, to_json
from charlm.config.apart import check_resumable, set_key, validate
from charlm.wordrec.config import KEYS, RECOGNISER, get_config, load


def test_variants_and_settings():
    config = load("wordrec:mixed+tiny", ["data.train=a.txt, b.txt", "train.steps=7", "data.shuffle=False"])
    assert config.data.noise == ("charbert:0.5",)
    assert config.data.train == ("a.txt", "b.txt")
    assert (config.train.steps, config.data.shuffle, config.text.words) == (7, False, 2000)
    released = load("wordrec")
    assert (released.text.words, released.model.hidden, released.data.batch_size) == (9999, 50, 32)
    assert released.data.noise == ("charbert:1",)
    assert KEYS.keys() == flatten(released).keys() - {"init_from", "resume", "model.remat"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["train.step=1"],
            r"step=1: a word recogniser has no key train\.step; did you mean train\.steps\?",
        ),
        (["train.steps"], "expected KEY=VALUE"),
        (["train.steps=many"], "expected a value such as 20000"),
        (["train.steps=0"], "train.steps=0 must be at least 1"),
        (["data.shuffle=yes"], "expected True or False"),
        (["data.noise="], "data.noise is empty"),
        (["data.noise=spaces"], "data.noise=spaces:0.1: it may join or cut words"),
        (["data.noise=misspelling"], "it needs a list of misspellings"),
        (["data.noise=keybord"], "did you mean keyboard"),
        (["text.splitter=words"], "text.splitter='words' is not one of"),
        (["data.train=gs://bucket/text"], "data.train=gs://bucket/text is an address"),
        (["data.weights=1,2"], "data.weights=.*: expected a positive number for each of data.train"),
        (["data.weights=0"], "data.weights=.*: expected a positive number for each of data.train"),
        (["data.weights=much"], "expected numbers, such as 1,2"),
        (["model.remat=True"], "a word recogniser has no key model.remat"),
        (["seed=-1"], "seed=-1"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        load("wordrec", settings)


def test_other_configs_are_refused():
    with pytest.raises(ValueError, match="league: expected the config of a word recogniser, got task='league'"):
        load("league")
    with pytest.raises(ValueError, match=r"configs/wordrec\.py has no variant 'huge'; choose mixed, tiny"):
        load("wordrec:huge")
    config = get_config()
    with config.unlocked():
        config.data.wrong = 1
    with pytest.raises(ValueError, match=r"unknown config key data\.wrong"):
        validate(RECOGNISER, config)


def test_a_run_goes_on_with_its_config(tmp_path):
    path = tmp_path / "config.json"
    saved = load("wordrec:tiny", ["data.table_shards=4"])
    path.write_text(to_json(saved), encoding="utf-8")
    config = load("wordrec:tiny", ["train.steps=7", "data.prefetch=0"])
    check_resumable(RECOGNISER, config, path, "runs/x")
    assert config.data.table_shards == 4
    set_key(RECOGNISER, config, "model.hidden=8")
    with pytest.raises(ValueError, match=r"runs/x holds a run of another config: model\.hidden is 8, there 50; choose"):
        check_resumable(RECOGNISER, config, path, "runs/x")
    path.write_text('{"task": "masked_lm"}', encoding="utf-8")
    with pytest.raises(ValueError, match="runs/x holds a run of the task masked_lm; choose another --workdir"):
        check_resumable(RECOGNISER, config, path, "runs/x")
    path.write_text("[", encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json is not the config of a run"):
        check_resumable(RECOGNISER, config, path, "runs/x")


def test_weights_are_numbers():
    assert load("wordrec", ["data.train=a,b", "data.weights=1,2.5"]).data.weights == (1.0, 2.5)
