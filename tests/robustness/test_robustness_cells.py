"""Tests the cache of measurements: nothing is measured twice, and no outdated value is used."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from charlm.robustness import scoring
from charlm.robustness.cells import Cell, Cells
from charlm.robustness.measure import measure
from charlm.robustness.subjects import digest_of, load

OPTIONS = {"noise": ["drop:0.3"], "seeds": 2, "samples": 10, "batch_size": 8}


def make(values, arrays=None):
    """Returns what computes a cell, and the calls of it."""
    calls = []
    return lambda: calls.append(1) or Cell(values, arrays or {}), calls


def test_a_cell_comes_back_as_it_was(tmp_path):
    values = {"a": 1.5, "b": None, "c": ["größe", {"d": 1}]}
    arrays = {"x": np.arange(6.0).reshape(2, 3), "y": np.array([True, False])}
    compute, calls = make(values, arrays)
    for _ in range(2):
        cell = Cells(tmp_path).get("score", ["digest", 1], compute)
        assert cell.values == values
        for name, array in arrays.items():
            np.testing.assert_array_equal(cell.arrays[name], array)
            assert cell.arrays[name].dtype == array.dtype
    assert len(calls) == 1
    assert [path.suffix for path in (tmp_path / "cells").iterdir()] == [".npz"]


def test_other_dependencies_are_other_cells(tmp_path):
    cells = Cells(tmp_path)
    for value, depends in enumerate((["a", 1], ["a", 2], ["b", 1])):
        assert cells.get("score", depends, make({"v": value})[0]).values == {"v": value}
    assert cells.get("other", ["a", 1], make({"v": 9})[0]).values == {"v": 9}
    assert (cells.found, cells.computed) == (0, 4)
    assert cells.get("score", ["a", 2], make({"v": 9})[0]).values == {"v": 1}
    assert cells.has("score", ["a", 2])
    assert not cells.has("score", ["a", 3])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"nothing"])
def test_a_damaged_cell_is_computed_again(tmp_path, content, log_lines):
    cells = Cells(tmp_path)
    cells.get("score", 1, make({"v": 1})[0])
    cells.path("score", 1).write_bytes(content)
    assert cells.get("score", 1, make({"v": 2})[0]).values == {"v": 2}
    assert "is damaged" in str(log_lines)
    assert cells.get("score", 1, make({"v": 3})[0]).values == {"v": 2}


def test_a_kill_while_computing_leaves_nothing_behind(tmp_path):
    def killed():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Cells(tmp_path).get("score", 1, killed)
    assert not list((tmp_path / "cells").iterdir())


@pytest.fixture
def run(models, taggers, tmp_path, log_lines):
    """Measures the BERT; returns results and how many cells were found and computed."""

    def measured(*paths, data=None, **changes):
        log_lines.lines.clear()
        files = [data or models.data("tagging")]
        results = measure(paths or taggers[1:], files, str(tmp_path), **(OPTIONS | changes))
        (line,) = [line for line in log_lines.lines if " were there, " in line]
        found, computed = int(line.split()[0]), int(line.split()[-2])
        return results, found, computed

    return measured


def without_settings(results):
    return {key: value for key, value in results.items() if key != "settings"}


def test_a_second_run_computes_nothing_and_a_deleted_cell_alone(run, tmp_path, log_lines):
    first, found, computed = run()
    assert (found, computed) == (0, 5)  # clean, two draws, sensitivity, answers
    again, found, computed = run()
    assert (again, found, computed) == (first, 5, 0)
    assert any("3 of 3 scores are there" in line for line in log_lines.lines)
    scores = sorted((tmp_path / "cells").glob("score-*"))
    scores[0].unlink()
    assert run()[1:] == (4, 1)
    assert without_settings(run()[0]) == without_settings(first)


def test_a_killed_run_goes_on_where_it_was(run, monkeypatch):
    own, calls = scoring.score, []

    def killed(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(arguments)
        return own(*arguments)

    monkeypatch.setattr(scoring, "score", killed)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(scoring, "score", own)
    _, found, computed = run()
    assert (found, computed) == (3, 2)  # clean, first draw, its sensitivity | second draw, answers


def test_what_changes_the_numbers_makes_new_cells_and_the_old_stay(run, models, taggers, tmp_path):
    first = run()[0]
    kept = set((tmp_path / "cells").iterdir())
    assert run(seeds=3)[1:] == (5, 1)
    assert run(noise=["drop:0.31"])[1:] == (1, 4)
    assert run(examples=8)[1:] == (0, 5)
    other = models.folder / "other.conll"
    other.write_text((models.folder / "test_tags.conll").read_text().replace("cat", "cow"), encoding="utf-8")
    assert run(data=str(other))[1:] == (0, 5)
    assert kept <= set((tmp_path / "cells").iterdir())
    assert without_settings(run()[0]) == without_settings(first)


def test_what_does_not_change_them_makes_none(run, models, taggers, tmp_path):
    run()
    words = tmp_path / "words.txt"
    words.write_text("cat dog", encoding="utf-8")
    assert run(samples=20)[1:] == (5, 0)
    assert run(train_words=str(words))[1:] == (5, 0)
    moved = models.folder / "moved" / "model"
    if not moved.exists():
        shutil.copytree(taggers[1], moved)
    results, *counts = run(str(moved))
    assert counts == [5, 0]
    assert results["models"][0]["name"] == "model"
    copied = tmp_path / "copy.conll"
    shutil.copy(models.data("tagging"), copied)
    # Examples without ids of their own are named after the file, and noise is drawn by name.
    assert run(data=str(copied))[1:] in ((5, 0), (0, 5))


def test_other_parameters_are_another_model(taggers):
    (subject,) = load(taggers[1:], 8)
    digest = digest_of(subject.model, subject.tokenizer)
    assert digest == subject.digest
    kernel = subject.model.pretrained.params["label"]["kernel"]
    subject.model.pretrained.params["label"]["kernel"] = kernel.at[0, 0].add(1e-3)
    assert digest_of(subject.model, subject.tokenizer) != digest
    subject.model.pretrained.params["label"]["kernel"] = kernel
    subject.model.pretrained.metadata["task"]["scheme"] = "other"
    assert digest_of(subject.model, subject.tokenizer) != digest
