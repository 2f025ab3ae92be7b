"""Tests that a run which is killed again and again ends as an unbroken one: every bit, and every metric but timings.

The commands are those of a user, in processes of their own: `pytest -m slow tests/training/test_resume.py -s`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp
from small_run import ROOT, metrics_without_timings, write_text

from charlm.core import checkpoint as checkpoints
from charlm.core.sharding import path_name

STEPS = 60
KILLS, TERMS = 10, 3
CONFIG = """
from pathlib import Path
from small_charbert import small_charbert_config
from small_run import small_config

def get_config():
    config = {family}(Path({text!r}), Path({cache!r}))
    config.train.steps = {steps}
    config.train.log_every, config.train.eval_every, config.train.checkpoint_every = 3, 20, 5
    return config
"""


@contextlib.contextmanager
def started(folder: Path, workdir: Path, devices: int) -> Iterator[subprocess.Popen]:
    """The training command, writing to a log."""
    command = [sys.executable, "-m", "charlm.main", f"--config={folder / 'config.py'}", f"--workdir={workdir}"]
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} "
        "--xla_cpu_collective_call_terminate_timeout_seconds=600",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),  # only to start faster
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def steps_seen(folder: Path) -> int:
    """Returns the last step that the running process has reported, or goes on from."""
    lines = (folder / "log.txt").read_text().splitlines()
    steps = [int(line.split()[2].split("/")[0]) for line in lines if line[9:14] == "step "]
    resumed = [int(line.split()[-1]) for line in lines if "resuming at step" in line]
    return max([0, *steps, *resumed])


def ended_as_asked(number: int, status: int, log: str) -> bool:
    """Returns whether a command has ended as it should after a signal, before its first step or after it."""
    if number == signal.SIGKILL:
        return status == -signal.SIGKILL
    trained = "stopped by signal at step" in log
    return status == 0 if trained else status == 143 and log.splitlines()[-1].startswith("terminated; ")


def saved(workdir: Path) -> dict[str, bytes]:
    """Returns every array of the last checkpoint, and the data position."""
    folder = checkpoints.find(workdir)
    state = ocp.load_checkpointables(folder, {"state": None})["state"]
    leaves = jax.tree_util.tree_leaves_with_path(state)
    (position,) = (folder / "data").glob("process_*.json")
    return {path_name(path): np.asarray(x).tobytes() for path, x in leaves} | {"data": position.read_bytes()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "devices"), [("small_config", 1), ("small_config", 8), ("small_charbert_config", 1)]
)
def test_killed_ten_times_and_asked_to_stop_three_times(tmp_path, family, devices):
    write_text(tmp_path / "text.txt")
    settings = {"text": str(tmp_path / "text.txt"), "cache": str(tmp_path / "cache"), "steps": STEPS, "family": family}
    (tmp_path / "config.py").write_text(CONFIG.format(**settings))
    with started(tmp_path, tmp_path / "unbroken", devices) as process:
        assert process.wait(timeout=600) == 0, (tmp_path / "log.txt").read_text()

    workdir, seed = tmp_path / "broken", random.randrange(10**6)
    rng = random.Random(seed)
    signals = [signal.SIGKILL] * KILLS + [signal.SIGTERM] * TERMS
    rng.shuffle(signals)
    stops = []
    for n, number in enumerate(signals):
        with started(tmp_path, workdir, devices) as process:
            last = STEPS * (n + 1) // (len(signals) + 1)  # a little further each time, and never to the end
            while steps_seen(tmp_path) < last - rng.randrange(3) and process.poll() is None:
                time.sleep(0.02)
            time.sleep(rng.random() * 0.1)  # anywhere between two steps, or in the middle of a checkpoint
            process.send_signal(number)
            status = process.wait(timeout=300)
        newest = checkpoints.find_latest(workdir / "checkpoints")
        stops.append(f"{number.name} after step {steps_seen(tmp_path)}: status {status}, newest checkpoint {newest}")
        assert ended_as_asked(number, status, (tmp_path / "log.txt").read_text()), "\n".join(stops)
    with started(tmp_path, workdir, devices) as process:
        assert process.wait(timeout=600) == 0, (tmp_path / "log.txt").read_text()

    one, other = saved(tmp_path / "unbroken"), saved(workdir)
    same = [name for name in one if one[name] == other[name]]
    lines = [metrics_without_timings(tmp_path / "unbroken"), metrics_without_timings(workdir)]
    equal = sum(a == b for a, b in zip(*lines, strict=True))
    print(f"\n{devices} devices, random seed {seed}", *stops, sep="\n  ")
    print(
        f"  same bytes: {len(same)} of {len(one)} (arrays of the state, data position); "
        f"same lines of metrics, timings aside: {equal} of {len(lines[0])}"
    )
    assert one.keys() == other.keys()
    assert len(same) == len(one)
    assert len(one) > 60
    assert equal == len(lines[0]) == len(lines[1])
