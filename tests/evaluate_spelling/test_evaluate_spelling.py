"""Tests the evaluation of spellers: sentences, counts by hand, systems, the report, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charlm.data.sentences import sentences_of
from charlm.evaluate_spelling.__main__ import main
from charlm.evaluate_spelling.data import Example, misspelled, read_typos
from charlm.evaluate_spelling.measure import counts_of, scores, warm
from charlm.evaluate_spelling.rewritten import read_rewritten
from charlm.evaluate_spelling.systems import OfWords
from charlm.text.noise.edits import Edit
from charlm.text.noise.mixture import parted

TEXT = "The cat sat on the old mat. It was cold, and the cat slept there.\nThe dog ran to every small town in May.\n"
LIST = "cat cta kat\nmat mta\ntown twon\nevery evry\ncold colt\nslept slpet\ndog cat\n"
CONLLU = """# text = Teh cats can't sleep alot.
1\tTeh\tthe\tDET\t_\t_\t0\t_\t_\tCorrectForm=The
2\tcats\tcat\tNOUN\t_\t_\t0\t_\t_\t_
3-4\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
3\tca\tcan\tAUX\t_\t_\t0\t_\t_\t_
4\tn't\tnot\tPART\t_\t_\t0\t_\t_\t_
5\tsleep\tsleep\tVERB\t_\t_\t0\t_\t_\tSpaceAfter=Yes|CorrectForm=Sleep
6\talot\ta\tADV\t_\t_\t0\t_\t_\tSpaceAfter=No|CorrectForm=a lot
7\t.\t.\tPUNCT\t_\t_\t0\t_\t_\t_

# text = Fine words.
1\tFine\tfine\tADJ\t_\t_\t0\t_\t_\t_
2\tword\tword\tNOUN\t_\t_\t0\t_\t_\t_

"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT * 3)
    (tmp_path / "list.txt").write_text(LIST)
    (tmp_path / "typos.conllu").write_text(CONLLU)
    return tmp_path


def listed(files):
    return parted([str(files / "list.txt")], 1.0, held_out=True)


def test_sentences_are_distinct(files):
    found = list(sentences_of([str(files / "text.txt")]))
    assert found == ["The cat sat on the old mat.", "It was cold, and the cat slept there.",
                     "The dog ran to every small town in May."]  # fmt: skip
    assert list(sentences_of([str(files / "text.txt")], most=2)) == found[:2]


def test_misspellings_stand_where_they_are_said(files):
    sentences = list(sentences_of([str(files / "text.txt")]))
    all_of_it = misspelled(sentences, listed(files), rate=1.0, clean=0.0)
    for sentence, example in zip(sentences, all_of_it, strict=True):
        assert example.clean == sentence
        assert "".join(example.read) == example.text.replace(" ", "")
        for read, meant in zip(example.read, example.meant, strict=True):
            assert read == meant or read in LIST.split()
    assert "mta" in all_of_it[0].text
    assert all_of_it == misspelled(sentences, listed(files), rate=1.0, clean=0.0)
    assert [one.text for one in misspelled(sentences, listed(files), 1.0, clean=1.0)] == sentences
    assert all_of_it[2].text != misspelled(sentences, listed(files), 1.0, 0.0, real_words=False)[2].text
    assert "The dog" in misspelled(sentences, listed(files), 1.0, 0.0, real_words=False)[2].text


class Asked:
    """A defence that keeps what it is asked for."""

    version = "1"

    def __init__(self, asked):
        self._asked = asked

    def corrected(self, words):
        self._asked.append(list(words))
        return list(words)


def test_typos_as_they_were_written(files):
    (found,) = read_typos(str(files / "typos.conllu"))  # the second sentence has other words than its text
    assert found.read == ["Teh", "cats", "can't", "sleep", "alot", "."]
    assert found.meant == ("The", "cats", None, None, None, ".")
    assert found.clean == "The cats can't sleep alot."
    assert found.as_meant.read == ["The", "cats", "can't", "sleep", "alot", "."]
    asked = []
    warm(OfWords("rival", Asked(asked)), [found])
    assert asked == [found.as_meant.read]  # as it is timed: word by word
    other = files / "other.conllu"  # a character that other programs take for a line end
    other.write_text((files / "typos.conllu").read_text().replace("# text =", "# note = a\u2028b\n# text =", 1))
    assert read_typos(str(other)) == [found]
    windows = files / "windows.conllu"
    windows.write_bytes((files / "typos.conllu").read_bytes().replace(b"\n", b"\r\n"))
    assert read_typos(str(windows)) == [found]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"The cat sat.", r"line 1: expected the ten columns of CoNLL-U, got 'The cat sat.'"),
        (b"# text = a\n1 cats are here\n", r"line 2: expected the ten columns"),
        (b"# text = a\n1-x" + b"\t_" * 9, r"line 2: expected the ten columns"),
        (b"# text = \xff\n", r"byte 9 is no UTF-8"),
        (b"", r"expected a CoNLL-U file"),
    ],
)
def test_a_file_that_is_no_conllu_is_named_with_the_line(tmp_path, content, message):
    (tmp_path / "bad.conllu").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.conllu.*" + message):
        read_typos(str(tmp_path / "bad.conllu"))


