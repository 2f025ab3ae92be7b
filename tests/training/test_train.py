"""Tests training: stopped in any way and started again, a run ends as the unbroken one; no mistake is silent."""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import gzip
import io
import json
import math
import os
import shutil
import signal
import threading
from unittest import mock

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from small_run import metrics_without_timings, on_devices, python, small_config, write_text

import charlm.families.text_objective
import charlm.training.loop
import charlm.training.progress
import charlm.training.train
from charlm.config import flatten, from_dict, to_json
from charlm.core import checkpoint as checkpoints
from charlm.core import interrupts
from charlm.core.metric_writer import MetricWriter
from charlm.core.profiling import TRACED
from charlm.data.vocab import load_or_build_vocab
from charlm.families.hlm.objective import MaskedCharacters
from charlm.families.hlm.shape import batch_shape
from charlm.predict import Predictor
from charlm.text.chars import MASK, CharVocab
from charlm.training import workdir as workdirs
from charlm.training.evaluate import evaluate
from charlm.training.goodput import account, read_starts
from charlm.training.loop import Loop, NonFiniteLoss
from charlm.training.progress import duration, read_metrics, stop_signal
from charlm.training.run import build
from charlm.training.train import train


def saved_state(trained, workdir):
    """Returns step, parameters and optimizer state of the newest checkpoint, and the batch after it."""
    batches = iter(trained.run.train_batches)
    try:
        state = checkpoints.load(checkpoints.find(workdir), trained.run.abstract_state, batches)
        return jax.device_get(state), next(batches)
    finally:
        batches.close()


def assert_ended_as_unbroken(trained, workdir):
    """Every bit of the state, the data position, and the metrics but for timings."""
    jax.tree.map(np.testing.assert_array_equal, saved_state(trained, workdir), saved_state(trained, trained.workdir))
    assert metrics_without_timings(workdir) == metrics_without_timings(trained.workdir)


def after_step(monkeypatch, step, action):
    """Does something in the training loop, right after a step."""
    do = Loop._step

    def wrapped(self, now):
        do(self, now)
        if now == step:
            action(self)

    monkeypatch.setattr(Loop, "_step", wrapped)


def snapshot(folder):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ---- An unbroken run ----


@pytest.mark.slow
def test_a_profile_shows_the_steps_and_changes_nothing(trained, same_run, tmp_path, log_lines):
    train(trained.config, str(tmp_path / "run"), profile=str(tmp_path / "profile"))
    (trace,) = (tmp_path / "profile").rglob("perfetto_trace.json.gz")
    assert gzip.decompress(trace.read_bytes()).count(b"train_step") >= TRACED
    assert f"{TRACED} steps traced in {tmp_path / 'profile'}" in str(log_lines)
    assert_ended_as_unbroken(trained, tmp_path / "run")


