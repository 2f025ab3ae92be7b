"""Tests when a folder of weights counts as another model than before."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from charlm.core.checkpoint import save_params
from charlm.families import origin
from charlm.families.origin import Weights, described, origin_at, stored_origin


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A folder with weights in one file, and a cache of its own."""
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"scale": np.ones(3, np.float32)}, folder / "model.safetensors")
    return folder


def test_weights_are_known_by_their_content_wherever_they_lie(weights, tmp_path):
    before = origin_at(weights)
    assert isinstance(before, Weights)
    assert origin_at(weights / "model.safetensors") == before
    (weights / "README.md").write_text("says nothing of the weights")
    os.utime(weights / "model.safetensors", (1, 1))
    assert origin_at(weights.rename(tmp_path / "moved")) == before
    save_file({"scale": np.zeros(3, np.float32)}, tmp_path / "moved" / "model.safetensors")
    assert origin_at(tmp_path / "moved") != before
    assert str(before) == f"sha256 {before.sha256[:12]}"


def test_every_shard_counts(weights):
    (weights / "model.safetensors").rename(weights / "one.safetensors")
    save_file({"bias": np.ones(3, np.float32)}, weights / "two.safetensors")
    index = {"weight_map": {"scale": "one.safetensors", "bias": "two.safetensors"}}
    (weights / "model.safetensors.index.json").write_text(json.dumps(index))
    before = origin_at(weights)
    assert isinstance(before, Weights)
    save_file({"bias": np.zeros(3, np.float32)}, weights / "two.safetensors")
    assert origin_at(weights) not in (before, None)
    (weights / "two.safetensors").unlink()
    assert origin_at(weights) is None


def test_weights_are_read_once(weights, monkeypatch):
    before = origin_at(weights)
    monkeypatch.setattr("charlm.data.digests.hashlib", None)
    assert origin_at(weights) == before


def test_no_model_has_no_identity(tmp_path):
    assert origin_at(tmp_path) is None
    assert origin_at(tmp_path / "nowhere") is None


def test_an_identity_is_stored_as_json(weights, tmp_path):
    save_params(tmp_path / "checkpoint", {"scale": [1.0]}, {"config": {}})
    found = [origin_at(weights), origin_at(tmp_path / "checkpoint"), None]
    assert isinstance(found[1], origin.checkpoints.Identity)
    assert [stored_origin(json.loads(json.dumps(described(one)))) for one in found] == found
    assert stored_origin({}) is None
