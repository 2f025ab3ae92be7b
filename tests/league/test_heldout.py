"""Tests of leagues without tasks: several runs of pre-training, their budgets, and how their losses are compared."""

from __future__ import annotations

import json
import re

import pytest

from charlm.league import done, heldout
from charlm.league.config import add_system, get_config, resolved
from charlm.league.gathering import gathered
from charlm.league.heldout import heldout_of, measure_of, minus_first, spread
from charlm.league.measuring import steps_of
from charlm.league.places import Places
from charlm.league.plan import jobs_of
from charlm.league.writing import write_report


def league(runs: int = 2):
    """Two HLMs, and one that starts from the second."""
    config = get_config()
    add_system(config, "changed", config="hlm_base:tiny", set=("model.norm=rms",), share=0.5)
    add_system(config, "paper", title="the paper", config="hlm_base:tiny")
    add_system(config, "later", config="hlm_base:tiny", start="paper", share=0.5)
    config.pretraining.runs, config.pretraining.baseline = runs, "paper"
    config.budget.flops = 1e9
    return resolved(config)


def flags(job) -> list[str]:
    """The arguments of a job behind `python -m`."""
    return job.command()[2:]


@pytest.fixture
def places(tmp_path):
    """A workdir with the budgets of that league."""
    places = Places(tmp_path)
    for name in league().systems:
        places.budget(name).parent.mkdir(exist_ok=True)
        sizes = {"parameters": {"total": 3}, "corpus_words": 9, "unit": "words", "words_per_unit": 1.0, "folder": ""}
        budget = {"settings": {"train.steps": 4}, "steps_key": "train.steps", **sizes}
        places.budget(name).write_text(json.dumps(budget))
    return places


def test_every_seed_is_a_run_of_its_own(places):
    jobs = {job.name: job for job in jobs_of(league(), places)}
    assert [name for name in jobs if name.startswith("train/paper")] == ["train/paper/0", "train/paper/1"]
    for seed in (0, 1):
        line = flags(jobs[f"train/changed/{seed}"])
        assert f"--config.seed={seed}" in line
        assert line[-1] == f"--workdir={places.root}/models/changed/seed_{seed}"
        assert f"--config.init_from={places.root}/models/paper/seed_{seed}" in flags(jobs[f"train/later/{seed}"])
    assert jobs["budget/later"].needs == ("train/paper/0",)
    assert jobs["train/later/1"].needs == ("budget/later", "train/paper/1")
    assert {"--flops=500000000.0", "--config.model.norm=rms"} <= set(flags(jobs["budget/changed"]))
    assert not [flag for flag in flags(jobs["budget/later"]) if flag.startswith("--config.seed")]


def test_one_run_has_the_seed_of_its_config(places):
    jobs = {job.name: job for job in jobs_of(league(runs=1), places)}
    line = flags(jobs["train/paper"])
    assert line[-1] == f"--workdir={places.root}/models/paper"
    assert not [flag for flag in line if flag.startswith("--config.seed")]


def test_steps_follow_from_operations_or_from_words():
    found = {"words_per_step": 30.0, "flops_per_step": 4e6}
    assert steps_of(found, 100, 0.0) == 4
    assert steps_of(found, 100, 9e6) == 3
    assert steps_of(found, 1, 1.0) == 1


def test_means_spreads_and_pairs():
    entries = [
        {"system": "paper", "seeds": [0, 1, 2], "metrics": [{"loss": 2.0}, {"loss": 3.0}, {"loss": 9.0}]},
        {"system": "changed", "seeds": [1, 0], "metrics": [{"loss": 2.5}, {"loss": 1.0}]},
    ]
    assert spread([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert spread([4.0]) == (4.0, None)
    assert minus_first(entries, entries[1], "loss") == [-0.5, -1.0]
    assert measure_of(entries) == "loss"


def write_metrics(places: Places, system: str, seed: int, bits: float) -> None:
    """Writes the metrics of a run: two evaluations, then a line of training."""
    folder = places.model(system, seed)
    folder.mkdir(parents=True)
    last = {"step": 4, "heldout_loss": bits, "heldout_bits_per_char": bits, "heldout_word_accuracy": 0.25}
    lines = [last | {"step": 0, "heldout_bits_per_char": 9.0}, last, {"step": 4, "loss": 1.0}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_report_has_the_last_losses_of_finished_runs(places, monkeypatch):
    for system, seed, bits in (("paper", 0, 3.0), ("paper", 1, 3.2), ("changed", 0, 2.9), ("changed", 1, 3.0)):
        write_metrics(places, system, seed, bits)
    write_metrics(places, "later", 0, 1.0)
    monkeypatch.setattr(done, "is_trained", lambda budget, model: "later" not in str(model))
    assert [(one["system"], one["seeds"]) for one in heldout_of(league(), places)] == [
        ("paper", [0, 1]), ("changed", [0, 1]), ("later", [])
    ]  # fmt: skip
    assert heldout.last_metrics(places, "paper", 1)["bits_per_char"] == 3.2
    write_report(gathered(league(), places, jobs_of(league(), places)), places.root)
    text = re.sub(r"\\", "", (places.root / "report.md").read_text())
    rows = [line for line in text.splitlines() if "±" in line and line.startswith("|")]
    assert len(rows) == 2
    assert rows[0].startswith("| the paper | 3.1000 ± 0.1414 | – | 25.00 ± 0.00 | 2 |")
    assert rows[1].startswith("| changed | 2.9500 ± 0.0707 | -0.1500 ± 0.0707 | 25.00 ± 0.00 | 2 |")
    assert "Every system costs 1.00e+09 useful operations" in text
    assert json.loads((places.root / "report.json").read_text())["heldout"][1]["metrics"][0]["bits_per_char"] == 2.9
