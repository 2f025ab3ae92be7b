"""Tests of what is gathered of the results of jobs, from results that are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charlm.core import checkpoint as checkpoints
from charlm.league.config import add_system, add_task, get_config, resolved
from charlm.league.gathering import gathered
from charlm.league.places import Places
from charlm.league.plan import jobs_of
from charlm.robustness.sums import SUMS_FILE

TASK = {
    "name": "classification",
    "columns": {"text": "0", "label": "1"},
    "labels": ["no", "yes"],
    "metric": "accuracy",
}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The workdir of a league whose models were fine-tuned for `TASK`."""
    monkeypatch.setattr(checkpoints, "find", lambda folder: folder)
    monkeypatch.setattr(checkpoints, "read_metadata", lambda folder: {"task": TASK})
    return Places(tmp_path)


def league(*more):
    """A league of three systems with two seeds, and more tasks than one."""
    config = get_config()
    for name in ("a", "b", "late"):
        add_system(config, name, config="hlm_base:tiny")
    for task in more:
        add_task(config, task, config="classify:tiny", train=("a.tsv",), measure=("m.tsv",))
    add_task(config, "topic", config="classify:tiny", train=("a.tsv",), measure=("m.tsv",))
    config.tuning.seeds, config.robustness.noise, config.robustness.samples = (0, 1), ("swap:0.1",), 50
    return resolved(config)


def write_measured(places, system, seed, right):
    """Writes the report of a model that has this many of four examples right, clean and under noise."""
    folder = places.measured("topic", system, seed)
    folder.mkdir(parents=True)
    name = f"seed_{seed}"
    (folder / "results.json").write_text(json.dumps({"models": [{"name": name, "defence": ""}]}))
    # Of each example, by label: right, meant, answered. All are "no".
    rows = np.array([[1, 0, 1, 0, 1, 0]] * right + [[0, 0, 1, 0, 0, 1]] * (4 - right), np.float64)
    about = [{"model": name, "spec": spec, "kind": "classification"} for spec in ("", "swap:0.1")]
    np.savez(folder / SUMS_FILE, meta=np.array(json.dumps(about)), rows_0=rows, rows_1=rows)


def scores(places):
    """The clean scores by system, with those of each seed."""
    config = league()
    found = gathered(config, places, jobs_of(config, places))
    return {one["system"]: (one["value"], one["seeds"]) for one in found["scores"] if one["noise"] == ""}


def test_a_system_has_its_row_when_all_seeds_are_measured(places):
    write_measured(places, "late", 0, 4)
    assert scores(places) == {}
    for seed, right in ((0, 3), (1, 2)):
        write_measured(places, "a", seed, right)
        write_measured(places, "b", seed, 1)
    assert scores(places) == {"a": (0.625, [0.75, 0.5]), "b": (0.25, [0.25, 0.25])}
    write_measured(places, "late", 1, 2)
    assert scores(places)["late"] == (0.75, [1.0, 0.5])


def test_a_claim_on_all_tasks_is_not_answered_by_some(places):
    for seed, right in ((0, 4), (1, 4)):
        write_measured(places, "a", seed, right)
        write_measured(places, "b", seed, 0)
    for more, verdict in (((), "holds"), (("later",), "not measured")):
        config = league(*more)
        config.claims = ("a ahead of b on all", "a ahead of b on topic")
        found = gathered(config, places, jobs_of(config, places))
        assert [one["verdict"] for one in found["claims"]] == [verdict, "holds"]
        assert {one["task"] for one in found["scores"]} == {"topic"}
