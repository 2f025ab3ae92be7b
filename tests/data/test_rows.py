"""Tests lines and rows: line ends, kinds of files, and the message for every kind of broken file."""

from __future__ import annotations

import csv
import gzip
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.data.examples import Skipped
from charlm.data.lines import numbered_lines, whole_text
from charlm.data.rows import read_rows

HAZARDS = "a\u2028b\u0085c\u000bd\u000ce\u001cf\u00a0g\u200bh\u2029"


def rows(path, columns, **kwargs):
    return [row.cells for row in read_rows(str(path), columns, **kwargs)]


def write(path, data):
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_only_lf_and_crlf_end_lines(tmp_path, name):
    path = write(tmp_path / name, f"\ufeff{HAZARDS}\r\n\n\ufeffx\r\ry\nlast")
    assert list(numbered_lines(str(path))) == [(1, HAZARDS), (2, ""), (3, "\ufeffx\r\ry"), (4, "last")]
    assert whole_text(str(path)) == f"{HAZARDS}\r\n\n\ufeffx\r\ry\nlast"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_every_line_comes_back(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "a"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"{line}\n" for line in lines).encode())
    if "\0" not in "".join(lines):
        assert [line for _, line in numbered_lines(str(path))] == [line.removesuffix("\r") for line in lines]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\tb\nc\td\ne\tf\ng\tcaf\xe9 \tx\n", r"a\.tsv:4: invalid UTF-8 \(byte 0xe9 at 5\); expected UTF-8 text"),
        (b"a\0b\n", r"a\.tsv: file looks binary"),
        (gzip.compress(b"abc", mtime=0), r"a\.tsv: file looks binary"),
        (b"\xe9\n\xe9\n", r"a\.tsv: file looks binary or is not UTF-8"),
    ],
)
def test_files_that_are_not_text(tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        rows(write(tmp_path / "a.tsv", data), [0])


def test_missing_and_damaged_files(tmp_path):
    with pytest.raises(ValueError, match=r"b\.tsv: cannot be read: No such file"):
        rows(tmp_path / "b.tsv", [0])
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"a\tb\n" * 9999)[:-20])
    with pytest.raises(ValueError, match=r"a\.tsv\.gz: truncated or damaged gzip"):
        rows(tmp_path / "a.tsv.gz", [0])
    (tmp_path / "c.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match=r"c\.parquet: not a readable Parquet file"):
        rows(tmp_path / "c.parquet", ["a"])


def test_tsv_has_no_quotes(tmp_path):
    path = write(tmp_path / "a.tsv", 'id\ttext \tlabel\r\n1\the said "yes\t0\r\n2\t"no" he "\t1')
    assert rows(path, ["text", "label"]) == [('he said "yes', "0"), ('"no" he "', "1")]
    assert [row.place for row in read_rows(str(path), ["id"])] == [f"{path}:2", f"{path}:3"]
    assert [row.name for row in read_rows(str(path), ["id"])] == ["a.tsv:2", "a.tsv:3"]


def test_tsv_columns_go_by_name_or_number(tmp_path):
    path = write(tmp_path / "a.tsv", "x\ty\tz\n1\t2\t3\n")
    assert rows(path, [2, 0]) == [("z", "x"), ("3", "1")]
    assert rows(path, ["-1", "0"]) == [("z", "x"), ("3", "1")]
    assert rows(path, [-1, 1], header=True) == [("3", "2")]
    assert rows(path, ["y", 0]) == [("2", "1")]
    named = write(tmp_path / "b.tsv", "2\t1\t0\na\tb\tc\n")
    assert rows(named, ["2"], header=True) == [("a",)], "a name of the header comes before a number"
    with pytest.raises(ValueError, match=r"a\.tsv: delimiter='\\\\t': expected one character"):
        rows(path, [0], delimiter="\\t")
    with pytest.raises(ValueError, match=r"a\.tsv: column 'x' goes by name, but the file has no header"):
        rows(path, ["x"], header=False)


def test_blank_lines_are_counted_and_rows_of_empty_cells_are_rows(tmp_path):
    skipped = Skipped()
    path = write(tmp_path / "a.tsv", "a\tb\n\n  \n\t\nc\td\n\n")
    assert rows(path, [0, 1], skipped=skipped) == [("a", "b"), ("", ""), ("c", "d")]
    assert skipped.report() == [f"skipped 3 x blank line: {path}:2, {path}:3, {path}:6"]


def test_csv_has_quotes_and_cells_of_several_lines(tmp_path):
    text = f'text,label\r\n"a ""b"", c",x\r\n"two\nlines {HAZARDS}",y\r\n\r\nlast,z'
    skipped = Skipped()
    path = write(tmp_path / "a.csv.gz", text)
    found = list(read_rows(str(path), ["text", "label"], skipped=skipped))
    assert [row.cells for row in found] == [('a "b", c', "x"), (f"two\nlines {HAZARDS}", "y"), ("last", "z")]
    assert [row.name for row in found] == ["a.csv.gz:2", "a.csv.gz:3", "a.csv.gz:6"]
    assert skipped.skipped == {"blank line": 1}
    assert rows(write(tmp_path / "b.csv", "a;b\n"), [1], delimiter=";") == [("b",)]
    assert next(read_rows(str(tmp_path / "b.csv"), [0])).name == "b.csv:1"
    assert rows(write(tmp_path / "B.CSV", '"a,",b\n'), [0]) == [("a,",)]
    assert rows(write(tmp_path / "c.csv", '"a,b\n'), [0], quoting=False) == [('"a',)]
    assert rows(write(tmp_path / "d.tsv", '"a\tb"\tc\n'), [0], quoting=True) == [("a\tb",)]
    limit = csv.field_size_limit()
    assert rows(write(tmp_path / "e.csv", "x" * 200_000 + ",y\n"), [1]) == [("y",)]
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (
            "text\tlabel\na\tb\n",
            ["texts"],
            r":1: no column 'texts' in the header; columns: 'text', 'label'; did you mean text\?$",
        ),
        ("a\ta\n1\t2\n", ["a"], r":1: column 'a' occurs 2 times in the header"),
        ("a\tb\n1\t2\n3\n", ["b"], r":3: row has 1 columns; expected at least 2 \(column 'b'\)"),
        ("a\tb\n1\t2\t3\n", ["b"], r":2: row has 3 columns; expected 2 as in the header"),
        ("a\tb\nc\n", [1], r":2: row has 1 columns; expected at least 2 \(column 1\)"),
        ("a\tb\nc\n", [-2], r":2: row has 1 columns; expected at least 2 \(column -2\)"),
        ("", ["a"], r"file is empty; expected a header with 'a'"),
    ],
)
def test_tsv_errors(tmp_path, text, columns, message):
    with pytest.raises(ValueError, match=r"a\.tsv(: )?" + message):
        rows(write(tmp_path / "a.tsv", text), columns)


