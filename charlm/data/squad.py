"""Reads questions in SQuAD's JSON (1.1, 2.0, XQuAD, JSQuAD, ARCD), and writes predictions for its evaluation script.

Offsets count the characters of the unchanged context; a U+FEFF at its beginning counts, too. Open it when questions are
skipped or answers are found at the wrong place.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from charlm.core.durable import replacing
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.types import Json, JsonObject
from charlm.data.examples import Answer, QuestionExample, Skipped
from charlm.data.lines import parsed_json, whole_text

T = TypeVar("T")

_MOVED = "answer moved to its nearest occurrence in the context"
_SPACED = "answer found with other spaces in the context"

_KINDS: dict[type, str] = {str: "a string", list: "an array", dict: "an object", int: "a whole number"}


class Candidate(NamedTuple):
    """One of the best answers to a question; start and end are character offsets in the context, end excluded."""

    text: str
    probability: float
    start: int
    end: int


def read_squad(path: str, *, training: bool = False, skipped: Skipped | None = None) -> list[QuestionExample]:
    """Reads the questions of a file, also gzipped, in the file's order.

    If an answer is not at its `answer_start`, its nearest occurrence is taken, else the nearest occurrence with other
    white space (the answer then becomes the context's own text); both are counted as repaired. An answer that does not
    occur in the context keeps its text, for scoring, and gets start -1.

    Args:
      path: the file.
      training: whether to skip, and count, questions that are possible but have no answer in the context.
      skipped: counts repairs and skipped questions.

    Raises:
      ValueError: damaged JSON, a missing or wrong value, an id that is not unique; names the file and the path within
        it, as in "data[3].paragraphs[0].qas[2]: missing 'id'".
    """
    skipped = skipped or Skipped()
    root = parsed_json(whole_text(path), path)
    examples: list[QuestionExample] = []
    seen: dict[str, str] = {}
    for where, context, qa in _questions(root, f"{path}: "):
        identifier = str(_value(qa, where, "id", str, int))
        place = f"{path}: {identifier}"
        if identifier in seen:
            raise ValueError(f"{where}: id {identifier!r} is also that of {seen[identifier].removeprefix(f'{path}: ')}")
        seen[identifier] = where
        question = _value(qa, where, "question", str)
        answers, known = _answers(qa, where, context, place, skipped)
        impossible = known and not answers
        if known and bool(qa.get("is_impossible", impossible)) != impossible:
            skipped.repair("is_impossible contradicts the answers, which count", place)
        if training and not known:
            raise ValueError(
                f"{where}: missing 'answers'; keys: {', '.join(qa)}{did_you_mean('answers', [*qa], ALIKE)}"
            )
        absent = sum(answer.start < 0 for answer in answers)
        if training and answers and absent == len(answers):
            skipped.skip("no answer is in the context", place)
            continue
        for _ in range(absent):
            skipped.repair("answer that is not in the context, kept for scoring only", place)
        examples.append(QuestionExample(identifier, place, question, context, answers, impossible))
    if not seen:
        raise ValueError(f"{path}: no questions")
    return examples


def _questions(root: Json, prefix: str) -> Iterator[tuple[str, str, JsonObject]]:
    """Yields each question's path within the file, its context and its object."""
    _checked(root, f"{prefix}top level", dict)
    for i, article in enumerate(_value(root, f"{prefix}top level", "data", list)):
        here = f"{prefix}data[{i}]"
        _checked(article, here, dict)
        for j, paragraph in enumerate(_value(article, here, "paragraphs", list)):
            there = f"{here}.paragraphs[{j}]"
            _checked(paragraph, there, dict)
            context = _value(paragraph, there, "context", str)
            for k, qa in enumerate(_value(paragraph, there, "qas", list)):
                where = f"{there}.qas[{k}]"
                yield where, context, _checked(qa, where, dict)


def _value(item: Mapping[str, Json], where: str, key: str, *kinds: type[T]) -> T:
    if key not in item:
        raise ValueError(f"{where}: missing {key!r}; keys: {', '.join(item)}{did_you_mean(key, [*item], ALIKE)}")
    return _checked(item[key], f"{where}.{key}", *kinds)


def _checked(value: Json, where: str, *kinds: type[T]) -> T:
    if not isinstance(value, kinds) or isinstance(value, bool):
        expected = " or ".join(_KINDS[kind] for kind in kinds)
        raise ValueError(f"{where}: expected {expected}, got {json.dumps(value)[:40]}")
    return value


def _answers(qa: JsonObject, where: str, context: str, place: str, skipped: Skipped) -> tuple[tuple[Answer, ...], bool]:
    """Returns the answers, and whether they are known: those of test sets are not."""
    if "answers" not in qa:
        return (), False
    answers = []
    for i, answer in enumerate(_value(qa, where, "answers", list)):
        here = f"{where}.answers[{i}]"
        text = _value(_checked(answer, here, dict), here, "text", str)
        start = _value(answer, here, "answer_start", int)
        found, reason = _located(context, text, start)
        if reason:
            skipped.repair(reason, place)
        answers.append(found)
    return tuple(answers), True


def _located(context: str, text: str, start: int) -> tuple[Answer, str]:
    """Returns the answer as found in the context, and what had to be repaired ("" for nothing)."""
    if start >= 0 and text and context[start : start + len(text)] == text:
        return Answer(text, start), ""
    words = text.split()
    if not words:
        return Answer(text, -1), ""
    if places := _around(context, text, start):
        return Answer(text, min(places, key=lambda place: abs(place - start))), _MOVED
    if spans := _spaced(context, words, start):
        first, stop = min(spans, key=lambda span: abs(span[0] - start))
        return Answer(context[first:stop], first), _SPACED
    return Answer(text, -1), ""


def _around(text: str, part: str, near: int) -> list[int]:
    """Returns the last occurrence of `part` before `near` and the first from there on, in linear time."""
    near = min(max(near, 0), len(text))
    after = text.find(part, near)
    # Searches the reversed text: on repetitive texts `str.rfind` takes quadratic time, `str.find` does not.
    head = text[: near + len(part) - 1]
    behind = head[::-1].find(part[::-1])
    before = len(head) - len(part) - behind if behind >= 0 else -1
    return [place for place in (before, after) if place >= 0]


def _spaced(context: str, words: Sequence[str], start: int) -> list[tuple[int, int]]:
    """Returns the nearest spans, before and after `start`, of these words with any white space between them."""
    found = [match.span() for match in re.finditer(r"\S+", context)]
    # Words contain no white space. With single spaces in context and answer alike, this is a plain substring search.
    joined = " ".join(context[first:stop] for first, stop in found)
    begins = list(itertools.accumulate((stop - first + 1 for first, stop in found), initial=0))  # of words in `joined`

    def original(place: int) -> int:
        word = bisect.bisect_right(begins, place) - 1
        return found[word][0] + place - begins[word]

    word = bisect.bisect_right(found, start, key=lambda span: span[1])  # the first word that ends after `start`
    near = begins[word] + (max(0, start - found[word][0]) if word < len(found) else 0)
    answer = " ".join(words)
    places = _around(joined, answer, near)
    return [(original(place), original(place + len(answer) - 1) + 1) for place in places]


def write_squad_predictions(path: str, texts: Mapping[str, str]) -> None:
    """Writes the answer to each question ("" for none) in the format of SQuAD's evaluation, whole or not at all."""
    _write_json(path, dict(texts))


def write_squad_nbest(path: str, candidates: Mapping[str, Sequence[Candidate]]) -> None:
    """Writes the best answers of each question, best first, as objects with text, probability, start and end."""
    _write_json(path, {key: [candidate._asdict() for candidate in value] for key, value in candidates.items()})


def write_squad_null_odds(path: str, odds: Mapping[str, float]) -> None:
    """Writes the odds that each question has no answer, in the format of SQuAD's evaluation."""
    for key, value in odds.items():
        if not math.isfinite(value):
            raise ValueError(f"{path}: question {key!r}: odds of no answer are {value}; expected a finite number")
    _write_json(path, {key: float(value) for key, value in odds.items()})


def _write_json(path: str, value: Json) -> None:
    # UTF-8 cannot hold half a surrogate pair; its backslash form is also its escape in JSON.
    data = json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(data + b"\n")
