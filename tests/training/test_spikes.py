"""Tests what a run does about loss spikes: which steps are spikes, and that no crash changes what becomes of them."""

from __future__ import annotations

import os
import re
import signal
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spiky
from again import again
from small_run import metrics_without_timings
from spiky import Numbered, bits, program_of, spiky_config

from charlm.core import checkpoint as checkpoints
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.spikes import History, from_json, judged, new_history, to_json
from charlm.training.going_back import GoingBack
from charlm.training.goodput import account, read_starts
from charlm.training.loop import Loop, NonFiniteLoss
from charlm.training.spikes import FILE, Spikes

LATE = 20  # number of a batch that comes when enough steps are known; it is that of step 21


class Killed(Exception):
    """Ends a run where a test wants it to end."""


def spikes_in(log_lines) -> list[int]:
    """Returns the steps that the log calls spikes."""
    return [int(found[1]) for line in log_lines.lines if (found := re.match(r"step (\d+) is a spike", line))]


# ---- What is a spike ----


def history_of(losses, norms=None, window=8):
    norms = [1.0] * len(losses) if norms is None else norms
    return from_json({"losses": losses, "norms": norms, "in_row": 0, "total": 0}, window)


def found(history, loss, norm=1.0, threshold=3.0):
    return judged(history, jnp.float32(loss), jnp.float32(norm), threshold)


def test_a_value_above_the_mean_by_the_threshold_is_a_spike():
    losses = [1.0, 2.0, 3.0, 2.0]  # mean 2, standard deviation 0.7071
    for loss, spike in ((4.12, False), (4.13, True), (-100.0, False)):
        assert bool(found(history_of(losses), loss)[1].spike) == spike
    assert found(history_of(losses), 0.0)[1].loss_limit == pytest.approx(2 + 3 * 0.5**0.5)
    assert found(history_of(losses, norms=losses), 2.0, 4.13)[1].spike


def test_only_half_a_window_is_enough_and_what_is_not_finite_is_always_a_spike():
    assert not found(history_of([1.0] * 3), 1e9)[1].spike
    assert found(history_of([1.0] * 4), 1e9)[1].spike
    for loss, norm in ((np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan), (-np.inf, 1.0)):
        assert found(history_of([]), loss, norm)[1].spike


def test_a_spike_is_counted_and_not_compared_with():
    before = history_of([1.0, 2.0, 3.0, 2.0])
    after, seen = found(before, 50.0)
    again, more = found(after, 60.0)
    assert to_json(again) == to_json(before) | {"in_row": 2, "total": 2}
    assert (int(seen.in_row), int(more.total)) == (1, 2)
    calm, _ = found(again, 2.5)
    assert to_json(calm) == {
        "losses": [1, 2, 3, 2, 2.5], "norms": [1.0] * 5, "in_row": 0, "total": 2
    }  # fmt: skip


def test_the_window_holds_the_newest():
    history = history_of([], window=4)
    for loss in range(6):
        history, _ = found(history, loss, threshold=100.0)
    assert to_json(history)["losses"] == [2, 3, 4, 5]
    assert from_json(to_json(history), 2).losses.tolist() == [4, 5]  # another window
    assert not from_json(None, 3).known


def test_a_history_comes_back_to_the_bit():
    values = np.random.default_rng(0).normal(size=8).astype(np.float32) ** 3
    history = History(jnp.asarray(values), jnp.asarray(values[::-1]), *map(jnp.int32, (8, 1, 3)))
    jax.tree.map(np.testing.assert_array_equal, from_json(to_json(history), 8), history)


# ---- Off ----


def test_off_the_program_and_the_checkpoint_are_without_it(tmp_path):
    texts = {}
    for policy in ("", "skip", "restore"):
        config = spiky_config(policy)
        program, first = program_of(config, 1)
        batch = program.place(next(Numbered()))
        texts[policy] = program.train_step.lower(first(), batch).as_text()
    assert "is_finite" not in texts[""]
    assert "is_finite" in texts["skip"]
    assert texts["skip"] == texts["restore"]
    config = spiky_config()
    config.train.spike_threshold, config.train.spike_window = 0.5, 3
    program, first = program_of(config, 1)
    assert program.train_step.lower(first(), batch).as_text() == texts[""]
    config.train.steps = 6
    spiky.train(tmp_path / "off", config, Numbered())
    stored = checkpoints.description(checkpoints.find(tmp_path / "off"))
    assert stored.keys() == {"config", "frozen", "started_from", "unreported"}
    assert not (tmp_path / "off" / FILE).exists()


