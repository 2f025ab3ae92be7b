"""Tests of the report of a league, written from results that are known."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from charlm.league.gathering import FORMAT
from charlm.league.report import sections_of
from charlm.league.writing import write_report

EVIL = '<script>alert("x")</script>|\u202e'


def score(task, system, noise, value, rank=1):
    """A score with an interval of a point to both sides."""
    return {
        "task": task, "system": system, "noise": noise, "value": value, "low": value - 0.01, "high": value + 0.01,
        "rank": rank, "seeds": [value],
    }  # fmt: skip


def results(**changed):
    """The results of two systems and two tasks."""
    scores = [
        score(task, system, noise, value, rank)
        for task in ("pos", "topic", None)
        for system, value, rank in (("a", 0.9, 1), ("b", 0.8, 2))
        for noise in ("", "noise", "swap:0.1")
    ]
    trained = {
        "words": 1000.4, "words_all": 1500.0, "steps": 10, "flops": 1.5e12, "flops_all": 2e12, "seconds": 3600.0,
        "tuning_seconds": 60.0, "parameters": {"total": 30, "body": 10, "tables": 15, "head": 5}, "corpus_words": 500,
    }  # fmt: skip
    plain = {"ranked": True, "behind": "", "defence": "", "same": "", "start": ""}
    found = {
        "format": FORMAT,
        "charlm": "1.0",
        "title": f"League {EVIL}",
        "config": {
            "budget": {"words": 1000}, "corpora": {"train": ["builtin"], "splitter": "rules"},
            "tuning": {"seeds": [0]}, "robustness": {"draws": 1},
            "systems": {
                "a": {"config": "x.py", "set": ["k=v"]},
                "c": {"config": "", "set": [], "same": "a", "tune": ["data.noise=swap:0.1"]},
                "a+nfkc": {"config": "", "set": [], "behind": "a", "defence": "nfkc", "tune": []},
            },
            "tasks": {"pos": {"config": "tag.py", "set": []}},
        },
        "systems": [{"name": name, "title": name.upper(), **plain, **trained} for name in ("a", "b")],
        "tasks": [{"name": n, "title": n.title(), "metric": "f1", "examples": 7} for n in ("pos", "topic")],
        "scores": scores,
        "differences": [{"task": "pos", "noise": "", "a": "a", "b": "b", "value": 0.1, "low": 0.05, "high": 0.15}],
        "claims": [
            {"text": "a ahead of b on pos", "verdict": "holds", "value": 0.1, "low": 0.05, "high": 0.15},
            {"text": "a ahead of b on all", "verdict": "not measured", "value": None, "low": None, "high": None},
        ],
        "missing": [],
        "events": [
            {"time": 0.0, "event": "start"},
            {"time": 1.0, "event": "begin", "job": "train/a", "again": True},
        ],
    }  # fmt: skip
    return found | changed


@pytest.fixture
def written(tmp_path):
    """The report as Markdown and as HTML."""
    write_report(results(), tmp_path)
    return (tmp_path / "report.md").read_text(), (tmp_path / "report.html").read_text()


def test_both_say_the_figures(written):
    for text in written:
        plain = re.sub(r"\\", "", text)
        assert "90.0 [89.0, 91.0] (1)" in plain
        assert "+10.0 [+5.0, +15.0]" in plain
        assert "2.00e+12" in plain
        assert "a ahead of b on all" in plain
        assert "not measured" in plain
        assert "1 jobs went on after a stop" in plain
        assert "a: x.py k=v" in plain
        assert "c: same as a; in fine-tuning data.noise=swap:0.1" in plain
        assert "a+nfkc: is a, behind nfkc" in plain
        assert "\u202e" not in text


def test_the_best_is_on_top_and_better_is_shaded(written):
    _, page = written
    assert page.index(">A</th>") < page.index(">B</th>")
    row = re.search(r'<tr><th scope="row">swap:0.1</th>(.*?)</tr>', page)
    assert row is not None
    assert re.findall(r'class="n h(\d)"', row[1]) == ["9", "0"]


class _Reader(HTMLParser):
    """Collects the open elements, and what would load or run something."""

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link"):
            self.open.append(tag)
        self.loads += [(tag, name) for name, value in attrs if name in ("src", "style") or name.startswith("on")]
        if tag in ("script", "iframe", "img"):
            self.loads.append((tag, ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(written):
    reader = _Reader()
    reader.feed(written[1])
    assert (reader.open, reader.loads) == ([], [])
    assert "default-src 'none'" in written[1]


def test_equal_results_give_equal_bytes_and_all_figures_are_in_the_json(tmp_path, written):
    first = (tmp_path / "report.html").read_bytes()
    write_report(json.loads((tmp_path / "report.json").read_text()), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == first


def test_a_partial_report_names_what_is_missing(tmp_path):
    found = results(scores=[], differences=[], claims=[], tasks=[], missing=["train/a", "tune/pos/a/0", "tune/pos/a/1"])
    write_report(found, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "3 jobs are not done" in text
    assert "- train: a\n- tune: pos/a/0, pos/a/1" in text
    assert "| A (not finished) | nothing | 10 |" in text
    assert "| B | nothing | 10 |" in text
    assert [section.title for section in sections_of(found)] == ["Standing", "Size and cost", "How it was made"]
