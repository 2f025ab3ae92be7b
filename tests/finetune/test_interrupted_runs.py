"""An interrupted fine-tuning is the unbroken one: every array, every metric but for timings, and when training ends."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import threading

import jax
import numpy as np
import pytest
from damage import without_checksums
from finetune.test_fine_tuning import Killed, quickest, small, write_data
from small_run import metrics_without_timings, on_devices

from charlm.families.pretrained import from_pretrained
from charlm.finetune import batching
from charlm.finetune.batching import Packer
from charlm.finetune.course import Epochs
from charlm.finetune.epochs import Best, Position
from charlm.finetune.run import fine_tune
from charlm.tasks.classification import Classification

pytestmark = pytest.mark.usefixtures("quick", "log_lines")

ACCURACIES = [0.5, 0.7, 0.7, 0.6, 0.65, 0.5]  # the second epoch is the best; with patience 2 the fourth is the last
STEPS = 6  # of an epoch


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    monkeypatch.setattr(batching, "QUANTILES", (1.0,))


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
    one, other = Position(), Position()
    for score in scores:
        one.best.add(score)
    other.set_state(json.loads(json.dumps(one.get_state())))
    found = other.best_among([9.0])  # what the metrics file says does not count where the checkpoint knows
    assert (found.score, found.since) == (one.best.score, one.best.since)


def test_a_position_without_the_best_score_takes_it_from_the_metrics():
    position = Position()
    position.set_state({"epoch": 4, "batch": 1})
    found = position.best_among(iter([0.5, 0.7, 0.7, 0.6]))
    assert (found.score, found.since) == (0.7, 2)
