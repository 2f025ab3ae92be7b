"""Several processes train as one: same losses, one stop, one failure, and a position that any number of them reads."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import test_hosts
from small_run import ROOT, metrics_without_timings, on_devices

from charlm.config import to_json
from charlm.core import checkpoint as checkpoints
from charlm.core import checksums, hosts
from charlm.training.train import train

pytestmark = pytest.mark.usefixtures("quick")

# Reads its config from a file, so that nothing depends on how flags are parsed; flags have their own test.
PROGRAM = """
import json, sys
from pathlib import Path
from charlm.core import hosts
from charlm.config import from_dict
from charlm.core.logs import start_logging
from charlm.training.train import train
start_logging()
config = from_dict(json.loads(Path(sys.argv[1]).read_text()))
hosts.start(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
with hosts.ending_together():
    train(config, sys.argv[2])
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Processes:
    """Two processes that train together, each with devices, a config and a workdir of its own."""

    def __init__(self, folder: Path, configs: list, workdirs: list[Path], devices: int = 2) -> None:
        self.logs = [folder / f"{i}.log" for i in range(2)]
        address = f"127.0.0.1:{free_port()}"
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            # Theirs alone: JAX lets none but process 0 write what it compiled, so with the cache of all tests that one
            # would be done at once, and XLA gives up when the other, which compiles, comes 30 seconds later.
            "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
            "XLA_FLAGS": re.sub(r"(device_count)=\d+", rf"\1={devices}", os.environ["XLA_FLAGS"]),
        }
        self.running = []
        for i, log in enumerate(self.logs):
            path = folder / f"{i}.json"
            path.write_text(to_json(configs[i]))
            command = [sys.executable, "-c", PROGRAM, str(path), str(workdirs[i]), address, "2", str(i)]
            with log.open("wb") as file:
                self.running.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file))

    def wait_for(self, text: str) -> None:
        """Returns when process 0 has logged a text."""
        for _ in range(1200):
            if text in self.logs[0].read_text():
                return
            assert self.running[0].poll() is None, self.logs[0].read_text()
            time.sleep(0.1)
        raise AssertionError(self.logs[0].read_text())

    def end(self) -> list[int]:
        """Waits for both and returns their exit status."""
        try:
            return [process.wait(timeout=300) for process in self.running]
        finally:
            for process in self.running:
                process.kill()

    def read(self, process: int) -> str:
        """Returns what a process logged."""
        return self.logs[process].read_text()


def losses(workdir: Path) -> np.ndarray:
    lines = metrics_without_timings(workdir)
    return np.array([line.get("loss", line.get("heldout_loss")) for line in lines])


def test_two_processes_train_as_one_stop_together_and_any_number_goes_on(trained, tmp_path):
    workdir = tmp_path / "run"
    config = trained.new_config()
    config.train.log_every = 1
    together = Processes(tmp_path, [config] * 2, [workdir] * 2)
    together.wait_for("step 4/12")
    together.running[1].send_signal(signal.SIGTERM)  # asked of one, done by both
    assert together.end() == [0, 0], together.read(0) + together.read(1)
    stopped = checkpoints.find(workdir)
    assert f"stopped by signal at step {stopped.name}, saved" in together.read(0)
    assert 4 < int(stopped.name) < 12
    assert "words/s" not in together.read(1)  # one of them speaks
    assert sorted(p.name for p in (stopped / "data").glob("process_*")) == [
        "process_0-of-2.json", "process_1-of-2.json",
    ]  # fmt: skip
    lanes = [json.loads(p.read_text())["lanes"].keys() for p in sorted((stopped / "data").glob("process_*"))]
    assert lanes == [{"0", "1", "2", "3"}, {"4", "5", "6", "7"}]
    sums = json.loads((stopped / checksums.FILE).read_text())[checksums.KEY]  # of what both have written
    assert sums.keys() >= {f"data/process_{i}-of-2.json" for i in range(2)}
    assert {name.split("/")[1] for name in sums if "/ocdbt.process_" in name} == {"ocdbt.process_0", "ocdbt.process_1"}

    unbroken = tmp_path / "unbroken"
    with on_devices(1):
        train(config.copy_and_resolve_references(), str(workdir))
        train(config.copy_and_resolve_references(), str(unbroken))
    assert [line["step"] for line in metrics_without_timings(workdir)] == [
        line["step"] for line in metrics_without_timings(unbroken)
    ]
    np.testing.assert_allclose(losses(workdir), losses(unbroken), atol=1e-5)
    words = [[line.get("heldout_words") for line in metrics_without_timings(w)] for w in (workdir, unbroken)]
    assert words[0] == words[1]


