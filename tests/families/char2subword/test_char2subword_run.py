"""Tests a Char2Subword run in three stages: frozen bits, exact resume in every stage, the same on eight devices."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
from small_char2subword_run import STAGES, flat, saved, small_backbone
from small_run import metrics_without_timings, on_devices, python

import charlm.training.train
from charlm.config import from_dict, to_json
from charlm.core import checkpoint as checkpoints
from charlm.data.pipeline import training_records
from charlm.data.streams import SequenceStream
from charlm.families.lookup import prepare
from charlm.training.evaluate import evaluate
from charlm.training.progress import read_metrics
from charlm.training.run import build
from charlm.training.stages import train_stages
from charlm.training.train import train

FROZEN = re.compile("^(bert|head)/")


def assert_ended_as_unbroken(stages, workdir):
    for number, name in enumerate(STAGES, start=1):
        (one, position), (other, other_position) = saved(stages.stage(number)), saved(workdir / name)
        assert len(one) > 30
        assert one == other, [key for key in one if one[key] != other.get(key)]
        assert position == other_position
        assert metrics_without_timings(stages.stage(number)) == metrics_without_timings(workdir / name)


# ---- An unbroken run ----


def test_each_stage_starts_from_the_one_before_and_learns(stages):
    heldout = {
        number: [line for line in read_metrics(stages.stage(number)) if "heldout_loss" in line] for number in (1, 2, 3)
    }
    for lines in heldout.values():
        assert [line["step"] for line in lines] == [0, 4, 8]
        losses = [line["heldout_loss"] for line in lines]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < losses[0] - 0.3
    for number in (2, 3):
        stored = from_dict(json.loads((stages.stage(number) / "config.json").read_text()))
        assert stored.init_from == str(stages.stage(number - 1))
    assert heldout[3][0]["heldout_loss"] < heldout[1][0]["heldout_loss"]  # the third goes on, it does not begin


def test_what_is_frozen_is_the_same_to_the_bit_and_has_no_moments(stages):
    with on_devices(1):
        before = flat(load(stages.folder / "backbone"))
    values = [np.frombuffer(value, np.float32) for value in before.values()]
    assert sum(int((np.signbit(x) & (x == 0)).sum()) for x in values) > 50  # -0, which adding 0 would make 0
    for number in (1, 2, 3):
        state = flat(load_state(stages, number))
        after = {key.removeprefix("params/"): value for key, value in state.items() if key.startswith("params/")}
        frozen = {key: value for key, value in after.items() if FROZEN.search(key)}
        assert frozen == before
        own = after.keys() - frozen.keys()
        assert all(key.startswith("char2subword/") for key in own)
        moments = [re.sub("^.*/(mu|nu)/", "", key) for key in state if re.search("/(mu|nu)/", key)]
        assert sorted(moments) == sorted([*own, *own])


def load(source):
    """Returns the parameters of a checkpoint of parameters alone."""
    return jax.device_get(checkpoints.load_params(source, checkpoints.on_one_device(checkpoints.stored_params(source))))


def load_state(stages, number):
    batches = iter(stages.runs[number - 1].train_batches)
    try:
        source = checkpoints.find(stages.stage(number))
        return jax.device_get(checkpoints.load(source, stages.runs[number - 1].abstract_state, batches))
    finally:
        batches.close()


def test_the_module_moves_in_every_stage(stages):
    module = lambda state: {key: value for key, value in flat(state.params).items() if not FROZEN.search(key)}
    found = [module(load_state(stages, number)) for number in (1, 2, 3)]
    for one, other in ((found[0], found[1]), (found[1], found[2])):
        assert not [key for key in one if one[key] == other[key]]


def test_progress_lines_hold_what_they_should(stages):
    lines = [line for line in read_metrics(stages.stage(2)) if "loss" in line]
    assert [line["step"] for line in lines] == [4, 8]
    for line in lines:
        assert min(line["subwords_per_second"], line["tflops_per_second"], line["grad_norm"]) > 0
        assert 0 <= line["mlm_accuracy"] <= 1


def test_measured_tables_travel_with_the_stage_they_were_measured_in(stages):
    stored = [json.loads((stages.stage(number) / "config.json").read_text())["data"] for number in (1, 2, 3)]
    shape = stages.runs[1].objective.shape
    assert tuple(stored[1]["bucket_slots"]) == shape.slots
    assert tuple(stored[1]["bucket_rows"]) == shape.rows
    assert tuple(stored[0]["bucket_rows"]) == stages.runs[0].objective.shape.rows != shape.rows
    assert stored[0]["bucket_rows"] == stored[2]["bucket_rows"]


# ---- Stopped and started again ----


def test_a_finished_run_is_left_alone(stages, log_lines):
    files = lambda: {p: p.stat().st_mtime_ns for p in (stages.folder / "run").rglob("*") if p.is_file()}
    before = files()
    assert train_stages(stages.config(), str(stages.folder / "run"))
    assert files() == before
    assert str(log_lines).count("holds a finished run of 8 steps: nothing to do") == 3
    assert "held-out loss: " in str(log_lines)


@pytest.mark.slow
def test_asked_to_stop_in_every_stage(stages, same_runs, tmp_path, monkeypatch):
    plan = [(1, 2), (1, 7), (2, 1), (2, 6), (3, 3)]
    step = charlm.training.loop.Loop._step

    def stop_at(self, now):
        number = int(Path(self._saving.workdir).name[0])
        if plan and plan[0] == (number, now):
            plan.pop(0)
            os.kill(os.getpid(), signal.SIGTERM)
        step(self, now)

    monkeypatch.setattr(charlm.training.loop.Loop, "_step", stop_at)
    for left in (4, 3, 2, 1, 0):
        assert not train_stages(stages.config(), str(tmp_path / "run"))
        assert len(plan) == left
    assert train_stages(stages.config(), str(tmp_path / "run"))
    assert_ended_as_unbroken(stages, tmp_path / "run")


def killed(stages, folder, number, step):
    """Runs the stages in a process of their own that dies before a step."""
    code = f"""
