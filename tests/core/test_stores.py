"""Objects in stores, read and written through S3's and Google's protocols, and copies of them on this machine."""

from __future__ import annotations

import re
from pathlib import Path

import object_stores
import pytest
from object_stores import BUCKET

from charlm.core import stores
from charlm.core.local_paths import check_path, split_address
from charlm.core.stores import Store
from charlm.data.files import matching_files


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["s3", "gs"])
def scheme(request):
    return request.param


@pytest.fixture
def objects(scheme):
    with object_stores.store(scheme) as held:
        yield held


@pytest.fixture
def address(scheme):
    return f"{scheme}://{BUCKET}"


def test_objects_are_written_listed_read_and_removed(objects, address, tmp_path):
    store, other = Store(f"{address}/run"), Store(f"{address}/runs")
    store.write("a/b c.txt", b"one")
    store.write("empty", b"")
    other.write("a", b"of another")
    assert store.names() == ["a/b c.txt", "empty"]
    assert store.names("a/") == ["a/b c.txt"]
    assert (store.read("a/b c.txt"), store.read("empty"), store.read("a")) == (b"one", b"", None)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 100)
    store.upload(path, "file")
    assert objects.now["run/file"] == path.read_bytes()
    store.remove("empty")
    store.remove("never was")
    assert store.names() == ["a/b c.txt", "file"]
    assert Store(address).names() == ["run/a/b c.txt", "run/file", "runs/a"]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 35])
def test_objects_are_downloaded_in_blocks(objects, address, tmp_path, monkeypatch, size):
    monkeypatch.setattr(stores, "BLOCK_BYTES", 10)
    content = bytes(range(size))
    Store(f"{address}/run").write("a", content)
    generation = Store(f"{address}/run").download("a", tmp_path / "folder" / "copy")
    assert (tmp_path / "folder" / "copy").read_bytes() == content
    objects.read.clear()
    assert Store(f"{address}/run").download("a", tmp_path / "other", generation) == generation
    assert objects.read == []
    assert not (tmp_path / "other").exists()


def test_an_object_that_changes_while_it_is_read_is_refused(objects, address, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "BLOCK_BYTES", 10)
    store = Store(f"{address}/run")
    store.write("a", bytes(30))
    read = store._range
    monkeypatch.setattr(store, "_range", lambda *at: (read(*at), store.write("a", b"1" * 30))[0])
    with pytest.raises(ValueError, match=f"^{address}/run/a was changed or removed while it was read"):
        store.download("a", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="/none was changed or removed"):
        store.download("none", tmp_path / "copy")


def test_a_store_that_refuses_is_one_line(objects, address):
    objects.forbidden = True
    for work in (lambda s: s.names(), lambda s: s.read("a"), lambda s: s.write("a", b"")):
        with pytest.raises(ValueError, match=f"^{address}/run[^\n]*: [^\n]*$"):
            work(Store(f"{address}/run"))


def test_names_that_are_no_files_are_refused(objects, address):
    objects.write("run/a/../b", b"")
    with pytest.raises(ValueError, match=r"run/a/\.\./b: an object of this name"):
        Store(f"{address}/run").names()


def test_corpora_are_brought_here_and_not_twice(objects, address):
    for name in (
        "corpus/a.txt",
        "corpus/b.txt",
        "corpus/.hidden.txt",
        "corpus/deep/c.txt",
        "corpus/d.json",
        "other.txt",
    ):
        objects.write(name, name.encode())
    copies = matching_files(f"{address}/corpus/*.txt", "data.train")
    assert [Path(path).read_text() for path in copies] == ["corpus/a.txt", "corpus/b.txt"]
    assert [Path(p).name for p in matching_files(f"{address}/corpus/**/[ac].txt", "data.train")] == ["a.txt", "c.txt"]
    assert [Path(p).name for p in matching_files(f"{address}/*.txt", "data.train")] == ["other.txt"]
    (one,) = matching_files(f"{address}/corpus/d.json", "data.train")
    assert Path(one).read_text() == "corpus/d.json"
    objects.read.clear()
    assert matching_files(f"{address}/corpus/*.txt", "data.train") == copies
    assert objects.read == []
    objects.write("corpus/a.txt", b"changed")
    assert Path(matching_files(f"{address}/corpus/*.txt", "data.train")[0]).read_text() == "changed"
    with pytest.raises(ValueError, match=f"data.train: '{address}/none.txt' matches no object"):
        matching_files(f"{address}/none.txt", "data.train")
    with pytest.raises(ValueError, match=f"data.dev: '{address}/corpus' is a folder"):
        matching_files(f"{address}/corpus", "data.dev")


