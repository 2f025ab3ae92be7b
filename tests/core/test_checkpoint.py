"""Tests checkpoints: they are restored completely, half-written ones are never read, and mismatches are listed."""

from __future__ import annotations

import errno
import os
import shutil

import grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.core import followers, hosts
from charlm.core.checkpoint import find, load, load_params, read_metadata, unreported
from charlm.core.checkpoint_store import Checkpoints
from charlm.core.state import TrainState

VOCAB = {"a": 8, "b": 9}
METADATA = {"config": {"seed": 3, "data": {"train": ["builtin"]}}, "char_vocab": VOCAB}


def state(step):
    params = {"dense": {"kernel": jnp.full((2, 3), step + 0.5), "bias": jnp.arange(3.0) + step}, "scale": jnp.ones(4)}
    return TrainState(jnp.int32(step), params, ())


def abstract(tree):
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree)


def numbers():
    return iter(grain.MapDataset.range(100).seed(0).shuffle().to_iter_dataset())


def save(workdir, losses, keep=3):
    """Saves steps, each with its held-out loss (None: not evaluated), and the data position so many numbers on."""
    store = Checkpoints(workdir, keep, METADATA)
    data = numbers()
    for step, loss in losses.items():
        next(data)
        store.save(step, state(step), data, None if loss is None else {"loss": loss})
    store.wait()
    store.close()


