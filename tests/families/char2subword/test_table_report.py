"""Tests the report on how well a table is imitated: its measures, its typos, its command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_char2subword import spelled

from charlm.families.char2subword import table_report
from charlm.families.char2subword.imitation import neighbours, precision
from charlm.text.noise.words import CHAR2SUBWORD, one_edit


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHARLM_CACHE", str(tmp_path_factory.mktemp("cache")))
        return table_report.open_subject(str(spelled()))


def test_measures_are_those_of_all_rows(subject):
    ids = subject.entries.ids_N
    found = table_report.measure(subject, list(subject.entries.spellings), ids)
    table = np.asarray(subject.table_VD)
    near = neighbours(table, subject.near_VK.shape[1], rows=16).ids
    want = precision(subject.spell(subject.entries.spellings), table, ids, near[ids])
    for name, value in want.summary().items():
        assert found[name] == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(found["precision"], want.shared_BK.mean(axis=0), atol=1e-5)


def test_tables_of_different_sizes_have_their_own_precision():
    def made(name, k):
        values = {"accuracy": 0.5, "precision_at_1": 0.4, f"precision_at_{k}": k / 100, "average_precision": 0.3}
        values["precision"] = [0.1] * k
        return {"checkpoint": name, "shown": values, "typos": dict.fromkeys(CHAR2SUBWORD, values)}

    text = table_report.table([made("large", 15), made("small", 7)])
    large, small = text.split("small\n")
    for part, k in ((large, 15), (small, 7)):
        lines = part.splitlines()
        assert any(line.split() == ["accuracy", "prec@1", f"prec@{k}", "average"] for line in lines)
        assert sum(line.split()[-4:] == ["50.0", "40.0", f"{k}.0", "30.0"] for line in lines) == 1 + len(CHAR2SUBWORD)


@pytest.mark.parametrize("operation", CHAR2SUBWORD)
def test_each_typo_is_one_edit_of_a_word(subject, operation):
    spellings, ids = table_report.typos(subject, operation, words=50, seed=0)
    words = dict(zip(subject.entries.ids_N.tolist(), subject.entries.surfaces, strict=True))
    assert spellings
    grown = {"repeat": 1, "punctuation": 1, "drop": -1}.get(operation, 0)
    for spelling, index in zip(spellings, ids.tolist(), strict=True):
        assert words[index].starts_word
        assert spelling.startswith("##")
        assert spelling[2:] != words[index].chars
        assert len(spelling) - 2 == len(words[index].chars) + grown
    assert table_report.typos(subject, operation, words=50, seed=0)[0] == spellings
    assert table_report.typos(subject, operation, words=50, seed=1)[0] != spellings


def test_operations_do_what_they_say():
    rng = np.random.default_rng(0)
    some = lambda operation, word: {one_edit(word, operation, rng) for _ in range(200)}
    assert some("repeat", "abc") == {"aabc", "abbc", "abcc"}
    assert some("drop", "abc") == {"bc", "ac", "ab"}
    assert some("swap", "abc") == {"bac", "acb"}
    assert some("toggle", "ab") == {"Ab", "aB"}
    assert some("punctuation", "ab") == {"a-b", "a.b", "a'b", "a_b"}
    assert some("mistype", "q") == {"w", "a", "s"}
    assert some("mistype", "1") == {"1"}
    with pytest.raises(KeyError):
        one_edit("abc", "insert", rng)


def test_the_command_prints_a_table_or_json(subject, capsys, monkeypatch):
    monkeypatch.setattr(table_report, "open_subject", lambda path: subject._replace(name=path))
    assert table_report.main(["--checkpoint=a", "--checkpoint=b", "--words=20"]) == 0
    text = capsys.readouterr().out
    assert text.count("prec@15") == 2
    assert all(text.count(f"typo: {operation}") == 2 for operation in CHAR2SUBWORD)
    assert table_report.main(["--checkpoint=a", "--words=20", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["checkpoint"] == "a"
    assert report["shown"]["entries"] == len(subject.entries)
    assert set(report["typos"]) == set(CHAR2SUBWORD)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint=nowhere"], "error: --checkpoint: nowhere does not exist"),
        (["--checkpoint=nowhere", "--words=0"], "error: --words=0 and --seed=0 must be at least 1 and 0"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    assert table_report.main(arguments) == 1
    assert capsys.readouterr().err.startswith(message)
