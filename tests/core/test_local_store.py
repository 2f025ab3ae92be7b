"""Tests checkpoints on local disks: a killed run goes on from the newest that all hosts have, to the bit."""

from __future__ import annotations

import errno
import shutil
from contextlib import closing
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest
import spiky
from damage import flip
from several_processes import Processes
from small_run import metrics_without_timings, on_devices
from spiky import Numbered, bits, spiky_config

from charlm.core import checkpoint as checkpoints
from charlm.core import hosts, local_store
from charlm.core.local_store import RUN_FILE, LocalCheckpoints
from charlm.core.sharding import path_name
from charlm.training.goodput import account, read_starts
from charlm.training.run import build


class Killed(Exception):
    """Ends a run where a test wants it to end."""


def local_config(folder: Path, policy: str = ""):
    """Returns a config whose checkpoints come every twelve steps in the workdir, every two on the local disk."""
    config = spiky_config(policy)
    config.train.checkpoint_every, config.train.local_checkpoint_every = 12, 2
    config.train.local_dir = str(folder / "disk")
    return config


def killed_at(number: int):
    def taken(at):
        if at == number:
            raise Killed

    return taken


def kill(folder: Path, number: int, config=None, devices: int = 1, corrupt=()) -> None:
    """Trains until a batch is taken."""
    with pytest.raises(Killed):
        spiky.train(
            folder / "run", config or local_config(folder), Numbered(dict(corrupt), taken=killed_at(number)), devices
        )


def on_disk(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in (folder / "disk").glob("run-*/process_0-of-1/*"))


def checkpoint(folder: Path, step: int) -> Path:
    (found,) = (folder / "disk").glob(f"run-*/process_0-of-1/{step}")
    return found


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    return spiky.train(folder / "run", spiky_config(), Numbered()).state, folder / "run"


def assert_goes_on_as(unbroken, folder, devices=1):
    loop = spiky.train(folder / "run", local_config(folder), Numbered(), devices)
    assert bits(loop.state) == bits(unbroken[0])
    assert metrics_without_timings(folder / "run") == metrics_without_timings(unbroken[1])


def test_a_killed_run_goes_on_from_the_newest_and_removes_them_at_its_end(unbroken, tmp_path, log_lines):
    kill(tmp_path, 21)
    assert on_disk(tmp_path) == [18, 20]
    assert_goes_on_as(unbroken, tmp_path)
    assert "resuming at step 20, from local checkpoints" in log_lines.lines
    assert on_disk(tmp_path) == []
    starts = read_starts(tmp_path / "run")
    assert [start.step for start in starts] == [0, 20]
    assert account(starts, starts[-1].time).lost < 0.2 * account(starts, starts[-1].time).lasted


def test_the_first_one_is_in_the_workdir_and_a_newer_one_there_is_taken(unbroken, tmp_path, log_lines):
    kill(tmp_path, 3)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["2"]
    assert on_disk(tmp_path) == []
    kill(tmp_path, 12)
    assert on_disk(tmp_path) == [8, 10]
    assert_goes_on_as(unbroken, tmp_path)
    assert "resuming at step 12" in log_lines.lines


def test_arrays_that_lie_on_several_devices_come_back_to_the_bit(tmp_path, log_lines):
    config = local_config(tmp_path)
    config.mesh.fsdp = 2
    copy = lambda: config.copy_and_resolve_references()
    kill(tmp_path, 21, copy(), devices=8)
    loop = spiky.train(tmp_path / "run", copy(), Numbered(), devices=8)
    assert "resuming at step 20, from local checkpoints" in log_lines.lines
    config.train.local_dir = ""
    assert bits(loop.state) == bits(spiky.train(tmp_path / "whole", config, Numbered(), devices=8).state)


def test_a_damaged_one_is_named_and_the_one_before_it_is_taken(unbroken, tmp_path, log_lines):
    kill(tmp_path, 21)
    flip(checkpoint(tmp_path, 20) / local_store._ARRAYS, 300, 3)
    assert_goes_on_as(unbroken, tmp_path)
    (told,) = [line for line in log_lines.lines if "is not used" in line]
    assert "/20 is not used: it is damaged (state/arrays.safetensors is not what was saved)" in told
    assert "resuming at step 18, from local checkpoints" in log_lines.lines


def test_without_any_it_goes_on_from_the_workdir(unbroken, tmp_path, log_lines):
    kill(tmp_path, 21)
    shutil.rmtree(tmp_path / "disk")
    assert_goes_on_as(unbroken, tmp_path)
    assert "resuming at step 12" in log_lines.lines


def test_those_of_another_run_are_not_taken(unbroken, tmp_path, log_lines):
    kill(tmp_path, 21)
    shutil.rmtree(tmp_path / "run")  # begun afresh
    kill(tmp_path, 5)
    kept = on_disk(tmp_path)
    assert_goes_on_as(unbroken, tmp_path)
    assert kept == [4]
    assert "resuming at step 4, from local checkpoints" in log_lines.lines
    (tmp_path / "other").mkdir()
    kill(tmp_path / "other", 21)
    (tmp_path / "other" / "run" / RUN_FILE).write_text('{"run": "?"}')
    assert_goes_on_as(unbroken, tmp_path / "other")
    assert "it is another run's" in str(log_lines)


