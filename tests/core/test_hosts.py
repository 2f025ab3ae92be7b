"""Tests that several processes train as one: same losses, a common stop and failure, one saved position for all."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import several_processes
from several_processes import PROGRAM, Processes
from small_run import metrics_without_timings, on_devices

import charlm.training.train
from charlm.config import to_json
from charlm.core import checkpoint as checkpoints
from charlm.core import checksums, hosts
from charlm.training.train import train


def losses(workdir: Path) -> np.ndarray:
    lines = metrics_without_timings(workdir)
    return np.array([line.get("loss", line.get("heldout_loss")) for line in lines])


# A run that goes on and a new one, in the same processes, so that their step is compiled once.
TWO_RUNS = (
    PROGRAM[: PROGRAM.index("    (fine_tune")]
    + """
    import charlm.training.train as training
    build, made = training.build, []
    training.build = lambda *arguments: made[0] if made else made.append(build(*arguments)) or made[0]
    train(config, sys.argv[2] + "/begun_by_one")
    config = from_dict(json.loads(Path(sys.argv[1]).read_text()))
    config.train.log_every = 1
    train(config, sys.argv[2] + "/run")
"""
)


@pytest.fixture(scope="module")
def together(trained, tmp_path_factory):
    """Two processes that went on with half of `trained` in "begun_by_one" and were then stopped in "run"."""
    folder = tmp_path_factory.mktemp("together")
    workdir = trained.copy(folder / "begun_by_one")
    for step in (9, 12):
        shutil.rmtree(workdir / "checkpoints" / str(step))
    with mock.patch.object(several_processes, "PROGRAM", TWO_RUNS):
        together = Processes(folder, [trained.new_config()] * 2, [folder] * 2)
    together.wait_for("step 4/12")
    together.running[1].send_signal(signal.SIGTERM)  # asked of one, done by both
    assert together.end() == [0, 0], together.read(0) + together.read(1)
    return together


@pytest.mark.parametrize("count", [0, 7, 2**31 - 1, 2**31, 3 * 2**40 + 5, True])
def test_totals_of_large_counts_are_exact(monkeypatch, count):
    monkeypatch.setattr(hosts, "alone", lambda: False)
    monkeypatch.setattr(hosts.multihost_utils, "process_allgather", lambda value: np.stack([value] * 3))
    assert hosts.total(count) == (3 * count if type(count) is int else True)
    assert hosts.total(0.5) == 1.5


def test_two_processes_train_as_one_stop_together_and_any_number_goes_on(trained, together, tmp_path, monkeypatch):
    workdir = together.logs[0].parent / "run"
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
    config = trained.new_config()
    config.train.log_every = 1
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: trained.run)  # of one process, on one device
    train(config.copy_and_resolve_references(), str(workdir))
    train(config.copy_and_resolve_references(), str(unbroken))
    assert [line["step"] for line in metrics_without_timings(workdir)] == [
        line["step"] for line in metrics_without_timings(unbroken)
    ]
    np.testing.assert_allclose(losses(workdir), losses(unbroken), atol=1e-5)
    words = [[line.get("heldout_words") for line in metrics_without_timings(w)] for w in (workdir, unbroken)]
    assert words[0] == words[1]


def test_a_run_of_one_process_goes_on_in_two(trained, together):
    workdir = together.logs[0].parent / "begun_by_one"
    assert "resuming at step 6" in together.read(0)
    assert checkpoints.find(workdir).name == "12"
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


# One process reads a model while the other does not, as pre-training does that starts from a checkpoint; then runs that
# both refuse. All in the same processes: what a process that fails does to the other has tests of its own.
REFUSED = (
    PROGRAM[: PROGRAM.index("with hosts.ending")]
    + """
from charlm.families.pretrained import from_pretrained
hosts.SHARED_SECONDS = 1
if hosts.is_primary():
    from_pretrained(sys.argv[2])