@pytest.fixture
def rewritten(tmp_path):
    """A file of sentences as they were written, and three of rewrites."""
    texts = {
        "src": "the peple has a cat .\n\nI thinked they are intwerested in it\nteh END\n",
        "r0": "the people have a cat .\n\nI thought they are interested in this\nThe end\n",
        "r1": "The people have one cat .\n\nI think that they are interested in it\nteh end\n",
        "r2": "the people has a cat .\n\nI thought they were intrigued by it\nteh end\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_what_most_rewrites_mend_is_misspelled_and_grammar_does_not_count(rewritten):
    found = read_rewritten(*paths_of(rewritten))
    assert [one.text for one in found] == ["the peple has a cat .", "I thinked they are intwerested in it", "teh END"]
    # "has" is a word of a rewrite; "thinked" is none, and two of three put "thought"; "are" and "it" are kept by two.
    assert found[0].meant == ("the", "people", None, "a", "cat", ".")
    assert found[1].meant == ("I", "thought", "they", "are", "interested", "in", "it")
    assert found[2].meant == ("teh", None)  # most keep the first; the second has another case alone
    assert found[1].read == found[1].text.split()
    assert found[0].clean == "the people has a cat ."


def paths_of(folder):
    return str(folder / "src"), [str(folder / name) for name in ("r0", "r1", "r2")]


def test_rewrites_of_other_lines_are_named(rewritten):
    (rewritten / "r1").write_text("one line\n")
    with pytest.raises(ValueError, match=r"r1: 1 lines, expected a rewrite of each of the 4 of \S*src"):
        read_rewritten(*paths_of(rewritten))


EXAMPLE = Example("teh cat sta on", ((0, 3), (4, 7), (8, 11), (12, 14)), ("the", "cat", "sat", "on"))


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([], (0, 0, 2, 0, 2)),
        ([Edit(0, 3, "the")], (1, 1, 2, 0, 2)),
        ([Edit(0, 3, "then"), Edit(4, 7, "car")], (0, 2, 2, 1, 2)),
        ([Edit(0, 3, "the"), Edit(8, 11, "sat")], (2, 2, 2, 0, 2)),
        ([Edit(9, 11, "at")], (1, 1, 2, 0, 2)),  # a part of the word is edited
        ([Edit(7, 8, "")], (0, 0, 2, 0, 2)),  # words are joined, and neither is another
        ([Edit(5, 5, " ")], (0, 1, 2, 1, 2)),  # a right word is cut
    ],
)
def test_counts_of_a_sentence(edits, expected):
    assert counts_of(EXAMPLE, edits) == expected


def test_scores_of_sums():
    found = scores(np.array([[6.0, 8, 12, 1, 500], [0, 0, 3, 0, 10]]))
    np.testing.assert_allclose(found["precision"], [0.75, 0])
    np.testing.assert_allclose(found["recall"], [0.5, 0])
    np.testing.assert_allclose(found["f0.5"], [1.25 * 0.75 * 0.5 / (0.25 * 0.75 + 0.5), 0])
    np.testing.assert_allclose(found["false_alarms"], [2, 0])


def test_the_command_writes_a_report(files, rewritten):
    pytest.importorskip("symspellpy")
    told = ["--data", f"{files}/text.txt", "--lists", f"{files}/list.txt", "--heldout-words", "1", "--rate", "1"]
    told += ["--clean", "0", "--typos", f"{files}/typos.conllu", "--rivals", "symspell", "--samples", "20"]
    source, rewrites = paths_of(rewritten)
    told += ["--rewritten", source, *rewrites]
    assert main([*told, "--out", f"{files}/out"]) == 0
    results = json.loads((files / "out" / "report.json").read_text())
    assert [one["name"] for one in results["sets"]] == [
        "Listed misspellings in real text",
        "Misspellings as they were written",
        "Misspellings that most rewrites mend",
    ]
    for one in results["sets"]:
        assert [of["system"] for of in one["systems"]] == ["as it is", "symspell", "symspell by word"]
        assert one["systems"][0]["changed"] == 0
    by_word = results["sets"][0]["systems"][2]
    assert 0 < by_word["right"] <= by_word["changed"] <= by_word["words"] + by_word["misspelled"]
    assert "| symspell by word |" in (files / "out" / "report.md").read_text()
    assert "meant: `The cat sat on the old mat.`" in (files / "out" / "sentences.md").read_text()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([], "expected --data FILE with --lists FILE, --typos FILE, or --rewritten FILE REWRITE"),
        (["--rewritten", "{typos}"], "expected a file and one or more rewrites of it"),
        (["--rewritten", "{typos}", "none.txt"], "--rewritten: 'none.txt' does not exist"),
        (["--data", "a"], "--data without --lists"),
        (["--typos", "none.conllu"], "--typos: 'none.conllu' does not exist"),
        (["--typos", "{typos}", "--words", "w.txt"], "--words=w.txt is for --models, which names none"),
        (["--typos", "{typos}", "--models", "a", "a/"], "--models: a is named twice"),
        (["--typos", "{typos}", "--fit"], "--fit: expected one model in --models, no --rivals and no --threshold"),
        (["--typos", "{typos}", "--rate", "2"], "--rate=2.0: expected a share"),
        (["--typos", "{typos}", "--threshold", "2"], "threshold=2.0: expected a probability"),
        (["--typos", "{typos}", "--rivals", "symspel"], "--rivals=symspel: 'symspel' is not one of"),
        (["--typos", "{typos}", "--rivals", "nfkc"], "'nfkc' is not one of"),
    ],
)
def test_mistakes_are_one_line(files, capsys, told, why):
    told = [one.format(typos=files / "typos.conllu") for one in told]
    assert main([*told, "--out", f"{files}/out"]) == 1
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