def test_off_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    with pytest.raises(NonFiniteLoss, match=r"^step 21: loss nan"):
        spiky.train(tmp_path / "run", spiky_config(), Numbered({LATE: np.nan}))


# ---- Skip ----


@pytest.mark.parametrize("bad", [60.0, np.nan])
def test_the_update_of_a_spike_is_left_out_and_all_else_goes_on(tmp_path, log_lines, bad):
    states = {}
    do = Loop._step

    def keep(self, step):
        do(self, step)
        states[step] = jax.device_get(self.state)

    with mock.patch.object(Loop, "_step", keep):
        spiky.train(tmp_path / "run", spiky_config("skip"), Numbered({LATE: bad}))
    assert spikes_in(log_lines) == [21]
    before, after = bits(states[20]), bits(states[21])
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"step", "opt_state/1/2/count", "history/in_row", "history/total"}  # the rate's count goes on
    assert bits(states[22])["params/linear/kernel"] != after["params/linear/kernel"]
    lines = metrics_without_timings(tmp_path / "run")
    assert [line["spikes"] for line in lines] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert all(np.isfinite(line["loss"]) for line in lines)


def test_what_is_left_out_does_not_matter_and_a_run_on_eight_devices_leaves_out_the_same(tmp_path, log_lines):
    one = spiky.train(tmp_path / "one", spiky_config("skip"), Numbered({LATE: 60.0, 30: 90.0}))
    other = spiky.train(tmp_path / "other", spiky_config("skip"), Numbered({LATE: np.nan, 30: np.inf}))
    assert bits(one.state) == bits(other.state)
    log_lines.lines.clear()
    eight = spiky.train(tmp_path / "eight", spiky_config("skip"), Numbered({LATE: 60.0, 30: 90.0}), devices=8)
    assert spikes_in(log_lines) == [21, 31]
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, *jax.device_get((one.state, eight.state)))


@pytest.mark.parametrize("policy", ["skip", "restore"])
def test_too_many_in_a_row_end_the_run(tmp_path, log_lines, policy):
    step, last = (23, 18) if policy == "skip" else (14, 12)
    message = rf"^step {step}: 3 spikes in a row, one more than train\.spike_limit allows; the last good .* {last} in "
    with pytest.raises(ValueError, match=message):
        spiky.train(tmp_path / "run", spiky_config(policy), Numbered(dict.fromkeys(range(LATE, 400), 60.0)))


def test_a_run_begins_and_ceases_to_look_for_spikes_where_it_is_resumed(tmp_path, log_lines):
    config = spiky_config()
    config.train.steps = 12
    spiky.train(tmp_path / "run", config, Numbered())
    for steps, policy in ((30, "skip"), (40, "")):
        config = spiky_config(policy)
        config.train.steps = steps
        loop = spiky.train(tmp_path / "run", config, Numbered({LATE: 60.0, 26: 60.0}))
    assert spikes_in(log_lines) == [21, 27]
    assert loop.state.history is None
    assert "spikes" not in metrics_without_timings(tmp_path / "run")[-1]


# ---- Restore ----


def test_it_goes_back_and_passes_over_the_batches_up_to_the_spike(tmp_path, log_lines):
    """As a run for which these batches never existed: every bit, and every metric but the count of spikes."""
    loop = spiky.train(tmp_path / "run", spiky_config("restore"), Numbered({LATE: 60.0}))
    assert spikes_in(log_lines) == [21]
    assert "going back to step 18" in log_lines.lines
    assert "passing over 3 batches after step 18, up to a spike" in log_lines.lines
    calm = spiky.train(tmp_path / "calm", spiky_config("restore"), Numbered(left_out=(18, 19, 20)))
    assert bits(loop.state) == bits(calm.state)
    lines, want = metrics_without_timings(tmp_path / "run"), metrics_without_timings(tmp_path / "calm")
    assert [line.pop("spikes") for line in lines] == [0, 0, 0, 1, 1, 1, 1, 1]
    assert lines == [{k: v for k, v in line.items() if k != "spikes"} for line in want]
    starts = read_starts(tmp_path / "run")
    assert [(start.step, start.again) for start in starts] == [(0, False), (18, True)]
    assert account(starts, starts[-1].time).starts == 1


