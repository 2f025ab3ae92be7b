"""Tests that the short form of `charlm train` and its like stands for the flags that it should."""

from __future__ import annotations

import pytest

from charlm.shorthand import flags_of

TINY = "--config=configs/hlm_base.py:tiny"
TAG = "--config=configs/tag.py"


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        ("train", "hlm_base:tiny --workdir runs/hlm", [TINY, "--workdir=runs/hlm"]),
        ("train", f"{TINY} --config.seed=3", [TINY, "--config.seed=3"]),
        ("train", "--plain --config configs/hlm_base.py:tiny --set seed=1", ["--plain", TINY, "--config.seed=1"]),
        ("train", "hlm_base:tiny --set optim.learning_rate=1e-4", [TINY, "--config.optim.learning_rate=1e-4"]),
        ("train", "hlm_base:tiny --set lr=1e-4", [TINY, "--config.optim.learning_rate=1e-4"]),
        ("train", "hlm_base:tiny --set=lr=1 --plain", [TINY, "--plain", "--config.optim.learning_rate=1"]),
        (
            "train",
            "hlm_base:tiny --set steps=5 bs=8 --workdir=run",
            [TINY, "--workdir=run", "--config.train.steps=5", "--config.data.batch_size=8"],
        ),
        ("train", "hlm_base:tiny --set optim.lr=1 seed=2", [TINY, "--config.optim.learning_rate=1", "--config.seed=2"]),
        ("train", "hlm_base:tiny --set data.train=a,b=c", [TINY, "--config.data.train=a,b=c"]),
        ("train", "hlm_base:tiny --set hiden=5", [TINY, "--config.hiden=5"]),
        ("train", "hlm_base:huge --set lr=5", ["--config=configs/hlm_base.py:huge", "--config.lr=5"]),
        (
            "finetune",
            "tag --model runs/hlm --train=a.conll --dev b.conll --set epochs=2",
            [TAG, "--config.init_from=runs/hlm", "--config.data.train=a.conll", "--config.data.dev=b.conll",
             "--config.train.epochs=2"],
        ),
        ("plan", "hlm_base:tiny --topology=cpu:1", [TINY, "--topology=cpu:1"]),
        ("plan", "tag --topology=cpu:1", [TAG, "--topology=cpu:1"]),
        ("plan", "tag --tries=3 --price=2 --v=1", [TAG, "--tries=3", "--price=2", "--v=1"]),  # like no option of ours
    ],
)  # fmt: skip
def test_the_flags_that_a_short_form_stands_for(command, given, expected):
    assert flags_of(command, given.split()) == expected


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("train", "", r"^no config: charlm train hlm_base:tiny"),
        ("train", "--workdir runs/hlm", r"^no config: charlm train"),
        ("train", "hml_base", r"^there is no config 'hml_base'; did you mean hlm_base\?"),
        ("train", "league:tiny", r"^league is a config of charlm league, not of charlm train$"),
        ("train", "tag", r"^the config tag fine-tunes a model: charlm finetune tag"),
        ("finetune", "hlm_base:tiny", r"^the config hlm_base pre-trains a model: charlm train hlm_base"),
        ("train", "hlm_base:tiny --set", r"^--set : expected KEY=VALUE"),
        ("train", "hlm_base:tiny --set lr", r"^--set lr: expected KEY=VALUE"),
        ("train", "hlm_base:tiny --train", r"^--train needs a value"),
        ("train", "hlm_base:tiny --set lr=1 --workdir", r"^--workdir needs a value: the folder of the run$"),
        ("train", "hlm_base:tiny --workdir= --set lr=1", r"^--workdir needs a value"),
        ("train", "hlm_base:tiny --workdir --plain", r"^--workdir needs a value"),
        ("finetune", "tag --modle x", r"^unknown option --modle; did you mean --model\?$"),
        ("plan", "tag --topolgy=cpu:1", r"^unknown option --topolgy; did you mean --topology\?$"),
        ("train", "char2subword_base --set lr=1", r"^lr: which of .*optim.learning_rate.*\?"),
    ],
)
def test_mistakes(command, given, message):
    with pytest.raises(ValueError, match=message):
        flags_of(command, given.split())


def test_a_file_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("from charlm.config import get_config")
    monkeypatch.chdir(tmp_path)
    assert flags_of("train", ["mine.py"]) == ["--config=mine.py"]
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "other.py").write_text("from charlm.config import get_config")
    assert flags_of("train", ["other", "--set", "lr=1"])[0] == "--config=configs/other.py"
