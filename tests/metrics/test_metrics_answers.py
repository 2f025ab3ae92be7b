"""Tests SQuAD's scores: by hand, against the official evaluation, and for scripts without spaces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from charlm.data.examples import Answer, QuestionExample
from charlm.data.squad import read_squad
from charlm.metrics import normalized, per_example_answers, score_from_statistics, squad_scores

GOLDENS = Path(__file__).parents[1] / "goldens" / "tasks"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "qa"


@pytest.fixture(scope="module")
def golden():
    """Questions of our own, predictions and odds, and what the official evaluation made of them."""
    return read_squad(str(GOLDENS / "squad.json")), json.loads((GOLDENS / "squad_scores.json").read_text())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Cat's  a-n/an  \u2028 AN", ["cats", "anan"]),
        ("a, the. An!", []),
        ("theatre another 3,000 U.S.", ["theatre", "another", "3000", "us"]),
        ("«Ça» – “x”", ["«ça»", "–", "“x”"]),
        ("a-the", ["athe"]),
        ("a\u00a0the_x", ["thex"]),
    ],
)
def test_normalized_as_published(text, words):
    assert normalized(text) == words


def test_normalized_of_scripts_without_spaces():
    assert normalized("在2008年，The 北京。", "mixed") == ["在", "2008", "年", "the", "北", "京"]
    assert normalized("กรุง เทพ!", "characters") == [*"กรุงเทพ"]
    assert normalized("\U00020000x㐀", "mixed") == ["\U00020000", "x", "㐀"]
    assert normalized("ひらがな", "mixed") == ["ひらがな"]


def test_single_scores_by_hand(golden):
    examples, expected = golden
    rows = per_example_answers(examples, expected["predictions"])
    by_hand = {
        "q1": (1, 1),  # articles and punctuation do not count
        "q2": (0, 2 / 3),  # oak of 1821 / oak in 1821: 2 of 3 words on both sides
        "q3": (0, 1 / 2),  # flood / flood of 1903: precision 1, recall 1/3
        "q4": (0, 1 / 2),  # millers daughters / millers daughter
        "q5": (0, 0),  # empty, but there is an answer
        "q6": (1, 1),  # empty, and there is none
        "q7": (0, 0),  # there is none
        "q8": (1, 1),
        "q9": (1, 1),  # "The" is empty when normalised, and so is "the"
        "q10": (1, 1),  # the second answer
        "q11": (1, 1),  # "the" counts as empty
        "q12": (0, 4 / 5),  # year of great storm of year: each word counts as often as the answer has it
    }
    for example, row in zip(examples, rows, strict=True):
        assert tuple(row[:2]) == pytest.approx(by_hand[example.id], abs=1e-15), example.id


@pytest.mark.parametrize(
    ("answers", "predicted", "f1"),
    [
        (["New York, New York"], "New New York", 6 / 7),  # three words in common: 3 of 3, 3 of 4
        (["New York"], "New New York", 4 / 5),  # 2 of 3, 2 of 2
        (["New New York"], "New York York", 2 / 3),  # 2 of 3 on both sides, though the same words occur
        (["to be or not to be"], "to be to be", 4 / 5),  # 4 of 4, 4 of 6
        (["so so", "so so so so"], "so so so", 6 / 7),  # 2 of 3 and 2 of 2; 3 of 3 and 3 of 4, which is better
        (["so so"], "so", 2 / 3),
    ],
)
def test_words_in_common_are_counted_as_often_as_both_have_them(answers, predicted, f1):
    context = answers[-1]
    example = QuestionExample("a", "", "", context, tuple(Answer(text, 0) for text in answers))
    ((exact, found, _, *_),) = per_example_answers([example], {"a": predicted})
    assert (exact, found) == (0, pytest.approx(f1, abs=1e-15))


def test_scores_equal_the_official_evaluation(golden):
    examples, expected = golden
    for threshold, scores in expected["scores"].items():
        found = squad_scores(
            examples, expected["predictions"], null_odds=expected["null_odds"], threshold=float(threshold)
        )
        assert found == scores
    plain = squad_scores(examples, expected["predictions"])
    assert plain == {name: value for name, value in expected["scores"]["1.0"].items() if "best" not in name}


def test_thresholds_of_odds_below_zero():
    examples = [QuestionExample(name, "", "", "x", (Answer("x", 0),)) for name in "ab"]
    examples.append(QuestionExample("c", "", "", "x", (), True))
    odds = {"a": -2.5, "b": 1.5, "c": -1.0}
    found = squad_scores(examples, {"a": "x", "b": "y", "c": "x"}, null_odds=odds)
    assert (found["best_exact"], found["best_exact_thresh"]) == (pytest.approx(200 / 3), -2.5)
    nothing = squad_scores(examples, {"a": "y", "b": "y", "c": "x"}, null_odds=odds)
    assert nothing["best_exact"] == pytest.approx(100 / 3)
    assert nothing["best_exact_thresh"] < -2.5, "below all odds: every prediction counts as empty"
    applied = squad_scores(
        examples, {"a": "y", "b": "y", "c": "x"}, null_odds=odds, threshold=nothing["best_exact_thresh"]
    )
    assert applied["exact"] == nothing["best_exact"]


@pytest.mark.parametrize(
    ("odds", "predictions", "best", "threshold"),
    [
        ({"c": 0.1, "a": 0.2, "b": 0.3}, {"a": "x", "b": "x", "c": "x"}, 200 / 3, 0.3),  # 1 - 1 + 1 + 1 points
        ({"a": 0.2, "b": 0.3, "c": 0.1}, {"a": "y", "b": "y", "c": ""}, 100 / 3, 0.0),
        ({"a": 0.0, "b": 0.3, "c": 0.1}, {"a": "y", "b": "y", "c": "x"}, 100 / 3, 0.0),
        ({"a": 0.2, "b": 0.2, "c": 0.2}, {"a": "x", "b": "y", "c": "x"}, 200 / 3, 0.2),  # in the order of the odds
        ({"c": 0.2, "b": 0.2, "a": 0.2}, {"a": "x", "b": "y", "c": "x"}, 100 / 3, 0.0),
        ({"other": 0.0, "a": 0.2, "b": 0.3, "c": 0.9}, {"a": "x", "b": "x", "c": "x"}, 100.0, 0.3),
        # Without an answer it is right below its threshold and above: 1 + 0 + 1 + 1 points.
        ({"c": 0.1, "a": 0.2, "b": 0.3}, {"a": "x", "b": "x", "c": ""}, 100.0, 0.3),
        ({"a": 0.2, "c": 0.25, "b": 0.3}, {"a": "x", "b": "y", "c": ""}, 200 / 3, 0.2),
        # As in the evaluation, what normalises to nothing is an answer here: 1 - 1 + 1 + 1 points.
        ({"c": 0.1, "a": 0.2, "b": 0.3}, {"a": "x", "b": "x", "c": "The"}, 200 / 3, 0.3),
    ],
)
def test_best_thresholds_by_hand(odds, predictions, best, threshold):
    examples = [QuestionExample(name, "", "", "x", (Answer("x", 0),)) for name in "ab"]
    examples.append(QuestionExample("c", "", "", "x", (), True))
    found = squad_scores(examples, predictions, null_odds=odds)
    for name in ("exact", "f1"):
        assert found[f"best_{name}"] == pytest.approx(best)
        assert found[f"best_{name}_thresh"] == threshold


def test_shares_without_questions_are_left_out():
    answerable = [QuestionExample("a", "", "", "x", (Answer("x", 0),))]
    assert set(squad_scores(answerable, {"a": "x"})) == {
        "exact",
        "f1",
        "total",
        "HasAns_exact",
        "HasAns_f1",
        "HasAns_total",
    }
    impossible = [QuestionExample("a", "", "", "x", (), True)]
    found = squad_scores(impossible, {"a": "x", "other": "y"})
    assert found == {"exact": 0, "f1": 0, "total": 1, "NoAns_exact": 0, "NoAns_f1": 0, "NoAns_total": 1}


def test_splitting_of_chinese_answers():
    examples = [
        QuestionExample("a", "", "", "", (Answer("北京大学", 0),)),
        QuestionExample("b", "", "", "", (Answer("上海", 0),)),
    ]
    predictions = {"a": "北京大", "b": "“上海”"}
    assert squad_scores(examples, predictions)["f1"] == 0
    mixed = squad_scores(examples, predictions, splitting="mixed")
    assert mixed["f1"] == pytest.approx(100 * (6 / 7 + 1) / 2)
    assert mixed["exact"] == 50
    assert squad_scores(examples, predictions, splitting="characters") == mixed


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"predictions": {"b": ""}}, r"predictions: 1 of 2 questions have none; the first is 'a'"),
        ({"examples": []}, "no questions to score"),
        ({"splitting": "mixd"}, r"splitting='mixd': expected one of words, mixed, characters; did you mean mixed"),
        ({"threshold": 0.5}, "threshold: expected null_odds with it"),
        ({"null_odds": {"a": 1.0}}, r"null_odds: question 'b': expected a finite number, got nothing"),
        ({"null_odds": {"a": 1.0, "b": float("inf")}}, r"null_odds: question 'b': expected a finite number, got inf"),
        (
            {"null_odds": {"a": 1.0}, "threshold": 0.5},
            r"null_odds: question 'b': expected a finite number, got nothing",
        ),
        (
            {"examples": [QuestionExample("a", "x.json: a", "", "x")]},
            r"x\.json: a: no answer is known; expected answers, or an impossible question",
        ),
    ],
)
def test_errors(kwargs, message):
    examples = [QuestionExample(name, "", "", "x", (Answer("x", 0),)) for name in "ab"]
    with pytest.raises(ValueError, match=message):
        squad_scores(**{"examples": examples, "predictions": {"a": "", "b": ""}} | kwargs)


def test_sums_over_questions_give_the_scores(golden):
    examples, expected = golden
    for threshold in (None, 0.5):
        settings = {"null_odds": expected["null_odds"], "threshold": threshold}
        scores = squad_scores(examples, expected["predictions"], **settings)
        rows = per_example_answers(examples, expected["predictions"], **settings)
        sums = score_from_statistics("squad", rows.sum(0))
        assert sums == pytest.approx({name: value for name, value in scores.items() if "best" not in name}, rel=1e-12)


@pytest.mark.skipif(not SHARED.exists(), reason="no shared data")
@pytest.mark.parametrize("name", ["v2.0_bert_single", "v2.0_nlnet_single", "v1.1_bert_ensemble", "v1.1_matchlstm"])
def test_published_systems_score_as_the_official_evaluation_says(name):
    expected = json.loads((SHARED / "golden" / "expected_scores.json").read_text())[name]
    expected.pop("missing_predictions_filled_with_empty")
    version, system = name.split("_", 1)
    examples = read_squad(str(SHARED / f"squad_{version}_devset_devarticles.json.gz"))
    predictions = json.loads(
        gzip.decompress((SHARED / "golden" / f"squad_{version}_pred_{system}.json.gz").read_bytes())
    )
    assert squad_scores(examples, predictions) == expected
