"""Runs whose workdir, text and first model lie in an object store: killed, taken over by another machine, finished."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import jax
import numpy as np
import object_stores
import pytest
import spiky
from finetune.test_fine_tuning import quickest, small, write_data
from object_stores import BUCKET
from orbax.checkpoint import v1 as ocp
from several_processes import free_port
from small_run import ROOT, main, metrics_without_timings, on_devices, small_config, write_text

import charlm.training.stages
from charlm.config import flatten, load_config_file, to_json
from charlm.core import checkpoint as checkpoints
from charlm.core import mirror
from charlm.core.mirror import Mirror, mirrored
from charlm.core.mirror_files import MARK
from charlm.core.sharding import path_name
from charlm.core.stores import Store
from charlm.finetune.run import fine_tune
from charlm.training.loop import Loop
from charlm.training.train import train

ADDRESS = f"s3://{BUCKET}/runs/hlm"


@pytest.fixture
def objects(monkeypatch):
    monkeypatch.setattr(mirror, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(mirror, "SETTLE_SECONDS", 0.1)
    with object_stores.store("s3") as held:
        yield held


def saved(workdir: Path) -> dict[str, bytes]:
    """Every array of the last checkpoint, and the data position."""
    folder = checkpoints.find(workdir)
    state = ocp.load_checkpointables(folder, {"state": None})["state"]
    positions = {path.name: path.read_bytes() for path in (folder / "data").glob("process_*.json")}
    assert positions
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {path_name(path): np.asarray(x).tobytes() for path, x in leaves} | positions


class Vanished(BaseException):
    """The machine is gone."""


def vanishes_after(monkeypatch, last, copied, machine, log_lines, run):
    """Runs in a machine's folder until a step, by which a checkpoint is copied; nothing is copied any more."""
    step = Loop._step

    def vanish(self, number):
        step(self, number)
        if number == last:
            while f"{copied} is copied" not in str(log_lines):
                time.sleep(0.01)
            raise Vanished

    machine.take_over()
    machine.start()
    monkeypatch.setattr(Loop, "_step", vanish)
    with pytest.raises(Vanished):
        run(str(machine.folder))
    monkeypatch.setattr(Loop, "_step", step)
    machine.stop()
    machine.close()


def test_when_a_machine_vanishes_another_goes_on(trained, objects, tmp_path, monkeypatch, log_lines):
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: trained.run)
    config = trained.new_config()
    Store(f"s3://{BUCKET}/corpus").upload(Path(config.data.train[0]), "text.txt")
    config.data.train = (f"s3://{BUCKET}/corpus/*.txt",)
    first = Mirror(ADDRESS, str(tmp_path / "first"))
    run = lambda folder: train(config.copy_and_resolve_references(), folder)
    vanishes_after(monkeypatch, 8, "checkpoints/6", first, log_lines, run)

    with mirrored(ADDRESS) as folder:
        assert folder != str(first.folder)
        assert train(config, folder)
    assert "resuming at step 6" in str(log_lines)
    assert saved(Path(folder)) == saved(trained.workdir)
    assert metrics_without_timings(Path(folder)) == metrics_without_timings(trained.workdir)
    there = {name.removeprefix("runs/hlm/") for name in objects.now if name.startswith("runs/hlm/")}
    here = {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}
    assert there == here | {MARK}


@pytest.mark.slow
def test_when_a_machine_that_fine_tunes_vanishes_another_goes_on(objects, tmp_path, monkeypatch, log_lines):
    train_file, dev = write_data("classification", tmp_path, train=48)
    data = Store(f"s3://{BUCKET}/data")
    for path in (train_file, dev):
        data.upload(path, path.name)
    there = [f"s3://{BUCKET}/data/{path.name}" for path in (train_file, dev)]
    config = lambda: small("classification", quickest(), *there, train__epochs=3, train__checkpoint_every=4)
    with on_devices(1):
        expected = fine_tune(config(), str(tmp_path / "whole"))
        first = Mirror(ADDRESS, str(tmp_path / "first"))
        run = lambda folder: fine_tune(config(), folder)
        vanishes_after(monkeypatch, 11, "state/8", first, log_lines, run)
        with mirrored(ADDRESS) as folder:
            assert fine_tune(config(), folder) == expected
    assert "resuming at step 8" in str(log_lines)
    assert metrics_without_timings(Path(folder)) == metrics_without_timings(tmp_path / "whole")
    left = {name.split("/")[2] for name in objects.now if name.startswith("runs/hlm/")}
    assert "result.json" in left
    assert "state" not in left
    with mirrored(ADDRESS) as folder:  # it is finished there, too
        assert fine_tune(config(), folder) == expected


