"""Scores of tags and of entities, from 0 to 1: accuracy, precision, recall and F1.

Open it when a score differs from that of conlleval or seqeval, or to add one for tags.

Entities are counted as conlleval counts them, which is the default mode of seqeval; `strict` counts them as seqeval's
strict mode for IOB2. Undefined cases, as conlleval prints them: without predicted entities precision is 0, without gold
entities recall is 0, and if both are 0, F1 is 0. If there is nothing to score, a ValueError is raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from charlm.data.tag_schemes import entities, is_iob, strict_entities
from charlm.metrics.checks import check_lengths
from charlm.metrics.classification import classification_scores, divide, per_example_classes

Tags = Sequence[Sequence[str]]

UNTYPED = "_"  # the type name for entities with tags without a type, such as B and I


class _Counts(NamedTuple):
    """How many entities of each type are right, were predicted, and are in the gold tags."""

    right: Counter[str]
    predicted: Counter[str]
    gold: Counter[str]


def tag_scores(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Returns accuracy over all words, and macro_f1 and weighted_f1 over the tags; for tags that mark no entities.

    The scores are those of `classification_scores` for words.

    Raises:
      ValueError: there are no words, or sentences differ in length.
    """
    flat_gold, flat_predicted = _flat(gold, predicted)
    scores = classification_scores(flat_gold, flat_predicted)
    return {name: scores[name] for name in ("accuracy", "macro_f1", "weighted_f1")}


