"""Tests a run whose newest checkpoint is damaged: it stops, or continues from the one before if asked to."""

from __future__ import annotations

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from damage import array_files, flip, without_checksums
from small_run import metrics_without_timings, python
from test_main import TINY, assert_one_error, overrides

import charlm.training.train
from charlm.core import checkpoint as checkpoints
from charlm.training.recovery import check_newest
from charlm.training.train import train


@pytest.fixture
def workdir(trained, tmp_path) -> Path:
    """A run of steps 3, 6, 9, 12 whose newest checkpoint is damaged."""
    folder = trained.copy(tmp_path / "run")
    flip(array_files(folder / "checkpoints" / "12")[-1], 400, 3)
    return folder


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def params(trained, checkpoint):
    return jax.device_get(checkpoints.load_params(checkpoint, trained.run.abstract_state.params))


def test_the_command_says_so_and_changes_nothing(trained, workdir):
    before = files(workdir)
    command = ["-m", "charlm.main", f"--config={TINY}", *overrides(trained.config), f"--workdir={workdir}"]
    done = python(*command)
    assert_one_error(done, "checkpoints/12 is damaged or incomplete: state/")
    assert done.stderr.endswith(
        "is not what was saved; the last good checkpoint before it is step 9; "
        "--skip_damaged sets damaged ones aside and goes on from a good one\n"
    )
    assert files(workdir) == before


def test_asked_to_it_goes_on_from_the_one_before_and_ends_as_if_nothing_had_been(
    trained, workdir, monkeypatch, log_lines
):
    damaged = files(workdir / "checkpoints" / "12")
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: trained.run)
    assert train(trained.new_config(), str(workdir), skip_damaged=True)
    assert "12 is set aside as 12.damaged" in str(log_lines)
    assert "resuming at step 9" in log_lines.lines
    assert files(workdir / "checkpoints" / "12.damaged") == damaged
    assert checkpoints.find(workdir).name == "12"
    jax.tree.map(
        np.testing.assert_array_equal,
        params(trained, checkpoints.find(workdir)),
        params(trained, checkpoints.find(trained.workdir)),
    )
    assert metrics_without_timings(workdir) == metrics_without_timings(trained.workdir)


def test_several_damaged_ones_are_passed_over_and_names_never_meet(workdir, log_lines):
    folder = workdir / "checkpoints"
    (folder / "12.damaged").mkdir()
    (folder / "9" / "state" / "manifest.ocdbt").write_bytes(b"")
    check_newest(folder, skip_damaged=True)
    assert sorted(p.name for p in folder.iterdir()) == ["12.damaged", "12.damaged2", "6", "9.damaged"]
    check_newest(folder, skip_damaged=True)
    check_newest(folder, skip_damaged=False)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"loss": "low"}'])
def test_an_older_one_whose_metrics_cannot_be_read_is_set_aside(trained, tmp_path, monkeypatch, log_lines, content):
    """Orbax reads the metrics of all checkpoints, and would end the run."""
    folder = trained.copy(tmp_path / "run")
    path = folder / "checkpoints" / "6" / "metrics" / "metrics"
    assert path.exists()
    path.write_text(content)
    config = trained.new_config()
    config.train.steps = 15
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: trained.run)
    assert train(config, str(folder))
    assert "checkpoints/6 is damaged" in str(log_lines)
    assert "6 is set aside as 6.damaged" in str(log_lines)
    assert checkpoints.find(folder).name == "15"


def test_without_a_good_one_nothing_is_set_aside(workdir):
    folder = workdir / "checkpoints"
    for step in (6, 9):
        shutil.rmtree(folder / str(step))
    with pytest.raises(ValueError, match=r"no checkpoint in \S+ is whole: move \S+ away to start afresh"):
        check_newest(folder, skip_damaged=True)
    assert (folder / "12").is_dir()


def test_old_checkpoints_and_an_empty_folder_pass(workdir, tmp_path):
    without_checksums(workdir / "checkpoints" / "12")
    check_newest(workdir / "checkpoints", skip_damaged=False)
    check_newest(tmp_path / "none", skip_damaged=False)
    assert (workdir / "checkpoints" / "12").is_dir()
