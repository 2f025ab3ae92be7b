"""Tests text files: what is read, what is skipped and counted, and the message for every kind of broken file."""

from __future__ import annotations

import gzip
import hashlib
import os

import pytest
from reading import texts

from charlm.data import files
from charlm.data.sources import open_source


def test_plain_text_reads_every_line_that_is_not_blank(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\n\r\n  zwei ä \n   \nthree".encode())
    found, source = texts(tmp_path / "a.txt")
    assert found == ["one", "zwei ä", "three"]
    assert not source.skipped


def test_unknown_extension_is_plain_text(tmp_path):
    (tmp_path / "notes").write_text("one\ntwo\n")
    assert texts(tmp_path / "notes")[0] == ["one", "two"]


def test_glob_is_sorted_and_mixes_kinds(tmp_path):
    (tmp_path / "b.txt").write_text("from b\n")
    (tmp_path / "a.jsonl").write_text('{"text": "from a"}\n')
    found, source = texts(tmp_path / "*")
    assert found == ["from a", "from b"]
    assert [part.name for part in source.parts] == ["a.jsonl", "b.txt"]


def test_parts_of_equal_file_names_keep_distinct_names(tmp_path):
    for folder in "xy":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(folder)
    found, source = texts(tmp_path / "*" / "a.txt")
    assert found == ["x", "y"]
    assert len({part.name for part in source.parts}) == 2


@pytest.mark.parametrize("part_bytes", [1, 3, 7, 64, 1000])
def test_byte_ranges_yield_every_line_once(tmp_path, monkeypatch, part_bytes):
    lines = [f"line {i} " + "é" * (i % 13) for i in range(60)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(files, "PART_BYTES", part_bytes)
    found, source = texts(tmp_path / "a.txt")
    assert found == [line.strip() for line in lines]
    assert len(source.parts) == -(-os.path.getsize(tmp_path / "a.txt") // part_bytes)


def test_invalid_utf8_lines_are_skipped_and_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\nbad \xff\nthree\n")
    found, source = texts(tmp_path / "a.txt")
    assert found == ["one", "two", "three"]
    assert source.skipped == {"invalid UTF-8": 1}


@pytest.mark.parametrize("end", [b"\nlast\n", b""])
def test_ten_megabyte_line_is_skipped_and_counted(tmp_path, end):
    (tmp_path / "a.txt").write_bytes(b"first\n" + b"x " * 5_000_000 + end)
    found, source = texts(tmp_path / "a.txt")
    assert found == ["first"] + ["last"] * bool(end)
    assert source.skipped == {"longer than 1,000,000 characters": 1}


def test_longest_line_is_bounded_in_characters_not_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("ab\n" + "é" * 1_000_000 + "\n" + "a" * 1_000_001 + "\n")
    found, source = texts(tmp_path / "a.txt")
    assert [len(text) for text in found] == [2, 1_000_000]
    assert source.skipped == {"longer than 1,000,000 characters": 1}


def test_reading_a_long_line_needs_bounded_memory(tmp_path):
    import tracemalloc

    (tmp_path / "a.txt").write_bytes(b"first\n" + b"x" * 60_000_000 + b"\nlast\n")
    tracemalloc.start()
    found, _ = texts(tmp_path / "a.txt")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == ["first", "last"]
    assert peak < 20e6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04\x00\x00", r"a\.txt: file looks binary \(NUL byte in its first 8192 bytes\); expected UTF-8 text"),
        ("déjà\nété\nplain\n".encode("latin-1"), r"binary or is not UTF-8 \(2 of its first 3 lines are invalid"),
        (b"\xff\xfe\xfd" * 9000, "file looks binary or is not UTF-8"),
    ],
)
def test_binary_files_are_refused(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_source(str(tmp_path / "a.txt"))


@pytest.mark.parametrize("text", ["é" * 20_000, "日本語 " * 9000])
def test_a_long_first_line_does_not_look_binary(tmp_path, text):
    (tmp_path / "a.txt").write_text("a" + text)  # the examined head ends inside a character
    assert texts(tmp_path / "a.txt")[0] == [("a" + text).strip()]


def test_gzip_files_read_as_their_plain_ones(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "three"}\n'))
    assert texts(tmp_path / "*.gz")[0] == ["one", "two", "three"]


def test_truncated_gzip_names_the_file(tmp_path):
    data = gzip.compress(b"".join(hashlib.sha256(b"%d" % i).hexdigest().encode() + b"\n" for i in range(4000)))
    (tmp_path / "a.txt.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"a\.txt\.gz: truncated or damaged gzip file"):
        texts(tmp_path / "a.txt.gz")


def test_what_is_no_gzip_names_the_file(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(b"plain text")
    with pytest.raises(ValueError, match=r"a\.txt\.gz: truncated or damaged gzip file"):
        open_source(str(tmp_path / "a.txt.gz"))


def test_jsonl_skips_and_counts_by_reason(tmp_path):
    lines = ['{"text": "one"}', "", "{broken", '{"body": "x"}', '{"text": 5}', '["text"]', '{"text": "\\ud800"}']
    lines += ['{"text": " "}', '{"text": "two\\nlines"}', "[" * 100_000]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found, source = texts(tmp_path / "a.jsonl")
    assert found == ["one", "two\nlines"]
    assert source.skipped == {
        "invalid JSON": 2,
        "no key 'text'": 1,
        "value of 'text' is not a string": 1,
        "not a JSON object": 1,
        "invalid UTF-8": 1,
    }


def test_jsonl_reads_the_named_key(tmp_path):
    (tmp_path / "a.json").write_text('{"text": "no", "body": "yes"}\n')
    assert texts(tmp_path / "a.json", text_key="body")[0] == ["yes"]


def test_jsonl_without_a_single_good_line_fails_with_the_first_reason(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"body": "x"}\n{broken\n')
    with pytest.raises(ValueError, match=r"a\.jsonl:2: no key 'text' \(and no other line can be read"):
        texts(tmp_path / "a.jsonl")


def test_parquet_reads_the_column_by_row_groups(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.setattr(files, "PART_BYTES", 1)
    values = [f"row {i}" for i in range(10)] + [None, b"bad \xff"]
    table = pa.table({"body": pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    found, source = texts(tmp_path / "a.parquet", text_key="body")
    assert found == [f"row {i}" for i in range(10)]
    assert source.skipped == {"no text": 1, "invalid UTF-8": 1}
    assert [(part.start, part.stop) for part in source.parts] == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_parquet_string_types(tmp_path, kind):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": pa.array(["é", "b"], getattr(pa, kind)())}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet")[0] == ["é", "b"]


def test_parquet_errors_name_file_and_columns(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"texts": ["x"], "label": [1]}), path)
    with pytest.raises(
        ValueError, match=r"no column 'text' \(data.text_key\); columns: texts, label; did you mean texts"
    ):
        open_source(path)
    with pytest.raises(ValueError, match=r"column 'label' \(data.text_key\) holds int64; expected strings"):
        open_source(path, text_key="label")
    (tmp_path / "b.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"b\.parquet: not a readable Parquet file"):
        open_source(str(tmp_path / "b.parquet"))
