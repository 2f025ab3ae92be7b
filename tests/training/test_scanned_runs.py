"""A run may go on with its layers in one loop, or again one by one: the checkpoints are the same.

Three programs are compiled for it; that a loop computes what single layers do, `tests/nn/test_scan.py` shows quickly.
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from small_run import metrics_without_timings, on_devices

from charlm.core import checkpoint as checkpoints
from charlm.families.lookup import prepare
from charlm.training.run import build
from charlm.training.train import train

pytestmark = pytest.mark.slow


def config_of(trained, scan: bool, steps: int):
    config = trained.new_config()
    config.model.inter_layers = 2
    config.model.dropout = config.model.attention_dropout = 0.0  # the masks of a loop are others
    config.model.scan_layers = scan
    config.train.steps, config.train.checkpoint_every = steps, 4
    config.train.eval_every = config.train.log_every = 4
    return config


@pytest.fixture(scope="module")
def gone_on(trained, tmp_path_factory) -> Path:
    """A run of twelve steps: four in a loop, four layer by layer, four in a loop again."""
    folder = tmp_path_factory.mktemp("run") / "run"
    with on_devices(1):
        for scan, steps in ((True, 4), (False, 8), (True, 12)):
            train(config_of(trained, scan, steps), str(folder))
    return folder


@pytest.fixture(scope="module")
def unbroken(trained, tmp_path_factory) -> Path:
    """A run of twelve steps, layer by layer."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    with on_devices(1):
        train(config_of(trained, False, 12), str(folder))
    return folder


def saved(trained, workdir: Path, scan: bool):
    with on_devices(1):
        config = config_of(trained, scan, 12)
        run = build(config, prepare(config))
    batches = iter(run.train_batches)
    try:
        return jax.device_get(checkpoints.load(checkpoints.find(workdir), run.abstract_state, batches))
    finally:
        batches.close()


def test_a_run_goes_on_either_way_and_ends_as_the_unbroken_one(trained, gone_on, unbroken):
    for got, want in zip(*map(metrics_without_timings, (gone_on, unbroken)), strict=True):
        assert got == pytest.approx(want, rel=1e-4)
    states = saved(trained, gone_on, False), saved(trained, unbroken, True)  # either kind of run reads either
    assert len({jax.tree.structure(state) for state in states}) == 1
    parts = [state.params["hlm"]["inter_word"]["layer_1"]["ffn_in"]["kernel"] for state in states]
    np.testing.assert_allclose(*parts, atol=1e-4)
    assert states[0].step == 12
