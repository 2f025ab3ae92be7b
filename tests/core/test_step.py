"""Tests the optimizer step: rematerialisation saves memory on this machine, and the state is held once."""

from __future__ import annotations

import jax
import pytest
from small_run import on_devices

from charlm.core.step import step_options
from charlm.training.run import build


@pytest.mark.slow
def test_remat_saves_memory(trained):
    def temporary(remat: bool) -> int:
        config = trained.new_config()
        config.data.table_shards, config.data.batch_size = 1, 64
        config.model.remat = remat
        with on_devices(1):
            run = build(config, trained.data)
        program = run.train_step.lower(run.abstract_state, run.place(run.empty)).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporary(remat=True) < 0.6 * temporary(remat=False)


def test_the_first_step_uses_the_memory_of_the_first_state(trained):
    run = trained.run
    state = run.init()
    places = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(state)]
    state, *_ = run.train_step(state, run.place(run.empty))
    assert {x.unsafe_buffer_pointer() for x in jax.tree.leaves(state)} == set(places)


@pytest.mark.parametrize(("platform", "remat", "found"), [("cpu", True, 1), ("cpu", False, 0), ("gpu", True, 0)])
def test_options_are_for_remat_on_cpus_alone(platform, remat, found):
    assert len(step_options(remat, platform)) == found
