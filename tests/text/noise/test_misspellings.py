"""Tests lists of misspellings: three formats, compressed or not, and the case of the word."""

from __future__ import annotations

import gzip

import pytest

from charlm.text.noise.misspellings import Misspellings

DOLLAR = "$because\nbecuase\nbecaus 12\n$Britain\n\n$a_lot\nalot\n$Athenian\nAthenean\n$indeed\nin_deed\n"
ARROW = "becuase->because\nalot->a lot\ncann->can, disabled: a name\nclas->class, classes,\nin deed->indeed\n"
COLUMNS = "because becuase becaus\nAthenian Athenean\n$300 300$\ndidn't didnt didn''t\n"


def written(path, text, packed=False):
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_three_formats_are_told_apart(tmp_path, packed):
    dollar = Misspellings.read(written(tmp_path / "one", DOLLAR, packed))
    assert dollar.of("because") == ("becuase", "becaus")
    assert dollar.of("a lot") == ("alot",)
    assert dollar.of("Britain") == dollar.of("12") == ()
    assert len(dollar) == 4
    arrow = Misspellings.read(written(tmp_path / "two", ARROW, packed))
    assert [arrow.of(word) for word in ("because", "a lot", "can", "class", "classes")] == [
        *(("becuase",), ("alot",), ("cann",), ("clas",), ("clas",))
    ]
    assert len(arrow) == 6
    columns = Misspellings.read(written(tmp_path / "three", COLUMNS, packed))
    assert columns.of("because") == ("becuase", "becaus")
    assert columns.of("didn't") == ("didnt", "didn''t")
    assert columns.of("$300") == ("300$",)
    assert Misspellings.read(written(tmp_path / "four", "$300 300$\n", packed)).of("$300") == ("300$",)


def test_lines_may_end_in_any_way_and_begin_with_a_mark(tmp_path):
    text = "\ufeff" + COLUMNS.replace("\n", "\r\n") + "odd\u2028ode"
    columns = Misspellings.read(written(tmp_path / "list", text))
    assert columns.of("because") == ("becuase", "becaus")
    assert columns.of("odd") == ("ode",)


def test_several_files_are_joined(tmp_path):
    paths = written(tmp_path / "one", DOLLAR), written(tmp_path / "two", "because becos becuase\nBecause becaze\n")
    assert Misspellings.read(*paths).of("because") == ("becuase", "becaus", "becos", "becaze")


def test_case_is_carried_over():
    listed = Misspellings([("because", ["becuase", "Becos"]), ("Athenian", ["Athenean"]), ("I", ["i", "Ie"])])
    assert listed.of("because") == ("becuase", "becos")
    assert listed.of("Because") == ("Becuase", "Becos")
    assert listed.of("BECAUSE") == ("BECUASE", "BECOS")
    assert listed.of("athenian") == ("athenean",)
    assert listed.of("I") == ("Ie",)  # a different case is no misspelling
    assert listed.of("bEcause") == ()


def test_words_of_mixed_case_have_their_own():
    listed = Misspellings([("McDonald", ["MacDonald"]), ("mcdonald", ["mcdonnald"])])
    assert listed.of("McDonald") == ("MacDonald",)
    assert listed.of("MCDONALD") == ("MACDONALD", "MCDONNALD")
    assert listed.of("mCDonald") == ()


def test_what_equals_the_word_or_holds_spaces_is_left_out():
    listed = Misspellings([("indeed", ["in deed", "indeed", "INDEED", "indede", "in\tdeed"]), ("14", ["14", "14th"])])
    assert listed.of("indeed") == ("indede",)
    assert listed.of("Indeed", spaces=True) == ("In deed", "Indede", "In\tdeed")
    assert listed.of("14") == ("14th",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$one\nwon\ntwo words\n", r"line 3: expected \"\$word\".*got 'two words'"),
        ("$one\nwon\n$\n", r"line 3: expected \"\$word\""),
        ("a->b\n\nc -> \n", r"line 3: expected \"misspelling->word\".*got 'c ->'"),
        ("a->b\nc->d, ,\n", r"line 2: expected \"misspelling->word\""),
        ("a->b\nnothing\n", r"line 2: expected \"misspelling->word\".*got 'nothing'"),
        ("a->b\nc->,\n", "line 2"),
        ("one won\n\nalone\n", "line 3: expected a word and its misspellings, got 'alone'"),
        ("one won\na->b c\n", "line 2: expected a word and its misspellings"),
        (" \n\n", "the file is empty"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        Misspellings.read(written(tmp_path / "broken.list", text))
    assert "broken.list" in str(caught.value)


def test_broken_files_are_refused(tmp_path):
    packed = gzip.compress(COLUMNS.encode())
    for content, message in [(b"one won\ntwo tw\xff\n", "line 2: expected UTF-8"), (packed[:-9], "decompressed")]:
        path = tmp_path / "broken"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            Misspellings.read(path)
