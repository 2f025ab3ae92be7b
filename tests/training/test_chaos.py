"""Tests that a run of two processes ends to the bit as a calm one, whatever befalls it: signals, a full disk, bad data.

The processes and their disk are real: `pytest -m slow tests/training/test_chaos.py -s` says what happened.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import jax
import ml_collections
import numpy as np
import pytest
import several_processes
from several_processes import PROGRAM, Processes
from small_run import metrics_without_timings, on_devices, small_config, write_text

from charlm.core import checkpoint as checkpoints
from charlm.core.sharding import path_name
from charlm.families.lookup import prepare
from charlm.training.run import build

STEPS = 300
DISK = 64 << 20  # bytes of the disk that the run writes to
# Every record takes as long as from a disk that is far away or failing.
SLOW = PROGRAM.replace(
    "start_logging()\n",
    "start_logging()\n"
    "import time\n"
    "from charlm.data.pipeline import ShardSource\n"
    "read = ShardSource.__getitem__\n"
    "ShardSource.__getitem__ = lambda source, i: time.sleep(0.01) or read(source, i)\n",
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled without harm."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def step_of(together: Processes) -> int:
    """Returns the last step that the first process has reported."""
    words = [line.split() for line in together.read(0).splitlines() if line[9:14] == "step "]
    return max([0, *(int(line[2].split("/")[0]) for line in words)])


def wait_for_step(together: Processes, step: int) -> None:
    """Returns when a step is reported, or a process has ended."""
    while step_of(together) < step and all(process.poll() is None for process in together.running):
        time.sleep(0.05)


def fill(folder: Path) -> None:
    """Leaves no room on the disk."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass


def saved(workdir: Path, config: ml_collections.ConfigDict) -> dict[str, bytes]:
    """Returns every array of the last checkpoint, and the data positions of both processes."""
    with on_devices(1):
        run = build(config, prepare(config))
    with closing(iter(run.train_batches)) as batches:
        state = checkpoints.load(folder := checkpoints.find(workdir), run.abstract_state, batches)
    arrays = {path_name(path): np.asarray(x).tobytes() for path, x in jax.tree_util.tree_leaves_with_path(state)}
    return arrays | {path.name: path.read_bytes() for path in (folder / "data").glob("process_*.json")}


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_run_that_everything_befalls_ends_as_a_calm_one(tmp_path, disk):
    config = small_config(write_text(tmp_path / "text.txt", lines=2_000), tmp_path / "cache")
    config.train.steps, config.train.checkpoint_every = STEPS, 10
    config.train.log_every, config.train.eval_every = 5, 100
    seed = random.randrange(10**6)
    rng = random.Random(seed)

    def start(workdir: Path, program: str = PROGRAM) -> Processes:
        with mock.patch.object(several_processes, "PROGRAM", program):
            return Processes(tmp_path, [config.copy_and_resolve_references()] * 2, [workdir] * 2)

    calm = start(tmp_path / "calm")
    assert calm.end(3600) == [0, 0], calm.read(0) + calm.read(1)

    workdir = disk / "run"
    one = lambda number: lambda running: running[rng.randrange(2)].send_signal(number)
    both = lambda number: lambda running: [process.send_signal(number) for process in running]
    misfortunes: list[tuple[str, Callable[[list], object]]] = [
        ("SIGTERM to one", one(signal.SIGTERM)),
        ("SIGTERM to both", both(signal.SIGTERM)),
        ("SIGKILL to one", one(signal.SIGKILL)),
        ("SIGKILL to both", both(signal.SIGKILL)),
        ("a full disk", lambda running: fill(disk)),
        ("a corrupt shard", one(signal.SIGKILL)),
        ("slow records", one(signal.SIGTERM)),
    ]
    rng.shuffle(misfortunes)
    told, logs = [f"random seed {seed}"], ""
    for n, (name, strike) in enumerate(misfortunes):
        together = start(workdir, SLOW if name == "slow records" else PROGRAM)
        wait_for_step(together, STEPS * (n + 1) // (len(misfortunes) + 2) + rng.randrange(10))
        time.sleep(rng.random() * 0.2)  # anywhere between two steps, or in the middle of a checkpoint
        strike(together.running)
        started = time.monotonic()
        statuses = together.end(600)
        took = time.monotonic() - started
        logs, step = logs + together.read(0) + together.read(1), step_of(together)
        told.append(f"{name} after step {step}: statuses {statuses} within {took:.1f} s")
        assert step < STEPS, "\n".join(told)
        if name.startswith("SIGTERM") or name == "slow records":
            assert statuses == [0, 0], together.read(0) + together.read(1)
        if name == "a full disk":
            assert 1 in statuses, "\n".join(told)
            assert "No space left" in together.read(0) + together.read(1)
            for i in range(2):
                assert "error: process" in together.read(i)
                assert "Traceback" not in together.read(i)
            (disk / "ballast").unlink()
        if name == "a corrupt shard":
            shard = rng.choice(sorted((tmp_path / "cache").rglob("*.array_record")))
            content = bytearray(shard.read_bytes())
            content[len(content) // 2] ^= 255
            shard.write_bytes(content)
            told.append(f"  {shard.name} changed in the middle")
    last = start(workdir)
    assert last.end(3600) == [0, 0], last.read(0) + last.read(1)
    logs += last.read(0) + last.read(1)
    assert "is damaged or gone: it is encoded again" in logs
    (goodput,) = [line for line in last.read(0).splitlines() if "goodput" in line]
    print("", *told, goodput, sep="\n  ")
    want, got = (saved(folder, config.copy_and_resolve_references()) for folder in (tmp_path / "calm", workdir))
    assert len(want) > 60
    assert want.keys() == got.keys()
    assert [name for name in want if want[name] != got[name]] == []
    assert metrics_without_timings(workdir) == metrics_without_timings(tmp_path / "calm")
    assert f"{len(misfortunes) + 1} starts" in goodput
