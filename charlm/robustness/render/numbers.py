"""Writes the numbers of a report: scores out of 100, changes in points, shares in percent.

Open it to change how a number is rounded, signed or named everywhere in the report.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

NOTHING = "–"  # what was not measured
_MINUS = "\u2212"
_NAMES = {"f1": "F1", "macro_f1": "macro F1", "weighted_f1": "weighted F1", "micro_f1": "micro F1"}
_NAMES |= {"exact": "exact match", "mse": "MSE"}
_NAMES |= {"mrr": "MRR", "map": "MAP", "matthews": "Matthews correlation", "pearson": "Pearson correlation"}
_NAMES |= {"spearman": "Spearman correlation"}
_LOWER_IS_BETTER = ("mse",)
_COUNTS = ("total", "HasAns_total", "NoAns_total", "queries", "queries_without_right")


class Interval(NamedTuple):
    """A difference and its interval, which may be unknown."""

    value: float
    low: float | None
    high: float | None

    @property
    def known(self) -> bool:
        """Whether the interval is known."""
        return self.low is not None and self.high is not None

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of 0; False when it is unknown."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def turned(self) -> Interval:
        """Returns the interval of b - a instead of a - b."""
        low, high = self.low, self.high
        return Interval(0.0 - self.value, None if high is None else 0.0 - high, None if low is None else 0.0 - low)

    def overlaps(self, other: Interval) -> bool:
        """Says whether two known intervals share a value; raises ValueError if one is unknown."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            raise ValueError("an interval is unknown")
        return self.low <= other.high and other.low <= self.high


class Numbers:
    """Writes the scores of one task.

    Args:
      metric: the main score.
      hundredths: names of the scores that range from 0 to 100 already; the others range from 0 to 1, or have a unit.
    """

    def __init__(self, metric: str, hundredths: Collection[str]) -> None:
        self._metric, self._hundredths = metric, hundredths

    @property
    def points(self) -> str:
        """What follows a difference of the main score: " points", or nothing for a score with a unit of its own."""
        return "" if _has_unit(self._metric) else " points"

    @property
    def in_points(self) -> str:
        """The same for captions."""
        return "" if _has_unit(self._metric) else ", in points"

    def scaled(self, value: float, score: str = "") -> float:
        """Returns a score or a difference of scores in the unit that is shown: of 0 to 100, or its own unit."""
        score = score or self._metric
        return value if _has_unit(score) or score.split("_")[-1] in self._hundredths else 100 * value

    def score(self, value: float | None, score: str = "", signed: bool = False) -> str:
        """Returns a score or a difference of scores as text; `score` names it, "": the main score."""
        if value is None:
            return NOTHING
        score = score or self._metric
        if score in _COUNTS:
            return f"{value:.0f}"
        if _has_unit(score):
            return _minus(f"{value + 0.0:+.4g}" if signed else f"{value + 0.0:.4g}")
        return fixed(self.scaled(value, score), 1, signed)

    def interval(self, found: Interval | None, score: str = "", signed: bool = False) -> str:
        """Returns a difference with its interval, "4.2 [3.1, 5.3]"."""
        if found is None:
            return NOTHING
        value = self.score(found.value, score, signed)
        low, high = self.score(found.low, score), self.score(found.high, score)
        return f"{value} [{low}, {high}]" if found.known else f"{value} [no interval]"


def lower_is_better(score: str) -> bool:
    """Says whether a smaller value of a score is better."""
    return score in _LOWER_IS_BETTER


def score_name(score: str) -> str:
    """Returns the readable name of a score."""
    return _NAMES.get(score, score)


def fixed(value: float, digits: int, signed: bool = False) -> str:
    """Returns a number with `digits` decimals, and never "−0.0"."""
    value = round(value, digits) + 0.0
    return _minus(f"{value:+.{digits}f}" if signed and value else f"{value:.{digits}f}")


def percent(value: float | None) -> str:
    """Returns a share (0 to 1) in percent."""
    return NOTHING if value is None else f"{fixed(100 * value, 1)} %"


def _has_unit(score: str) -> bool:
    return score in _LOWER_IS_BETTER or score in _COUNTS or score.endswith("_thresh")


def _minus(text: str) -> str:
    return text.replace("-", _MINUS)
