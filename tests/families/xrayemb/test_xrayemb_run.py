"""Tests XRayEmb's second pre-training: it learns, resumes to the bit, starts from others, same on eight devices."""

from __future__ import annotations

import copy
import dataclasses
import json
import signal
from typing import NamedTuple
from unittest import mock

import jax
import numpy as np
import pytest
from programs import initial
from safetensors.numpy import load_file
from small_run import metrics_without_timings, on_devices, python, write_text
from small_xrayemb_run import small_xrayemb_config

import charlm.training.train
from charlm import from_pretrained
from charlm.config import from_dict, to_json
from charlm.core import checkpoint as checkpoints
from charlm.core.sharding import collectives, path_name
from charlm.families.lookup import prepare
from charlm.families.subword.gpt2 import GPT2Config, GPT2LMHeadModel
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb.chars import XRayChars
from charlm.families.xrayemb.examples import _predict_and_write
from charlm.families.xrayemb.loss import LOSSES
from charlm.text.subwords import SubwordTokenizer
from charlm.training.progress import read_metrics
from charlm.training.run import build
from charlm.training.train import train


class Finished(NamedTuple):
    """A finished run of eight steps on one device, two of them with words of cycles in every four."""

    folder: object
    run: object
    log: list

    def config(self, **changes):
        """Returns a copy of its config, with changes written section__key=value."""
        config = small_xrayemb_config(self.folder / "text.txt", self.folder / "cache")
        config.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
        return config

    @property
    def workdir(self):
        return self.folder / "run"


@pytest.fixture(scope="module")
def xray(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xrayemb")
    write_text(folder / "text.txt")
    made, lines = [], []
    keep = lambda *arguments: made.append(build(*arguments)) or made[0]
    with on_devices(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(charlm.training.train, "build", keep)
        patch.setattr("charlm.families.xrayemb.examples.log.info", lambda *args: lines.append(args[0] % args[1:]))
        config = small_xrayemb_config(folder / "text.txt", folder / "cache")
        config.train.examples = 2
        train(config, str(folder / "run"))
    return Finished(folder, made[0], lines)


@pytest.fixture
def same_run(xray, monkeypatch):
    """Training builds nothing: it takes the programs of the finished run."""
    monkeypatch.setattr(charlm.training.train, "build", lambda config, data: xray.run)


def saved_state(xray, workdir):
    batches = iter(xray.run.train_batches)
    try:
        state = checkpoints.load(checkpoints.find(workdir), xray.run.abstract_state, batches)
        return jax.device_get(state), next(batches)
    finally:
        batches.close()


# ---- An unbroken run ----


def test_every_loss_is_measured_and_the_whole_falls(xray):
    lines = [line for line in read_metrics(xray.workdir) if "heldout_loss" in line]
    assert [line["step"] for line in lines] == [0, 4, 8]
    losses = [line["heldout_loss"] for line in lines]
    assert losses == sorted(losses, reverse=True)
    weights = xray.config().loss
    for line in lines:
        parts = sum(weights[name] * line[f"heldout_{name}_loss"] for name in LOSSES)
        assert line["heldout_loss"] == pytest.approx(parts, rel=1e-5)
        for name in ("language", "generation", "rebuilt", "rebuilt_word"):
            assert 0 <= line[f"heldout_{name}_accuracy"] <= 1
    for name in ("language", "embedding", "generation", "cycle_words"):
        assert lines[-1][f"heldout_{name}_loss"] < 0.97 * lines[0][f"heldout_{name}_loss"]


def test_every_parameter_moves_but_for_those_that_none_uses(xray):
    before = jax.device_get(xray.run.init().params)
    after = saved_state(xray, xray.workdir)[0].params
    moved = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), after, before)
    still = {path_name(path) for path, change in jax.tree_util.tree_leaves_with_path(moved) if change < 1e-3}
    assert all(name.endswith("key/bias") for name in still)  # a bias of all keys alike changes no probability


def test_samples_and_examples_are_shown(xray):
    samples = [line for line in xray.log if line.startswith("written at points of the sphere: ")]
    assert len(samples) == 3
    assert len(set(samples)) > 1
    asked = [line for line in xray.log if line.startswith("asked")]
    assert len(asked) == 2
    assert all("[[MASK], right: " in line for line in asked)
    assert sum(line.startswith("guesses") for line in xray.log) == sum(
        line.startswith("written  ") for line in xray.log
    )


def test_a_word_written_from_text_begins_with_no_space():
    """As one that is written from a point of the sphere, and as the generator is used."""
    spaces = np.array([False, True, False])
    model = mock.MagicMock()
    model.return_value.transformer.states_BLD = np.arange(24.0).reshape(2, 3, 4)
    _predict_and_write(model, mock.Mock(), np.array([[4, 1]]), spaces)
    (states_MD,), options = model.generate.call_args
    np.testing.assert_array_equal(states_MD, [[16, 17, 18, 19], [4, 5, 6, 7]])
    assert options["spaces_V"] is spaces


