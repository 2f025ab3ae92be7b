"""Tests that the shape of a batch is measured for the devices that it is for."""

from __future__ import annotations

import pytest
from small_run import small_config, write_text

from charlm.families.hlm import shape
from charlm.families.lookup import prepare
from charlm.nn.kernels import Machine


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_buckets_are_those_of_the_platform(tmp_path, monkeypatch, platform):
    seen = []
    monkeypatch.setattr(shape, "this_machine", lambda: Machine(platform))
    monkeypatch.setattr(shape, "measure_shape", lambda *_, **given: seen.append(given["platform"]))
    config = small_config(write_text(tmp_path / "text.txt"), tmp_path / "cache")
    shape.batch_shape(config, prepare(config), shards=1)
    assert seen == [platform]