def test_a_profile_that_cannot_be_written_ends_before_anything_is_done(trained, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--profile=.*file/x cannot be written: Not a directory"):
        train(trained.config, str(tmp_path / "run"), profile=str(tmp_path / "file" / "x"))
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_its_log_and_shows_a_bar_on_a_terminal(trained, same_run, tmp_path, log_lines, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    train(trained.config, str(tmp_path / "run"))
    assert "| 1/12" in terminal.getvalue()
    log = tmp_path / "run" / "log.txt"
    assert [line[20:] for line in log.read_text().splitlines()] == log_lines.lines
    assert any(line.startswith("try it: ") for line in log_lines.lines)
    before = snapshot(tmp_path / "run")
    train(trained.config, str(tmp_path / "run"))  # a finished run is left as it is
    assert snapshot(tmp_path / "run") == before
    assert_ended_as_unbroken(trained, tmp_path / "run")


def test_a_run_learns_and_says_so(trained):
    lines = read_metrics(trained.workdir)
    heldout = [line["heldout_loss"] for line in lines if "heldout_loss" in line]
    assert heldout[0] == pytest.approx(math.log(64), abs=0.05)  # the prediction of a fresh model: anything, alike
    assert heldout == sorted(heldout, reverse=True)
    assert heldout[-1] < heldout[0] - 0.2
    assert [(line["step"], "heldout_loss" in line) for line in lines] == [
        (0, True), (4, False), (6, True), (8, False), (12, False), (12, True),
    ]  # fmt: skip


def test_progress_lines_hold_what_they_should(trained):
    lines = [line for line in read_metrics(trained.workdir) if "loss" in line]
    assert [line["learning_rate"] for line in lines] == pytest.approx([3e-3] * 3)
    for line in lines:
        assert line["bits_per_char"] == pytest.approx(line["loss"] / math.log(2))
        assert 0 <= line["char_accuracy"] <= 1
        assert line["grad_norm"] > 0.1
        assert min(line["words_per_second"], line["ms_per_step"], line["tflops_per_second"]) > 0
        assert "mfu" not in line  # of a CPU's peak nothing is known
        assert 0 <= line["data_wait"] <= 1
        assert 0 <= line["goodput"] <= 1
    late = lines[-1]  # the first may include compilation; words are counted, not guessed
    assert 50 < late["words_per_second"] * late["ms_per_step"] / 1000 <= 8 * 16


def test_the_pooler_stays_as_it_was_made_and_the_rest_moves(trained):
    before = jax.device_get(trained.run.init().params)
    after = saved_state(trained, trained.workdir)[0].params
    jax.tree.map(np.testing.assert_array_equal, after.pop("pooler"), before.pop("pooler"))
    moved = jax.tree.map(lambda x, y: np.abs(x - y).max() > 1e-4, after, before)
    kernels = {k: v for k, v in flatten_tree(moved).items() if k.endswith(("kernel", "embedding"))}
    assert len(kernels) > 20
    assert all(kernels.values())


def flatten_tree(tree):
    return {"/".join(k.key for k in path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def test_a_workdir_describes_its_run(trained):
    stored = from_dict(json.loads((trained.workdir / "config.json").read_text()))
    given, shape = flatten(trained.config), trained.run.objective.shape
    measured = {
        "data.table_shards": shape.shards, "data.bucket_slots": shape.slots, "data.bucket_words": shape.table,
        "data.bucket_masked": shape.masked, "data.bucket_labels": shape.labels,
    }  # fmt: skip
    assert flatten(stored) == given | measured
    assert json.loads((trained.workdir / "char_vocab.json").read_text()) == trained.data.vocab.to_dict()
    metadata = checkpoints.read_metadata(checkpoints.find(trained.workdir))
    assert flatten(from_dict(metadata["config"])) == flatten(stored)
    assert metadata["char_vocab"] == trained.data.vocab.to_dict()
    assert sorted(int(p.name) for p in (trained.workdir / "checkpoints").iterdir()) == [6, 9, 12]
    assert not list(trained.workdir.rglob("*tmp*"))


# ---- Stopped and started again ----


@pytest.mark.parametrize("step", [5, pytest.param(12, marks=pytest.mark.slow)])
def test_stopped_by_signal(trained, same_run, tmp_path, monkeypatch, log_lines, step):
    programs = [step._cache_size() for step in (trained.run.train_step, trained.run.eval_step)]  # none is added
    with monkeypatch.context() as patch:
        after_step(patch, step, lambda loop: signal.raise_signal(signal.SIGTERM))
        train(trained.new_config(), str(tmp_path / "run"))
    assert f"stopped by signal at step {step}, saved; the same command goes on from there" in str(log_lines)
    assert checkpoints.find(tmp_path / "run").name == str(step)
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == ([0, 4] if step == 5 else [0, 4, 6, 8, 12, 12])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    train(trained.new_config(), str(tmp_path / "run"))
    assert_ended_as_unbroken(trained, tmp_path / "run")
    assert programs == [step._cache_size() for step in (trained.run.train_step, trained.run.eval_step)]


def test_a_signal_during_evaluation_saves_too(trained, same_run, tmp_path, monkeypatch, log_lines):
    """Step 8 is not the best and no checkpoint is due: it is saved because of the signal alone."""
    config = trained.new_config()
    config.train.log_every, config.train.eval_every, config.train.checkpoint_every = 100, 4, 100
    losses = [3.0, 1.0, 2.0]  # at steps 0, 4 and 8

    def interrupted(*arguments):
        loss = losses.pop(0)
        if not losses:
            signal.raise_signal(signal.SIGINT)
        return evaluate(*arguments) | {"loss": loss}

    monkeypatch.setattr(charlm.training.train, "evaluate", interrupted)
    train(config, str(tmp_path / "run"))
    assert losses == []
    assert "stopped by signal at step 8, saved" in str(log_lines)
    assert checkpoints.find(tmp_path / "run").name == "8"


@pytest.mark.slow
def test_killed_at_once_and_built_anew_with_other_readers_and_intervals(trained, tmp_path, log_lines):
    """A process that ends without a word; what it measured and compiled is gone, what it saved is not.

    What may differ when a run goes on changes nothing: threads, and how often it saves.
    """
    workdir = tmp_path / "run"
    code = f"""
import json, os
from pathlib import Path
from charlm.config import from_dict
from charlm.training.loop import Loop
from charlm.training.train import train
from small_run import on_devices
step = Loop._step
Loop._step = lambda self, now: os._exit(7) if now == 11 else step(self, now)
with on_devices(1):
    train(from_dict(json.loads(Path({str(tmp_path / "config.json")!r}).read_text())), {str(workdir)!r})
"""
    (tmp_path / "config.json").write_text(to_json(trained.config))
    done = python("-c", code)
    assert done.returncode == 7, done.stderr
    assert checkpoints.find(workdir).name in ("6", "9")  # the last may not have been complete
    (workdir / "checkpoints" / "10.orbax-checkpoint-tmp-7").mkdir()  # nor anything that was being written
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "lo')
    config = trained.new_config()
    config.data.prefetch, config.data.reader_threads, config.train.checkpoint_every = 0, 2, 100
    with on_devices(1):
        train(config, str(workdir))
    assert_ended_as_unbroken(trained, workdir)
    assert not list(workdir.rglob("*tmp*"))
    first, second = read_starts(workdir)
    assert first.step == 0
    assert second.step in (6, 9)
    assert second.steps[-1] == 12
    lasted = account([first, second], 0).lasted
    assert 0 < read_metrics(workdir)[-2]["goodput"] < lasted / (second.time - first.time)
    assert " since the first start, 2 starts" in log_lines.lines[-3]


def test_a_run_that_makes_no_progress_ends(trained, same_run, tmp_path, monkeypatch, capfd):
    class Ended(Exception):
        pass

    said, stuck = [], threading.Event()

    def end(why):
        said.append(why)
        stuck.set()

    def hangs(loop):
        assert stuck.wait(60)
        raise Ended

    after_step(monkeypatch, 5, hangs)
    monkeypatch.setattr(charlm.training.loop.hosts, "end_now", end)
    config = trained.new_config()
    config.train.stall_minutes = 2 / 60
    with pytest.raises(Ended):
        train(config, str(tmp_path / "run"))
    (why,) = said
    assert "no progress for 0.0333333 minutes (train.stall_minutes), last step 5; " in why
    assert "in hangs" in capfd.readouterr().err


def test_stopped_before_the_first_checkpoint(trained, same_run, tmp_path, monkeypatch):
    def crash(loop):
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        after_step(patch, 2, crash)
        with pytest.raises(RuntimeError, match="power cut"):
            train(trained.new_config(), str(tmp_path / "run"))
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [0]
    train(trained.new_config(), str(tmp_path / "run"))
    assert_ended_as_unbroken(trained, tmp_path / "run")


def test_a_longer_run_goes_on(trained, same_run, tmp_path):
    config = trained.new_config()
    config.train.steps = 6
    train(config, str(tmp_path / "run"))
    assert checkpoints.find(tmp_path / "run").name == "6"
    train(trained.new_config(), str(tmp_path / "run"))
    jax.tree.map(
        np.testing.assert_array_equal,
        saved_state(trained, tmp_path / "run"),
        saved_state(trained, trained.workdir),
    )
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train"]["steps"] == 12


@pytest.mark.parametrize("steps", [12, 8])
def test_a_finished_run_is_left_as_it_is(trained, tmp_path, monkeypatch, log_lines, steps):
    workdir = trained.copy(tmp_path / "run")
    monkeypatch.setattr(charlm.training.train, "prepare", None)  # it is not even looked at
    before = snapshot(workdir)
    config = trained.new_config()
    config.train.steps = steps
    train(config, str(workdir))
    assert snapshot(workdir) == before
    assert f"{workdir} holds a finished run of 12 steps: nothing to do" in str(log_lines)
    lines = read_metrics(workdir)
    first, last = lines[0]["heldout_bits_per_char"], lines[-1]["heldout_bits_per_char"]
    assert f"{first:.3f} before (step 0), {last:.3f} after (step 12)" in str(log_lines)
    assert "larger --config.train.steps" in str(log_lines)


def test_a_finished_run_says_so_on_a_disk_that_is_read_only(trained, tmp_path, log_lines, read_only):
    workdir = trained.copy(tmp_path / "run")
    before = snapshot(workdir)
    read_only(workdir)
    assert train(trained.new_config(), str(workdir))
    assert f"{workdir} holds a finished run of 12 steps: nothing to do" in str(log_lines)
    config = trained.new_config()
    config.train.steps = 13
    with pytest.raises(ValueError, match=rf"^--workdir={workdir} cannot be written: Read-only file system$"):
        train(config, str(workdir))
    assert snapshot(workdir) == before


def test_a_finished_run_whose_metrics_were_moved(trained, tmp_path, log_lines):
    workdir = trained.copy(tmp_path / "run")
    (workdir / "metrics.jsonl").unlink()
    train(trained.new_config(), str(workdir))
    assert "nothing to do" in str(log_lines)


# ---- Refusals ----


def test_another_config_is_refused(trained, tmp_path):
    workdir = trained.copy(tmp_path / "run")
    before = snapshot(workdir)
    config = trained.new_config()
    config.model.inter_ffn, config.seed, config.train.steps = 48, 5, 20
    with pytest.raises(ValueError, match="holds a run of another config") as e:
        train(config, str(workdir))
    assert "model.inter_ffn is 48, there 32; seed is 5, there 0; choose another --workdir" in str(e.value)
    assert snapshot(workdir) == before


@pytest.mark.parametrize("content", ["{", "[1]", '{"model": {"hidden": "wide"}}', '{"model": {"hiden": 8}}'])
def test_a_damaged_config_is_named(trained, tmp_path, content):
    workdir = trained.copy(tmp_path / "run")
    (workdir / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json is not the config of a run: "):
        train(trained.new_config(), str(workdir))


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_workdir_that_cannot_be_written(trained, tmp_path, place):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"^--workdir=.*file.* cannot be written: \w+"):
        train(trained.new_config(), str(tmp_path / place))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("place", ["12", "copied/anywhere"])
def test_a_checkpoint_is_no_workdir(trained, tmp_path, place):
    folder = tmp_path / place
    shutil.copytree(trained.workdir / "checkpoints" / "12", folder)
    before = snapshot(folder)
    config = trained.new_config()
    config.train.steps = 20
    with pytest.raises(ValueError, match=r"^--workdir=.* is a checkpoint; name it in --config\.init_from"):
        train(config, str(folder))
    assert snapshot(folder) == before


def test_a_batch_that_does_not_divide(trained):
    config = trained.new_config()
    config.data.batch_size, config.data.accumulation = 24, 2
    with pytest.raises(ValueError, match=r"batch_size=24 must be a multiple of data\.accumulation=2 x data\.table_"):
        batch_shape(config, trained.data, 8)
    config = trained.new_config()
    config.data.bucket_words = (8, 8)
    with pytest.raises(ValueError, match="must name equally many buckets each, or none"):
        batch_shape(config, trained.data, 8)


# ---- resume and init_from ----


@pytest.mark.slow
def test_a_bucket_without_rows_trains_and_goes_on_on_eight_devices(trained, tmp_path, monkeypatch):
    """Measured budgets give a bucket none where longer words have room for its own."""
    built = functools.cache(lambda: build(config, trained.data))
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: built())
    for steps in (2, 4):
        config = trained.new_config()
        config.data.bucket_slots, config.data.bucket_words = (4, 8), (0, 24)
        config.data.bucket_masked, config.data.bucket_labels = (8, 8), (16, 16)
        config.train.steps = steps
        train(config, str(tmp_path / "run"))
    losses = [line["heldout_loss"] for line in metrics_without_timings(tmp_path / "run") if "heldout_loss" in line]
    assert len(losses) >= 2
    assert np.isfinite(losses).all()


def test_resume_takes_everything(trained, same_run, tmp_path):
    config = trained.new_config()
    config.resume = str(trained.workdir / "checkpoints" / "6")
    before = snapshot(trained.workdir)
    train(config, str(tmp_path / "run"))
    jax.tree.map(
        np.testing.assert_array_equal, saved_state(trained, tmp_path / "run"), saved_state(trained, trained.workdir)
    )
    lines = metrics_without_timings(trained.workdir)
    assert metrics_without_timings(tmp_path / "run") == [line for line in lines if line["step"] > 6]
    assert snapshot(trained.workdir) == before


def test_resume_of_a_run_that_is_as_long_is_refused(trained, same_run, tmp_path):
    config = trained.new_config()
    config.resume = str(trained.workdir)
    with pytest.raises(ValueError, match=r"resume: .*12 has done 12 steps already; train\.steps=12 adds none"):
        train(config, str(tmp_path / "run"))


def test_init_from_takes_the_parameters_alone(trained, same_run, tmp_path):
    config = trained.new_config()
    config.init_from, config.train.steps = str(trained.workdir), 1
    train(config, str(tmp_path / "run"))
    first, step, _ = metrics_without_timings(tmp_path / "run")
    last = metrics_without_timings(trained.workdir)[-1]
    assert first == last | {"step": 0}
    assert step["step"] == 1
    state, batch = saved_state(trained, tmp_path / "run")
    assert state.step == 1
    batches = iter(trained.run.train_batches)
    next(batches)
    jax.tree.map(np.testing.assert_array_equal, batch, next(batches))
    batches.close()


def test_the_own_workdir_comes_before_resume_and_init_from(trained, same_run, tmp_path, log_lines):
    config = trained.new_config()
    config.resume, config.init_from, config.train.steps = "nowhere", "nowhere", 13
    train(config, str(trained.copy(tmp_path / "run")))
    assert "resuming at step 12" in str(log_lines)


@pytest.mark.parametrize("steps", [12, 13], ids=["finished", "goes on"])
def test_another_source_is_refused(trained, same_run, tmp_path, steps):
    workdir = trained.copy(tmp_path / "run")
    before = snapshot(workdir)
    config = trained.new_config()
    config.init_from, config.train.steps = str(trained.workdir), steps
    message = rf"^--workdir={workdir} holds a run that started from scratch, without init_from, not from init_from=\S+ "
    with pytest.raises(
        ValueError, match=message + r"\(step 12, saved .*\): choose another --workdir, or leave init_from"
    ):
        train(config, str(workdir))
    assert snapshot(workdir) == before


def test_a_source_may_be_moved_and_gone_but_not_exchanged(trained, same_run, tmp_path, log_lines):
    config = trained.new_config()
    source = trained.copy(tmp_path / "source")
    config.init_from, config.train.steps = str(source), 1
    train(config, str(tmp_path / "run"))
    moved = source.rename(tmp_path / "moved")
    for given in (source, moved, ""):
        config.init_from = str(given)
        train(config, str(tmp_path / "run"))
    assert str(log_lines).count("holds a finished run of 1 steps: nothing to do") == 3
    other = trained.copy(source)
    shutil.rmtree(other / "checkpoints" / "12")
    config.init_from = str(source)
    train(config, str(tmp_path / "run"))
    assert f"init_from={source} holds another checkpoint now (step 9, " in str(log_lines)
    shutil.rmtree(source)
    config.init_from = str(tmp_path / "nowhere")
    train(config, str(tmp_path / "run"))
    assert f"nowhere does not exist; {tmp_path / 'run'} started from {source} and goes on" in str(log_lines)
    shutil.rmtree(moved / "checkpoints" / "12")
    for given in (moved, tmp_path):  # an earlier step of it; a folder that is no model
        config.init_from = str(given)
        message = rf"started from {source} \(step 12, saved .*\), not from init_from={given}( \(step 9, .*\))?: choose"
        with pytest.raises(ValueError, match=message):
            train(config, str(tmp_path / "run"))


@pytest.mark.parametrize("key", ["resume", "init_from"])
def test_other_characters_are_refused(trained, same_run, tmp_path, key):
    config = small_config(write_text(tmp_path / "other.txt", extra="Ünbekannt und Ähnliches"), tmp_path / "cache")
    config[key] = str(trained.workdir)
    if key == "init_from":  # else its characters are taken over
        load_or_build_vocab(config).save(tmp_path / "vocab.json")
        config.text.char_vocab = str(tmp_path / "vocab.json")
    with pytest.raises(ValueError, match=r"has another character vocabulary .* set text\.char_vocab to the char_vocab"):
        train(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(ValueError, match=r"has another character vocabulary"):
        train(config, str(tmp_path / "mine"))
    assert [path.name for path in (tmp_path / "mine").rglob("*")] == ["checkpoints"]  # and a folder of mine stays


@pytest.mark.parametrize("key", ["resume", "init_from"])
def test_nothing_to_take(trained, same_run, tmp_path, key):
    config = trained.new_config()
    config[key] = str(tmp_path / "none")
    with pytest.raises(ValueError, match=f"^{key}: .*none does not exist; expected a workdir"):
        train(config, str(tmp_path / "run"))


# ---- Divergence ----


@pytest.mark.parametrize(
    ("poisoned", "found", "last"), [(1, 2, None), (7, 8, 6), (8, 9, 6)], ids=["at once", "logged", "to be saved"]
)
def test_a_loss_that_is_no_number_ends_the_run(trained, same_run, tmp_path, monkeypatch, poisoned, found, last):
    def poison(loop):
        bias = loop.state.params["head"]["output_bias"]
        loop.state.params["head"]["output_bias"] = bias.at[9].set(np.nan)

    after_step(monkeypatch, poisoned, poison)
    config = trained.new_config()
    with pytest.raises(NonFiniteLoss, match=rf"^step {found}: loss nan, gradient norm nan; ") as e:
        train(config, str(tmp_path / "run"))
    good = f"the last good checkpoint is step {last} in {tmp_path / 'run'}" if last else "there is no checkpoint yet"
    assert good in str(e.value)
    assert "a smaller optim.learning_rate (now 0.003)" in str(e.value)
    if last is None:
        assert not list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))
    else:
        state, _ = saved_state(trained, tmp_path / "run")
        assert state.step == last
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


def test_metrics_that_cannot_be_written_name_the_step_and_the_last_good_checkpoint(
    trained, same_run, tmp_path, monkeypatch
):
    write = MetricWriter.write

    def full(writer, step, scalars):
        if step == 8:
            writer._file = open("/dev/full", "w")  # noqa: SIM115
        write(writer, step, scalars)

    monkeypatch.setattr(MetricWriter, "write", full)
    with pytest.raises(ValueError, match=r"^step 8: .*: metrics cannot be written: No space left on device; ") as e:
        train(trained.new_config(), str(tmp_path / "run"))
    assert str(e.value).endswith(f"; the last good checkpoint is step 6 in {tmp_path / 'run'}")


def test_a_gradient_that_is_no_number_ends_the_run_although_the_loss_is_one(trained, same_run, tmp_path, monkeypatch):
    def step(state, batch):
        state, sums, norm = trained.run.train_step(state, batch)
        return state, sums, norm * np.inf if int(state.step) == 3 else norm

    step.lower = trained.run.train_step.lower
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: dataclasses.replace(trained.run, train_step=step))
    with pytest.raises(NonFiniteLoss, match=r"^step 3: loss 4\.\d+, gradient norm inf; there is no checkpoint yet"):
        train(trained.new_config(), str(tmp_path / "run"))


# ---- Evaluation ----


@pytest.fixture(scope="module")
def final_params(trained):
    return checkpoints.load_params(checkpoints.find(trained.workdir), trained.run.abstract_state.params)


def evaluated(run, params, **options):
    return evaluate(run, params, **options)


def test_evaluation_is_the_same_every_time(trained, final_params):
    first = evaluated(trained.run, final_params)
    assert evaluated(trained.run, final_params) == first
    last = metrics_without_timings(trained.workdir)[-1]
    assert {f"heldout_{name}": value for name, value in first.items()} | {"step": 12} == last


def test_evaluation_reads_every_heldout_word_once(trained, final_params):
    sequences = sum(int(batch.mask_SBW.any(axis=-1).sum()) for batch in trained.run.heldout_batches)
    words = sum(corpus.stats.words for corpus in trained.data.heldout)
    assert sequences > 16  # more than two batches, the last of them ragged
    assert 0 < sequences % 8 != sequences % 5  # the last batch is another one for each size below
    assert evaluated(trained.run, final_params)["words"] == words  # [CLS] and [SEP] are no words


def test_evaluation_may_stop_early(trained, final_params):
    batches = list(trained.run.heldout_batches)
    first, second = (trained.run.objective.count(batch) for batch in batches[:2])
    assert evaluated(trained.run, final_params, most=first)["words"] == first
    assert evaluated(trained.run, final_params, most=first + 1)["words"] == first + second


def test_evaluation_does_not_depend_on_the_batch_size(trained, final_params):
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards = 5, 1
    with on_devices(1):
        run = build(config, trained.data)
    got = evaluated(run, jax.device_get(final_params))
    want = evaluated(trained.run, final_params)
    assert got["words"] == want["words"]
    np.testing.assert_allclose([got[k] for k in want], list(want.values()), rtol=1e-5)


def test_an_evaluation_without_masked_words_says_so(trained, final_params):
    with pytest.raises(ValueError, match="no word was masked"):
        evaluate(dataclasses.replace(trained.run, heldout_batches=[]), final_params)


# ---- Small parts ----


def test_signals_keep_their_meaning_outside_the_main_thread():
    def inside():
        with stop_signal() as stopped:
            seen.append(stopped())

    seen, before = [], signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGTERM) == before