def test_those_of_another_mesh_are_not_taken(tmp_path, log_lines):
    config = local_config(tmp_path)
    config.mesh.fsdp = 2
    kill(tmp_path, 21, config, devices=8)
    spiky.train(tmp_path / "run", local_config(tmp_path), Numbered(), devices=1)
    assert "/20 is not used: it was written for another mesh or by another optimizer" in str(log_lines)
    assert "resuming at step 12" in log_lines.lines


def test_a_full_local_disk_is_told_and_the_run_goes_on(unbroken, tmp_path, log_lines):
    full = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch.object(local_store, "save_file", side_effect=full):
        assert_goes_on_as(unbroken, tmp_path)
    told = [line for line in log_lines.lines if "could not be written" in line]
    assert len(told) > 10
    assert all(line.endswith("process_0-of-1: No space left on device") for line in told)


def test_a_spike_takes_those_after_the_checkpoint_away(tmp_path):
    """So that a run killed thereafter does not go on from one that the run has left behind."""
    corrupt, config = {20: 60.0}, lambda name: local_config(tmp_path / name, "restore")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one = spiky.train(tmp_path / "one" / "run", config("one"), Numbered(corrupt))
    kill(tmp_path / "other", 22, config("other"), corrupt=corrupt)
    assert on_disk(tmp_path / "other") == []
    other = spiky.train(tmp_path / "other" / "run", config("other"), Numbered(corrupt))
    assert bits(one.state) == bits(other.state)


@pytest.mark.parametrize(
    ("others", "found", "told"),
    [
        ([18, 20], 20, ""),
        ([18], 18, ""),
        ([22, 18], 18, ""),
        ([], None, "process 1 has none of the steps [18, 20] that another one has"),
        ([22], None, "process 0 has none of the steps [22] that another one has"),
    ],
)
def test_processes_agree_on_the_newest_that_all_have(tmp_path, monkeypatch, log_lines, others, found, told):
    kill(tmp_path, 21)
    config = local_config(tmp_path)
    program, _ = spiky.program_of(config, 1)
    local = LocalCheckpoints(config.train, tmp_path / "run", new=False)
    monkeypatch.setattr(hosts, "everyones", lambda value: [value, others])
    assert local.newest(12, program.abstract_state) == found
    assert [line for line in log_lines.lines if "not used" in line] == (
        [f"local checkpoints are not used: {told}"] if told else []
    )
    local.close()


def saved(trained, workdir: Path) -> dict[str, bytes]:
    """Returns every array of the last checkpoint in a workdir, and the data positions of all processes."""
    folder = checkpoints.find(workdir)
    with on_devices(1):
        run = build(trained.new_config(), trained.data)
    with closing(iter(run.train_batches)) as batches:
        state = checkpoints.load(folder, run.abstract_state, batches)
    arrays = {path_name(path): np.asarray(x).tobytes() for path, x in jax.tree_util.tree_leaves_with_path(state)}
    return arrays | {path.name: path.read_bytes() for path in (folder / "data").glob("process_*.json")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_processes_go_on_from_their_disks_and_from_the_workdir_if_one_lost_its_own(trained, tmp_path):
    config = trained.new_config()
    config.train.steps, config.train.log_every, config.train.checkpoint_every = 40, 1, 20
    config.train.eval_every, config.train.local_checkpoint_every = 40, 3
    config.mesh.fsdp = 2
    calm = Processes(tmp_path, [config] * 2, [tmp_path / "calm"] * 2)
    assert calm.end() == [0, 0], calm.read(0) + calm.read(1)
    configs = [config.copy_and_resolve_references() for _ in range(2)]
    for number, own in enumerate(configs):
        own.train.local_dir = str(tmp_path / f"disk_of_{number}")
    start = lambda: Processes(tmp_path, configs, [tmp_path / "run"] * 2)
    for step in (27, 33):
        together = start()
        together.wait_for(f"step {step}/40")
        for process in together.running:
            process.kill()
        together.end()
    assert "from local checkpoints" in together.read(0)
    (lost,) = (tmp_path / "disk_of_1").glob("run-*")
    assert list(lost.glob("process_1-of-2/*"))
    shutil.rmtree(lost)
    together = start()
    assert together.end() == [0, 0], together.read(0) + together.read(1)
    assert "local checkpoints are not used: process 1 has none of the steps [" in together.read(0)
    assert "resuming at step 20" in together.read(0)
    assert saved(trained, tmp_path / "run") == saved(trained, tmp_path / "calm")
    assert metrics_without_timings(tmp_path / "run") == metrics_without_timings(tmp_path / "calm")
    assert not list(tmp_path.glob("disk_of_*/run-*/process_*"))
