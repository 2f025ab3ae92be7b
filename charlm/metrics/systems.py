"""Scores and differences of several systems on the same examples, clean and under several noises, with intervals.

The reports on retrieval and on gaps are made of these. Open it to change what such a report says of a system, or which
examples it shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.types import JsonObject
from charlm.metrics.compare import Metric, paired_bootstrap


class Measured(NamedTuple):
    """The rows of every system under every noise: statistics of each example, whose sums give the scores.

    Attributes:
      rows: float64 [examples, sums] by system and noise, each the mean over seeds.
      by_seed: those of each seed.
    """

    rows: dict[tuple[str, str], np.ndarray]
    by_seed: dict[tuple[str, str], list[np.ndarray]]

    @classmethod
    def of_seeds(cls, by_seed: dict[tuple[str, str], list[np.ndarray]]) -> Measured:
        """Returns the rows with their means over seeds."""
        return cls({key: np.mean(rows, axis=0) for key, rows in by_seed.items()}, by_seed)


def scores_of(measured: Measured, metrics: Mapping[str, Metric], samples: int) -> Iterator[JsonObject]:
    """Yields every score of every system under every noise with its 95 % interval, a bootstrap over examples.

    Args:
      metrics: the scores by name, as functions of sums; each is 0 for sums of which all but the first are 0.
      samples: number of resamples.
    """
    for (system, noise), rows in measured.rows.items():
        nothing = rows * (np.arange(rows.shape[1]) == 0)  # a system without any right answer
        for name, metric in metrics.items():
            found = paired_bootstrap(rows, nothing, metric, samples)
            of_seeds = [float(metric(one.sum(axis=0)[None])[0]) for one in measured.by_seed[system, noise]]
            yield {
                "system": system,
                "noise": noise,
                "score": name,
                "value": found.a,
                "low": found.low,
                "high": found.high,
                "by_seed": of_seeds,
            }


def comparisons_of(measured: Measured, metric: Metric, samples: int) -> Iterator[JsonObject]:
    """Yields the difference of a score between every two systems under every noise, on the same resamples."""
    systems, noises = (list(dict.fromkeys(names)) for names in zip(*measured.rows, strict=True))
    for noise in noises:
        for a, b in itertools.combinations(systems, 2):
            found = paired_bootstrap(measured.rows[a, noise], measured.rows[b, noise], metric, samples)
            yield {
                "noise": noise,
                "a": a,
                "b": b,
                "difference": found.difference,
                "low": found.low,
                "high": found.high,
            }


def differing(right_SE: Sequence[np.ndarray]) -> list[int]:
    """Returns the examples on which systems differ in whether they are right; of one system, those it gets wrong.

    Args:
      right_SE: bool, for each system whether it is right on each example.
    """
    right = np.stack(right_SE)
    differs = right.any(axis=0) != right.all(axis=0) if len(right) > 1 else ~right[0]
    return np.flatnonzero(differs).tolist()


def in_turn(candidates: Mapping[str, Sequence[int]], most: int) -> list[tuple[str, int]]:
    """Returns at most `most` examples to show, taken from the noises in turn, none twice.

    Args:
      candidates: for each noise the examples worth showing, in order.
    """
    left = {name: list(examples) for name, examples in candidates.items()}
    chosen: list[tuple[str, int]] = []
    taken: set[int] = set()
    while len(chosen) < most and any(left.values()):
        for name, examples in left.items():
            left[name] = rest = [one for one in examples if one not in taken]
            if rest and len(chosen) < most:
                chosen.append((name, rest.pop(0)))
                taken.add(chosen[-1][1])
    return chosen
