"""Tests that a run which is resumed notices that the weights it started from were exchanged."""

from __future__ import annotations

import re

import ml_collections
import numpy as np
import pytest
from safetensors.numpy import save_file

from charlm.core.checkpoint import save_params
from charlm.families.origin import origin_at
from charlm.training.workdir import check_source, check_source_kept, started_from


def write_weights(folder, value):
    folder.mkdir(exist_ok=True)
    save_file({"scale": np.full(3, value, np.float32)}, folder / "model.safetensors")
    return origin_at(folder)


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The config of a run that started from weights, the folder of the weights, and that of the run."""
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    write_weights(tmp_path / "weights", 1)
    config = ml_collections.ConfigDict({"init_from": str(tmp_path / "weights")})
    save_params(tmp_path / "run", {"scale": [1.0]}, {"config": {}, "started_from": started_from(config)})
    return config, tmp_path / "weights", tmp_path / "run"


def test_weights_that_stay_or_move_are_the_same(started, log_lines, tmp_path):
    config, weights, run = started
    check_source(config, run)
    check_source_kept(config, run)
    config.init_from = str(weights.rename(tmp_path / "moved"))
    check_source(config, run)
    check_source_kept(config, run)
    assert str(log_lines) == ""


def test_exchanged_weights_are_noticed(started, log_lines):
    config, weights, run = started
    before = origin_at(weights)
    now = write_weights(weights, 2)
    said = f"init_from={weights} holds other weights now ({now}) than {run} started from ({before})"
    check_source(config, run)  # pre-training does not read them again
    assert f"{said}; the run goes on from its own" in str(log_lines)
    with pytest.raises(ValueError, match=f"^{re.escape(said)}: choose another --workdir$"):
        check_source_kept(config, run)


def test_other_weights_are_refused(started, tmp_path):
    config, weights, run = started
    before, other = origin_at(weights), write_weights(tmp_path / "other", 2)
    config.init_from = str(tmp_path / "other")
    said = f"started from {weights} ({before}), not from init_from={tmp_path / 'other'} ({other}): choose another"
    with pytest.raises(ValueError, match=re.escape(said)):
        check_source(config, run)


def test_a_run_from_before_digests_were_stored_goes_on(started, log_lines, tmp_path):
    config, weights, _ = started
    stored = {"init_from": config.init_from, "checkpoint": None}
    save_params(tmp_path / "old", {"scale": [1.0]}, {"config": {}, "started_from": stored})
    write_weights(weights, 2)
    check_source(config, tmp_path / "old")
    check_source_kept(config, tmp_path / "old")
    assert str(log_lines) == ""


def test_weights_are_noticed_in_place_of_a_checkpoint(started, tmp_path):
    config, weights, _ = started
    (weights / "model.safetensors").unlink()
    weights.rmdir()
    save_params(weights, {"scale": [1.0]}, {"config": {}})
    save_params(tmp_path / "other", {"scale": [1.0]}, {"config": {}, "started_from": started_from(config)})
    weights.rename(tmp_path / "away")
    now = write_weights(weights, 2)
    with pytest.raises(ValueError, match=re.escape(f"holds other weights now ({now}) than {tmp_path / 'other'} ")):
        check_source_kept(config, tmp_path / "other")