def steps(workdir):
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A workdir with steps 2 and 4; the data stands at its second number at the end."""
    folder = tmp_path_factory.mktemp("saved")
    save(folder, {2: 1.0, 4: None})
    return folder


@pytest.fixture
def workdir(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


@pytest.mark.parametrize("noticed", ["save", "wait", "close"])
def test_a_full_disk_names_the_step_that_failed_and_the_last_good_one(tmp_path, noticed):
    def write(folder):
        if "8." in str(folder):
            raise OSError(errno.ENOSPC, "No space left on device")

    store, data = Checkpoints(tmp_path, 3, METADATA, write_files=write), numbers()
    store.save(4, state(4), data)
    store.save(8, state(8), data)
    message = (
        rf"^the checkpoint of step 8 could not be written to {tmp_path}/checkpoints: No space left on device; "
        "the last good checkpoint is step 4$"
    )
    calls = {"save": lambda: store.save(12, state(12), data), "wait": store.wait, "close": store.close}
    with pytest.raises(ValueError, match=message):
        calls[noticed]()
    store.close()
    assert find(tmp_path).name == "4"


def test_the_files_of_a_checkpoint_are_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """Orbax waits for the arrays alone, and then removes older checkpoints."""
    synced, sync = [], os.fsync

    def noted(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    store = Checkpoints(tmp_path, 1, METADATA)
    store.save(4, state(4), numbers(), {"loss": 1.0})
    store.close()
    names = {"/".join(path.split("/")[-2:]) for path in synced}
    assert {"metrics/metrics", "state/_METADATA"} <= names
    assert any(path.endswith("checksums.json") for path in synced)


def assert_same(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_state_and_data_position_come_back(saved):
    store = Checkpoints(saved)
    expected = list(numbers())
    for step, read in ((4, 2), (2, 1)):
        data = numbers()
        assert_same(store.restore(step, abstract(state(0)), data), state(step))
        assert list(data) == expected[read:]
    assert store.latest == 4
    store.close()


def test_load_reads_a_checkpoint_wherever_it_lies(saved, tmp_path):
    moved = shutil.copytree(saved / "checkpoints" / "2", tmp_path / "best")
    data = numbers()
    assert_same(load(find(moved), abstract(state(0)), data), state(2))
    assert list(data) == list(numbers())[1:]
    assert [path.name for path in tmp_path.iterdir()] == ["best"]  # nothing else is made there
    other = abstract(state(0)._replace(params={"dense": {"kernel": jnp.zeros((2, 4))}}))
    with pytest.raises(ValueError, match=r"unexpected dense/bias \(3,\); .*kernel is \(2, 3\), expected \(2, 4\)"):
        load(moved, other, numbers())


def test_what_the_first_process_writes_for_all_is_what_all_would_write(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(followers, "following", lambda: True)
    save(tmp_path, {2: 1.0, 4: None})
    found = [sorted(path.name for path in (of / "checkpoints" / "4").iterdir()) for of in (tmp_path, saved)]
    assert found[0] == found[1]
    assert [path.name for path in tmp_path.glob("checkpoints/4/data/*.json")] == ["process_0-of-1.json"]
    shutil.rmtree(tmp_path / "checkpoints" / "4" / "state")  # no checkpoint, so it is written again
    store = Checkpoints(tmp_path)
    assert store.latest == 2
    data = numbers()
    next(data)
    store.save(4, state(4), data)
    store.wait()
    data = numbers()
    got = store.restore(4, abstract(state(0)), data)
    assert_same(got, state(4))
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(got))
    assert list(data) == list(numbers())[1:]
    store.save(6, state(6), data)
    store.wait()
    monkeypatch.setattr(hosts, "is_primary", lambda: False)  # the others see no folder, and know it all the same
    assert store.latest == 6
    monkeypatch.undo()
    store.remove_after(2)
    assert steps(tmp_path) == [2]
    assert store.latest == 2
    store.close()


def test_an_existing_step_is_left_as_it_is(workdir):
    store = Checkpoints(workdir, metadata=METADATA)
    store.save(4, state(77), numbers())
    store.wait()
    assert_same(store.restore(4, abstract(state(0)), numbers()), state(4))
    store.close()


def test_the_newest_and_the_best_are_kept(tmp_path):
    save(tmp_path, {1: 5.0, 2: 3.0, 3: 4.0, 4: None, 5: 3.5, 6: None}, keep=2)
    assert steps(tmp_path) == [2, 5, 6]
    save(tmp_path, {7: 3.2, 8: None}, keep=2)  # opened again: what was best is remembered
    assert steps(tmp_path) == [2, 7, 8]
    save(tmp_path, {9: 1.0, 10: None, 11: None}, keep=2)
    assert steps(tmp_path) == [9, 10, 11]


# ---- Finding ----


def test_find_takes_workdir_folder_or_step(saved):
    folder = saved / "checkpoints"
    assert find(saved) == find(str(saved)) == find(folder) == folder / "4"
    assert find(folder / "2") == folder / "2"


def test_find_compares_steps_as_numbers(workdir):
    shutil.copytree(workdir / "checkpoints" / "4", workdir / "checkpoints" / "10")
    assert find(workdir).name == "10"


@pytest.mark.parametrize(
    ("folder", "message"), [("none", "does not exist"), ("", "holds no complete checkpoint"), ("file", "holds no")]
)
def test_find_says_what_it_looked_for(tmp_path, folder, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=f"^init_from: .*{message}.*expected a workdir or one of its checkpoints/STEP"):
        find(tmp_path / folder, key="init_from")


def test_the_state_of_another_optimizer_is_named(workdir):
    wanted = abstract(state(0))._replace(opt_state=({"mu": jax.ShapeDtypeStruct((3,), jnp.float32)},))
    store = Checkpoints(workdir, 3, METADATA)
    message = r"4 was saved .*: its optimizer keeps other arrays \(opt_state/0/mu: no such array, "
    with pytest.raises(ValueError, match=message + r"expected \(3,\)\), so the run cannot continue"):
        store.restore(4, wanted, numbers())
    with pytest.raises(ValueError, match=message):
        load(workdir / "checkpoints" / "4", wanted, numbers())
    store.close()


@pytest.mark.parametrize("missing", ["_CHECKPOINT_METADATA", "state"])
def test_a_step_copied_in_part_is_never_picked(workdir, missing):
    half = shutil.copytree(workdir / "checkpoints" / "4", workdir / "checkpoints" / "6") / missing
    shutil.rmtree(half) if half.is_dir() else half.unlink()
    assert find(workdir).name == "4"
    with pytest.raises(ValueError, match="holds no complete checkpoint"):
        find(workdir / "checkpoints" / "6")
    store = Checkpoints(workdir, metadata=METADATA)
    assert store.latest == 4
    store.save(6, state(6), numbers())  # and written anew when the run comes there
    store.wait()
    assert store.latest == 6
    assert_same(store.restore(6, abstract(state(0)), numbers()), state(6))
    store.close()


def test_a_step_being_written_is_never_picked(workdir):
    folder = workdir / "checkpoints"
    for name in ("6.orbax-checkpoint-tmp-1234", "8.orbax-checkpoint-tmp"):
        shutil.copytree(folder / "4", folder / name)
    (folder / "notes").mkdir()
    assert find(workdir).name == "4"
    store = Checkpoints(workdir, metadata=METADATA)
    assert store.latest == 4
    store.close()


# ---- What a checkpoint says of itself ----


def test_metadata_comes_back(saved):
    assert read_metadata(find(saved)).items() >= METADATA.items()


def test_sums_not_yet_reported_come_back(saved, workdir):
    store = Checkpoints(workdir, metadata=METADATA)
    store.save(6, state(6), numbers(), None, [1.5, 2.0])
    store.close()
    assert unreported(find(workdir)) == [1.5, 2.0]
    assert unreported(find(saved)) == []


def test_a_checkpoint_without_config_is_not_ours(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, state(1), numbers())
    store.close()
    with pytest.raises(ValueError, match="is not a checkpoint of charlm: it stores no config"):
        read_metadata(find(tmp_path))


def test_parameters_alone(saved):
    assert_same(load_params(find(saved), abstract(state(0).params)), state(4).params)


def test_everything_that_does_not_fit_is_listed_at_once(saved):
    wanted = {"dense": {"kernel": jnp.zeros((2, 5)), "bias": jnp.zeros(2)}, "new": jnp.zeros(1), "more": jnp.zeros(())}
    with pytest.raises(ValueError, match="does not hold the parameters of this config") as e:
        load_params(find(saved), abstract(wanted))
    for problem in (
        "missing new (1,)",
        "missing more ()",
        "unexpected scale (4,)",
        "dense/kernel is (2, 3), expected (2, 5)",
        "dense/bias is (3,), expected (2,)",
    ):
        assert problem in str(e.value)