def test_the_command_takes_addresses(trained, objects, tmp_path, monkeypatch):
    copy = Mirror(ADDRESS, str(tmp_path / "made_here"))
    copy.take_over()
    shutil.copytree(trained.workdir, copy.folder, dirs_exist_ok=True)
    copy.copy(last=True)
    tiny = f"{ROOT}/configs/hlm_base.py:tiny"
    same = flatten(load_config_file(tiny))
    flags = [f"--config.{key}={value}" for key, value in flatten(trained.config).items() if value != same[key]]
    command = [f"--config={tiny}", *flags, f"--workdir={ADDRESS}"]
    with on_devices(1):
        done = main(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "holds a finished run of 12 steps: nothing to do" in done.stderr
        assert not (tmp_path / "s3:").exists()

        given = []
        monkeypatch.setattr(charlm.training.stages, "train", lambda config, *_, **__: given.append(config) or True)
        assert main(*command[:-1], f"--config.init_from={ADDRESS}", "--workdir=other", cwd=tmp_path).returncode == 0
        assert checkpoints.find(given[0].init_from) == Path(given[0].init_from) / "checkpoints" / "12"


# small_run imports the command, whose flags would be defined twice.
CONFIG = """
import json
from charlm.config import from_dict

def get_config():
    return from_dict(json.loads({!r}))
"""


@pytest.fixture
def server(monkeypatch):
    """moto's server, to which addresses of S3 lead."""
    pytest.importorskip("moto.server", reason="needs an S3 server (pip install 'moto[server]')")
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "moto.server", "-p", url.rpartition(":")[2]]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request).close()
            break
        except OSError:
            time.sleep(0.1)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    yield
    running.kill()
    running.wait()


def stored_config(folder: Path, **changes):
    """Writes the config of a run that reads its text from the store, with 60 checkpoints."""
    text = write_text(folder / "text.txt")
    Store(f"s3://{BUCKET}/corpus").upload(text, "text.txt")
    config = small_config(text, folder)
    config.data.train, config.data.cache_dir = (f"s3://{BUCKET}/corpus/*.txt",), ""
    config.train.steps, config.train.log_every, config.train.eval_every = 300, 10, 100
    config.train.checkpoint_every = 5
    config.update_from_flattened_dict(changes)
    (folder / "config.py").write_text(CONFIG.format(to_json(config)))


def start(folder: Path, workdir: str, machine: str, *flags: str, devices: int = 1) -> subprocess.Popen:
    """Starts the command on a machine: with a cache folder of its own."""
    variables = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "CHARLM_CACHE": str(folder / machine),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
    }
    command = [sys.executable, "-m", "charlm.main", f"--config={folder}/config.py", f"--workdir={workdir}", *flags]
    with (folder / f"{machine}.log").open("wb") as log:
        return subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log)


def start_two(folder: Path, workdir: str, name: str) -> list[subprocess.Popen]:
    """Starts the command on two machines that train together, NAME_0 and NAME_1."""
    together = ["--multihost", f"--coordinator=127.0.0.1:{free_port()}", "--processes=2"]
    return [start(folder, workdir, f"{name}_{i}", *together, f"--process={i}") for i in range(2)]


@pytest.mark.slow
def test_runs_killed_on_one_machine_after_another_end_as_the_one_that_never_was(tmp_path, server):
    """Against moto's server; each start has a cache folder of its own, so nothing but the store is left."""
    stored_config(tmp_path)
    assert start(tmp_path, f"{ADDRESS}_unbroken", "calm").wait(600) == 0, (tmp_path / "calm.log").read_text()
    for number in range(3):
        process = start(tmp_path, ADDRESS, f"machine_{number}")
        log = tmp_path / f"machine_{number}.log"
        while process.poll() is None and " is copied" not in log.read_text():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, log.read_text()
        shutil.rmtree(tmp_path / f"machine_{number}")
    logs = [tmp_path / f"{name}.log" for name in ("machine_0", "machine_1", "machine_2", "last")]
    assert start(tmp_path, ADDRESS, "last").wait(600) == 0, (tmp_path / "last.log").read_text()
    check_ended_alike(tmp_path, logs[1:], "calm", "last")