print(hosts.total(1), "were there")
here = Path(sys.argv[1]).parent
for name, workdir in json.loads((here / f"workdirs_{sys.argv[5]}.json").read_text()).items():
    try:
        train(from_dict(json.loads((here / f"{name}_{sys.argv[5]}.json").read_text())), workdir)
    except ValueError as error:
        print(f"{name}: {error}", flush=True)
"""
)


@pytest.fixture(scope="module")
def refused(trained, tmp_path_factory):
    """Two processes that refused to train with two folders, whether or not one had a run, and with two configs."""
    folder = tmp_path_factory.mktemp("refused")
    configs = {name: [trained.new_config() for _ in range(2)] for name in ("begun", "new", "config")}
    for config in configs["begun"] + configs["new"]:
        config.train.steps = 20
    configs["config"][1].data.prefetch = 0  # of the host
    configs["config"][1].optim.learning_rate = 0.5
    trained.copy(folder / "begun_one")
    for i, which in enumerate(("one", "other")):
        for name, both in configs.items():
            (folder / f"{name}_{i}.json").write_text(to_json(both[i]))
        workdirs = {name: str(folder / f"{name}_{which}") for name in ("begun", "new")}
        (folder / f"workdirs_{i}.json").write_text(json.dumps(workdirs | {"config": str(folder / "config_run")}))
    with mock.patch.object(several_processes, "PROGRAM", REFUSED):
        together = Processes(folder, [trained.new_config()] * 2, [trained.workdir] * 2)
    assert together.end(120) == [0, 0], together.read(0) + together.read(1)
    return together


def test_one_process_reads_a_model_while_the_other_does_not(refused):
    """The text is prepared by one process after the other."""
    assert "2 were there" in refused.read(0)


@pytest.mark.parametrize("name", ["begun", "new"])
def test_two_folders_are_not_one_workdir(refused, name):
    folder = refused.logs[0].parent
    for i, which in enumerate(("one", "other")):
        assert f"{name}_{which} must be one folder that all hosts share" in refused.read(i)
    assert (folder / f"{name}_one").exists() == (name == "begun")
    assert not list(folder.glob("*/.shared*"))


def test_two_configs_are_not_one_run(refused):
    message = "config: not the config of process 0: optim.learning_rate is 0.5, there 0.003"
    assert message in refused.read(1)
    assert "prefetch" not in refused.read(1)
    assert "config: another process has another config" in refused.read(0)
    assert not (refused.logs[0].parent / "config_run").exists()


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


def test_work_of_all_processes_ends_when_it_is_done_or_failed_on_one(monkeypatch):
    """As process 1 of two, the other of which needs longer."""
    monkeypatch.setattr(hosts, "alone", lambda: False)
    monkeypatch.setattr(hosts, "EXCHANGE_SECONDS", 0.01)
    monkeypatch.setattr("jax.process_index", lambda: 1)
    others, asked, done = [[False, None], [False, None], [True, None]], [], []

    def everyones(own):
        asked.append(own)
        return [others[min(len(asked), len(others)) - 1], own]

    monkeypatch.setattr(hosts, "everyones", everyones)
    hosts.everywhere(lambda: done.append(True))
    assert done == [True]
    assert len(asked) >= 3
    assert asked[-1] == [True, None]

    def fail():
        raise OSError("the disk is full")

    with pytest.raises(ValueError, match=r"^the disk is full$"):
        hosts.everywhere(fail)
    others[:] = [[True, "no store"]]
    with pytest.raises(ValueError, match=r"^process 0 failed: no store$"):
        hosts.everywhere(lambda: None)


def test_arrays_are_gathered_on_the_first_process_alone(monkeypatch):
    tree = {"a": jnp.arange(6.0).reshape(2, 3), "b": np.int32(3)}
    found = hosts.on_primary(tree)
    assert all(isinstance(x, np.ndarray) for x in found.values())
    jax.tree.map(np.testing.assert_array_equal, found, tree)
    monkeypatch.setattr(hosts, "is_primary", lambda: False)
    for name, x in hosts.on_primary(tree).items():
        assert (x.shape, x.dtype) == (np.shape(tree[name]), tree[name].dtype)
        assert not x.any()


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
