"""Tests SQuAD's files: offsets, defects of answers, messages for damaged files, and written predictions."""

from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.data.examples import Answer, QuestionExample, Skipped
from charlm.data.squad import (
    Candidate,
    read_squad,
    write_squad_nbest,
    write_squad_null_odds,
    write_squad_predictions,
)

GOLDENS = Path(__file__).parents[1] / "goldens" / "tasks"
CONTEXT = "the mill and the old mill by the river"


def question(identifier="q", answers=(("mill", 4),), **more):
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": identifier, "question": "What?", "answers": listed} | more


def squad(*questions, context=CONTEXT):
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def write(path, value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return str(path)


def test_golden_file_has_every_answer_in_its_context():
    skipped = Skipped()
    examples = read_squad(str(GOLDENS / "squad.json"), skipped=skipped)
    assert skipped.report() == []
    assert [example.id for example in examples] == [f"q{i}" for i in range(1, 13)]
    assert [example.id for example in examples if example.impossible] == ["q6", "q7", "q11"]
    for example in examples:
        for answer in example.answers:
            assert example.context[answer.start :].startswith(answer.text)
    assert examples[0].answers == (Answer("The old mill", 0), Answer("old mill", 4))


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_bom_of_the_file_is_none_of_the_context(tmp_path, name):
    value = squad(question(7, [("ab", 1)]), context="\ufeffab\u2028c")
    for bom in (b"", b"\xef\xbb\xbf"):
        path = write(tmp_path / name, bom + json.dumps(value, ensure_ascii=False).encode())
        skipped = Skipped()
        expected = QuestionExample("7", f"{path}: 7", "What?", "\ufeffab\u2028c", (Answer("ab", 1),), False)
        assert read_squad(path, skipped=skipped) == [expected]
        assert skipped.report() == []


@pytest.mark.parametrize(
    ("text", "start", "expected", "reason"),
    [
        ("mill", 4, ("mill", 4), ""),
        ("mill", 5, ("mill", 4), "answer moved to its nearest occurrence in the context"),
        ("mill", 16, ("mill", 21), "answer moved to its nearest occurrence in the context"),
        ("mill", -1, ("mill", 4), "answer moved to its nearest occurrence in the context"),
        ("mill", 999, ("mill", 21), "answer moved to its nearest occurrence in the context"),
        ("old  mill\n", 0, ("old mill", 17), "answer found with other spaces in the context"),
        ("Mill", 4, ("Mill", -1), "answer that is not in the context, kept for scoring only"),
        (" ", 3, (" ", 3), ""),
        ("\t", 3, ("\t", -1), "answer that is not in the context, kept for scoring only"),
    ],
)
def test_answers_are_looked_for(tmp_path, text, start, expected, reason):
    path = write(tmp_path / "a.json", squad(question(answers=[(text, start)])))
    skipped = Skipped()
    (example,) = read_squad(path, skipped=skipped)
    assert example.answers == (Answer(*expected),)
    assert skipped.report() == ([f"repaired 1 x {reason}: {path}: q"] if reason else [])


def test_overlapping_occurrences_are_all_looked_at(tmp_path):
    path = write(tmp_path / "a.json", squad(question(answers=[("aba", 3)]), context="xababay"))
    assert read_squad(path)[0].answers == (Answer("aba", 3),)
    path = write(tmp_path / "a.json", squad(question(answers=[("aba", 4)]), context="xababay"))
    assert read_squad(path)[0].answers == (Answer("aba", 3),)


def looked_for(context, text, start):
    """The answer as regular expressions find it: all places, the nearest, with the same spaces or with others."""
    if start >= 0 and text and context[start : start + len(text)] == text:
        return Answer(text, start)
    pieces = [re.escape(piece) for piece in text.split()]
    for pattern in (re.escape(text), r"\s+".join(pieces)) if pieces else ():
        spans = [match.span(1) for match in re.finditer(f"(?=({pattern}))", context)]
        if spans:
            first, stop = min(spans, key=lambda span: abs(span[0] - start))
            return Answer(context[first:stop], first)
    return Answer(text, -1)


WORDS = st.text(st.sampled_from("ab \n\u00a0\x1c."), max_size=14)


@settings(max_examples=400, deadline=None)
@given(context=st.text(st.sampled_from("ab \n\u00a0\x1c."), max_size=40), text=WORDS, start=st.integers(-2, 45))
def test_the_nearest_place_of_all(tmp_path_factory, context, text, start):
    path = write(tmp_path_factory.mktemp("squad") / "a.json", squad(question(answers=[(text, start)]), context=context))
    assert read_squad(path)[0].answers == (looked_for(context, text, start),)


@pytest.mark.parametrize("unit", ["a ", "a\n", "ab ", "a"])
def test_an_answer_that_is_nowhere_is_looked_for_once(tmp_path, unit):
    context = unit * 40_000
    texts = [f"{unit * 20_000}b", f"b{unit * 20_000}", f"{unit.replace(' ', '  ') * 19_999}b b"]
    path = write(tmp_path / "a.json", squad(question(answers=[(text, 39_999) for text in texts]), context=context))
    before = time.process_time()
    assert [answer.start for answer in read_squad(path)[0].answers] == [-1] * 3
    assert time.process_time() - before < 4  # seconds; trying each place took more than ten for each


def test_training_needs_an_answer_in_the_context(tmp_path):
    questions = [
        question("lost", [("Mill", 4), ("", 0)]),
        question("half", [("Mill", 4), ("mill", 4)]),
        question("none", [], is_impossible=True),
    ]
    path = write(tmp_path / "a.json", squad(*questions))
    skipped = Skipped()
    assert [example.id for example in read_squad(path, training=True, skipped=skipped)] == ["half", "none"]
    assert skipped.report() == [
        f"skipped 1 x no answer is in the context: {path}: lost",
        f"repaired 1 x answer that is not in the context, kept for scoring only: {path}: half",
    ]
    assert len(read_squad(path)) == 3


def test_answers_say_what_is_impossible(tmp_path):
    questions = [
        question("a", [], is_impossible=True),
        question("b", []),
        question("c", [], is_impossible=False),
        question("d", is_impossible=True),
        question("e", is_impossible=False),
    ]
    path = write(tmp_path / "a.json", squad(*questions))
    skipped = Skipped()
    assert [example.impossible for example in read_squad(path, skipped=skipped)] == [True, True, True, False, False]
    assert skipped.report() == [
        f"repaired 2 x is_impossible contradicts the answers, which count: {path}: c, {path}: d"
    ]


def test_questions_without_known_answers(tmp_path):
    unknown = question("u")
    del unknown["answers"]
    path = write(tmp_path / "a.json", squad(unknown))
    assert read_squad(path)[0] == QuestionExample("u", f"{path}: u", "What?", CONTEXT, (), False)
    with pytest.raises(ValueError, match=r"a\.json: data\[0\]\.paragraphs\[0\]\.qas\[0\]: missing 'answers'"):
        read_squad(path, training=True)


def without(item, key):
    return {name: value for name, value in item.items() if name != key}


HERE = r"a\.json: data\[0\]\.paragraphs\[0\]"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (squad(question("x"), without(question(), "id")), HERE + r"\.qas\[1\]: missing 'id'; keys: question, answers"),
        (squad(question("x"), question("x")), HERE + r"\.qas\[1\]: id 'x' is also that of data\[0\].*\.qas\[0\]$"),
        (squad(question("1"), question(1)), HERE + r"\.qas\[1\]: id '1' is also that of"),
        (squad(question(True)), HERE + r"\.qas\[0\]\.id: expected a string or a whole number, got true"),
        (squad(question(question=None)), HERE + r"\.qas\[0\]\.question: expected a string, got null"),
        (squad(question(answers=[(3, 4)])), HERE + r"\.qas\[0\]\.answers\[0\]\.text: expected a string, got 3"),
        (squad(question(answers=[("mill", "4")])), HERE + r".*\.answers\[0\]\.answer_start: expected a whole number"),
        (squad(question() | {"answers": {"text": []}}), HERE + r"\.qas\[0\]\.answers: expected an array, got {"),
        (squad("x"), HERE + r"\.qas\[0\]: expected an object, got \"x\""),
        ({"data": ["x"]}, r"a\.json: data\[0\]: expected an object, got \"x\""),
        ({"data": [{"paragraphs": [["context"]]}]}, HERE + r": expected an object, got \[\"context\"\]"),
        (squad(context=3), HERE + r"\.context: expected a string, got 3"),
        ({"data": [{"paragraph": []}]}, r"a\.json: data\[0\]: missing 'paragraphs'; keys: .*; did you mean paragraph"),
        ({"dat": []}, r"a\.json: top level: missing 'data'; keys: dat; did you mean dat"),
        ([], r"a\.json: top level: expected an object, got \[\]"),
        ({"data": []}, r"a\.json: no questions"),
        (b'{"data": [', r"a\.json: invalid JSON \(Expecting value: line 1 column 11"),
        (b"", r"a\.json: invalid JSON"),
        (b"\x1f\x8b\0", r"a\.json: file looks binary"),
        (b'{"data": "' + b"\n" * 9000 + b"caf\xe9" + b'"}', r"a\.json: invalid UTF-8 \(byte 0xe9 at 9013\)"),
    ],
)  # fmt: skip
def test_errors(tmp_path, value, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_squad(write(tmp_path / "a.json", value))
    assert "\n" not in str(caught.value)


def test_predictions_in_the_layouts_of_the_evaluation(tmp_path):
    path = str(tmp_path / "out.json")
    write_squad_predictions(path, {"q1": "é \u2028", "q2": ""})
    assert json.loads(Path(path).read_text()) == {"q1": "é \u2028", "q2": ""}
    assert "é" in Path(path).read_text()
    write_squad_nbest(path, {"q1": [Candidate("mill", 0.75, 4, 8), Candidate("", 0.25, 0, 0)]})
    best = {"text": "mill", "probability": 0.75, "start": 4, "end": 8}
    assert json.loads(Path(path).read_text()) == {"q1": [best, {"text": "", "probability": 0.25, "start": 0, "end": 0}]}
    write_squad_null_odds(path, {"q1": -1.5, "q2": 2})
    assert json.loads(Path(path).read_text()) == {"q1": -1.5, "q2": 2.0}
    with pytest.raises(ValueError, match=r"out\.json: question 'q2': odds of no answer are nan; expected a finite"):
        write_squad_null_odds(path, {"q1": 0.0, "q2": float("nan")})
    assert [child.name for child in tmp_path.iterdir()] == ["out.json"]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=[]))))
def test_written_predictions_read_back(tmp_path_factory, texts):
    path = str(tmp_path_factory.mktemp("squad") / "out.json")
    texts |= {"surrogate": "\ud800", "controls": "\x00\x1f\x7f\u2028"}
    write_squad_predictions(path, texts)
    assert json.loads(Path(path).read_text(encoding="utf-8")) == texts