def test_a_generator_that_is_not_trained_writes_nothing(xray, log_lines, monkeypatch):
    config = xray.config(loss__generation=0.0, loss__cycle_words=0.0, train__examples=2, train__sample_words=2)
    objective = copy.copy(xray.run.objective)
    monkeypatch.setattr(objective, "config", config)
    params = saved_state(xray, xray.workdir)[0].params
    objective.watch(params)
    objective.show_examples(params)
    assert "guesses  " in str(log_lines)
    assert "written" not in str(log_lines)


def test_a_checkpoint_can_be_used_by_itself(xray):
    checkpoint, data = checkpoints.find(xray.workdir), xray.run.objective.data
    for folder in (checkpoints.files_of(checkpoint), xray.workdir):
        assert SubwordTokenizer.load(folder).digest() == data.tokenizer.digest()
        assert XRayChars.load(folder / "xray_chars.json") == data.chars
    with on_devices(1):
        found = from_pretrained(xray.workdir)
    assert (found.family, found.head) == ("xrayemb", "masked_lm")
    assert found.config == xray.run.objective.model.config
    trained = saved_state(xray, xray.workdir)[0].params
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(found.params), trained)


def test_written_as_others_have_it_and_read_again(xray, tmp_path):
    """Names of transformers and of the released code, whose characters are in another order; every bit comes back."""
    with on_devices(1):
        found = from_pretrained(xray.workdir)
        found.save_pretrained(tmp_path / "theirs", format="pytorch")
        again = from_pretrained(tmp_path / "theirs")
        encoder = from_pretrained(tmp_path / "theirs", head="encoder")
    assert (again.config, again.metadata["xray_chars"]) == (found.config, found.metadata["xray_chars"])
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(again.params), jax.device_get(found.params))
    assert again.tokenizer().digest() == found.tokenizer().digest()
    assert encoder.params.keys() == {"bert", "xr_enc", "xr_dec"}
    state = load_file(tmp_path / "theirs" / "model.safetensors")
    ours = np.asarray(found.params["xr_dec"]["chars"]["embedding"])
    np.testing.assert_array_equal(state["tdtgen.char_embs.weight"], np.roll(ours, -1, axis=0))
    assert "bert.embeddings.word_embeddings.weight" in state


# ---- Stopped and started again ----


@pytest.mark.slow
def test_killed_at_once_and_started_again(xray, same_run, tmp_path):
    """The end is the same to the bit; words of cycles come in the same steps."""
    code = f"""
import json, os
from pathlib import Path
from charlm.config import from_dict
from charlm.training.loop import Loop
from charlm.training.train import train
from small_run import on_devices
step = Loop._step
Loop._step = lambda self, now: os.kill(os.getpid(), 9) if now == 6 else step(self, now)
with on_devices(1):
    train(from_dict(json.loads(Path({str(tmp_path / "config.json")!r}).read_text())), {str(tmp_path / "run")!r})
"""
    (tmp_path / "config.json").write_text(to_json(xray.config()))
    done = python("-c", code)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert checkpoints.find(tmp_path / "run").name in ("3", "4")
    stored = from_dict(json.loads((tmp_path / "run" / "config.json").read_text()))
    assert (stored.cycle.slots, stored.cycle.rows) == ((5, 12), xray.run.objective.shape.cycle_rows)
    assert stored.cycle.rows == (1, 1)
    assert train(xray.config(), str(tmp_path / "run"))
    jax.tree.map(np.testing.assert_array_equal, saved_state(xray, tmp_path / "run"), saved_state(xray, xray.workdir))
    assert metrics_without_timings(tmp_path / "run") == metrics_without_timings(xray.workdir)


@pytest.mark.slow
def test_a_gpt2_stopped_between_two_checkpoints_goes_on_exactly(xray, tmp_path, monkeypatch):
    """In its fifth step, before words of cycles come again; the fourth was saved."""
    changes = {"model__backbone": "gpt2", "cycle__every": 3, "train__steps": 6, "train__checkpoint_every": 2}
    changes |= {"train__eval_every": 6, "train__sample_words": 0}
    changes |= {f"loss__{name}": 0.0 for name in ("embedding", "generation", "cycle_words")}  # quickly compiled
    with on_devices(1):
        run = build(config := xray.config(**changes), prepare(config))
    monkeypatch.setattr(charlm.training.train, "build", lambda config, data: run)
    assert train(xray.config(**changes), str(tmp_path / "whole"))
    with pytest.MonkeyPatch.context() as patch:
        step = charlm.training.loop.Loop._step
        patch.setattr(charlm.training.loop.Loop, "_step", lambda self, now: 1 / 0 if now == 5 else step(self, now))
        with pytest.raises(ZeroDivisionError):
            train(xray.config(**changes), str(tmp_path / "run"))
    assert checkpoints.find(tmp_path / "run").name == "4"
    assert train(xray.config(**changes), str(tmp_path / "run"))
    whole, again = (saved_state(xray._replace(run=run), tmp_path / name) for name in ("whole", "run"))
    jax.tree.map(np.testing.assert_array_equal, again, whole)
    assert metrics_without_timings(tmp_path / "run") == metrics_without_timings(tmp_path / "whole")


