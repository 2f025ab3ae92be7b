"""Tests that an interrupted fine-tuning run equals the unbroken one: every array, and every metric but timings."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import without_checksums
from finetune.test_fine_tuning import Killed, quickest, small, write_data
from small_run import metrics_without_timings, on_devices

from charlm.families.pretrained import from_pretrained
from charlm.finetune import strips
from charlm.finetune.batching import Packer
from charlm.finetune.course import Epochs
from charlm.finetune.epochs import Best, RunPosition
from charlm.finetune.learning import TaskLearning
from charlm.finetune.run import fine_tune
from charlm.tasks.classification import Classification

pytestmark = pytest.mark.usefixtures("log_lines")

ACCURACIES = [0.5, 0.7, 0.7, 0.6, 0.65, 0.5]  # the second epoch is the best; with patience 2 the fourth is the last
STEPS = 6  # of an epoch


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


@pytest.fixture(autouse=True)
def _one_device():
    """More take longer; `test_several_processes` stops a run on two."""
    with on_devices(1):
        yield


@pytest.fixture
def _told_accuracies(monkeypatch):
    """Development data are scored as `ACCURACIES` says, whichever process trains."""
    evaluate, scores, at = Epochs.evaluate, Classification.scores, []

    def noting(self, step, state):
        at[:] = [self._batches.taken[0] - 1]
        try:
            return evaluate(self, step, state)
        finally:
            at.clear()

    def told(self, examples, predictions):
        return scores(self, examples, predictions) | ({"accuracy": ACCURACIES[at[0]]} if at else {})

    monkeypatch.setattr(Epochs, "evaluate", noting)
    monkeypatch.setattr(Classification, "scores", told)


def ended_at(monkeypatch, calls, how):
    """Ends the next run when that many full batches were packed, batches made ahead among them."""
    pack, seen = Packer.pack, []

    def ending(self, rows, group):
        if len(group.rows) == 8 and threading.current_thread() is not threading.main_thread():
            seen.append(group)
            if len(seen) == calls:
                how()
        return pack(self, rows, group)

    monkeypatch.setattr(Packer, "pack", ending)
    return lambda: monkeypatch.setattr(Packer, "pack", pack)


def kill():
    raise Killed


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def forget(folder):
    """Makes the last checkpoint one that was written before the best score was kept in it."""
    (step,) = (p for p in (folder / "state").iterdir() if p.name.isdigit())
    (position,) = (step / "data").glob("process_*.json")
    state = json.loads(position.read_text())
    position.write_text(json.dumps({"epoch": state["epoch"], "batch": state["batch"]}))
    without_checksums(step)  # nor were there any then


def saved_step(folder):
    (step,) = (int(p.name) for p in (folder / "state").iterdir() if p.name.isdigit())
    return step


@pytest.mark.usefixtures("_told_accuracies")
def test_an_interrupted_run_ends_as_the_unbroken_one(tmp_path, monkeypatch):
    train, dev = write_data("classification", tmp_path, train=STEPS * 8)
    config = lambda: small(
        "classification", quickest(), train, dev, train__epochs=6, train__patience=2, train__checkpoint_every=4,
        train__log_every=5, model__dropout=0.1,
    )  # fmt: skip
    whole, broken, old = (tmp_path / name for name in ("whole", "broken", "old"))
    expected = fine_tune(config(), str(whole))["runs"]
    restore = ended_at(monkeypatch, 4, terminate)
    assert fine_tune(config(), str(broken)) == {}
    restore()
    assert 0 < saved_step(broken) < 5  # before the first progress line
    restore = ended_at(monkeypatch, 3 * STEPS + 5 - saved_step(broken), kill)
    with pytest.raises(Killed):
        fine_tune(config(), str(broken))
    restore()
    assert saved_step(broken) == 3 * STEPS + 2  # the third epoch's score was equal to the best
    shutil.copytree(broken, old)
    forget(old)
    assert fine_tune(config(), str(broken))["runs"] == expected
    assert fine_tune(config(), str(old))["runs"] == expected
    lines = metrics_without_timings(whole)
    assert lines[-1]["step"] == 4 * STEPS
    assert metrics_without_timings(broken) == lines
    assert metrics_without_timings(old)[-1] == lines[-1]
    of = lambda folder: [np.asarray(x) for x in jax.tree.leaves(from_pretrained(folder).params)]
    for one, other in zip(of(whole), of(broken), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_equal_score_is_not_better():
    best = Best()
    assert [best.add(score) for score in (math.nan, math.nan, 0.5, 0.7, 0.7, math.nan, 0.71, -math.inf)] == [
        True, False, True, True, False, False, True, False,
    ]  # fmt: skip
    assert (best.score, best.since) == (0.71, 1)


@pytest.mark.parametrize("scores", [[], [0.1, 0.3, 0.3, 0.2]])
def test_a_position_holds_the_best_score(scores):
    one, other = RunPosition((8, 64)), RunPosition((64,))
    for score in scores:
        one.best.add(score)
    other.set_state(json.loads(json.dumps(one.get_state())))
    found = other.best_among([9.0])  # what the metrics file says does not count where the checkpoint knows
    assert (found.score, found.since) == (one.best.score, one.best.since)
    assert other.lengths == (8, 64)


def test_a_position_without_the_best_score_takes_it_from_the_metrics():
    position = RunPosition((64,))
    position.set_state({"epoch": 4, "batch": 1})
    found = position.best_among(iter([0.5, 0.7, 0.7, 0.6]))
    assert (found.score, found.since, position.lengths) == (0.7, 2, (64,))


@pytest.fixture
def corrupt(monkeypatch):
    """Returns a function that makes the loss of one batch infinite: the nth of those that a run on the data takes."""
    numbers = lambda batch: [x for x in jax.tree.leaves(batch.inputs) if jnp.issubdtype(x.dtype, jnp.integer)]
    key = lambda batch, array: sum((array.sum(x.astype("int32") ** 2) for x in numbers(batch)), array.int32(0))
    seen, marked, do = [], [], TaskLearning.loss_sums

    def count(self, batch):
        seen.append(int(key(batch.batch, np)))
        return batch.rows

    def loss_sums(self, params, micro_batch, dropout_key):
        sums = do(self, params, micro_batch, dropout_key)
        bad = key(micro_batch, jnp) == (marked[0] if marked else -1)
        return sums._replace(loss=jnp.where(bad, jnp.inf, sums.loss))

    def mark(config, folder, nth):
        monkeypatch.setattr(TaskLearning, "count", count)
        fine_tune(config, str(folder))
        assert seen.count(seen[nth - 1]) == 1
        marked.append(seen[nth - 1])

    monkeypatch.setattr(TaskLearning, "loss_sums", loss_sums)
    return mark


@pytest.mark.slow
@pytest.mark.parametrize("nth", [STEPS + 4, 2 * STEPS])
def test_a_run_passes_over_a_corrupt_batch_and_ends_no_epoch_without_its_score(
    tmp_path, monkeypatch, corrupt, log_lines, nth
):
    train, dev = write_data("classification", tmp_path, train=STEPS * 8)
    config = lambda **more: small(
        "classification", quickest(), train, dev, train__epochs=3, train__checkpoint_every=2,
        train__spike_policy="restore", train__spike_rewind=1, **more,
    )  # fmt: skip
    corrupt(config(), tmp_path / "calm", nth)
    expected = fine_tune(config(), str(tmp_path / "whole"))["runs"]
    assert sum("is a spike" in line for line in log_lines.lines) == 1
    assert ("going back to step 8" in log_lines.lines) == (nth == STEPS + 4)
    lines = metrics_without_timings(tmp_path / "whole")
    assert [line["step"] for line in lines if "dev_loss" in line] == ([6, 10, 16] if nth == STEPS + 4 else [6, 12, 18])
    here = lambda: config(train__local_dir=str(tmp_path / "disk"), train__local_checkpoint_every=1)
    restore = ended_at(monkeypatch, 2 * STEPS + (5 if nth == STEPS + 4 else 6), kill)  # after an odd step
    with pytest.raises(Killed):
        fine_tune(here(), str(tmp_path / "broken"))
    restore()
    assert fine_tune(here(), str(tmp_path / "broken"))["runs"] == expected
    assert any("from local checkpoints" in line for line in log_lines.lines)
    assert not list((tmp_path / "disk").glob("*/process_*"))
    assert metrics_without_timings(tmp_path / "broken") == lines