import json, os
from pathlib import Path
from charlm.config import from_dict
from charlm.training.stages import train_stages
from charlm.training.loop import Loop
from small_run import on_devices
step = Loop._step
dies = lambda loop, now: now == {step} and Path(loop._saving.workdir).name[0] == "{number}"
Loop._step = lambda self, now: os.kill(os.getpid(), 9) if dies(self, now) else step(self, now)
with on_devices(1):
    train_stages(from_dict(json.loads(Path({str(folder / "config.json")!r}).read_text())), {str(folder / "run")!r})
"""
    (folder / "config.json").write_text(to_json(stages.config()))
    done = python("-c", code)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.slow
def test_killed_at_once_in_the_contextual_stage(stages, same_runs, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copytree(stages.stage(1), tmp_path / "run" / STAGES[0])
    killed(stages, tmp_path, 2, 6)
    assert checkpoints.find(tmp_path / "run" / STAGES[1]).name in ("3", "4")
    assert train_stages(stages.config(), str(tmp_path / "run"))
    assert_ended_as_unbroken(stages, tmp_path / "run")


@pytest.mark.slow
def test_killed_at_once_twice_in_every_stage(stages, same_runs, tmp_path):
    for number in (1, 2, 3):
        for step in (2, 6):
            killed(stages, tmp_path, number, step)
    assert train_stages(stages.config(), str(tmp_path / "run"))
    assert_ended_as_unbroken(stages, tmp_path / "run")


def test_resume_takes_everything(stages, same_runs, tmp_path):
    config = stages.contextual(resume=str(stages.stage(2) / "checkpoints" / "4"))
    config.init_from = ""
    assert train(config, str(tmp_path / "run"))
    assert saved(tmp_path / "run") == saved(stages.stage(2))


def test_a_stage_goes_on_without_what_it_started_from(stages, same_runs, tmp_path):
    workdir = shutil.copytree(stages.stage(2), tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints" / "8")
    assert train(stages.contextual(init_from="nowhere"), str(workdir))
    assert saved(workdir) == saved(stages.stage(2))


def test_the_contextual_stage_can_be_made_longer(stages, same_runs, tmp_path):
    for name in STAGES[:2]:
        shutil.copytree(stages.folder / "run" / name, tmp_path / "run" / name)
    assert train_stages(stages.config(contextual__steps=9, contextual__eval_every=3), str(tmp_path / "run"))
    assert [checkpoints.find(tmp_path / "run" / name).name for name in STAGES] == ["8", "9", "8"]


# ---- One stage alone ----


def test_a_stage_alone_is_named(stages, same_runs, tmp_path):
    config = stages.config(stage="contextual", contextual__steps=2)
    config.init_from = str(stages.stage(1))
    assert train_stages(config, str(tmp_path / "run"))
    first = next(line for line in metrics_without_timings(tmp_path / "run") if "heldout_loss" in line)
    assert first == next(line for line in metrics_without_timings(stages.stage(2)) if "heldout_loss" in line)


def test_without_a_prediction_head_nothing_begins(stages, tmp_path):
    small_backbone(tmp_path / "encoder", head=False)
    for changes in ({"stage": "contextual"}, {}):
        config = stages.config(init_from=str(tmp_path / "encoder"), **changes)
        with pytest.raises(ValueError, match=r"^init_from: .*encoder has no prediction head, which the contextual"):
            train_stages(config, str(tmp_path / "run"))
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__max_length": 33}, r"data\.max_length=33, but .* has 32 positions"),
        (
            {"data__batch_size": 9},
            r"contextual\.batch_size=9 must be a multiple of contextual\.accumulation=2 x data\.t",
        ),
        (
            {"data__mask_share": 0.95},
            r"data\.mask_rate must lie in \(0, 1\] and data\.mask_share \+ data\.random_share",
        ),
        ({"data__bucket_slots": (3, 5)}, r"contextual\.bucket_slots=\(3, 5\) must ascend and end at 7"),
    ],
)
def test_what_does_not_fit_is_named(stages, changes, message):
    config = stages.contextual(**changes)
    with on_devices(1), pytest.raises(ValueError, match=message):
        build(config, prepare(config))


# ---- Batches ----


def test_nothing_but_chosen_subwords_is_labelled_and_hidden(stages):
    """Every position of a training batch reads the spelling of its subword, but for hidden characters."""
    objective = stages.runs[1].objective
    batches = iter(objective.train_batches((0,)))
    batch = jax.tree.map(lambda x: x[0, 0], next(batches))
    batches.close()
    with training_records(objective.config, objective.data.train, objective.read) as records:
        sequence = SequenceStream(records, objective.training_maker, 0, 8).next()
    special, rows_VC = objective.data.tokenizer.special, objective._pieces.rows_VC
    labels = dict(zip(batch.position_SM.tolist(), batch.labels_SM.tolist(), strict=True))
    table = np.concatenate([np.pad(x, ((0, 0), (0, rows_VC.shape[1] - x.shape[1]))) for x in batch.inputs.chars])
    assert batch.inputs.ids_SBL[0, 0] == special.cls
    changed = 0
    for place, index in enumerate(sequence.ids_T.tolist()):
        if not rows_VC[index].any():
            assert batch.inputs.ids_SBL[0, place] == index
            assert labels.get(place, -1) == -1 or place == 0
            continue
        assert batch.inputs.ids_SBL[0, place] == -1
        row = table[batch.inputs.index_SBL[0, place]]
        if sequence.chosen_T[place]:
            assert labels[place] == index
        else:
            assert labels.get(place, -1) == -1
            np.testing.assert_array_equal(row, rows_VC[index])
        changed += (row != rows_VC[index]).any()
    assert changed


def test_heldout_text_is_always_hidden_alike_and_wholly(stages):
    run = stages.runs[1]
    batches, again = list(run.heldout_batches), list(run.heldout_batches)
    jax.tree.map(np.testing.assert_array_equal, batches, again)
    assert sum(int((batch.labels_SM >= 0).sum()) for batch in batches) > 40
    maker = run.objective.maker(1, hiding=True)
    shares = (maker.masking.mask_share, maker.masking.random_share)
    assert shares == (1.0, 0.0)


@pytest.mark.slow
def test_evaluation_does_not_depend_on_the_batch_size(stages):
    params = load_state(stages, 2).params
    config = stages.contextual(data__batch_size=6, data__table_shards=1)
    with on_devices(1):
        run = build(config, prepare(config))
    one, two = (evaluate(r, jax.device_put(params, jax.devices()[0])) for r in (stages.runs[1], run))
    assert one["subwords"] == two["subwords"]
    np.testing.assert_allclose([two[name] for name in one], list(one.values()), rtol=1e-5)


# ---- Other devices ----


def steps(run, state, batches):
    state = jax.device_put(state, jax.tree.map(lambda x: x.sharding, run.abstract_state))
    results = []
    for batch in batches:
        state, sums, norm = run.train_step(state, run.place(batch))
        results.append(jax.device_get((*sums, norm)))
    return np.array(results)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"data": 8}, {"data": 2, "fsdp": 2, "model": 2}], ids=["8", "2x2x2"])
def test_eight_devices_compute_what_one_does(stages, mesh):
    iterator = iter(stages.runs[1].train_batches)
    batches = [next(iterator) for _ in range(2)]
    iterator.close()
    start = load_state(stages, 2)
    want = steps(stages.runs[1], start, batches)
    config = stages.contextual()
    config.mesh.update(mesh)
    run = build(config, prepare(config))
    assert run.objective.shape == stages.runs[1].objective.shape
    got = steps(run, start, batches)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5)  # loss, labels, hits and gradient, with dropout
    np.testing.assert_allclose(got[1, :2], want[1, :2], rtol=1e-3)  # the second step sees an update
    assert run.train_step._cache_size() == 1


@pytest.mark.slow  # by the step of every family, which `tests/core/test_sharding.py` has
def test_micro_batches_are_summed_exactly(stages):
    """Cut into two micro-batches or not: the same labels, and without dropout the same gradient."""
    iterator = iter(stages.runs[1].train_batches)
    batch = next(iterator)
    iterator.close()
    results = []
    for accumulation in (2, 1):
        quiet = {"model__dropout": 0.0, "model__attention_dropout": 0.0}
        config = stages.contextual(data__accumulation=accumulation, **quiet)
        with on_devices(1):
            run = build(config, prepare(config))
        whole = jax.tree.map(lambda x: np.concatenate(list(x))[None], batch)
        results.append(steps(run, run.init(), [batch if accumulation == 2 else whole])[0])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


# ---- What a person reads ----


def test_examples_are_shown(stages, log_lines):
    objective = stages.runs[1].objective
    objective.config.train.examples = 3
    try:
        objective.show_examples(load_state(stages, 2).params)
    finally:
        objective.config.train.examples = 0
    lines = log_lines.lines
    assert lines[0] == "held-out text and the 5 best guesses:"
    shown = [line for line in lines if line.startswith("hidden")]
    assert len(shown) == 3
    tokens = set(map(objective.data.tokenizer.token, objective.data.tokenizer.ids()))
    for line in shown:
        hidden, right = re.search(r"\[(\S+), right: (\S+)\]", line).groups()
        assert right in tokens
        assert len(hidden) == len(right)
        assert set(hidden.removeprefix("##")) == {"_"}
        guesses = lines[lines.index(line) + 1].split()
        assert len(guesses) == 5
        assert {guess.removesuffix(",") for guess in guesses} <= tokens
