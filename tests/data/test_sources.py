"""Raw text sources: what is read, what is skipped and counted, and which message every broken input gives."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle

import pytest

from charlm.data import sources
from charlm.data.sources import open_source


def texts(spec, **kwargs):
    source = open_source(str(spec), **kwargs)
    return [text for part in source.parts for text in source.documents(part)], source


@pytest.fixture(scope="module")
def builtin():
    return sources._builtin_documents()


# --- plain text


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
    monkeypatch.setattr(sources, "PART_BYTES", part_bytes)
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


# --- gzip


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


# --- JSON lines


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


# --- Parquet


def test_parquet_reads_the_column_by_row_groups(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.setattr(sources, "PART_BYTES", 1)
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
        ValueError, match=r"no column 'text' \(data.text_key\); columns: texts, label; nearest: 'texts'"
    ):
        open_source(path)
    with pytest.raises(ValueError, match=r"column 'label' \(data.text_key\) holds int64; expected strings"):
        open_source(path, text_key="label")
    (tmp_path / "b.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ValueError, match=r"b\.parquet: not a readable Parquet file"):
        open_source(str(tmp_path / "b.parquet"))


# --- TFDS


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """A data set of ten texts, prepared as array_record in a folder of its own."""
    tfds = pytest.importorskip("tensorflow_datasets")
    import numpy as np

    class TinyText(tfds.core.GeneratorBasedBuilder):
        """Ten short texts."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"text": tfds.features.Text(), "label": tfds.features.Scalar(np.int32)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(10):
                yield i, {"text": f"text número {i}", "label": i}

    folder = tmp_path_factory.mktemp("tfds")
    TinyText(data_dir=str(folder), file_format="array_record").download_and_prepare()
    return folder


def test_tfds_reads_prepared_texts(tfds_dir, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_dir))
    monkeypatch.setattr(sources, "PART_EXAMPLES", 4)
    expected = {f"text número {i}" for i in range(10)}
    found, source = texts("tfds:tiny_text:train")
    assert set(found) == expected and len(found) == 10
    assert len(source.parts) == 3
    assert texts("tfds:tiny_text")[0] == texts("tfds:tiny_text:1.0.0:train")[0] == found
    assert texts("tfds:tiny_text:train[2:5]")[0] == found[2:5]
    assert source.fingerprint() != open_source("tfds:tiny_text:train[2:5]").fingerprint()
    assert "".join(texts("tfds:tiny_text", split="heldout", heldout_fraction=0.4)[0])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tfds:tiny_text:tain", r"has no split 'tain'; splits: train; nearest: 'train'"),
        ("tfds:tiny_text:train[:", r"bad split 'train\[:'"),
        ("tfds:tiny_text:9.9.9:train", r"is not prepared in .*\(\$TFDS_DATA_DIR\); nothing is downloaded"),
        ("tfds:imdb_reviews", r"prepare it with: tfds build imdb_reviews --file_format=array_record --data_dir="),
        ("tfds:", r'expected "tfds:NAME\[/CONFIG\]\[:VERSION\]\[:SPLIT\]"'),
    ],
)
def test_tfds_errors(tfds_dir, monkeypatch, spec, message):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_dir))
    with pytest.raises(ValueError, match=message):
        open_source(spec)
    assert not (tfds_dir / "imdb_reviews").exists()


def test_tfds_missing_feature_and_tfrecord(tfds_dir, tmp_path, monkeypatch):
    import shutil

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    shutil.copytree(tfds_dir / "tiny_text", tmp_path / "tiny_text")
    with pytest.raises(ValueError, match=r"has no feature 'body' \(data.text_key\); features: .*text"):
        open_source("tfds:tiny_text", text_key="body")
    info = tmp_path / "tiny_text" / "1.0.0" / "dataset_info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"fileFormat": "tfrecord"}))
    with pytest.raises(ValueError, match=r"as tfrecord, which only TensorFlow can read; prepare it with: tfds build"):
        open_source("tfds:tiny_text")


# --- specs, splits, fingerprints


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "buildin",
            r"""data\.heldout: 'buildin' does not exist .*expected "builtin", an existing .*nearest: 'builtin'""",
        ),
        ("tdfs:imdb", r"nearest: 'tfds:'"),
        ("corpos.txt", r"'corpos.txt' does not exist \(current directory: .*nearest: 'corpus.txt'"),
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
    with pytest.raises(ValueError, match="split='held': expected one of train, heldout, all; nearest: 'heldout'"):
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
        patch.setattr(sources.hashlib, "file_digest", None)  # reading again would fail
        assert fingerprint() == first
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert fingerprint() != first


def test_source_and_parts_are_picklable(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo")
    source = pickle.loads(pickle.dumps(open_source(str(tmp_path / "a.txt"))))
    assert list(source.documents(source.parts[0])) == ["one", "two"]


# --- built-in corpus


def test_builtin_is_english_of_a_useful_size(builtin):
    words = {split: sum(len(text.split()) for text in found) for split, found in builtin.items()}
    assert words["train"] > 150_000
    assert 0.01 < words["heldout"] / words["train"] < 0.2
    text = " ".join(builtin["train"]).lower()
    assert text.count(" the ") > 5000
    assert ">>>" not in {line[:3] for found in builtin.values() for line in "\n".join(found).splitlines()}


def test_builtin_splits_share_no_paragraph(builtin):
    paragraphs = [p.casefold() for found in builtin.values() for text in found for p in text.split("\n\n")]
    assert len(paragraphs) == len(set(paragraphs))


def test_builtin_splits_by_module_and_parts_match_splits(builtin):
    train, heldout, everything = (texts("builtin", split=split)[0] for split in ("train", "heldout", "all"))
    assert (train, heldout) == (builtin["train"], builtin["heldout"])
    assert everything == train + heldout
    owners = {owner for owner, _ in sources._builtin_texts()}
    share = sum(sources._is_heldout(owner.encode(), sources.BUILTIN_HELDOUT) for owner in owners) / len(owners)
    assert 0.02 < share < 0.1


def test_builtin_without_topics_uses_docstrings_alone(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pydoc_data.topics", None)
    assert sources._topics() == {}
    owner, text = next(sources._builtin_texts())
    assert not owner.startswith("topics/") and text


def test_paragraphs_are_cleaned():
    text = """Title of it
    ===========

    Two lines
    joined.

    Example:
    >>> 1 + 1
    2

    | a | b |
    +---+---+
    """
    assert list(sources._paragraphs(text)) == ["Title of it", "Two lines joined.", "Example:"]