def check_ended_alike(folder: Path, logs: list[Path], calm: str, last: str) -> None:
    """Checks that each start went on from a later step, and that the last left what the calm run left."""
    resumed = [int(re.findall(r"resuming at step (\d+)", path.read_text())[0]) for path in logs]
    print(f"\ngone on from steps {resumed}")
    assert resumed == sorted(set(resumed))
    folders = [next((folder / name / "workdirs").glob("hlm*-*/config.json")).parent for name in (calm, last)]
    one, other = map(saved, folders)
    assert len(one) > 60
    assert one == other
    assert metrics_without_timings(folders[0]) == metrics_without_timings(folders[1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hosts_killed_with_nothing_left_but_the_store_end_as_the_ones_that_never_were(tmp_path, server):
    """Each holds half of the state; process 0, process 1 and both are killed, and all disks are lost each time."""
    stored_config(tmp_path, **{"mesh.fsdp": 2, "train.steps": 200})
    calm = start_two(tmp_path, f"{ADDRESS}_unbroken", "calm")
    assert [process.wait(600) for process in calm] == [0, 0], (tmp_path / "calm_0.log").read_text()
    for number, killed in enumerate([(0,), (1,), (0, 1)]):
        running = start_two(tmp_path, ADDRESS, f"machine_{number}")
        log, other = (tmp_path / f"machine_{number}_{i}.log" for i in range(2))
        while running[0].poll() is None and " is copied" not in log.read_text():
            time.sleep(0.01)
        for i in killed:
            running[i].send_signal(signal.SIGKILL)
        statuses = [process.wait(60) for process in running]
        assert statuses == [-signal.SIGKILL if i in killed else 1 for i in range(2)], (
            log.read_text() + other.read_text()
        )
        for i in range(2):
            shutil.rmtree(tmp_path / f"machine_{number}_{i}")
    last = start_two(tmp_path, ADDRESS, "last")
    assert [process.wait(600) for process in last] == [0, 0], (tmp_path / "last_0.log").read_text()
    logs = [tmp_path / f"{name}_0.log" for name in ("machine_1", "machine_2", "last")]
    check_ended_alike(tmp_path, logs, "calm_0", "last_0")
    assert list((tmp_path / "last_1" / "workdirs").glob("*/*")) == []

    alone = start(tmp_path, ADDRESS, "alone", "--config.train.steps=205", devices=2)  # one host goes on
    log = tmp_path / "alone.log"
    assert alone.wait(600) == 0, log.read_text()
    assert "resuming at step 200" in log.read_text()


# A run of a linear model with spikes, on two processes; each reads its half of every batch.
SPIKY = """
import sys
from pathlib import Path
import jax, numpy as np, spiky
from charlm.core import hosts
from charlm.core.followers import mirrored_by_all
from charlm.core.logs import start_logging
workdir, address, own = sys.argv[1], sys.argv[2], int(sys.argv[3])
class Half(spiky.Numbered):
    def __next__(self):
        return spiky.Rows(*(x[:, 4 * own : 4 * own + 4] for x in super().__next__()))
start_logging()
hosts.start(address, 2, own)
with hosts.ending_together(), mirrored_by_all(workdir) as folder:
    spiky.train(Path(folder), spiky.spiky_config("restore"), Half({20: 60.0, 25: 60.0, 35: np.nan}), devices=2)
"""


@pytest.mark.slow
def test_two_hosts_go_back_before_a_spike_also_if_killed_while_they_do(objects, tmp_path):
    def start(workdir: str, machine: str) -> list[subprocess.Popen]:
        address, running = f"127.0.0.1:{free_port()}", []
        for i in range(2):
            variables = {
                "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
                "CHARLM_CACHE": str(tmp_path / machine / str(i)),
                "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
            }
            command = [sys.executable, "-c", SPIKY, workdir, address, str(i)]
            with (tmp_path / f"{machine}_{i}.log").open("wb") as log:
                running.append(subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log))
        return running

    log = lambda machine: (tmp_path / f"{machine}_0.log").read_text()
    calm = start(str(tmp_path / "calm"), "shared")  # in a folder that both share
    assert [process.wait(300) for process in calm] == [0, 0], log("shared")
    assert "going back to step 18" in log("shared")
    killed = start(ADDRESS, "killed")
    while killed[0].poll() is None and "going back to step 18" not in log("killed"):
        time.sleep(0.005)
    killed[0].send_signal(signal.SIGKILL)
    assert [process.wait(60) for process in killed] == [-signal.SIGKILL, 1], log("killed")
    for name in ("last", "again"):  # the second finds a finished run, from which nothing is left to do
        last = start(ADDRESS, name)
        assert [process.wait(300) for process in last] == [0, 0], log(name)
    assert "going back to step" in log("last")
    (folder,) = (path.parent for path in (tmp_path / "last" / "0" / "workdirs").glob("*/spikes.json"))
    abstract = spiky.program_of(spiky.spiky_config("restore"), 1)[0].abstract_state
    states = [checkpoints.load(checkpoints.find(of), abstract, spiky.Numbered()) for of in (folder, tmp_path / "calm")]
    assert spiky.bits(states[0]) == spiky.bits(states[1])
    assert metrics_without_timings(folder) == metrics_without_timings(tmp_path / "calm")
    assert (folder / "spikes.json").read_bytes() == (tmp_path / "calm" / "spikes.json").read_bytes()
