"""Tests how the family of golden cases is found when the command line does not name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from charlm.convert.__main__ import main
from charlm.families.lookup import recognise_cases

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"


@pytest.mark.parametrize("name", ["hlm", "bert", "roberta", "gpt2", "charbert", "characterbert"])
def test_golden_cases_say_their_family(name):
    assert recognise_cases(GOLDENS / name).name == name


@pytest.mark.parametrize("name", ["xrayemb", "tasks", "nowhere"])
def test_cases_that_say_no_family_need_it_named(name, capsys):
    folder = GOLDENS / name
    assert main(["check", f"--golden-dir={folder}"]) == 1
    said = (
        ": no case there says which family it is of; name it with --family" if folder.is_dir() else " is not a folder"
    )
    assert capsys.readouterr() == ("", f"error: --golden-dir={folder}{said}\n")