def test_empty_cells_after_the_header_are_no_error(tmp_path):
    assert rows(write(tmp_path / "a.tsv", "a\tb\n1\t2\t\t\n"), ["b"]) == [("2",)]


def test_csv_open_quote_does_not_swallow_the_file(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\na,b\n"open,c\nd,e\n')
    with pytest.raises(ValueError, match=r"a\.csv:3: not a CSV row .*expected balanced quotes"):
        rows(path, ["text"])


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("a.jsonl", '{"t": "x"}\n\n{"t": "y"}', [":1", ":3"]),
        ("a.NDJSON", '{"t": "x"}\n{"t": "y"}', [":1", ":2"]),
        ("a.json.gz", '\ufeff{"t": "x"}\r\n{"t": "y"}\r\n', [":1", ":2"]),
        ("a.json", '[{"t": "x"},\n {"t": "y"}]', ["[0]", "[1]"]),
        ("a.json", '{"k": {"t": "x"}, "l": {"t": "y"}}', ["['k']", "['l']"]),
        ("a.json", '{\n "k": {"t": "x"},\n "l": {"t": "y"}\n}\n', ["['k']", "['l']"]),
    ],
)
def test_json_layouts(tmp_path, name, text, places):
    path = write(tmp_path / name, text)
    found = list(read_rows(str(path), ["t"]))
    assert [row.cells for row in found] == [("x",), ("y",)]
    assert [row.place for row in found] == [f"{path}{place}" for place in places]
    assert [row.name for row in found] == [f"{name}{place}" for place in places]


