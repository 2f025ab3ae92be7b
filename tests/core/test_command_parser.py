"""Tests what all commands say about options that they do not know."""

from __future__ import annotations

import pytest

from charlm.core.command_parser import Parser


def parser():
    made = Parser(prog="do")
    made.add_argument("--top", type=int)
    commands = made.add_subparsers(dest="command", required=True)
    one = commands.add_parser("one")
    one.add_argument("--model", "--checkpoint", required=True)
    one.add_argument("--format", choices=("json", "text"))
    one.add_argument("text", nargs="*")
    return made


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            ["one", "--modle", "x"],
            "do one: error: the following arguments are required: --model/--checkpoint; --modle: did you mean --model?",
        ),
        (
            ["one", "--model", "x", "--fromat=json", "a"],
            "do one: error: unrecognized arguments: --fromat=json; --fromat: did you mean --format?",
        ),
        (["one", "--model", "x", "--zzz"], "do one: error: unrecognized arguments: --zzz"),
        (["--model", "xy"], "do: error: argument command: invalid choice: 'xy' (choose from "),
        (
            ["one", "--model=x", "--zzz", "--", "--fromat"],
            "do one: error: unrecognized arguments: --zzz",
        ),
        (["one", "--mod", "x", "--format", "xml"], "do one: error: argument --format: invalid choice: 'xml'"),
    ],
)
def test_an_unknown_flag_is_told_by_its_own_command_with_the_one_that_was_meant(given, says, capsys):
    with pytest.raises(SystemExit) as end:
        parser().parse_args(given)
    assert end.value.code == 2
    usage, line = capsys.readouterr().err.rstrip().rsplit("\n", 1)
    assert usage.startswith("usage: do")
    if says.endswith(("--zzz", "?")):
        assert line == says
    else:
        assert line.startswith(says)
        assert "did you mean" not in line


def test_a_misspelled_command_is_told(capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["--top", "3", "oen"])
    assert capsys.readouterr().err.rstrip().endswith("; did you mean one?")


def test_known_flags_are_read():
    found = parser().parse_args(["--top", "3", "one", "--mod", "x", "--format=text", "a", "--", "--b"])
    assert (found.top, found.command, found.model, found.format, found.text) == (3, "one", "x", "text", ["a", "--b"])
    assert parser().parse_known_args(["one", "--model", "x"])[1] == []