def _flat(gold: Tags, predicted: Tags) -> tuple[list[str], list[str]]:
    check_lengths(gold, predicted, "sentences")
    for i, (right, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(right) != len(guess):
            raise ValueError(f"sentence {i}: expected {len(right)} predicted tags, got {len(guess)}")
    flat = [tag for tags in gold for tag in tags]
    if not flat:
        raise ValueError("no words to score")
    return flat, [tag for tags in predicted for tag in tags]


def entity_scores(gold: Tags, predicted: Tags, *, strict: bool = False) -> dict[str, float]:
    """Returns precision, recall and f1 of entities, accuracy of tags, macro_f1 over types, and the scores of each type.

    Args:
      gold: the correct tags of each sentence, in any scheme that `is_iob` knows.
      predicted: the predicted tags of each sentence.
      strict: whether entities must be valid IOB2; then an I- tag without a B- before it marks no entity.

    Returns:
      "precision", "recall", "f1" and "accuracy"; "macro_f1" over the types in `gold` or `predicted`; and for each type
      "precision/TYPE", "recall/TYPE", "f1/TYPE" and "support/TYPE" (number of entities in `gold`). For the tags B and
      I, TYPE is `UNTYPED`.

    Raises:
      ValueError: there are no words, sentences differ in length, a tag marks no entity, or `strict` is used with tags
        that are not IOB2.
    """
    flat_gold, flat_predicted = _flat(gold, predicted)
    totals = _Counts(Counter(), Counter(), Counter())
    for sentence in _counts(gold, predicted, strict):
        for total, part in zip(totals, sentence, strict=True):
            for kind, count in part.items():
                total[kind or UNTYPED] += count
    kinds = sorted({*totals.predicted, *totals.gold})
    right, found, wanted = (np.array([part[kind] for kind in kinds], np.int64) for part in totals)
    overall, by_kind = _shares(right.sum(), found.sum(), wanted.sum()), _shares(right, found, wanted)
    scores = {name: float(value) for name, value in overall.items()}
    scores["macro_f1"] = float(by_kind["f1"].mean()) if kinds else 0.0
    for n, kind in enumerate(kinds):
        scores |= {f"{name}/{kind}": float(values[n]) for name, values in by_kind.items()}
        scores[f"support/{kind}"] = float(wanted[n])
    scores["accuracy"] = sum(a == b for a, b in zip(flat_gold, flat_predicted, strict=True)) / len(flat_gold)
    return scores


def _shares(right: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> dict[str, np.ndarray]:
    """Returns precision, recall and f1; f1 is computed from the other two, so that it equals seqeval's to the bit."""
    precision, recall = divide(right, predicted), divide(right, gold)
    return {"precision": precision, "recall": recall, "f1": divide(2 * precision * recall, precision + recall)}


def _counts(gold: Tags, predicted: Tags, strict: bool) -> list[_Counts]:
    """Returns the counts of each sentence.

    Raises:
      ValueError: a tag marks no entity, or `strict` is used with tags that are not IOB2.
    """
    _check_entities({tag for part in (gold, predicted) for tags in part for tag in tags}, strict)
    read = strict_entities if strict else entities
    counts = []
    for right, guess in zip(gold, predicted, strict=True):
        wanted, found = {*read(right)}, {*read(guess)}
        counts.append(_Counts(*(Counter(entity.type for entity in part) for part in (wanted & found, found, wanted))))
    return counts


def _check_entities(tags: set[str], strict: bool) -> None:
    for tag in sorted(tags):
        if not is_iob([tag]):
            raise ValueError(f"tag {tag!r} marks no entity; expected O or a tag such as B-PER (else use tag_scores)")
        if strict and tag[0] not in "BIO":
            raise ValueError(f"tag {tag!r}: strict scores are for IOB2; expected O, B- and I- only")


def per_example_tags(gold: Tags, predicted: Tags, labels: Sequence[str] | None = None) -> np.ndarray:
    """Returns a row for each sentence, whose sums give `tag_scores`: the sum of `per_example_classes` of its words."""
    flat_gold, flat_predicted = _flat(gold, predicted)
    rows = per_example_classes(flat_gold, flat_predicted, labels)
    sums = np.vstack([np.zeros(rows.shape[1]), np.cumsum(rows, axis=0)])
    ends = np.cumsum([len(tags) for tags in gold])
    return sums[ends] - sums[np.concatenate([[0], ends[:-1]])]


def per_example_entities(gold: Tags, predicted: Tags, *, strict: bool = False, types: Iterable[str] = ()) -> np.ndarray:
    """Returns a row for each sentence, whose sums give `entity_scores`.

    A row is the number of correct tags, the number of tags, then [right, predicted, gold]: numbers of entities by type.

    Args:
      types: types of entities that have columns even if they do not occur.
    """
    _flat(gold, predicted)  # only for its checks
    counts = _counts(gold, predicted, strict)
    kinds = sorted({kind for sentence in counts for part in sentence for kind in part}.union(types))
    rows = [
        [
            sum(a == b for a, b in zip(right, guess, strict=True)),
            len(right),
            *(part[kind] for part in sentence for kind in kinds),
        ]
        for right, guess, sentence in zip(gold, predicted, counts, strict=True)
    ]
    return np.array(rows, float)


def entity_spans(gold: Tags, predicted: Tags) -> np.ndarray:
    """Returns all entities in `gold` or `predicted`, int32 [N, 4].

    The columns are: first word, one past the last word, whether the entity is in `gold`, whether it is in `predicted`.
    Words are numbered through all sentences. Entities of the same words but of different types are different entities.

    Raises:
      ValueError: in the cases of `per_example_entities`.
    """
    flat_gold, flat_predicted = _flat(gold, predicted)
    _check_entities({*flat_gold, *flat_predicted}, strict=False)
    rows, before = [], 0
    for right, guess in zip(gold, predicted, strict=True):
        wanted, found = {*entities(right)}, {*entities(guess)}
        for entity in sorted(wanted | found):
            rows.append((before + entity.start, before + entity.stop, entity in wanted, entity in found))
        before += len(right)
    return np.array(rows, np.int32).reshape(-1, 4)


def entity_scores_from_sums(sums_RS: np.ndarray) -> dict[str, np.ndarray]:
    """Returns precision, recall, f1, macro_f1 and accuracy from sums over rows of `per_example_entities`."""
    kinds = (sums_RS.shape[1] - 2) // 3
    right, predicted, gold = np.moveaxis(sums_RS[:, 2:].reshape(len(sums_RS), 3, kinds), 1, 0)
    f1 = divide(2 * right, predicted + gold)
    return {
        "precision": divide(right.sum(-1), predicted.sum(-1)),
        "recall": divide(right.sum(-1), gold.sum(-1)),
        "f1": divide(2 * right.sum(-1), predicted.sum(-1) + gold.sum(-1)),
        "macro_f1": divide(f1.sum(-1), (predicted + gold > 0).sum(-1)),
        "accuracy": divide(sums_RS[:, 0], sums_RS[:, 1]),
    }
