"""Tests labelled texts, ranked passages and tables of predictions, with the defects of real files."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.data.examples import Skipped, TextExample
from charlm.data.text_tables import read_passages, read_texts, write_tsv_predictions


def write(path, text):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return str(path)


@pytest.mark.parametrize("name", ["mrpc.tsv", "mrpc.tsv.gz"])
def test_pairs_as_in_mrpc(tmp_path, name):
    text = (
        "\ufeffQuality\t#1 ID\t#1 String\t#2 String\r\n"
        '1\t7\tHe said " no .\tHe said no\u2028.\r\n'
        "0\t8\t Spaces stay . \tJa\u0085.\r\n"
    )
    path = write(tmp_path / name, text)
    assert read_texts(path, text="#1 String", pair="#2 String", label="Quality", id="#1 ID") == [
        TextExample("7", f"{path}:2", 'He said " no .', "He said no\u2028.", "1"),
        TextExample("8", f"{path}:3", " Spaces stay . ", "Ja\u0085.", "0"),
    ]


def test_columns_by_number_and_no_label(tmp_path):
    path = write(tmp_path / "cola.tsv", "gj04\t1\t\tSailors rode .\ngj04\t0\t*\tRode sailors")
    assert read_texts(path, text=3, label=1) == [
        TextExample("cola.tsv:1", f"{path}:1", "Sailors rode .", None, "1"),
        TextExample("cola.tsv:2", f"{path}:2", "Rode sailors", None, "0"),
    ]
    assert [example.label for example in read_texts(path, text=3)] == [None, None]


def test_numbers_and_groups(tmp_path):
    path = write(tmp_path / "stsb.tsv", "a\tb\tscore\tfold\nx\ty\t4.25\t 0 \nx\tz\t1e-1\t9\n")
    found = read_texts(path, text="a", pair="b", label="score", group="fold", labels_are_numbers=True)
    assert [(example.label, example.group) for example in found] == [(4.25, "0"), (0.1, "9")]


@pytest.mark.parametrize("cell", ["", "high", "nan", "inf", "1,5"])
def test_not_a_number(tmp_path, cell):
    path = write(tmp_path / "a.tsv", f"text\tscore\nx\t1\ny\t{cell}\n")
    message = r"a\.tsv:3: column 'score' has (no label|'.*'; expected a number)"
    with pytest.raises(ValueError, match=message):
        read_texts(path, text="text", label="score", labels_are_numbers=True)


def test_empty_texts_are_skipped_and_counted(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb\t1\n \u00a0\tb\t1\na\t\t0\n\nc\td\t0\n")
    skipped = Skipped()
    found = read_texts(path, text=0, pair=1, label=2, skipped=skipped)
    assert [example.text for example in found] == ["a", "c"]
    assert skipped.report() == [
        f"skipped 1 x empty text: {path}:2",
        f"skipped 1 x empty second text: {path}:3",
        f"skipped 1 x blank line: {path}:4",
    ]
    assert skipped.skipped.total() == 3


def test_labels_of_a_given_list(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\nx\tneutral\ny\tentailmant \n")
    expected = r"expected one of entailment, neutral; did you mean entailment"
    with pytest.raises(ValueError, match=r"a\.tsv:3: column 'label' has label 'entailmant'; " + expected):
        read_texts(path, text="text", label="label", labels=["entailment", "neutral"])
    assert [example.label for example in read_texts(path, text="text", label="label")] == ["neutral", "entailmant"]
    with pytest.raises(
        ValueError, match=r"a\.tsv:2: column 'label' has label 'neutral'; expected one of (l\d+, ){20}\.\.\."
    ):
        read_texts(path, text="text", label="label", labels=[f"l{i}" for i in range(30)])
    with pytest.raises(ValueError, match=r"expected one of (l\d+, ){19}l19$"):
        read_texts(path, text="text", label="label", labels=[f"l{i}" for i in range(20)])


def test_labels_to_skip(tmp_path):
    path = write(tmp_path / "snli.jsonl", '{"t": "a", "l": "-"}\n{"t": "b", "l": "neutral"}\n')
    skipped = Skipped()
    found = read_texts(path, text="t", label="l", labels=["neutral"], skip_labels=["-"], skipped=skipped)
    assert [example.text for example in found] == ["b"]
    assert skipped.report() == [f"skipped 1 x label '-': {path}:1"]


def test_json_labels_become_text(tmp_path):
    items = [{"t": "a", "l": value} for value in (True, 3, 0.5, "x", False)]
    path = write(tmp_path / "a.json", json.dumps(items))
    assert [example.label for example in read_texts(path, text="t", label="l")] == ["true", "3", "0.5", "x", "false"]
    assert [example.id for example in read_texts(path, text="t", id="l")] == ["true", "3", "0.5", "x", "false"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"t": "a", "l": None}, r"a\.json\[0\]: column 'l' has no label"),
        ({"t": "a", "l": []}, r"column 'l' has no label"),
        ({"t": "a", "l": {}}, r"column 'l' has {}; expected text or a number"),
        ({"t": 3, "l": "x"}, r"column 't' has 3; expected text"),
        ({"t": ["a" * 99], "l": "x"}, r"column 't' has \['a{30,40}\.\.\.; expected text"),
    ],
)
def test_json_values_of_the_wrong_kind(tmp_path, item, message):
    with pytest.raises(ValueError, match=message):
        read_texts(write(tmp_path / "a.json", json.dumps([item])), text="t", label="l")


def test_several_labels(tmp_path):
    path = write(tmp_path / "goemotions.tsv", "one\t27\ta\ntwo\t2,27\tb\n")
    columns = {"text": 0, "label": 1, "id": 2}
    assert [example.label for example in read_texts(path, **columns)] == ["27", "2,27"]
    with pytest.raises(
        ValueError, match=r"goemotions\.tsv:2: column 1 has 2 labels, '2,27'; expected one \(multi_label="
    ):
        read_texts(path, **columns, separator=",")
    skipped = Skipped()
    found = read_texts(path, **columns, separator=",", multi_label="first", skipped=skipped)
    assert [example.label for example in found] == ["27", "2"]
    assert skipped.report() == [f"repaired 1 x several labels, the first taken: {path}:2"]
    skipped = Skipped()
    found = read_texts(path, **columns, separator=",", multi_label="skip", skipped=skipped)
    assert [example.id for example in found] == ["a"]
    assert skipped.report() == [f"skipped 1 x several labels: {path}:2"]
    with pytest.raises(
        ValueError, match=r"multi_label='frist': expected one of error, first, skip; did you mean first"
    ):
        read_texts(path, **columns, multi_label="frist")
    lists = write(tmp_path / "a.json", '[{"t": "x", "l": [2, 27]}, {"t": "y", "l": [3]}]')
    assert [e.label for e in read_texts(lists, text="t", label="l", multi_label="first")] == ["2", "3"]


@pytest.mark.parametrize("text", ["a\tb\n", "\n\n"])
def test_no_rows(tmp_path, text):
    with pytest.raises(ValueError, match=r"a\.tsv: no rows"):
        read_texts(write(tmp_path / "a.tsv", text), text=0, header=True if "a" in text else None)


def test_missing_column_names_the_nearest(tmp_path):
    path = write(tmp_path / "a.tsv", "sentence\tlabel\nx\ty\n")
    with pytest.raises(ValueError, match=r"a\.tsv:1: no column 'sentense' .*did you mean sentence"):
        read_texts(path, text="sentense", label="label")


def query(identifier, *passages):
    return {
        "query_id": identifier,
        "query": f"query {identifier}",
        "passages": [{"passage_text": text, "is_selected": rel, "passage_id": f"p{text}"} for text, rel in passages],
    }


def test_passages_of_json_lines(tmp_path):
    lines = [query(1, ("a", 0), ("b", 1)), query("q2", ("c", 2), (" ", 0)), query(3)]
    path = write(tmp_path / "a.JSONL.gz", "\n".join(map(json.dumps, lines)))
    skipped = Skipped()
    found = read_passages(path, skipped=skipped)
    assert found == [
        TextExample("1/0", f"{path}:1: passages[0]", "query 1", "a", 0.0, "1"),
        TextExample("1/1", f"{path}:1: passages[1]", "query 1", "b", 1.0, "1"),
        TextExample("q2/0", f"{path}:2: passages[0]", "query q2", "c", 2.0, "q2"),
    ]
    assert skipped.report() == [
        f"skipped 1 x empty second text: {path}:2: passages[1]",
        f"skipped 1 x query without candidates: {path}:3",
    ]
    assert [example.id for example in read_passages(path, passage_id="passage_id")] == ["1/pa", "1/pb", "q2/pc"]


def test_passages_as_an_object_of_lists(tmp_path):
    item = query(1) | {"passages": {"passage_text": ["a", "b"], "is_selected": [0, 1]}}
    found = read_passages(write(tmp_path / "a.json", json.dumps([item])))
    assert [(example.pair, example.label) for example in found] == [("a", 0.0), ("b", 1.0)]


def test_passages_of_tsv(tmp_path):
    text = 'QuestionID\tQuestion\tSentence\tLabel\nQ1\twho ?\tshe "\t1\nQ1\twho ?\tit\t0\n'
    path = write(tmp_path / "wikiqa.tsv", text)
    columns = {"query_id": "QuestionID", "query": "Question", "passage": "Sentence", "relevance": "Label"}
    assert read_passages(path, **columns) == [
        TextExample("wikiqa.tsv:2", f"{path}:2", "who ?", 'she "', 1.0, "Q1"),
        TextExample("wikiqa.tsv:3", f"{path}:3", "who ?", "it", 0.0, "Q1"),
    ]
    for cells, message in (
        ("q\tx\ty\t-1", "column 3 is -1.0; expected at least 0"),
        ("\tx\ty\t1", "column 0 is empty"),
    ):
        bad = write(tmp_path / "bad.TSV", cells)
        with pytest.raises(ValueError, match=rf"bad\.TSV:1: {message}"):
            read_passages(bad, query_id=0, query=1, passage=2, relevance=3)
    by_number = read_passages(path, query_id=0, query=1, passage=2, relevance=3, header=True)
    assert by_number == read_passages(path, **columns)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (query(1) | {"passages": 3}, r"a\.json\[0\]: 'passages' holds 3; expected a list of candidates"),
        (query(1) | {"passages": ["x"]}, r"passages\[0\]: candidate is 'x'; expected an object"),
        (query(1) | {"passages": [{"passage": "x"}]}, r"no key 'passage_text'; keys: passage; did you mean passage"),
        (query(1) | {"passages": {"passage_text": ["a"], "is_selected": []}}, r"lists of 'passages' differ in length"),
        (query(1, ("a", "yes")), r"passages\[0\]: column 'is_selected' has 'yes'; expected a number"),
        (query(1, ("a", [0, 1])), r"passages\[0\]: column 'is_selected' has 2 labels, \[0, 1\]; expected one"),
        (query(1, ("a", -1)), r"passages\[0\]: column 'is_selected' is -1\.0; expected at least 0"),
        (query(None, ("a", 1)), r"passages\[0\]: column 'query_id' is empty; expected the id of the query"),
        ({"query_id": 1, "query": "x", "passges": []}, r"no key 'passages'; keys: .*; did you mean passges"),
    ],
)
def test_passages_errors(tmp_path, item, message):
    with pytest.raises(ValueError, match=message):
        read_passages(write(tmp_path / "a.json", json.dumps([item])))


def test_predictions_have_a_header_and_one_line_each(tmp_path):
    examples = [TextExample("a\tb\r\nc", "", "x"), TextExample("2", "", "y")]
    path = str(tmp_path / "out.tsv")
    write_tsv_predictions(path, examples, ["pos", "neg"], [[0.25, 0.75], [1, 0]], ["p neg", "p pos"])
    written = (tmp_path / "out.tsv").read_text()
    assert written == "id\tlabel\tp neg\tp pos\na b  c\tpos\t0.25\t0.75\n2\tneg\t1.0\t0.0\n"
    write_tsv_predictions(path, examples, [0.5, -1.0])
    assert (tmp_path / "out.tsv").read_text() == "id\tlabel\na b  c\t0.5\n2\t-1.0\n"
    write_tsv_predictions(path, examples, [1, 2], [[3], [4]])
    assert (tmp_path / "out.tsv").read_text().startswith("id\tlabel\tscore_0\n")
    assert [child.name for child in tmp_path.iterdir()] == ["out.tsv"]
    write_tsv_predictions(path, [TextExample("\ud800", "", "x")], ["a"])
    assert (tmp_path / "out.tsv").read_text() == "id\tlabel\n?\ta\n"


def test_predictions_of_wrong_lengths(tmp_path):
    examples = [TextExample("1", "", "x"), TextExample("2", "", "y")]
    path = str(tmp_path / "out.tsv")
    with pytest.raises(ValueError, match=r"out\.tsv: expected 2 predictions, one for each example, got 1"):
        write_tsv_predictions(path, examples, ["a"])
    with pytest.raises(ValueError, match=r"out\.tsv: expected 2 predictions, one for each example, got 3"):
        write_tsv_predictions(path, examples, ["a", "b"], [[1], [2], [3]])
    with pytest.raises(ValueError, match=r"out\.tsv: example '2': expected 1 scores, got 2"):
        write_tsv_predictions(path, examples, ["a", "b"], [[1], [1, 2]])
    assert not list(tmp_path.iterdir()), "a file appears whole or not at all"


PLAIN = st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PLAIN.filter(str.strip), PLAIN.filter(str.strip), st.floats(allow_nan=False)), min_size=1))
def test_written_predictions_read_back(tmp_path_factory, rows):
    path = str(tmp_path_factory.mktemp("table") / "out.tsv")
    examples = [TextExample(name, "", "x") for name, _, _ in rows]
    write_tsv_predictions(path, examples, [label for _, label, _ in rows], [[score] for _, _, score in rows])
    found = read_texts(path, text="id", label="label", group="score_0")
    assert [(e.text, e.label, float(e.group)) for e in found] == [(a, b.strip(), c) for a, b, c in rows]
