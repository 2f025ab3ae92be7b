"""Tests that files appear completely or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import charlm
from charlm.core import durable

ROOT = Path(charlm.__file__).parent
BARE_WRITE = re.compile(r"\.write_(?:text|bytes)\(|os\.re(?:place|name)\(|\bopen\((?!temporary)[^)]*[\"']w[bt]?[\"']")


@pytest.fixture
def calls(monkeypatch):
    """What was brought to the disk and what was renamed, in order: the name, and how long the file was."""
    made = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        made.append(("sync", name, os.fstat(descriptor).st_size))
        fsync(descriptor)

    def renamed(source, target):
        made.append(("rename", os.path.basename(source), os.path.basename(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    return made


def test_content_is_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, calls):
    durable.write_text(tmp_path / "a.txt", "naïve\r\n")
    assert (tmp_path / "a.txt").read_bytes() == "naïve\r\n".encode()
    (_, temporary, size), (what, source, target), (_, folder, _) = calls
    assert (what, size) == ("rename", 8)
    assert (source, target, folder) == (temporary, "a.txt", tmp_path.name)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_is_there_with_all_its_files_or_not_at_all(tmp_path, calls):
    with durable.replacing(tmp_path / "made") as temporary:
        os.makedirs(f"{temporary}/inner")
        Path(temporary, "a").write_text("1")
        Path(temporary, "inner", "b").write_text("22")
    kinds = [kind for kind, *_ in calls]
    at = kinds.index("rename")
    assert {("sync", "a", 1), ("sync", "b", 2)} <= set(calls[:at])
    assert (tmp_path / "made" / "inner" / "b").read_text() == "22"

    def fail(folder):
        os.makedirs(f"{folder}/inner")
        raise RuntimeError

    with pytest.raises(RuntimeError), durable.replacing(tmp_path / "other") as temporary:
        fail(temporary)
    assert os.listdir(tmp_path) == ["made"]


def test_a_failure_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    durable.write_json(tmp_path / "a.json", {"a": 1})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        durable.write_json(tmp_path / "a.json", {"a": 2})
    assert (tmp_path / "a.json").read_text() == '{\n  "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["a.json"]


def test_nothing_writes_small_files_in_another_way():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.name != "durable.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BARE_WRITE.search(line)
    ]
    assert not found
