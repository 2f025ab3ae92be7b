"""A workdir kept in a store: what lies there is always a state to go on from, and of two machines only one writes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import object_stores
import pytest
from again import again
from object_stores import BUCKET

from charlm.core import mirror as mirrors
from charlm.core.durable import replacing, write_text
from charlm.core.mirror import Mirror, mirrored
from charlm.core.mirror_files import MARK
from charlm.core.stores import Store

ADDRESS = f"s3://{BUCKET}/runs/hlm"


@pytest.fixture(autouse=True)
def _at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # takes long, and no power is cut here
    monkeypatch.setattr(mirrors, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(mirrors, "GROWING_SECONDS", 0.0)
    monkeypatch.setattr(mirrors, "POLL_SECONDS", 0.02)


@pytest.fixture
def objects():
    with object_stores.store("s3") as held:
        yield held


def save(folder: Path, step: int, of: str = "checkpoints") -> None:
    """Writes a checkpoint as charlm does: whole, by renaming; the text of each file names its step."""
    (folder / of).mkdir(exist_ok=True)
    with replacing(folder / of / str(step)) as temporary:
        for name in ("state/a", "state/b", "data/c", "_CHECKPOINT_METADATA", "commit_success.txt"):
            path = Path(temporary, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{of} {step}")


def log(folder: Path, step: int) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(f"{step}\n")


def remove(folder: Path, step: int, of: str = "checkpoints") -> None:
    shutil.rmtree(folder / of / str(step))


# What a fine-tuning run does: metrics; a model and the state from which it goes on; better models; at its end the
# result, after which the state is removed.
STORY: list[Callable[[Path], None]] = [
    lambda folder: write_text(folder / "config.json", "{}"),
    lambda folder: log(folder, 1),
    lambda folder: save(folder, 1),
    lambda folder: save(folder, 1, "state"),
    lambda folder: log(folder, 2),
    lambda folder: save(folder, 2),
    lambda folder: remove(folder, 1),
    lambda folder: save(folder, 2, "state"),
    lambda folder: remove(folder, 1, "state"),
    lambda folder: log(folder, 3),
    lambda folder: save(folder, 3, "state"),
    lambda folder: remove(folder, 2, "state"),
    lambda folder: write_text(folder / "result.json", "2"),
    lambda folder: shutil.rmtree(folder / "state"),
]


def check(folder: Path) -> int:
    """Checks that a run could go on from what is in a folder; returns the step, or 100 at its end."""
    steps = {"checkpoints": [0], "state": [0]}
    for of, found in steps.items():
        for checkpoint in (folder / of).glob("*"):
            files = {path.relative_to(checkpoint).as_posix(): path for path in checkpoint.rglob("*") if path.is_file()}
            assert len(files) == 5
            assert {path.read_text() for path in files.values()} == {f"{of} {checkpoint.name}"}
            found.append(int(checkpoint.name))
    if (folder / "result.json").exists():
        assert max(steps["checkpoints"]) == 2  # the model that the result is of
        return 100
    step = max(steps["state"])
    assert not step or max(steps["checkpoints"])  # the best model so far
    logged = (folder / "metrics.jsonl").read_text().split() if step else []
    assert len(logged) >= step
    return step


@pytest.mark.parametrize("every", [1, again(2), 3, again(5), len(STORY)])
def test_after_every_operation_there_is_a_state_to_go_on_from(objects, tmp_path, every):
    mirror = Mirror(ADDRESS, str(tmp_path / "here"))
    mirror.take_over()
    for number, act in enumerate(STORY, start=1):
        act(mirror.folder)
        if number % every == 0:
            mirror.copy()
    mirror.copy(last=True)
    seen = []
    for operations in range(len(objects.log) + 1):
        objects.now = objects.after(operations)
        elsewhere = Mirror(ADDRESS, str(tmp_path / f"there_{operations}"))
        elsewhere.take_over()
        seen.append(check(elsewhere.folder))
    assert seen == sorted(seen)  # what was reached is never lost
    assert seen[-1] == 100
    assert len(set(seen)) > (1 if every == len(STORY) else 2)
    left = {path.relative_to(elsewhere.folder).as_posix() for path in elsewhere.folder.rglob("*") if path.is_file()}
    assert left == {path.relative_to(mirror.folder).as_posix() for path in mirror.folder.rglob("*") if path.is_file()}


def test_a_checkpoint_written_over_does_not_count_meanwhile(objects):
    mirror = Mirror(ADDRESS)
    mirror.take_over()
    save(mirror.folder, 1)
    mirror.copy()
    before = len(objects.log)
    (mirror.folder / "checkpoints" / "1" / "state" / "a").write_text("other")
    mirror.copy(last=True)
    names = [(what, name.rpartition("/")[2]) for what, name, _ in objects.log[before:]]
    assert names == [("remove", "_CHECKPOINT_METADATA"), ("write", "a"), ("write", "_CHECKPOINT_METADATA"),
                     ("write", MARK)]  # fmt: skip


def test_what_vanishes_is_removed_there_only_at_the_second_look(objects):
    mirror = Mirror(ADDRESS)
    mirror.take_over()
    for step in (1, 2):
        save(mirror.folder, step)
    mirror.copy()
    remove(mirror.folder, 1)
    mirror.copy()
    assert "runs/hlm/checkpoints/1/state/a" in objects.now
    mirror.copy()
    assert not any(name.startswith("runs/hlm/checkpoints/1/") for name in objects.now)


def test_what_tells_of_removed_checkpoints_comes_after_their_removal(objects):
    """As where a run goes back after a spike: what a machine that dies between the two leaves, a local crash leaves."""
    mirror = Mirror(ADDRESS)
    mirror.take_over()
    for step in (1, 2):
        save(mirror.folder, step)
    mirror.copy()
    remove(mirror.folder, 2)
    (mirror.folder / "spikes.json").write_text("back at 1")
    (mirror.folder / "other.json").write_text("x")
    mirror.copy()
    assert "runs/hlm/other.json" in objects.now
    assert "runs/hlm/spikes.json" not in objects.now
    before = len(objects.log)
    mirror.copy()
    names = [(what, name.removeprefix("runs/hlm/")) for what, name, _ in objects.log[before:]]
    gone = [n for n, (what, name) in enumerate(names) if what == "remove" and name.startswith("checkpoints/2/")]
    assert len(gone) == 5
    assert names.index(("write", "spikes.json")) > max(gone)


def test_only_what_is_finished_and_settled_is_copied(objects, monkeypatch):
    monkeypatch.setattr(mirrors, "SETTLE_SECONDS", 3600.0)
    mirror = Mirror(ADDRESS)
    mirror.take_over()
    save(mirror.folder, 1)
    log(mirror.folder, 1)
    for name in ("a.json.7-ab.tmp", ".writable.7", "checkpoints/2.orbax-checkpoint-tmp-3/state", "tensorboard/events"):
        (mirror.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror.folder / name).write_text("x")
    mirror.copy()
    held = lambda: {name.removeprefix("runs/hlm/") for name in objects.now} - {MARK}
    assert held() == {"metrics.jsonl", "tensorboard/events"}
    mirror.copy(last=True)
    assert {name.split("/")[1] for name in held() if "/" in name} == {"1", "events"}
    before = len(objects.log)
    mirror.copy()
    assert len(objects.log) == before  # nothing changed


def test_a_run_is_copied_while_it_runs_and_at_its_end(objects, log_lines):
    with mirrored(ADDRESS) as folder:
        write_text(Path(folder, "config.json"), "{}")
        save(Path(folder), 1)
        while "checkpoints/1 is copied" not in str(log_lines):
            pass
        assert objects.now["runs/hlm/checkpoints/1/state/a"] == b"checkpoints 1"
        write_text(Path(folder, "result.json"), "1")
    assert objects.now["runs/hlm/result.json"] == b"1"
    with mirrored("runs/hlm") as folder:
        assert folder == "runs/hlm"


def test_a_run_that_fails_is_copied_too(objects):
    def run():
        with mirrored(ADDRESS) as folder:
            write_text(Path(folder, "config.json"), "{}")
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert objects.now["runs/hlm/config.json"] == b"{}"


def test_the_machine_that_wrote_last_goes_on_with_its_own_folder(objects):
    with mirrored(ADDRESS) as folder:
        save(Path(folder), 1)
    save(Path(folder), 2)  # killed before it was copied
    objects.read.clear()
    with mirrored(ADDRESS) as folder:
        assert (Path(folder) / "checkpoints" / "2").is_dir()
    assert set(objects.read) == {f"runs/hlm/{MARK}"}
    assert "runs/hlm/checkpoints/2/state/a" in objects.now


def test_what_another_machine_wrote_is_taken_over(objects, tmp_path, log_lines):
    with mirrored(ADDRESS) as folder:
        save(Path(folder), 1)
    other = Mirror(ADDRESS, str(tmp_path / "elsewhere"))
    other.take_over()
    assert check(other.folder) == 0
    save(other.folder, 2)
    other.copy(last=True)
    with mirrored(ADDRESS) as folder:
        assert sorted(path.name for path in (Path(folder) / "checkpoints").iterdir()) == ["1", "2"]
    assert f"{ADDRESS} was written from elsewhere" in str(log_lines)
    assert (Path(f"{folder}.before") / "checkpoints" / "1").is_dir()


def test_a_run_removed_from_the_store_begins_again(objects):
    with mirrored(ADDRESS) as folder:
        save(Path(folder), 1)
    objects.now.clear()
    with mirrored(ADDRESS) as folder:
        assert list(Path(folder).iterdir()) == []


def test_an_emptied_folder_does_not_empty_the_store(objects):
    with mirrored(ADDRESS) as folder:
        write_text(Path(folder, "config.json"), "{}")
        save(Path(folder), 1)
    shutil.rmtree(Path(folder) / "checkpoints")
    with mirrored(ADDRESS) as folder:
        assert (Path(folder) / "checkpoints" / "1" / "state" / "a").read_text() == "checkpoints 1"
    assert "runs/hlm/checkpoints/1/_CHECKPOINT_METADATA" in objects.now


def test_a_take_over_that_is_interrupted_leaves_nothing_behind(objects, monkeypatch):
    with mirrored(ADDRESS) as folder:
        save(Path(folder), 1)
    shutil.rmtree(Path(folder))
    download = Store.download

    def killed(store, name, path, known=b""):
        if name.endswith("state/b"):
            raise KeyboardInterrupt
        return download(store, name, path, known)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "download", killed)
        mirror = Mirror(ADDRESS)
        with pytest.raises(KeyboardInterrupt):
            mirror.take_over()
        mirror.close()
    with mirrored(ADDRESS) as folder:
        assert check(Path(folder)) == 0
        assert (Path(folder) / "checkpoints" / "1" / "state" / "b").read_text() == "checkpoints 1"
    assert "runs/hlm/checkpoints/1/state/b" in objects.now
    assert not Path(f"{folder}.incoming").exists()


def test_a_run_whose_workdir_is_taken_is_stopped_at_once(objects):
    stopped = []

    def run():
        with mirrored(ADDRESS) as folder:
            Mirror(ADDRESS)._store.write(MARK, b'{"mark": "another"}')
            write_text(Path(folder, "config.json"), "{}")
            last = time.monotonic() + 20
            while not stopped and time.monotonic() < last:  # steps, between which a signal is handled
                time.sleep(0.01)
            assert stopped

    before = signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    try:
        with pytest.raises(ValueError, match=f"^{ADDRESS} is written by another run .another."):
            run()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_two_machines_that_write_at_once_are_told(objects, tmp_path, monkeypatch):
    monkeypatch.setattr(mirrors, "POLL_SECONDS", 3600.0)  # copied at the end alone

    def run():
        with mirrored(ADDRESS) as folder:
            save(Path(folder), 1)
            Mirror(ADDRESS, str(tmp_path / "elsewhere"))._store.write(MARK, b'{"mark": "another"}')

    with pytest.raises(ValueError, match=f"^{ADDRESS} is written by another run .another.: this one is in {tmp_path}"):
        run()
    with (
        mirrored(ADDRESS),
        pytest.raises(ValueError, match=f"--workdir={ADDRESS}: another process is training there"),
        mirrored(ADDRESS),
    ):
        pass


def test_a_store_that_fails_for_a_while_loses_nothing_and_one_that_fails_at_the_end_is_an_error(
    objects, monkeypatch, log_lines
):
    monkeypatch.setattr(mirrors, "AGAIN_SECONDS", 0.02)
    with mirrored(ADDRESS) as folder:
        objects.forbidden = True
        save(Path(folder), 1)
        while "trying again" not in str(log_lines):
            pass
        objects.forbidden = False
        while "is copied" not in str(log_lines):
            pass

    def run():
        with mirrored(ADDRESS) as folder:
            objects.forbidden = True
            save(Path(folder), 2)

    with pytest.raises(ValueError, match=f"{ADDRESS}.*PERMISSION_DENIED"):
        run()
    objects.forbidden = False
    with mirrored(ADDRESS):
        pass
    assert "runs/hlm/checkpoints/2/_CHECKPOINT_METADATA" in objects.now
