"""Tests the corpora that a config names: their names, their splits, and when their text counts as changed."""

from __future__ import annotations

import os
import pickle
import sys

import pytest
from reading import texts

from charlm.data import digests
from charlm.data.sources import open_source


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "buildin",
            r"""data\.heldout: 'buildin' does not exist .*expected "builtin", an existing .*did you mean builtin""",
        ),
        ("tdfs:imdb", r"did you mean tfds:"),
        ("corpos.txt", r"'corpos.txt' does not exist \(current directory: .*did you mean corpus.txt"),
        ("none/*.txt", r"data\.heldout: no file matches 'none/\*\.txt' \(current directory: /"),
        (".", r"'\.' is a directory; give its files, such as '\./\*\.txt' \(current directory: /"),
    ],
)
def test_unknown_specs(tmp_path, monkeypatch, spec, message):
    (tmp_path / "corpus.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        open_source(spec, key="data.heldout")


def test_bad_split_and_fraction(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=r"split='held': expected one of train, heldout, all; did you mean heldout"):
        open_source(str(tmp_path / "a.txt"), split="held")
    with pytest.raises(ValueError, match=r"data.heldout_fraction=1.5: expected at least 0 and below 1"):
        open_source(str(tmp_path / "a.txt"), heldout_fraction=1.5)


def test_split_is_disjoint_complete_and_keeps_duplicates_together(tmp_path):
    lines = [f"document {i % 500}" for i in range(1000)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(reversed(lines)))
    train, _ = texts(tmp_path / "a.txt", split="train", heldout_fraction=0.2)
    heldout, _ = texts(tmp_path / "a.txt", split="heldout", heldout_fraction=0.2)
    assert sorted(train + heldout) == sorted(lines)
    assert not set(train) & set(heldout)
    assert 120 < len(heldout) < 280
    assert sorted(texts(tmp_path / "b.txt", split="heldout", heldout_fraction=0.2)[0]) == sorted(heldout)
    assert texts(tmp_path / "a.txt", split="heldout", heldout_fraction=0.0)[0] == []


def test_fingerprint_follows_content_alone(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("one")
    (tmp_path / "c.txt").write_text("two")
    a, b, c = (open_source(str(tmp_path / f"{name}.txt")).fingerprint() for name in "abc")
    assert a == b != c


def test_fingerprint_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    path, cache = tmp_path / "a.txt", tmp_path / "cache"
    path.write_text("one")

    def fingerprint():
        return open_source(str(path), cache_dir=str(cache)).fingerprint()

    first = fingerprint()
    with monkeypatch.context() as patch:
        patch.setattr(digests.hashlib, "file_digest", None)  # reading again would fail
        assert fingerprint() == first
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert fingerprint() != first


@pytest.mark.parametrize("content", [b"", b"0" * 63, b"\0" * 64, b"\xff" * 64, b"0" * 64 + b"\n"], ids=range(5))
def test_a_damaged_memo_of_a_fingerprint_is_made_again(tmp_path, content):
    (tmp_path / "a.txt").write_text("one")
    fingerprint = lambda cache: open_source(str(tmp_path / "a.txt"), cache_dir=cache).fingerprint()
    cache = tmp_path / "cache"
    wanted = fingerprint(None)
    assert fingerprint(str(cache)) == wanted
    (memo,) = (cache / "fingerprints").iterdir()
    good = memo.read_bytes()
    memo.write_bytes(content)
    assert fingerprint(str(cache)) == wanted
    assert memo.read_bytes() == good


def test_a_memo_of_another_file_is_not_believed(tmp_path):
    cache = str(tmp_path / "cache")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    fingerprint = lambda name: open_source(str(tmp_path / name), cache_dir=cache).fingerprint()
    a = fingerprint("a.txt")
    (memo_a,) = (tmp_path / "cache" / "fingerprints").iterdir()
    b = fingerprint("b.txt")
    (memo_b,) = {*(tmp_path / "cache" / "fingerprints").iterdir()} - {memo_a}
    memo_b.write_bytes(memo_a.read_bytes())
    assert (fingerprint("a.txt"), fingerprint("b.txt")) == (a, b)


def test_source_and_parts_are_picklable(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo")
    source = pickle.loads(pickle.dumps(open_source(str(tmp_path / "a.txt"))))
    assert list(source.documents(source.parts[0])) == ["one", "two"]


def test_wet_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "warcio", None)
    (tmp_path / "a.wet.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r'a\.wet\.gz is WET: warcio is not installed: pip install -e "\.\[beam\]"'):
        open_source(str(tmp_path / "a.wet.gz"))
