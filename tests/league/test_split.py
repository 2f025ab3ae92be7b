"""Tests of how a task's file is parted."""

from __future__ import annotations

import gzip
import json

import pytest

from charlm.league.split import main, parts_of


def test_lines_of_a_table_are_dealt_and_a_header_is_in_both_parts():
    text = "text\tlabel\n" + "".join(f"t{n}\tx\n" for n in range(6))
    learned, measured = parts_of(text, ".tsv", 3, header=True)
    assert measured == "text\tlabel\nt2\tx\nt5\tx\n"
    assert learned == "text\tlabel\nt0\tx\nt1\tx\nt3\tx\nt4\tx\n"
    assert parts_of("a\tx\nb\ty", ".tsv", 2) == ("a\tx\n", "b\ty")


@pytest.mark.parametrize("inside", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_what_other_programs_take_for_a_line_end_is_part_of_a_text(inside):
    assert parts_of(f"a{inside}b\tx\nc\ty\n", ".tsv", 2) == (f"a{inside}b\tx\n", "c\ty\n")
    assert parts_of(f"a{inside}b X\r\nc Y\r\n\r\nd X\n", ".conll", 2) == (f"a{inside}b X\r\nc Y\r\n\n", "d X\n\n")


def test_records_of_a_table_with_line_ends_in_cells_stay_whole():
    text = 'text,label\n"one\n\n ""two""",x\nthree,y\n"four\r\nfive",x\nsix,y'
    learned, measured = parts_of(text, ".csv", 2, header=True)
    assert learned == 'text,label\n"one\n\n ""two""",x\n"four\r\nfive",x\n'
    assert measured == "text,label\nthree,y\nsix,y"


def test_blank_lines_part_no_rows_of_a_table():
    text = "t\tl\na\tx\n\nb\ty\n \nc\tz\nd\tx\n\n\n"
    assert parts_of(text, ".tsv", 2, header=True, table=True) == ("t\tl\na\tx\nc\tz\n", "t\tl\nb\ty\nd\tx\n")
    assert parts_of("a\tx\nb\ty\n\n\n", ".tsv", 2) == ("a\tx\n", "b\ty\n")


def test_sentences_of_columns_are_dealt():
    text = "# id 1\na\tX\nb\tX\n\n\nc\tY\n\nd\tX"
    learned, measured = parts_of(text, ".conllu", 2)
    assert (learned, measured) == ("# id 1\na\tX\nb\tX\n\nd\tX\n\n", "c\tY\n\n")
    assert parts_of("a\tX\n\nb\tY\n", ".tsv", 2) == ("a\tX\n\n", "b\tY\n\n")


def test_articles_are_dealt():
    content = {"version": "1.1", "data": [{"title": str(n)} for n in range(4)]}
    learned, measured = map(json.loads, parts_of(json.dumps(content), ".json", 2))
    assert [article["title"] for article in learned["data"]] == ["0", "2"]
    assert measured == {"version": "1.1", "data": [{"title": "1"}, {"title": "3"}]}


def test_the_command_writes_both_parts_and_names_a_file_without_examples(tmp_path, capsys):
    file = tmp_path / "dev.iob2.gz"
    file.write_bytes(gzip.compress(b"1 a O\n\n2 b O\n"))
    assert main(["--files", str(file), "--every", "2", "--out", str(tmp_path / "parts")]) == 0
    assert (tmp_path / "parts" / "learn_0_dev.iob2").read_text() == "1 a O\n\n"
    assert (tmp_path / "parts" / "measure_0_dev.iob2").read_text() == "2 b O\n\n"
    assert main(["--files", str(file), "--every", "9", "--out", str(tmp_path / "parts")]) == 1
    assert f"error: {file}: 2 examples, expected at least 9" in capsys.readouterr().err
    with pytest.raises(ValueError, match="expected the JSON of SQuAD"):
        parts_of("[]", ".json", 2)
