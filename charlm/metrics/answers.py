"""The scores of SQuAD, as its published evaluation defines them: exact match and F1 in percent (0 to 100).

Answers are normalised: lower case, no ASCII punctuation, no a/an/the, single spaces. Exact match compares the
normalised texts; F1 compares them as bags of words; the best score over the annotators' answers counts. For a question
without an answer, only an empty prediction is right. Open this module when charlm's numbers differ from those of the
evaluation script.

Undefined cases: scores of a kind of question that does not occur (HasAns or NoAns) are left out; if there are no
questions at all, a ValueError is raised.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from charlm.core.nearest import ALIKE, did_you_mean
from charlm.data.examples import QuestionExample
from charlm.metrics.classification import divide

SPLITTING = ("words", "mixed", "characters")

_NOTHING = (0.0, 0.0, 0.0)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_HAN = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


def normalized(text: str, splitting: str = "words") -> list[str]:
    """Returns the normalised words of an answer, by which answers are compared.

    Args:
      text: the answer.
      splitting: "words": as in SQuAD and XQuAD; "mixed": every Han character is a word of its own, as in MLQA for
        Chinese; "characters": every character is a word, for other scripts without spaces. "mixed" and "characters"
        remove all Unicode punctuation and keep a, an and the.
    """
    if splitting == "words":
        return _ARTICLES.sub(" ", text.lower().translate(_NO_ASCII_PUNCTUATION)).split()
    kept = "".join(
        char for char in text.lower() if char not in string.punctuation and unicodedata.category(char)[0] != "P"
    )
    return _HAN.sub(r" \1 ", kept).split() if splitting == "mixed" else list("".join(kept.split()))


def _scores(answers: Sequence[list[str]], predicted: list[str]) -> tuple[float, float]:
    """Returns exact match and F1 of a prediction (0 to 1), each the maximum over the answers."""
    exact, f1 = 0.0, 0.0
    for answer in answers:
        same = float(answer == predicted)
        exact = max(exact, same)
        if not answer or not predicted:
            f1 = max(f1, same)
        elif common := (Counter(answer) & Counter(predicted)).total():
            precision, recall = common / len(predicted), common / len(answer)
            f1 = max(f1, 2 * precision * recall / (precision + recall))
    return exact, f1


def per_example_answers(
    examples: Sequence[QuestionExample],
    predictions: Mapping[str, str],
    *,
    null_odds: Mapping[str, float] | None = None,
    threshold: float | None = None,
    splitting: str = "words",
) -> np.ndarray:
    """Returns a row for each question, whose sums give the scores of SQuAD.

    A row is [exact, f1, 1] three times: for all questions, for those with an answer (HasAns), and for those without
    (NoAns); the part that does not apply to a question is zeros.

    Args:
      examples: the questions with their answers.
      predictions: the predicted answer by question id, "" for none; ids of other questions are ignored.
      null_odds: the evidence for "no answer" by question id: a probability or odds.
      threshold: if the null odds are above it, the prediction counts as ""; None: predictions count as they are.
      splitting: see `normalized`.

    Raises:
      ValueError: there are no questions, a prediction is missing, or the answer of a question is unknown.
    """
    if splitting not in SPLITTING:
        near = did_you_mean(splitting, SPLITTING, ALIKE)
        raise ValueError(f"splitting={splitting!r}: expected one of {', '.join(SPLITTING)}{near}")
    _check_answers(examples, predictions)
    if threshold is not None:
        _check_odds(examples, null_odds)
    rows = []
    for example in examples:
        answerable = bool(example.answers)
        if threshold is not None and null_odds is not None and null_odds[example.id] > threshold:
            exact = f1 = float(not answerable)
        else:
            golds = [words for answer in example.answers if (words := normalized(answer.text, splitting))]
            exact, f1 = _scores(golds or [[]], normalized(predictions[example.id], splitting))
        row = (exact, f1, 1.0)
        rows.append((*row, *row, *_NOTHING) if answerable else (*row, *_NOTHING, *row))
    return np.array(rows)


def _check_answers(examples: Sequence[QuestionExample], predictions: Mapping[str, str]) -> None:
    if not examples:
        raise ValueError("no questions to score")
    missing = [example.id for example in examples if example.id not in predictions]
    if missing:
        raise ValueError(
            f"predictions: {len(missing)} of {len(examples)} questions have none; the first is {missing[0]!r}"
        )
    for example in examples:
        if not example.answers and not example.impossible:
            raise ValueError(f"{example.place}: no answer is known; expected answers, or an impossible question")


def _check_odds(examples: Sequence[QuestionExample], odds: Mapping[str, float] | None) -> None:
    if odds is None:
        raise ValueError("threshold: expected null_odds with it")
    for example in examples:
        if not math.isfinite(odds.get(example.id, math.nan)):
            got = odds.get(example.id, "nothing")
            raise ValueError(f"null_odds: question {example.id!r}: expected a finite number, got {got}")


def squad_scores(
    examples: Sequence[QuestionExample],
    predictions: Mapping[str, str],
    *,
    null_odds: Mapping[str, float] | None = None,
    threshold: float | None = None,
    splitting: str = "words",
) -> dict[str, float]:
    """Returns the scores of SQuAD under the names of its evaluation; the arguments are those of `per_example_answers`.

    Returns:
      "exact", "f1" and "total"; the same with the prefixes HasAns_ and NoAns_ if such questions occur; and, if
      `null_odds` is given, the best scores over all thresholds: "best_exact", "best_exact_thresh", "best_f1" and
      "best_f1_thresh".
    """
    rows = per_example_answers(examples, predictions, null_odds=null_odds, threshold=threshold, splitting=splitting)
    # The published evaluation adds up one by one; NumPy sums in another order, which changes the last digits.
    sums = [_plain_sum(column) for column in rows.T.tolist()]
    scores = {name: float(value[0]) for name, value in answer_scores_from_sums(np.array([sums])).items()}
    if null_odds is not None:
        _check_odds(examples, null_odds)
        raw = rows if threshold is None else per_example_answers(examples, predictions, splitting=splitting)
        for column, name in enumerate(("exact", "f1")):
            best = _best_threshold(examples, predictions, null_odds, raw[:, column].tolist())
            scores[f"best_{name}"], scores[f"best_{name}_thresh"] = best
    return scores


def _plain_sum(values: Sequence[float]) -> float:
    """Returns the sum from left to right, unlike `sum` of Python 3.12, which compensates rounding errors."""
    total = 0.0
    for value in values:
        total += value
    return total


def _best_threshold(
    examples: Sequence[QuestionExample],
    predictions: Mapping[str, str],
    odds: Mapping[str, float],
    scores: Sequence[float],
) -> tuple[float, float]:
    """Returns the best score in percent and its threshold.

    The search begins with a threshold below all odds, where every prediction counts as "". Then the threshold rises
    past one question after the other, in the order of their odds, and the prediction of that question counts: it adds
    its score; if the question has no answer, a prediction that is not empty loses a point. As in the published
    evaluation, questions of equal odds are taken one after the other, although no threshold separates them.
    """
    by_id = {example.id: (bool(example.answers), score) for example, score in zip(examples, scores, strict=True)}
    order = sorted((key for key in odds if key in by_id), key=lambda key: odds[key])
    current = best = float(sum(not answerable for answerable, _ in by_id.values()))
    threshold = 0.0 if odds[order[0]] >= 0 else math.nextafter(odds[order[0]], -math.inf)
    for key in order:
        answerable, score = by_id[key]
        if answerable:
            current += score
        elif predictions[key]:
            current -= 1
        if current > best:
            best, threshold = current, float(odds[key])
    return 100.0 * best / len(by_id), threshold


def answer_scores_from_sums(sums_RS: np.ndarray) -> dict[str, np.ndarray]:
    """Returns "exact", "f1" and "total", without prefix and with HasAns_ and NoAns_, from sums of rows.

    Args:
      sums_RS: R sums over rows of `per_example_answers`.
    """
    scores = {}
    for prefix, part in zip(("", "HasAns_", "NoAns_"), np.split(sums_RS, 3, axis=1), strict=True):
        if part[:, 2].any():
            scores[f"{prefix}exact"] = divide(100.0 * part[:, 0], part[:, 2])
            scores[f"{prefix}f1"] = divide(100.0 * part[:, 1], part[:, 2])
            scores[f"{prefix}total"] = part[:, 2]
    return scores