def test_of_a_run_the_newest_whole_checkpoint_is_brought_here(objects, address):
    for name in (
        *["run/config.json", "run/checkpoints/3/state/a", "run/checkpoints/3/_CHECKPOINT_METADATA"],
        *["run/checkpoints/12/state/a", "run/checkpoints/12/_CHECKPOINT_METADATA", "run/checkpoints/20/state/a"],
    ):
        objects.write(name, name.encode())
    place = Path(stores.here(f"{address}/run"))
    files = lambda: sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    assert files() == ["checkpoints/12/_CHECKPOINT_METADATA", "checkpoints/12/state/a", "config.json"]
    objects.write("run/checkpoints/20/_CHECKPOINT_METADATA", b"")
    stores.here(f"{address}/run")
    assert files() == ["checkpoints/20/_CHECKPOINT_METADATA", "checkpoints/20/state/a", "config.json"]
    for name in ("config.json.7-ab.tmp", "old.json"):  # another process is writing the first one
        (place / name).write_text("x")
    stores.here(f"{address}/run")
    assert files()[-2:] == ["config.json", "config.json.7-ab.tmp"]
    with pytest.raises(ValueError, match=f"{address}/none: there is nothing"):
        stores.here(f"{address}/none")
    assert stores.here("runs/hlm") == "runs/hlm"


def test_copies_of_a_run_and_of_one_of_its_checkpoints_stay_apart(objects, address):
    for step in (5, 12):
        for name in ("state", "_CHECKPOINT_METADATA"):
            objects.write(f"run/checkpoints/{step}/{name}", b"x")
    five, run = (Path(stores.here(f"{address}/run{end}")) for end in ("/checkpoints/5", ""))
    names = lambda place: sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    assert (five.name, names(five)) == ("5", ["_CHECKPOINT_METADATA", "state"])
    assert (run.name, names(run)) == ("run", ["checkpoints/12/_CHECKPOINT_METADATA", "checkpoints/12/state"])


def refusal(value: str) -> str:
    """Returns what is said against a value where an address may stand; "": nothing."""
    try:
        check_path("--workdir", value, stored=True)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", ["s3://b/run", "gs://my-bucket/a/b/", "runs/hlm", ""])
def test_addresses_of_stores_may_be_given_where_they_are_expected(value):
    assert refusal(value) == ""


@pytest.mark.parametrize(
    "value", ["hdfs://host/run", "http://host/run", "az://b/run", "s3://", "s3://bucket", "gs:///run", "s3://b/../c"]
)
def test_other_addresses_are_refused_in_one_line(value):
    said = r"--workdir: .* is not an address that charlm reads or writes: expected gs://[^\n]*"
    assert re.fullmatch(said, refusal(value))


def test_parts_of_addresses():
    assert split_address("s3://bucket/a/b/") == ("s3", "bucket", "a/b")
    assert split_address("gs://bucket", whole=True) == ("gs", "bucket", "")


def test_settings_of_s3_come_from_the_environment(monkeypatch):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    assert stores._s3_settings() == {}  # the bucket's region, and credentials from wherever they are
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert stores._s3_settings() == {"aws_region": "eu-west-1"}