def test_json_line_alone(tmp_path):
    skipped = Skipped()
    path = write(tmp_path / "c.jsonl", '\n{"t": "x"}\n \n')
    assert [row.place for row in read_rows(str(path), ["t"], skipped=skipped)] == [f"{path}:2"]
    assert skipped.report() == [f"skipped 2 x blank line: {path}:1, {path}:3"]
    assert rows(write(tmp_path / "a.jsonl", '{"t": "x", "n": 3}\n'), ["n", "t"]) == [(3, "x")]
    assert rows(write(tmp_path / "b.jsonl", ""), ["t"]) == []


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ('{"text": 1}\n{"txt": 2}\n', ["text"], r"a\.json:2: no key 'text'; keys: 'txt'; did you mean txt"),
        ('{"text": 1}\n{"text": \n', ["text"], r"a\.json:2: invalid JSON \(Expecting value"),
        ('{"text": \n{"text": 1}\n', ["text"], r"a\.json: invalid JSON"),
        ('[{"text": 1}, 3]', ["text"], r"a\.json\[1\]: not a JSON object; expected one with 'text', got a number"),
        ('"x"', ["text"], r"a\.json:1: not a JSON object; expected one with 'text', got a string"),
        ("[[]]", ["text"], r"a\.json\[0\]: not a JSON object; expected one with 'text', got an array$"),
        ("[true]", ["text"], r"a\.json\[0\]: not a JSON object; expected one with 'text', got true or false$"),
        ("[null]", ["text"], r"a\.json\[0\]: not a JSON object; expected one with 'text', got null$"),
        ('{"text": 1}', [0], r"a\.json: column 0 is a number; expected a name"),
        ("[" * 100_000, ["text"], r"a\.json: invalid JSON"),
    ],
)
def test_json_errors(tmp_path, text, columns, message):
    with pytest.raises(ValueError, match=message) as caught:
        rows(write(tmp_path / "a.json", text), columns)
    assert "\n" not in str(caught.value)


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(
        {"t": [f"text {i}" for i in range(9)], "n": list(range(9)), "many": [[i, 0] for i in range(9)]}
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    found = list(read_rows(str(tmp_path / "a.parquet"), ["n", "t", "many", "t"]))
    assert [row.cells for row in found] == [(i, f"text {i}", [i, 0], f"text {i}") for i in range(9)]
    assert [row.name for row in found] == [f"a.parquet[{i}]" for i in range(9)]
    with pytest.raises(ValueError, match=r"a\.parquet: no column 'm'; columns: 't', 'n', 'many'"):
        rows(tmp_path / "a.parquet", ["m"])


def test_bytes_of_expanded_dictionaries():
    pa = pytest.importorskip("pyarrow")
    from charlm.data.files import expanded_bytes

    words = pa.array(["ab", "", None, "abcde"])
    indices = pa.array([3, 0, 3, None, 2, 1], pa.int8())
    spelled = pa.DictionaryArray.from_arrays(indices, words)
    assert expanded_bytes(spelled) == indices.nbytes + 5 + 2 + 5
    assert expanded_bytes(pa.DictionaryArray.from_arrays(indices, words.cast("large_binary"))) == indices.nbytes + 12
    numbers = pa.DictionaryArray.from_arrays(indices, pa.array([1, 2, 3, 4], pa.int64()))
    assert expanded_bytes(numbers) == indices.nbytes + 6 * 8
    lists = pa.ListArray.from_arrays([0, 2, 6], spelled)
    assert expanded_bytes(lists) == 2 * 8 + expanded_bytes(spelled)
    both = pa.StructArray.from_arrays([spelled, indices], ["x", "y"])
    assert expanded_bytes(both) == expanded_bytes(spelled) + indices.nbytes
    assert expanded_bytes(words) == words.nbytes


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """Six texts with a class, an unpublished one among them, prepared as array_record."""
    tfds = pytest.importorskip("tensorflow_datasets")
    import numpy as np

    class TinyClasses(tfds.core.GeneratorBasedBuilder):
        """Six short texts."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "sentence": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["bad", "good"]),
                "tags": tfds.features.Sequence(tfds.features.ClassLabel(names=["x", "y"])),
                "idx": np.int32,
                "score": np.float64,
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(6):
                label = -1 if i == 3 else i % 2
                yield i, {"sentence": f"número {i}", "label": label, "tags": [0, 1], "idx": i, "score": i / 4}

    folder = tmp_path_factory.mktemp("tfds_rows")
    TinyClasses(data_dir=str(folder), file_format="array_record").download_and_prepare()
    return folder


def test_tfds_gives_class_names(tfds_dir, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_dir))
    spec = "tfds:tiny_classes:train"
    found = {
        row.cells[2]: (row.cells, row.place) for row in read_rows(spec, ["sentence", "label", "idx", "score", "tags"])
    }
    for i in range(6):
        assert found[i][0] == (f"número {i}", None if i == 3 else ["bad", "good"][i % 2], i, i / 4, ["x", "y"])
        assert re.fullmatch(rf"{spec}\[\d\]", found[i][1])
    assert json.dumps([cells for cells, _ in found.values()]), "plain Python values"
    assert len(rows("tfds:tiny_classes:train[:2]", ["idx"])) == 2
    with pytest.raises(ValueError, match=r"no feature 'lable'; features: .*did you mean label"):
        rows(spec, ["sentence", "lable"])
    with pytest.raises(ValueError, match=r"^data: 'tfds:tiny_classes:train' has no feature 'text'"):
        rows(spec, ["text"])
    with pytest.raises(ValueError, match=r"column 0 is a number; expected a name"):
        rows(spec, [0])


def test_numbered_sentences_have_their_class_beside_the_number(tmp_path):
    text = "# sent_enum = 1\tpositive\n#que\tlang2\nbien\tlang2\n\n# sent_enum = 2\tneutral\nok\tlang1\n"
    path = write(tmp_path / "sa.conll", text)
    assert rows(path, ["sentence", "label"]) == [("#que bien", "positive"), ("ok", "neutral")]
    assert [row.place for row in read_rows(str(path), ["id"])] == [f"{path}:2", f"{path}:6"]
    path = write(tmp_path / "test.conll", text.replace("\tpositive", "").replace("\tneutral", ""))
    assert rows(path, ["sentence"]) == [("#que bien",), ("ok",)]
    with pytest.raises(ValueError, match=r"test\.conll:2: no class beside the number of the sentence"):
        rows(path, ["sentence", "label"])
    with pytest.raises(ValueError, match=r"no column 'text' in numbered sentences; columns: 'sentence'"):
        rows(path, ["text"])
