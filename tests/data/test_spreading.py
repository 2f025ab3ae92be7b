"""Tests that corpora prepared by workers equal those prepared here; the workers stand in for another machine's."""

from __future__ import annotations

import filecmp
import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from reading import never, quiet

from charlm.config import load_config_file
from charlm.data import digests, encode, vocab
from charlm.data.corpus import prepare
from charlm.data.sources import open_source
from charlm.data.spreading import current, working_on
from charlm.families.lookup import corpora_of

ROOT = Path(__file__).resolve().parents[2]


class Elsewhere:
    """Does all work twice and in reverse, on copies, as other machines might; keeps the titles of what it did."""

    def __init__(self):
        self.done = []

    def run(self, title, work, items):
        assert b"a.txt" not in pickle.dumps(work)  # it would grow with the number of files
        self.done += [title] * len(items)
        for item in [*reversed(items), *items]:
            pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(item)))


def kept_files(folder):
    """All files of a cache but the memos of digests, which depend on where the cache is."""
    found = {path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file()}
    return sorted(path for path in found if path.parts[0] != "fingerprints")


def check_equal(first, second):
    assert kept_files(first) == kept_files(second)
    assert filecmp.cmpfiles(first, second, kept_files(first), shallow=False)[1:] == ([], [])


def test_workers_write_what_this_machine_writes(config, documents, tmp_path, monkeypatch):
    with gzip.open(tmp_path / "text" / "d.jsonl.gz", "wt") as file:
        file.write('{"text": "Some text.\\n\\nMore of it."}\nnot JSON\n' * 20)
    config.data.train = (str(tmp_path / "text" / "*.txt"), str(tmp_path / "text" / "*.gz"))
    here = prepare(config, quiet)
    first, config.data.cache_dir = config.data.cache_dir, str(tmp_path / "other")
    workers = Elsewhere()
    for module, name in ((encode, "_encode_here"), (encode, "_encode_spread"), (vocab, "count_chars")):
        monkeypatch.setattr(module, name, never)
    with working_on(workers):
        there = prepare(config, quiet)
    assert current() is None
    assert {title: workers.done.count(title) for title in workers.done} == {"hash": 4, "characters": 4, "encode": 8}
    assert [c.stats for c in there.train + there.heldout] == [c.stats for c in here.train + here.heldout]
    assert there.train[1].stats.skipped["invalid JSON"] == 20
    check_equal(first, config.data.cache_dir)
    monkeypatch.setattr(encode, "_encode_part", never)
    assert prepare(config, never).train == there.train  # without workers, what they wrote is found


def test_families_that_read_text_are_prepared_by_workers(config, documents, tmp_path):
    run = load_config_file(f"{ROOT}/configs/charbert_base.py:tiny")
    run.data.train, run.data.encode_processes, run.text.splitter = config.data.train, 1, "rules"
    for name, workers in (("here", None), ("there", Elsewhere())):
        run.data.cache_dir = str(tmp_path / name)
        if workers is None:
            corpora_of(run)
            continue
        with working_on(workers):
            corpora_of(run)
        assert workers.done.count("encode") == 6
    check_equal(tmp_path / "here", tmp_path / "there")


def test_only_missing_work_is_handed_out(config, documents):
    with working_on(Elsewhere()):
        first = prepare(config, quiet)
    Path(first.train[0].paths[1]).unlink()
    workers = Elsewhere()
    with working_on(workers):
        assert prepare(config, quiet).train == first.train
    assert workers.done == ["encode"]


def test_progress_counts_the_shards_that_appear(config, documents, monkeypatch):
    monkeypatch.setattr(encode, "LOG_SECONDS", 0.001)
    seen = []
    with working_on(Elsewhere()):
        data = prepare(config, lambda *progress: seen.append(progress))
    first = [progress[:3] for progress in seen[: [done for done, *_ in seen].index(3) + 1]]
    assert first == sorted(first)
    assert first[-1] == (3, 3, data.train[0].stats.words)


def test_counts_of_characters_are_counted_again_if_they_are_damaged(config, documents, tmp_path):
    class Damaging(Elsewhere):
        def run(self, title, work, items):
            super().run(title, work, items)
            if title == "characters" and len(items) == 3:
                Path(items[0][0]).write_text("{")

    with working_on(Damaging()), pytest.raises(ValueError, match=r"0-0\.json vanished while characters were counted"):
        prepare(config, quiet)
    workers = Elsewhere()
    with working_on(workers):
        assert prepare(config, quiet).vocab.size > 20
    assert workers.done.count("characters") == 1
    assert not list(Path(config.data.cache_dir).glob("*.counts"))


def test_a_source_without_its_parts_reads_the_same(documents, tmp_path):
    source = open_source(str(tmp_path / "text" / "*.txt"))
    small = source.without_parts()
    assert list(small.documents(source.parts[0])) == list(source.documents(source.parts[0]))
    assert (small.parts, len(source.parts)) == ([], 3)


def test_known_digests_are_not_read_again(documents, tmp_path, monkeypatch):
    path = str(tmp_path / "text" / "a.txt")
    assert digests.known_sha256(path, str(tmp_path)) is None
    first = digests.file_sha256(path, str(tmp_path))
    monkeypatch.setattr(digests.hashlib, "file_digest", never)
    assert digests.known_sha256(path, str(tmp_path)) == first


def test_help_of_the_beam_command_needs_neither_beam_nor_jax(tmp_path):
    for name in ("jax", "apache_beam"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", "charlm.data.beam", "--help"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "--runner" in result.stdout
