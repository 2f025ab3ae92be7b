"""Tests columns of tables: a missing one is named, with the config key that names it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from charlm.tasks.classification import Classification, Regression
from charlm.tasks.columns import Columns, column
from charlm.tasks.ranking import Ranking
from charlm.tasks.tagging import Tagging

RANKED = Columns("query", "passage", "relevant", "number")


@pytest.mark.parametrize(
    ("task", "columns", "without"),
    [
        (Classification, Columns(), "text"),
        (Regression, Columns(), "text"),
        *((Ranking, RANKED, field) for field in ("text", "pair", "label", "group")),
    ],
)
def test_a_column_that_a_task_needs_is_asked_for_by_its_key(tmp_path, task, columns, without):
    table = tmp_path / "table.tsv"
    table.write_text("sentence\tlabel\tquery\tpassage\trelevant\tnumber\na b\t1\tq\tp\t1\t7\na c\t0\tq\tr\t0\t7\n")
    assert len(task(columns).read([str(table)], training=True)) == 2
    with pytest.raises(ValueError, match=rf"^data\.{without} names no column"):
        task(dataclasses.replace(columns, **{without: ""})).read([str(table)], training=True)


@pytest.mark.parametrize(
    ("task", "columns", "key", "says"),
    [
        (Classification, Columns(text="sentense"), "text", "did you mean sentence"),
        (Regression, Columns(label="scores"), "label", "scores"),
        (Classification, Columns(group="folds"), "fold_column", "folds"),
        (Ranking, dataclasses.replace(RANKED, group="folds"), "group", "folds"),
        (Ranking, dataclasses.replace(RANKED, text="asked"), "text", "asked"),
    ],
)
@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_a_column_that_a_file_lacks_is_named_with_its_key(tmp_path, form, task, columns, key, says):
    row = {"sentence": "a b", "label": "1", "query": "q", "passage": "p", "relevant": "1", "number": "7"}
    table = tmp_path / f"table.{form}"
    table.write_text(json.dumps(row) if form == "jsonl" else "\t".join(row) + "\n" + "\t".join(row.values()) + "\n")
    kind = {"tsv": "column", "jsonl": "key"}[form]
    with pytest.raises(
        ValueError, match=rf"table\.{form}:1: no {kind} '\w+' \(data\.{key}\).*; {kind}s: 'sentence'"
    ) as raised:
        task(columns).read([str(table)], training=True)
    assert says in str(raised.value)


@pytest.mark.parametrize(("name", "expected"), [("", None), ("3", 3), ("-1", -1), ("form", "form"), ("²", "²")])
def test_a_column_is_a_number_or_a_name(name, expected):
    assert column(name) == expected


def test_words_of_conll_stand_in_a_column_with_a_number(tmp_path):
    (tmp_path / "a.conll").write_text("the O\n")
    with pytest.raises(ValueError, match=r"^data\.word='form': expected the number of a column, from 0"):
        Tagging(word="form").read([str(tmp_path / "a.conll")], training=True)
