"""The command line of the predictor: JSON lines out, mistakes in one line."""

from __future__ import annotations

import io
import json

import pytest
from small_run import python

from charlm.predict import main

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def ask(trained, capsys, monkeypatch):
    """Runs the command on the finished run; returns status, JSON lines and what went to standard error."""

    def run(command, *arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = main([command, f"--checkpoint={trained.workdir}", *arguments])
        captured = capsys.readouterr()
        return status, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return run


def test_encode_arguments(ask):
    status, lines, errors = ask("encode", "Naïve cat.", "a")
    assert (status, errors) == (0, "")
    assert [line["text"] for line in lines] == ["Naïve cat.", "a"]
    assert [(w["word"], w["start"], w["end"]) for w in lines[0]["words"]] == [
        ("Naïve", 0, 5),
        ("cat", 6, 9),
        (".", 9, 10),
    ]
    assert {len(word["vector"]) for word in lines[0]["words"]} == {len(lines[0]["sentence"])} == {16}
    mean = [sum(column) / 3 for column in zip(*(word["vector"] for word in lines[0]["words"]), strict=True)]
    assert lines[0]["sentence"] == pytest.approx(mean, abs=1e-5)


def test_encode_lines_of_standard_input(ask):
    _, by_argument, _ = ask("encode", "--sentence-only", "a cat", "")
    status, lines, _ = ask("encode", "--sentence-only", stdin="a cat\n\n")
    assert status == 0
    assert lines == by_argument
    assert [set(line) for line in lines] == [{"text", "sentence"}] * 2


def test_fill_mask(ask):
    status, lines, errors = ask("fill-mask", "--top=3", stdin="the [MASK] sat\na [MASK:4] and [MASK:2]\n")
    assert (status, errors) == (0, "")
    assert [[len(gap) for gap in line["fills"]] for line in lines] == [[3], [3, 3]]
    assert [{len(fill["word"]) for fill in gap} for gap in lines[1]["fills"]] == [{4}, {2}]
    assert all(set(fill) == {"word", "score"} for gap in lines[1]["fills"] for fill in gap)
    _, lines, _ = ask("fill-mask", "--length=4", "a [MASK] sat")
    assert {len(fill["word"]) for fill in lines[0]["fills"][0]} == {4}
    assert len(lines[0]["fills"][0]) == 5


def test_fill_mask_from_a_list_of_words(ask, tmp_path):
    (tmp_path / "words.txt").write_text("cat\ndog\nhouse\n")
    _, lines, _ = ask("fill-mask", f"--words={tmp_path / 'words.txt'}", "the [MASK] sat")
    assert sorted(fill["word"] for fill in lines[0]["fills"][0]) == ["cat", "dog", "house"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no gap"], 'no "[MASK]" in the text'),
        (["[MASK:30]"], "length=30: the model holds words of 1 to 7 characters"),
        (["--length=long", "[MASK]"], "--length=long: expected a number of characters"),
        (["--top=0", "[MASK]"], "--top=0: expected at least 1"),
        (["--words=nowhere.txt", "[MASK]"], "--words=nowhere.txt cannot be read"),
    ],
)
def test_mistakes_are_one_line(ask, arguments, message):
    status, lines, errors = ask("fill-mask", *arguments)
    assert (status, lines) == (1, [])
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_missing_checkpoint_is_one_line(tmp_path):
    done = python("-m", "charlm.predict", "encode", "--checkpoint=nowhere", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "error: checkpoint: nowhere does not exist; expected a workdir or one of its checkpoints/STEP folders\n"
    )