def test_right_after_a_checkpoint_it_goes_back_to_the_one_before(tmp_path, log_lines):
    config = spiky_config("restore")
    config.train.keep_checkpoints = 1  # one more is kept, as long as it may be needed
    spiky.train(tmp_path / "run", config, Numbered({18: 60.0}))
    assert spikes_in(log_lines) == [19]
    assert "going back to step 12" in log_lines.lines
    assert len(list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))) == 2


def test_where_no_checkpoint_is_old_enough_only_the_update_is_left_out(tmp_path, log_lines):
    config = spiky_config("restore")
    config.train.checkpoint_every = 19
    spiky.train(tmp_path / "run", config, Numbered({LATE: 60.0}))
    assert spikes_in(log_lines) == [21]
    assert not any("going back" in line for line in log_lines.lines)


CORRUPT = {LATE: 60.0, 25: 60.0, 35: np.nan}  # the second comes again after the same checkpoint


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    loop = spiky.train(folder, spiky_config("restore"), Numbered(CORRUPT))
    return loop.state, folder


def assert_as(unbroken, loop, folder):
    assert bits(loop.state) == bits(unbroken[0])
    assert metrics_without_timings(folder) == metrics_without_timings(unbroken[1])
    assert (folder / FILE).read_bytes() == (unbroken[1] / FILE).read_bytes()


@pytest.mark.parametrize("place", ["add", "pass_over", "went_back", again("remove_after"), again("restore")])
def test_killed_while_it_goes_back_it_decides_the_same_again(unbroken, tmp_path, place):
    owner = {"remove_after": Checkpoints, "restore": Checkpoints, "add": Spikes, "pass_over": GoingBack}
    owner = owner.get(place, spiky.Fixed)
    do, calls = getattr(owner, place), []

    def killed(*arguments, **named):
        calls.append(None)
        if len(calls) == 2 + (place == "pass_over"):  # it is called at the start, too
            raise Killed
        return do(*arguments, **named)

    folder = tmp_path / "run"
    with mock.patch.object(owner, place, killed), pytest.raises(Killed):
        spiky.train(folder, spiky_config("restore"), Numbered(CORRUPT))
    assert_as(unbroken, spiky.train(folder, spiky_config("restore"), Numbered(CORRUPT)), folder)


@pytest.mark.parametrize(
    ("number", "how"), [(20, "stopped"), again(21, "killed"), again(24, "stopped"), (27, "killed")]
)
def test_killed_or_stopped_anywhere_it_ends_the_same(unbroken, tmp_path, number, how):
    def taken(at):
        if at == number and not ended:
            ended.append(at)
            if how == "killed":
                raise Killed
            os.kill(os.getpid(), signal.SIGTERM)

    ended, folder = [], tmp_path / "run"
    batches = lambda: Numbered(CORRUPT, taken=taken)
    if how == "killed":
        with pytest.raises(Killed):
            spiky.train(folder, spiky_config("restore"), batches())
    else:
        assert spiky.train(folder, spiky_config("restore"), batches()).stopped
    assert_as(unbroken, spiky.train(folder, spiky_config("restore"), batches()), folder)


def test_stopped_again_and_again_it_still_has_the_checkpoint_to_go_back_to(unbroken, tmp_path):
    config, folder, stops = spiky_config("restore"), tmp_path / "run", {19, 20}

    def taken(at):
        if at in stops:
            stops.remove(at)
            os.kill(os.getpid(), signal.SIGTERM)

    config.train.keep_checkpoints = 1
    for _ in range(3):
        loop = spiky.train(folder, config, Numbered(CORRUPT, taken=taken))
    assert not stops
    assert_as(unbroken, loop, folder)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / FILE).write_text('{"restored": [{"checkpoint": 3}]}')
    with pytest.raises(ValueError, match=rf"{FILE} is damaged, so the run cannot know which batches it passed over"):
        Spikes(spiky_config("restore").train, tmp_path, 3)


def test_the_policy_off_has_no_history():
    assert new_history(spiky_config().train) is None
