"""Tests fine-tuning on several processes: the same results as one process with as many devices, also when resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import jax
import numpy as np
import object_stores
import pytest
import several_processes
from finetune.test_fine_tuning import quickest, small, write_data
from object_stores import BUCKET
from several_processes import PROGRAM, Processes
from small_run import metrics_without_timings, on_devices

from charlm.families.pretrained import from_pretrained
from charlm.finetune.run import fine_tune
from charlm.training.progress import read_metrics

EPOCHS, STEPS = 3, 6  # steps of an epoch

# The command given twice, without the seconds of new processes: what it goes on from is in the folder.
TWICE = (
    PROGRAM[: PROGRAM.index("    (fine_tune")]
    + """
    assert fine_tune(config, sys.argv[2]) == {}  # stopped
    assert not Path(sys.argv[2], "result.json").exists()
    profile = f"{sys.argv[2]}.profile{sys.argv[5]}"
    fine_tune(from_dict(json.loads(Path(sys.argv[1]).read_text())), sys.argv[2], profile)
"""
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    train, dev = write_data("classification", folder, train=STEPS * 8)
    return small(
        "classification", quickest(), train, dev, train__epochs=EPOCHS, train__log_every=1, data__accumulation=2,
        data__test=(str(dev),), model__dropout=0.1, optim__freeze=("embed/position",), train__checkpoint_every=2,
        optim__eps=0.01,  # or AdamW makes much of gradients that differ in the last digit
    )  # fmt: skip


@pytest.mark.slow
def test_two_processes_fine_tune_as_one_stop_together_and_go_on(config, tmp_path, monkeypatch):
    together, alone = tmp_path / "together", tmp_path / "alone"
    copy = config.copy_and_resolve_references
    monkeypatch.setattr(several_processes, "PROGRAM", TWICE)
    run = Processes(tmp_path, [copy()] * 2, [together] * 2, devices=1)
    run.wait_for("epoch 1/3  batch 4/6")
    run.running[1].send_signal(signal.SIGTERM)  # asked of one, done by both
    assert run.end() == [0, 0], run.read(0) + run.read(1)
    assert "stopped by signal at step" in run.read(0)
    assert "rows/s" not in run.read(1)  # one of them speaks
    assert "resuming at step" in run.read(0)
    assert "frozen parameters unchanged: 1 arrays" in run.read(0)
    assert not (together / "state").exists()
    for process in range(2):  # each has devices of its own to trace
        assert list(Path(f"{together}.profile{process}").rglob("perfetto_trace.json.gz"))

    with on_devices(2):
        fine_tune(copy(), str(alone))
    lines = [metrics_without_timings(folder) for folder in (together, alone)]
    assert [line.keys() for line in lines[0]] == [line.keys() for line in lines[1]]
    assert lines[0][-1]["step"] == EPOCHS * STEPS
    speeds = [line["train_tflops_per_second"] for line in read_metrics(alone) if "train_tflops_per_second" in line]
    assert max(speeds) > 0  # counted although parameters are frozen; that of a compiled step is not known
    for one, other in zip(*lines, strict=True):
        np.testing.assert_allclose(list(one.values()), list(other.values()), atol=1e-5)
    one, other = (json.loads((folder / "result.json").read_text()) for folder in (together, alone))
    assert one.keys() == other.keys() == {"seed", "step", "dev", "test"}
    assert one["step"] == other["step"]
    for part in ("dev", "test"):
        np.testing.assert_allclose(list(one[part].values()), list(other[part].values()), atol=1e-5)
    trees = [jax.tree.leaves(from_pretrained(folder).params) for folder in (together, alone)]
    for a, b in zip(*trees, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


# The command, as `charlm.main` calls it, with a workdir in a store.
STORED = (
    PROGRAM[: PROGRAM.index("with hosts.ending")]
    + """
from charlm.core.followers import mirrored_by_all
with hosts.ending_together(), mirrored_by_all(sys.argv[2]) as folder:
    fine_tune(config, folder)
"""
)


@pytest.mark.slow
def test_two_processes_without_a_shared_folder_fine_tune_as_one(config, tmp_path, monkeypatch):
    copy = config.copy_and_resolve_references
    address = f"s3://{BUCKET}/runs/classes"
    monkeypatch.setattr(several_processes, "PROGRAM", STORED)
    with object_stores.store("s3") as objects:
        for name in ("first", "last"):  # machines that share nothing but the store
            monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / name))
            (tmp_path / name).mkdir()
            run = Processes(tmp_path / name, [copy()] * 2, [address] * 2, devices=1)
            if name == "first":
                run.wait_for("epoch 2/3  batch 2/6")
                run.running[1].send_signal(signal.SIGTERM)
            assert run.end() == [0, 0], run.read(0) + run.read(1)
        assert "resuming at step" in run.read(0)
        left = {object_name.removeprefix("runs/classes/").split("/")[0] for object_name in objects.now}
    assert "result.json" in left
    assert "state" not in left
    (together,) = (path.parent for path in (tmp_path / "last" / "workdirs").glob("*/result.json"))
    with on_devices(2):
        fine_tune(copy(), str(tmp_path / "alone"))
    lines = [metrics_without_timings(folder) for folder in (together, tmp_path / "alone")]
    assert [line["step"] for line in lines[0]] == [line["step"] for line in lines[1]]
    results = [json.loads((folder / "result.json").read_text()) for folder in (together, tmp_path / "alone")]
    assert results[0]["step"] == results[1]["step"]
    for part in ("dev", "test"):
        np.testing.assert_allclose(list(results[0][part].values()), list(results[1][part].values()), atol=1e-5)


def test_other_examples_on_another_process_are_no_run(config, tmp_path):
    """One name, as of a disk that each host has of its own."""
    own, folders = config.copy_and_resolve_references(), [tmp_path / name for name in ("0", "1")]
    lines = Path(own.data.train[0]).read_text().splitlines(keepends=True)
    for folder, end in zip(folders, (len(lines), -1), strict=True):
        folder.mkdir()
        (folder / "train.tsv").write_text("".join(lines[:end]))
    own.data.train = ("train.tsv",)
    together = Processes(tmp_path, [own] * 2, [tmp_path / "run"] * 2, devices=1, folders=folders)
    assert together.end() == [1, 1], together.read(0) + together.read(1)
    assert "error: process 1: not the examples of process 0: data.train" in together.read(1)
    assert "error: process 0: another process has other examples" in together.read(0)
    assert not list((tmp_path / "run").glob("*.json"))
