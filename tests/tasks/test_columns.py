"""Tests columns of tables: a missing one is named, with the config key that names it."""

from __future__ import annotations

import dataclasses

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


@pytest.mark.parametrize(("name", "expected"), [("", None), ("3", 3), ("-1", -1), ("form", "form"), ("²", "²")])
def test_a_column_is_a_number_or_a_name(name, expected):
    assert column(name) == expected


def test_words_of_conll_stand_in_a_column_with_a_number(tmp_path):
    (tmp_path / "a.conll").write_text("the O\n")
    with pytest.raises(ValueError, match=r"^data\.word='form': expected the number of a column, from 0"):
        Tagging(word="form").read([str(tmp_path / "a.conll")], training=True)
