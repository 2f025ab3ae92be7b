"""Tests of the jobs of a league: what they need, what they run, and when their results count as done."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from charlm.league import done
from charlm.league.config import add_system, add_task, get_config, resolved, tasks_of
from charlm.league.places import Places
from charlm.league.plan import defences, jobs_of, ranked, trained
from charlm.league.settings import check_files
from charlm.robustness.sums import SUMS_FILE


def league():
    """A league with everything that makes jobs differ."""
    config = get_config()
    add_system(config, "late", config="charbert_base:tiny", start="early", share=0.25, tune=("train.epochs=2",))
    add_system(config, "early", config="charbert_base:tiny+advbert", set=("model.hidden=64", "train.log_every=7"))
    add_system(config, "bytes", config="charbert_base:tiny+advbert", subwords="bytes:roberta", pieces=900)
    add_system(config, "seed-only", config="hlm_base:tiny", ranked=False)
    add_system(config, "early+nfkc", behind="early", defence="nfkc")
    add_system(config, "noisy", same="early", tune=("data.noise=swap:0.1",))
    add_system(config, "noisy+nfkc", behind="noisy", defence="nfkc")
    add_task(config, "pos", config="tag:tiny", train=("pos.conllu.gz",))
    add_task(
        config, "topic", config="classify:tiny", train=("a.tsv", "b.tsv"), dev=("d.tsv",), measure=("m.tsv",),
        set=("data.header=no",),
    )  # fmt: skip
    config.tuning.seeds = (0, 3)
    config.budget.words = 1000
    config.robustness.noise = ("keyboard:0.1",)
    return resolved(config)


@pytest.fixture
def jobs(tmp_path):
    """The jobs of that league by name."""
    return {job.name: job for job in jobs_of(league(), Places(tmp_path))}


def flags(job) -> list[str]:
    """The arguments of a job behind `python -m`."""
    return job.command()[2:]


def test_jobs_come_after_those_that_they_need(jobs):
    seen = set()
    for name, job in jobs.items():
        assert set(job.needs) <= seen
        seen.add(name)
    assert trained(league()).index("early") < trained(league()).index("late")
    assert jobs["budget/late"].needs == ("train/early",)
    assert jobs["train/late"].needs == ("budget/late",)
    assert jobs["budget/bytes"].needs == ("subwords/bytes",)
    assert jobs["tune/pos/late/3"].needs == ("train/late", "split/pos")
    assert jobs["measure/topic/late/0"].needs == ("tune/topic/late/0",)


def test_a_system_is_fine_tuned_for_its_own_tasks(tmp_path):
    config = league()
    add_system(config, "mean", same="early", tune=("model.label_head=mean",), tasks=("topic",))
    add_system(config, "mean+nfkc", behind="mean", defence="nfkc")
    config = resolved(config)
    jobs = {job.name: job for job in jobs_of(config, Places(tmp_path))}
    own = {name for name in jobs if name.split("/")[2:3] == ["mean"]}
    assert own == {f"{kind}/topic/mean/{seed}" for kind in ("tune", "measure") for seed in (0, 3)}
    assert "--config.model.label_head=mean" in flags(jobs["tune/topic/mean/0"])
    assert tasks_of(config, "mean+nfkc") == ["topic"]
    assert tasks_of(config, "early+nfkc") == ["pos", "topic"]


def test_a_defence_and_a_mere_start_are_not_fine_tuned(jobs):
    tuned = {name.split("/")[2] for name in jobs if name.startswith("tune/")}
    assert tuned == {"late", "early", "bytes", "noisy"}
    assert "train/seed-only" in jobs
    assert "split/topic" not in jobs
    assert set(ranked(league())) == {"late", "early", "bytes", "early+nfkc", "noisy", "noisy+nfkc"}
    assert defences(league(), "early") == ["nfkc"]


def test_the_same_model_is_tuned_again_by_its_own_settings(jobs, tmp_path):
    assert not [name for name in jobs if name.endswith("/noisy")]  # neither a budget nor a training
    assert jobs["tune/pos/noisy/3"].needs == ("train/early", "split/pos")
    assert jobs["measure/pos/noisy/3"].needs == ("tune/pos/noisy/3",)
    tune, early = flags(jobs["tune/pos/noisy/3"]), flags(jobs["tune/pos/early/3"])
    assert f"--config.init_from={tmp_path}/models/early" in tune
    assert set(tune) - set(early) == {"--config.data.noise=swap:0.1", f"--workdir={tmp_path}/tuned/pos/noisy/seed_3"}
    assert flags(jobs["measure/pos/noisy/0"])[-2:] == ["--defence", "nfkc"]


def test_a_system_of_a_share_has_that_share_of_the_words(jobs, tmp_path):
    line = flags(jobs["budget/late"])
    assert "--words=250" in line
    assert f"--config.init_from={tmp_path}/models/early" in line
    assert f"--config.text.tokenizer={tmp_path}/subwords/bytes" in flags(jobs["budget/bytes"])


def test_training_takes_its_steps_from_the_budget(jobs, tmp_path):
    path = Places(tmp_path).budget("early")
    path.parent.mkdir()
    settings = {"train.steps": 40, "train.log_every": 1, "train.eval_every": 8}
    path.write_text(json.dumps({"settings": settings, "steps_key": "train.steps"}))
    line = flags(jobs["train/early"])
    assert line[-3:] == ["--config.train.steps=40", "--config.train.eval_every=8", f"--workdir={tmp_path}/models/early"]
    assert "--config.train.log_every=7" in line  # what the config sets stays


def test_tuning_and_measuring_read_different_parts(jobs, tmp_path):
    tune, measure = flags(jobs["tune/pos/late/3"]), flags(jobs["measure/pos/early/0"])
    assert f"--config.data.train={tmp_path}/parts/pos/learn_0_pos.conllu" in tune
    assert {"--config.seed=3", "--config.train.epochs=2"} <= set(tune)
    assert measure[measure.index("--data") + 1] == f"{tmp_path}/parts/pos/measure_0_pos.conllu"
    assert measure[-2:] == ["--defence", "nfkc"]
    assert "--header" not in flags(jobs["split/pos"])
    topic = flags(jobs["tune/topic/bytes/0"])
    assert {"--config.data.train=a.tsv,b.tsv", "--config.data.dev=d.tsv"} <= set(topic)


def test_nothing_is_done_in_an_empty_folder(jobs):
    assert not [name for name, job in jobs.items() if job.finished()]


def test_a_damaged_result_is_not_done(tmp_path):
    (tmp_path / "budget.json").write_text('{"settings": {"train.st')
    assert not done.has_budget(tmp_path / "budget.json")
    (tmp_path / "summary.json").write_text('{"runs": {"seed_0": {"dev": {"f1": 0.5}}}}')
    assert not done.is_tuned(tmp_path)  # there is no model beside it


def wanted(**changed) -> done.Measuring:
    """What is asked of the report below."""
    usual = done.Measuring(("m.tsv",), ("keyboard:0.1",), 1, 0, ("nfkc",))
    return usual._replace(**changed)


def write_results(folder: Path) -> None:
    """Writes what a robustness report leaves, as far as it is asked."""
    models = [{"name": "seed_0", "defence": ""}, {"name": "seed_0 + nfkc", "defence": "nfkc"}]
    results = {
        "settings": {"data": ["m.tsv"], "seeds": 1, "examples": 0},
        "models": models,
        "clean": {"seed_0": {}, "seed_0 + nfkc": {}},
        "noise": [{"spec": "keyboard:0.1"}],
    }
    (folder / "results.json").write_text(json.dumps(results))
    np.savez(folder / SUMS_FILE, meta=np.array("[]"))


def test_a_report_is_done_if_it_has_all_that_is_asked(tmp_path):
    write_results(tmp_path)
    assert done.is_measured(tmp_path, wanted())
    for changed in (
        {"noise": ("keyboard:0.1", "drop:0.1")},
        {"defences": ("nfkc", "symspell")},
        {"draws": 2},
        {"examples": 10},
        {"data": ("n.tsv",)},
    ):
        assert not done.is_measured(tmp_path, wanted(**changed))
    assert done.is_measured(tmp_path, wanted(defences=()))
    (tmp_path / SUMS_FILE).write_bytes(b"PK cut")
    assert not done.is_measured(tmp_path, wanted())


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ({"config": "tag:tiny"}, []),
        ({"config": "tag:tiny", "set": ("data.target=word", "data.text=sentence")}, ["--table", "--header"]),
        ({"config": "classify:tiny"}, ["--table", "--header"]),  # columns by name
        ({"config": "classify:tiny", "set": ("data.text=0", "data.label=1")}, ["--table"]),
        (
            {"config": "classify:tiny", "set": ("data.text=0", "data.label=-1", "data.header=yes")},
            ["--table", "--header"],
        ),
        ({"config": "classify:tiny", "set": ("data.header=yes", "data.header=no")}, ["--table"]),
    ],
)
def test_a_file_is_parted_as_its_reader_takes_it(tmp_path, task, told):
    config = get_config()
    add_system(config, "a", config="hlm_base:tiny")
    add_task(config, "one", train=("a.tsv",), **task)
    (job,) = [job for job in jobs_of(resolved(config), Places(tmp_path)) if job.name == "split/one"]
    assert [flag for flag in flags(job) if flag in ("--table", "--header")] == told


def test_a_task_that_is_measured_on_a_part_names_its_files(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tx\n")
    config = get_config()
    add_system(config, "a", config="hlm_base:tiny")
    add_task(config, "one", config="classify:tiny", train=(f"{tmp_path}/*.tsv",))
    config.corpora.train = ("builtin",)
    with pytest.raises(
        ValueError, match=r"tasks\.one\.train: '.*\*\.tsv': a task without `measure` is measured on a part"
    ):
        check_files(resolved(config))