def test_a_run_of_one_process_goes_on_in_two(trained, tmp_path):
    workdir = trained.copy(tmp_path / "run")
    for step in (9, 12):
        shutil.rmtree(workdir / "checkpoints" / str(step))
    together = Processes(tmp_path, [trained.new_config()] * 2, [workdir] * 2)
    assert together.end() == [0, 0], together.read(0) + together.read(1)
    assert "resuming at step 6" in together.read(0)
    np.testing.assert_allclose(losses(workdir), losses(trained.workdir), atol=1e-5, err_msg=together.read(0))


def test_what_fails_on_one_fails_on_both_at_once(trained, tmp_path):
    configs = [trained.new_config(), trained.new_config()]
    (tmp_path / "file").write_text("")
    configs[1].data.cache_dir = str(tmp_path / "file")
    started = time.monotonic()
    together = Processes(tmp_path, configs, [tmp_path / "run"] * 2)
    assert together.end() == [1, 1]
    assert time.monotonic() - started < 60
    assert "error: process 1: cannot write the corpus cache" in together.read(1)
    assert "error: process 0: another process failed; its own log says why" in together.read(0)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("begun", [True, False])
def test_two_folders_are_not_one_workdir(trained, tmp_path, monkeypatch, begun):
    config = trained.new_config()
    config.train.steps = 20
    if begun:
        trained.copy(tmp_path / "one")
    monkeypatch.setattr(test_hosts, "PROGRAM", PROGRAM.replace("start_logging()", "hosts.SHARED_SECONDS = 1"))
    together = Processes(tmp_path, [config] * 2, [tmp_path / "one", tmp_path / "other"])
    assert together.end() == [1, 1]
    for i, name in enumerate(("one", "other")):
        assert f"{name} must be one folder that all hosts share" in together.read(i)
    assert (tmp_path / "one").exists() == begun
    assert not list(tmp_path.glob("*/.shared*"))


def test_two_configs_are_not_one_run(trained, tmp_path):
    configs = [trained.new_config(), trained.new_config()]
    configs[1].data.prefetch = 0  # of the host
    configs[1].optim.learning_rate = 0.5
    together = Processes(tmp_path, configs, [tmp_path / "run"] * 2)
    assert together.end() == [1, 1]
    assert "error: process 1: not the config of process 0: optim.learning_rate is 0.5, there 0.003" in together.read(1)
    assert "prefetch" not in together.read(1)
    assert "error: process 0: another process has another config" in together.read(0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nonsense", 2, 0), "--coordinator=nonsense: expected HOST:PORT"),
        (("127.0.0.1:1", 2, 2), "--processes=2 --process=2: expected N and a number from 0 to N - 1"),
        (("127.0.0.1:1", 0, 0), "--processes=0 --process=0: expected"),
        (("127.0.0.1:1", None, 0), "--processes=None --process=0: expected"),
        (("127.0.0.1:1", 2, 1), "--coordinator=127.0.0.1:1: process 0 was not reached in 0 s: .*refused"),
        ((None, None, None), "--multihost: .*; give --coordinator=HOST:PORT, --processes=N and --process=I"),
    ],
)
def test_processes_that_cannot_meet(monkeypatch, arguments, message):
    monkeypatch.setattr(hosts, "WAIT_SECONDS", 0)
    with pytest.raises(ValueError, match=f"^{message}"):
        hosts.start(*arguments)


@pytest.mark.slow
def test_the_same_losses_on_one_device_eight_devices_and_two_processes(trained, tmp_path):
    config = trained.new_config()
    config.train.steps, config.train.log_every = 50, 1
    config.model.dropout = config.model.attention_dropout = 0.1
    for count in (1, 8):
        with on_devices(count):
            train(config.copy_and_resolve_references(), str(tmp_path / str(count)))
    assert Processes(tmp_path, [config] * 2, [tmp_path / "2x4"] * 2, devices=4).end() == [0, 0]
    curves = {name: losses(tmp_path / name) for name in ("1", "8", "2x4")}
    assert len(curves["1"]) >= 50
    for name, curve in curves.items():
        print(f"{name:>4} devices: {curve[1]:.6f} ... {curve[-2]:.6f}, {np.abs(curve - curves['1']).max():.1e} apart")
        np.testing.assert_allclose(curve, curves["1"], atol=1e-5)
