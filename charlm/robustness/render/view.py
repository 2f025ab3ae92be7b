"""Gives the report ordered access to the measurements, and computes averages.

All other modules of the report read `results.json` through it. Open it to change how a number is averaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from charlm.core.types import JsonObject
from charlm.robustness.render.numbers import Interval, Numbers, lower_is_better, score_name
from charlm.robustness.results import RESULTS_FORMAT
from charlm.tasks.create import task_named
from charlm.text.noise import KINDS, Kind

T = TypeVar("T")

RESULT_KEYS = (
    *("format", "task", "metric", "settings", "models", "examples", "clean", "noise"),
    *("comparisons", "groups", "segmentation", "sensitivity", "adversarial", "notes"),
)
Condition = tuple[str, float]


class Average(NamedTuple):
    """The mean loss of a model over some conditions, the number of conditions, and the mean score.

    The bounds of the loss are means of the conditions' bounds. All conditions use the same examples, so their losses
    are correlated, and the resulting interval is at least about as wide as the interval of the mean loss.
    """

    conditions: int
    loss: Interval
    score: float | None


class View:
    """The measurements in the order of the report, which does not depend on the order of dictionary keys."""

    def __init__(self, results: JsonObject) -> None:
        """Takes the measurements; raises ValueError if they do not have the expected keys and format."""
        check(results)
        self.results = results
        self.task: str = results["task"]
        self._task = task_named(self.task)
        self.metric: str = results["metric"]
        self.settings: JsonObject = results["settings"] or {}
        # Level 0 of any kind is the clean text, so it is not a condition.
        self.noise: list[JsonObject] = [row for row in results["noise"] if row["level"]]
        self.models = _model_names(results)
        self.lower_is_better = lower_is_better(self.metric)
        self.metric_name = score_name(self.metric)
        self.numbers = Numbers(self.metric, self._task.hundredths)
        kinds = unique(row["kind"] for row in self.noise)
        levels: dict[str, list[float]] = {
            kind: sorted({row["level"] for row in self.noise if row["kind"] == kind}) for kind in kinds
        }
        self.levels = levels
        self.conditions: list[Condition] = [(kind, level) for kind in kinds for level in levels[kind]]
        self._rows = {(row["model"], row["kind"], row["level"]): row for row in self.noise}
        self._gaps = {
            (
                frozenset((row["a"], row["b"])),
                (row["kind"], row["level"]) if row["kind"] and row["level"] else None,
            ): row
            for row in results["comparisons"]
            if row["metric"] == self.metric and row["difference"] is not None
        }

    @property
    def by_word(self) -> bool:
        """Whether words are counted instead of examples."""
        return self._task.by_word

    def row(self, model: str, condition: Condition) -> JsonObject | None:
        """Returns the measurement of a model under noise, or None."""
        return self._rows.get((model, *condition))

    def clean(self, model: str, score: str | None = None) -> float | None:
        """Returns a score on clean text; by default the main score of the report."""
        return (self.results["clean"].get(model) or {}).get(score or self.metric)

    def mean(self, model: str, condition: Condition) -> float | None:
        """Returns the mean of the main score under noise over seeds."""
        return self._of_metric(model, condition, "mean")

    def sd(self, model: str, condition: Condition) -> float | None:
        """Returns the standard deviation of the main score under noise over seeds."""
        return self._of_metric(model, condition, "sd")

    def _of_metric(self, model: str, condition: Condition, what: str) -> float | None:
        row = self.row(model, condition)
        return ((row["scores"] or {}).get(self.metric) or {}).get(what) if row else None

    def loss(self, model: str, condition: Condition) -> Interval | None:
        """Returns how much worse a model is under noise (positive: worse), or None if that is unknown."""
        row = self.row(model, condition)
        if row is None or not row["drop"] or row["drop"].get("difference") is None:
            return None
        return self.oriented(row["drop"])

    def change(self, loss: Interval) -> Interval:
        """Returns a loss as it is shown: the score under noise minus the one on clean text."""
        return loss if self.lower_is_better else loss.turned()

    def gap(self, a: str, b: str, condition: Condition | None) -> Interval | None:
        """Returns by how much model `a` is better than `b` in the main score, on clean text (None) or under a noise."""
        row = self._gaps.get((frozenset((a, b)), condition))
        if row is None:
            return None
        return self.oriented(row) if row["a"] == a else self.oriented(row).turned()

    def oriented(self, difference: JsonObject, score: str | None = None) -> Interval:
        """Returns a difference a - b, turned if needed, so that positive means that a is better."""
        found = Interval(difference["difference"], difference.get("low"), difference.get("high"))
        return found.turned() if lower_is_better(score or self.metric) else found

    def by_cost(self) -> list[str]:
        """Returns the kinds of noise, the costliest first; those without a known loss last."""
        found = {}
        for kind, levels in self.levels.items():
            losses = [loss.value for model in self.models for at in levels if (loss := self.loss(model, (kind, at)))]
            found[kind] = mean(losses) if losses else -math.inf
        return sorted(found, key=lambda kind: -found[kind])

    def measured(self, model: str, seen: bool) -> list[Condition]:
        """Returns the conditions with a known loss, of those that the model has seen in training or has not seen."""
        found = []
        for condition in self.conditions:
            row = self.row(model, condition)
            if row and bool(row["seen"]) == seen and self.loss(model, condition):
                found.append(condition)
        return found

    def ranked(self) -> tuple[list[str], list[Condition]]:
        """Returns the models with losses under noise, and the conditions that all of them have unseen and measured."""
        models = [model for model in self.models if self.measured(model, False) or self.measured(model, True)]
        unseen = [set(self.measured(model, False)) for model in models]
        return models, [condition for condition in self.conditions if unseen and all(condition in u for u in unseen)]

    def average(self, model: str, conditions: Sequence[Condition]) -> Average | None:
        """Returns the mean loss over the conditions with a known loss; None if there are none."""
        losses = [loss for condition in conditions if (loss := self.loss(model, condition))]
        if not losses:
            return None
        scores = [self.mean(model, condition) for condition in conditions]
        whole = all(loss.known for loss in losses)
        return Average(
            len(losses),
            Interval(
                mean([loss.value for loss in losses]),
                mean([loss.low for loss in losses if loss.low is not None]) if whole else None,
                mean([loss.high for loss in losses if loss.high is not None]) if whole else None,
            ),
            None if None in scores else mean([score for score in scores if score is not None]),
        )


def check(results: JsonObject) -> None:
    """Raises ValueError unless the results have the keys and the format that the report reads."""
    missing = [key for key in RESULT_KEYS if key not in results]
    if missing:
        raise ValueError(f"robustness results: missing {', '.join(missing)}; expected {', '.join(RESULT_KEYS)}")
    if results["format"] != RESULTS_FORMAT:
        raise ValueError(f"robustness results: format {results['format']!r}, expected {RESULTS_FORMAT}")


def mean(values: Sequence[float]) -> float:
    """Returns the mean of an exact sum, so that only the result is rounded."""
    return math.fsum(values) / len(values)


def unique(values: Iterable[T]) -> list[T]:
    """Returns the distinct values in the order of their first occurrence."""
    return list(dict.fromkeys(values))


def noise_name(kind: str | None, level: float | None) -> str:
    """Returns "keyboard 0.1", or "clean"."""
    return "clean" if kind is None or not level else f"{kind} {level:g}"


def kind_of(kind: str) -> Kind | None:
    """Returns the kind of noise for its name in a report, such as "keyboard:4@de"; None if the kind is unknown."""
    return KINDS.get(re.split("[:@]", kind)[0])


def _model_names(results: JsonObject) -> list[str]:
    """Returns the listed models, then any models that have measurements but are not listed."""
    measured = {row["model"] for key in ("noise", "groups", "segmentation", "sensitivity") for row in results[key]}
    measured |= {row["model"] for row in results["adversarial"]} | set(results["clean"])
    listed = unique(model["name"] for model in results["models"])
    return listed + sorted(measured - set(listed))
