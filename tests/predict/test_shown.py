"""Tests of how a terminal shows the answers of `charlm predict`."""

import json
import sys

import pytest

from charlm.predict.command_line import main
from charlm.predict.shown import printed

TAGGER = "hlm-small-en-pos"


@pytest.mark.parametrize(
    ("command", "result", "lines"),
    [
        (
            "tag",
            {
                "words": [
                    {"word": "teh", "start": 0, "end": 3, "label": "DET", "probability": 0.99925},
                    {"word": "unread", "start": 4, "end": 10, "label": "NOUN", "probability": None},
                ]
            },
            ["  0.999  teh     DET", "  -      unread  NOUN"],
        ),
        ("tag", {"words": []}, []),
        (
            "classify",
            {"label": "b", "probabilities": {"a": 0.1, "b": 0.5, "c": 0.2, "d": 0.1, "e": 0.05, "f": 0.03, "g": 0.02}},
            ["  0.500  b", "  0.200  c", "  0.100  a", "  0.100  d", "  0.050  e", "  and 2 less likely ones"],
        ),
        ("classify", {"label": "b", "probabilities": {"b": 1.0}}, ["  1.000  b"]),
        ("measure", {"value": -1.25}, ["  -1.250"]),
        ("rank", {"score": 12.5}, ["  12.500"]),
        (
            "answer",
            {"answer": "", "candidates": [{"text": "", "probability": 0.7}, {"text": "Ada", "probability": 0.3}]},
            ["  no answer; the likeliest are", "  0.700  (no answer)", "  0.300  Ada"],
        ),
        ("answer", {"answer": "Ada", "candidates": [{"text": "Ada", "probability": 0.9}]}, ["  0.900  Ada"]),
        (
            "correct",
            {"corrected": "the cat", "edits": [{"word": "teh", "correction": "the", "probability": 0.98}]},
            ["  the cat", "  0.980  teh -> the"],
        ),
        ("correct", {"corrected": "the cat", "edits": []}, ["  nothing to correct"]),
        (
            "score",
            {
                "log_prob": -3.5,
                "bits_per_char": 2.25,
                "pieces": [{"piece": "a", "log_prob": None}, {"piece": "b", "log_prob": -3.5}],
            },
            ["  log-probability -3.500, 2.250 bits a character", "  -       a", "  -3.500  b"],
        ),
        ("score", {"log_prob": -3.5, "bits_per_char": 2.25}, ["  log-probability -3.500, 2.250 bits a character"]),
        ("generate", {"generated": " end.", "finished": True}, ["  ... end."]),
        ("generate", {"generated": " and", "finished": False}, ["  ... and ..."]),
        ("neighbors", {"neighbors": [{"subword": "##s", "cosine": 0.5}]}, ["  0.500  ##s"]),
        ("fill-mask", {"fills": [[]]}, ["  no word that is known fits"]),
        (
            "encode",
            {"sentence": [0.5] * 9, "words": [{"word": "a", "vector": [0.25] * 9}]},
            ["  a      " + "0.250  " * 6 + "...", "  (all)  " + "0.500  " * 6 + "..."],
        ),
        ("encode", {"sentence": [0.5, -1.0]}, ["  (all)  0.500  -1.000  ..."]),
    ],
)
def test_people_read_lines(command, result, lines):
    shown = printed(command, "auto", terminal=True)
    assert shown is not None
    assert shown("the text", result) == "\n".join(["the text", *lines])


def test_no_text_moves_or_colours_the_terminal_and_wide_ones_are_aligned():
    words = [
        {"word": word, "label": "X", "probability": 0.5} for word in ("\x1b[31m", "a\nb", "猫猫", "e\u0301", "abc")
    ]
    shown = printed("tag", "text", terminal=True)
    assert shown is not None
    assert shown("a\x1b[2J\r\nb", {"words": words}).split("\n") == [
        "a\\x1b[2J\\r\\nb",
        "  0.500  \\x1b[31m  X",
        "  0.500  a\\nb      X",
        "  0.500  猫猫      X",
        "  0.500  e\u0301         X",
        "  0.500  abc       X",
    ]


@pytest.mark.parametrize("form", ["auto", "text", "json", "conll"])
@pytest.mark.parametrize("terminal", [True, False])
def test_the_form_decides(form, terminal):
    shown = printed("tag", form, terminal)
    as_json = form == "json" or (form == "auto" and not terminal)
    assert (shown is None) == as_json
    if form == "conll":
        assert shown("", {"words": [{"word": "a", "label": "DET"}]}) == "a\tDET\n"


def test_tags_come_with_their_probability(capsys, monkeypatch):
    assert main(["tag", f"--model={TAGGER}", "teh cat"]) == 0
    words = json.loads(capsys.readouterr().out)["words"]
    assert [(w["word"], w["start"], w["end"], w["label"]) for w in words] == [
        ("teh", 0, 3, "DET"),
        ("cat", 4, 7, "NOUN"),
    ]
    assert all(0.5 < w["probability"] <= 1 for w in words)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["tag", f"--model={TAGGER}", "teh cat", "\udcff"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["teh cat", *[f"  {w['probability']:.3f}  {w['word']}  {w['label']}" for w in words]]
    assert err == "error: text 2: expected a text in UTF-8\n"
    assert main(["tag", f"--model={TAGGER}", "--format=json", "teh cat"]) == 0
    assert json.loads(capsys.readouterr().out)["words"] == words
