"""Tests the report of skipped examples, and texts that are joined from words."""

from __future__ import annotations

import itertools
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.data.examples import Skipped, joined, noted


def test_report_names_reasons_with_their_first_places():
    skipped = Skipped()
    assert skipped.report() == []
    for line in range(2, 7):
        skipped.skip("empty text", f"a.tsv:{line}")
    skipped.skip("blank line", "a.tsv:9")
    skipped.repair("empty text", "b.tsv:1")
    assert skipped.report() == [
        "skipped 5 x empty text: a.tsv:2, a.tsv:3, a.tsv:4, ...",
        "skipped 1 x blank line: a.tsv:9",
        "repaired 1 x empty text: b.tsv:1",
    ]
    assert skipped.skipped.total() == 6
    assert skipped.repaired.total() == 1


def test_what_is_logged_is_noted_within_the_block(caplog):
    skipped, lines = Skipped(), ["before"]
    skipped.skip("empty text", "a.tsv:2")
    with caplog.at_level("INFO", "charlm"):
        with noted(lines):
            skipped.log()
        skipped.log()
    assert lines == ["before", "skipped 1 x empty text: a.tsv:2"]
    assert caplog.messages == lines[1:] * 2


def test_joined_text_has_the_words_at_their_offsets():
    assert joined(["Don", "'t", "go", "."], [False, True, False, True]) == (
        "Don't go.",
        [(0, 3), (3, 5), (6, 8), (8, 9)],
    )
    assert joined(["a", "b"]) == ("a b", [(0, 1), (2, 3)])
    assert joined([]) == ("", [])


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.booleans())))
def test_joined_offsets_of_any_words(pairs):
    words, spaces = [word for word, _ in pairs], [space for _, space in pairs]
    text, offsets = joined(words, spaces)
    assert [text[start:stop] for start, stop in offsets] == words
    gaps = [text[a:b] for (_, a), (b, _) in itertools.pairwise(offsets)]
    assert gaps == [" " if space else "" for space in spaces[:-1]]
    assert len(text) == (offsets[-1][1] if offsets else 0)


def test_readers_and_metrics_do_without_jax():
    modules = "charlm.metrics, charlm.data.text_tables, charlm.data.conll, charlm.data.squad"
    code = f"import sys, {modules}; print(sorted({{'jax', 'sklearn', 'scipy', 'pyarrow'}} & {{*sys.modules}}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