# ---- Other devices ----


def steps(run, state, batches):
    state = jax.device_put(state, jax.tree.map(lambda x: x.sharding, run.abstract_state))
    results = []
    for batch in batches:
        state, sums, norm = run.train_step(state, run.place(batch))
        results.append(jax.device_get((*sums, norm)))
    return np.array(results)


@pytest.mark.slow
def test_eight_devices_compute_what_one_does(xray):
    iterator = iter(xray.run.train_batches)
    batches = [next(iterator) for _ in range(2)]
    iterator.close()
    assert [bool(batch.cycle[1].any()) for batch in batches] == [False, True]
    start = saved_state(xray, xray.workdir)[0]
    want = steps(xray.run, start, batches)
    config = xray.config()
    config.mesh.update({"data": 2, "fsdp": 2, "model": 2})
    run = build(config, prepare(config))
    assert run.objective.shape == xray.run.objective.shape
    got = steps(run, start, batches)
    np.testing.assert_allclose(got[0], want[0], rtol=2e-5)
    np.testing.assert_allclose(got[1, :10], want[1, :10], rtol=1e-3)  # the second step sees an update
    assert run.train_step._cache_size() == 1


def test_evaluation_takes_frequent_words_in_turn(xray):
    objective, text_of = xray.run.objective, lambda row: row.tobytes().rstrip(b"\0")
    in_turn = dataclasses.replace(objective._cycle, in_order=True)
    met = []
    for number, batch in enumerate(xray.run.heldout_batches):
        for lane in np.flatnonzero(batch.inputs.mask_SBL[0].any(axis=(1, 2))):
            words = [text_of(row) for table in batch.cycle for row in table[0, lane] if row.any()]
            assert sorted(words) == sorted(text_of(row) for row in in_turn.of(lane, objective.shards, number))
            met += words
    assert len(set(met)) > 2
    counted = {one["heldout_rebuilt_words"] for one in read_metrics(xray.workdir) if "heldout_loss" in one}
    assert counted == {len(met)}


@pytest.mark.slow
def test_data_parallel_steps_send_gradients_alone(xray):
    config = xray.config()
    config.mesh.update({"data": 8})
    run = build(config, prepare(config))
    step = run.train_step.lower(run.abstract_state, run.place(run.empty)).compile()
    assert collectives(step.as_text()).keys() == {"all-reduce"}


# ---- Where it starts ----


def test_a_gpt2_is_taken_over_and_predicts_what_follows(xray, tmp_path):
    config = xray.config(model__backbone="gpt2")
    tokenizer = prepare(config).tokenizer
    shape = GPT2Config(vocab_size=tokenizer.size, hidden=16, layers=1, heads=2, ffn=32, max_positions=30)
    model = GPT2LMHeadModel(shape)
    params = jax.device_get(initial(model, np.ones((1, 4), np.int32), seed=5))
    metadata = {"family": "gpt2", "model": config_to_dict(shape), "head": "causal_lm"}
    checkpoints.save_params(tmp_path / "gpt2", params, metadata)
    tokenizer.save(tmp_path / "gpt2")
    config = xray.config(init_from=str(tmp_path / "gpt2"), model__max_positions=0)
    with on_devices(1):
        run = build(config, prepare(config))
        state = run.init()
        loaded = run.objective.load_params(config.init_from, run.abstract_state.params, state.params)
    found = run.objective.measured()
    assert (found["model.backbone"], found["model.max_positions"]) == ("gpt2", 30)
    jax.tree.map(np.testing.assert_array_equal, loaded["gpt2"], params["gpt2"])
    assert run.objective.metadata()["head"] == "causal_lm"
    iterator = iter(run.train_batches)
    batch = next(iterator)
    iterator.close()
    labels = 0
    for shard in range(8):
        part = jax.tree.map(lambda x, s=shard: x[0, s], batch)
        ids = part.inputs.ids_SBL.reshape(-1)
        real = part.labels_SM >= 0
        labels += real.sum()
        np.testing.assert_array_equal(ids[part.position_SM[real] + 1], part.labels_SM[real])
    assert labels > 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__max_length": 33}, r"data\.max_length=33, but the model has 32 positions"),
        ({"data__batch_size": 9}, r"data\.batch_size=9 must be a multiple of data\.accumulation=2 x data\.table_"),
        ({"model__vocab_size": 20}, r"model\.vocab_size=20, but there are \d+ subwords"),
        ({"cycle__slots": (3, 12), "cycle__rows": (2, 1)}, r"have room for 1 words of more than 3 characters, expect"),
        ({"data__bucket_slots": (3, 5)}, r"data\.bucket_slots=\(3, 5\) must ascend and end at 12, model\.char_slots"),
    ],
)
def test_what_does_not_fit_is_named(xray, changes, message):
    config = xray.config(**changes)
    with on_devices(1), pytest.raises(ValueError, match=message):
        build(config, prepare(config))