def test_several_processes_number_their_questions_through_all_runs(monkeypatch):
    """At another number than the one after the last JAX never says that a signal came."""
    asked = []
    monkeypatch.setattr(charlm.training.progress.hosts, "alone", lambda: False)
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda n: asked.append(n) or len(asked) == 3)
    for _ in range(2):
        with stop_signal() as stopped:
            told = [stopped(), stopped()]
    assert told == [True, False]
    assert asked == list(range(asked[0], asked[0] + 4))


def test_ctrl_c_on_one_of_several_processes_is_a_signal_to_all_and_noted(monkeypatch):
    received, before = [], signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    monkeypatch.setattr(charlm.training.progress.hosts, "alone", lambda: False)
    try:
        with interrupts.left_signals() as left, stop_signal():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (received, left) == ([signal.SIGTERM], [signal.SIGINT])


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "0m 5s"), (65.9, "1m 5s"), (3600, "1h 0m"), (7265, "2h 1m"), (200_000, "2d 7h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_run_that_saved_no_checkpoint_binds_nothing(tmp_path, monkeypatch):
    class Reached(Exception):
        pass

    def reached(*arguments):
        raise Reached

    monkeypatch.setattr(charlm.training.train, "prepare", reached)
    config = small_config(tmp_path / "text.txt", tmp_path / "cache")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(to_json(config), encoding="utf-8")
    config.model.hidden *= 2
    with pytest.raises(Reached):
        train(config, str(tmp_path / "run"))


# ---- What must not change, or be damaged, between two starts ----


def test_a_run_whose_characters_changed_is_refused(trained, tmp_path):
    workdir = trained.copy(tmp_path / "run")
    before = snapshot(workdir)
    ids = trained.data.vocab.to_dict()
    first, second = list(ids)[:2]
    swapped = CharVocab.from_dict({**ids, first: ids[second], second: ids[first]})
    config = trained.new_config()
    config.train.steps = 20
    now = mock.patch.object(charlm.training.train, "prepare", return_value=trained.data._replace(vocab=swapped))
    with now, pytest.raises(ValueError, match="another character vocabulary"):
        train(config, str(workdir))
    assert snapshot(workdir) == before


def test_a_run_whose_text_changed_is_refused(trained, tmp_path):
    workdir = trained.copy(tmp_path / "run")
    before = snapshot(workdir)
    (corpus,) = trained.data.train
    longer = dataclasses.replace(corpus, stats=dataclasses.replace(corpus.stats, words=corpus.stats.words + 1))
    config = trained.new_config()
    config.train.steps = 20
    now = mock.patch.object(charlm.training.train, "prepare", return_value=trained.data._replace(train=(longer,)))
    with now, pytest.raises(ValueError, match=r"data\.train changed since .* --config\.init_from"):
        train(config, str(workdir))
    assert snapshot(workdir) == before


def test_other_text_of_the_same_size_is_refused(trained, tmp_path, log_lines):
    """Every word of the text reversed, or its files in another order, leaves all counts as they were."""
    workdir = trained.copy(tmp_path / "run")
    before = snapshot(workdir)
    config = trained.new_config()
    config.train.steps = 20
    data = lambda **other: mock.patch.object(
        charlm.training.train, "prepare", return_value=trained.data._replace(**other)
    )
    other = lambda corpora: tuple(dataclasses.replace(corpus, content="0" * 64) for corpus in corpora)
    with data(train=other(trained.data.train)), pytest.raises(ValueError, match=r"but other text, or its files in"):
        train(config, str(workdir))
    assert snapshot(workdir) == before
    checkpoint = checkpoints.find(workdir)
    workdirs.check_text(checkpoint, MaskedCharacters, trained.data._replace(heldout=other(trained.data.heldout)))
    assert "data.heldout changed since" in str(log_lines)


def test_a_run_without_its_config_file_is_known_by_its_checkpoint(trained, tmp_path, log_lines):
    workdir = trained.copy(tmp_path / "run")
    (workdir / workdirs.RUN_CONFIG_FILE).unlink()
    config = trained.new_config()
    config.optim.learning_rate = 0.5
    with pytest.raises(ValueError, match=r"holds a run of another config: optim\.learning_rate is 0\.5"):
        train(config, str(workdir))
    assert "config.json is gone: the config in" in str(log_lines)
    assert train(trained.new_config(), str(workdir))  # finished


def test_a_second_process_is_kept_out(trained, tmp_path):
    workdir = tmp_path / "run"
    workdir.mkdir()
    lock = os.open(workdir, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another process is training there"):
            train(trained.new_config(), str(workdir))
    finally:
        os.close(lock)


@pytest.mark.parametrize("what", ["arrays", "metadata"])
def test_a_damaged_checkpoint_is_named(trained, tmp_path, what, capfd):
    workdir = trained.copy(tmp_path / "run")
    newest = checkpoints.find(workdir)
    pattern = "state/**/d/*" if what == "arrays" else "state/_METADATA"
    damaged = [path for path in newest.glob(pattern) if path.is_file()]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=rf"checkpoints/{newest.name} is damaged or incomplete: .*before it is step"):
        Predictor.from_checkpoint(workdir)
    assert "Traceback" not in capfd.readouterr().err


def test_damaged_metric_lines_are_passed_over(trained, tmp_path, log_lines):
    workdir = trained.copy(tmp_path / "run")
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('garbage\n{"no": "step"}\n')
    train(trained.new_config(), str(workdir))
    assert "nothing to do" in str(log_lines)


def test_a_heldout_loss_that_is_no_number_ends_the_run(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(charlm.training.train, "build", lambda *_: trained.run)
    monkeypatch.setattr(charlm.training.train, "evaluate", lambda *_: {"loss": float("nan")})
    with pytest.raises(NonFiniteLoss, match="step 0: held-out loss nan; there is no checkpoint yet"):
        train(trained.new_config(), str(tmp_path / "run"))


def test_weights_and_shuffle_reach_the_records(trained, monkeypatch):
    asked = []
    record_lanes = charlm.families.text_objective.record_lanes
    monkeypatch.setattr(
        charlm.families.text_objective,
        "record_lanes",
        lambda *args, **kwargs: asked.append((args, kwargs)) or record_lanes(*args, **kwargs),
    )
    config = trained.new_config()
    config.data.weights, config.data.shuffle = (2.0,), False
    with on_devices(1):
        build(config, trained.data)
    training = [(args, kwargs) for args, kwargs in asked if kwargs.get("repeat")]
    assert training[-1][0][1] == (2.0,)
    assert training[-1][1]["shuffle"] is False


def test_heldout_words_are_hidden_never_seen(trained):
    for batch in trained.run.heldout_batches:
        for bucket in batch.masked:
            for chars_PC, row_M, labels_MC in zip(
                *(x[0] for x in (bucket.chars_SPC, bucket.row_SM, bucket.labels_SMC)), strict=True
            ):
                real = labels_MC != 0
                assert (chars_PC[row_M][real] == MASK).all()


def test_the_best_loss_is_remembered_across_a_restart(trained, tmp_path):
    workdir = trained.copy(tmp_path / "run")
    path = workdir / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "heldout_loss" in line:
            line["heldout_loss"] = -1.0  # nothing will be better
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = trained.new_config()
    steps = config.train.steps
    config.train.steps, config.train.eval_every, config.train.checkpoint_every = steps + 3, 1, 1000
    with on_devices(1):
        train(config, str(workdir))
    assert [step for step in checkpoints.complete_steps(workdir / "checkpoints") if step > steps] == [steps + 3]
