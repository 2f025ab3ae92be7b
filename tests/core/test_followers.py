"""Several processes whose workdir is in a store: process 0 alone writes there, the others have copies that keep up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import object_stores
import pytest
from core.test_mirror import ADDRESS, save

from charlm.core import followers, hosts
from charlm.core import mirror as mirrors
from charlm.core.durable import write_text
from charlm.core.followers import Follower, Leader
from charlm.core.mirror import Mirror
from charlm.core.mirror_files import MARK
from charlm.core.stores import Store


@pytest.fixture(autouse=True)
def _at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(mirrors, "POLL_SECONDS", 3600.0)  # copied where all catch up, and at the end


@pytest.fixture
def objects():
    with object_stores.store("s3") as held:
        yield held


@pytest.fixture
def sides(objects):
    """Process 0 and process 1, of one machine."""
    leader, follower = Leader(ADDRESS), Follower(ADDRESS, process=1)
    leader.take_over()
    follower.begin()
    yield leader, follower
    leader.close()
    follower.close()


def catch_up(leader: Leader, follower: Follower) -> None:
    for act in ("give", "take", "go_on"):
        for side in (leader, follower):
            getattr(side, act)()


def files(folder: Path) -> dict[str, bytes]:
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert all(any(p.iterdir()) for p in folder.rglob("[0-9]*") if p.is_dir())  # orbax would believe an empty one
    return found


def test_a_follower_has_what_the_store_has_of_the_newest_checkpoint(sides, objects):
    leader, follower = sides
    write_text(leader.folder / "config.json", "{}")
    save(leader.folder, 1)
    catch_up(leader, follower)
    assert files(follower.folder) == files(leader.folder)

    save(leader.folder, 2)
    write_text(leader.folder / "config.json", '{"a": 1}')
    objects.read.clear()
    catch_up(leader, follower)
    newest = {name: content for name, content in files(leader.folder).items() if not name.startswith("checkpoints/1/")}
    assert files(follower.folder) == newest
    assert set(objects.read) - {f"runs/hlm/{MARK}"} == {f"runs/hlm/{name}" for name in newest}  # and nothing again

    shutil.rmtree(leader.folder / "checkpoints" / "2")  # the run goes back
    catch_up(leader, follower)
    assert files(follower.folder) == files(leader.folder)


def test_an_incomplete_checkpoint_is_not_believed(sides, objects):
    leader, follower = sides
    save(leader.folder, 1)
    catch_up(leader, follower)
    for name in ("state/a", "data/c", "commit_success.txt"):
        objects.now[f"runs/hlm/checkpoints/2/{name}"] = b"half"
    follower.take()
    assert not (follower.folder / "checkpoints" / "2").exists()


def test_what_a_follower_had_before_is_not_believed(sides, objects):
    leader, follower = sides
    save(leader.folder, 1)
    catch_up(leader, follower)
    follower.close()
    write_text(follower.folder / "checkpoints" / "1" / "state" / "a", "other")
    again = Follower(ADDRESS, process=1)
    again.begin()
    again.take()
    assert files(again.folder) == files(leader.folder)
    again.end()
    assert not again.folder.exists()
    again.close()


def test_nothing_is_copied_while_followers_read(sides, objects):
    leader, _ = sides
    leader.give()
    assert not leader._copying.acquire(blocking=False)
    leader.go_on()
    leader.go_on()
    leader.copy()
    objects.forbidden = True
    save(leader.folder, 1)
    with pytest.raises(ValueError, match=f"{ADDRESS}.*PERMISSION_DENIED"):
        leader.give()
    objects.forbidden = False
    leader.copy()


def test_followers_do_not_read_what_another_run_wrote(sides, objects):
    leader, _ = sides
    Mirror(ADDRESS)._store.write(MARK, b'{"mark": "another"}')
    with pytest.raises(ValueError, match=f"^{ADDRESS} is written by another run"):
        leader.give()


def test_processes_of_one_machine_have_folders_of_their_own(sides):
    leader, follower = sides
    assert follower.folder == leader.folder.with_name(f"{leader.folder.name}.process_1")
    with pytest.raises(ValueError, match=f"--workdir={ADDRESS}: another process is training there"):
        Follower(ADDRESS, process=1).begin()


def test_a_run_of_several_processes_whose_workdir_is_taken_ends(sides, objects, monkeypatch):
    leader, _ = sides
    why = []
    leader._stop_run = why.append
    monkeypatch.setattr(mirrors, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(mirrors, "SETTLE_SECONDS", 0.0)
    Mirror(ADDRESS)._store.write(MARK, b'{"mark": "another"}')
    write_text(leader.folder / "config.json", "{}")
    leader.start()
    leader._thread.join(20)
    assert len(why) == 1
    assert why[0].startswith(f"{ADDRESS} is written by another run (another)")


@pytest.mark.parametrize("primary", [True, False])
def test_each_process_works_in_its_own_folder_and_all_leave_the_run_in_the_store(primary, objects, monkeypatch):
    """Each process as it would be if the other did nothing."""
    monkeypatch.setattr(hosts, "alone", lambda: False)
    monkeypatch.setattr(hosts, "is_primary", lambda: primary)
    monkeypatch.setattr(hosts, "everywhere", lambda work: work())
    monkeypatch.setattr("jax.process_index", lambda: 0 if primary else 1)
    store = Store(ADDRESS)
    store.write("config.json", b"{}")
    with followers.mirrored_by_all(ADDRESS) as folder:
        assert followers.following()
        assert Path(folder, "config.json").read_text() == "{}"
        assert followers.without_folder(f"{folder}/1_approximation") == f"{ADDRESS}/1_approximation"
        assert followers.without_folder("elsewhere") == "elsewhere"
        if primary:
            save(Path(folder), 1)
        else:
            store.write("config.json", b'{"a": 1}')
            followers.catch_up()
            assert Path(folder, "config.json").read_text() == '{"a": 1}'
    assert not followers.following()
    assert ("runs/hlm/checkpoints/1/_CHECKPOINT_METADATA" in objects.now) == primary
    assert Path(folder).exists() == primary

    with pytest.raises(KeyError, match="stopped"), followers.mirrored_by_all(ADDRESS):
        raise KeyError("stopped")
    assert not followers.following()


def test_a_folder_that_is_shared_or_of_one_process_needs_no_copies(tmp_path, objects):
    followers.catch_up()
    with followers.mirrored_by_all(str(tmp_path)) as folder:
        assert folder == str(tmp_path)
        assert not followers.following()
    with followers.mirrored_by_all(ADDRESS):
        assert not followers.following()
