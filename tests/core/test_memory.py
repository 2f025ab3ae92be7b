"""Tests that one line says which key to lower when memory runs out."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from small_run import ROOT

import charlm.predict
import charlm.training.train
from charlm.config import get_config, load_config_file
from charlm.core.checkpoint import clear_reads, find
from charlm.core.memory import clear_exhaustion
from charlm.finetune import run as finetuning
from charlm.predict import command_line
from charlm.training.loop import Loop
from charlm.training.train import train

ASKED = "out of memory on the device: Out of memory allocating 281474976710656 bytes; "


def ask_for_too_much(*_):
    jnp.zeros(1 << 46).block_until_ready()


def test_in_training(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: trained.run)
    monkeypatch.setattr(Loop, "_step", ask_for_too_much)
    with pytest.raises(ValueError, match=r"^out of memory") as e:
        train(trained.new_config(), str(tmp_path / "run"))
    assert str(e.value) == (
        f"{ASKED}lower data.batch_size (now 8), or keep it and raise data.accumulation (now 1), or set model.remat=True"
    )


def test_a_stage_names_its_own_keys():
    config = get_config("char2subword")
    config.stage, config.model.remat = "contextual", True
    assert charlm.training.train._smaller(config) == (
        "lower contextual.batch_size (now 2000), or keep it and raise contextual.accumulation (now 125)"
    )


def test_in_fine_tuning(tmp_path, monkeypatch):
    config = load_config_file(f"{ROOT}/configs/tag.py")
    monkeypatch.setattr(finetuning, "_fine_tune", ask_for_too_much)
    with pytest.raises(
        ValueError, match=r"^out of memory.*lower data\.batch_size \(now 16\) or raise data\.accumulation"
    ):
        finetuning.fine_tune(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_in_prediction(monkeypatch, capsys):
    monkeypatch.setattr(command_line, "_answer_all", ask_for_too_much)
    assert command_line.main(["encode", "--checkpoint=x", "--batch-size=7", "a text"]) == 1
    assert capsys.readouterr().err == f"error: {ASKED}lower --batch-size (now 7)\n"


def test_a_checkpoint_for_which_there_is_no_memory_is_not_called_damaged(trained):
    with pytest.raises(RuntimeError, match=r"^RESOURCE_EXHAUSTED"), clear_reads(find(trained.workdir)):
        ask_for_too_much()


def test_nothing_else_is_taken_for_it():
    with pytest.raises(RuntimeError, match=r"^INTERNAL: broken$"), clear_exhaustion("advice"):
        raise RuntimeError("INTERNAL: broken")
    with (
        pytest.raises(ValueError, match=r"^out of memory: Unable to allocate 3\. GiB; advice$"),
        clear_exhaustion("advice"),
    ):
        raise MemoryError("Unable to allocate 3. GiB")
