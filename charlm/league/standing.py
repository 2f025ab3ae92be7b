"""Computes the table of a league from the sums of examples: means, intervals, ranks, and answers to claims.

An interval is that of a bootstrap over examples and seeds together: each resample draws the examples anew, the same for
all systems, and of each system its runs of fine-tuning. So it covers both the choice of the examples and the luck of
fine-tuning, and differences are paired by example. Of K runs it draws K - 1, since the mean of so many has just the
variance that the runs let expect of the mean of K; the mean of K draws has less, by a third with three runs. Between
equal systems of three runs and 500 simulated examples, at most 4 of a hundred 95 % intervals leave out 0 where runs
stray up to twice as far as the choice of the examples does, and 11 where they stray five times as far. No interval
covers the luck of pre-training, of which there is one run a system.
Open it to change how intervals, ranks or answers are computed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from charlm.league.config import ALL, Claim
from charlm.metrics.compare import Metric

CLEAN, NOISE = "", "noise"  # conditions beside the noises themselves: no noise, and the mean over all noises
HOLDS, FAILS, UNDECIDED, UNKNOWN = "holds", "does not hold", "undecided", "not measured"
CONFIDENCE = 0.95
_SEED = 0


class Estimate(NamedTuple):
    """A score or a difference, with its interval."""

    value: float
    low: float
    high: float


class Answer(NamedTuple):
    """What a claim turned out to be: one of `HOLDS`, `FAILS`, `UNDECIDED`, `UNKNOWN`, and the difference of scores."""

    claim: Claim
    verdict: str
    difference: Estimate | None


# Of a task: system -> condition -> for each seed the sums of its examples [E, S].
Rows = Mapping[str, Mapping[str, Sequence[np.ndarray]]]


class Draws(NamedTuple):
    """The scores of a task: `value` of a system and condition, and that in each of R resamples.

    Attributes:
      values: the mean over seeds of the score, by system and condition.
      samples: the same in each resample, [R].
    """

    values: dict[tuple[str, str], float]
    samples: dict[tuple[str, str], np.ndarray]

    def systems(self) -> list[str]:
        """Returns the systems in the order in which they were given."""
        return list(dict.fromkeys(system for system, _ in self.values))

    def has(self, system: str, condition: str) -> bool:
        """Says whether a score was measured."""
        return (system, condition) in self.values

    def score(self, system: str, condition: str) -> Estimate:
        """Returns a score."""
        return _estimate(self.values[system, condition], self.samples[system, condition])

    def difference(self, a: str, b: str, condition: str) -> Estimate:
        """Returns the score of `a` minus that of `b`, paired by example."""
        samples = self.samples[a, condition] - self.samples[b, condition]
        return _estimate(self.values[a, condition] - self.values[b, condition], samples)


def _estimate(value: float, samples: np.ndarray) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Estimate(float(value), float(low), float(high))


def draws_of(
    rows: Rows, metric: Metric, noises: Sequence[str], samples: int, models: Mapping[str, str] | None = None
) -> Draws:
    """Returns the scores of a task and their resamples.

    Args:
      rows: the sums of the examples, the same examples for all.
      metric: a function from sums [R, S] to scores [R].
      noises: the noises whose mean is the condition `NOISE`, which a system has if it was measured under all of them.
      samples: number of resamples.
      models: of systems that share their models with another one, the name of that: their seeds are drawn together.

    Raises:
      ValueError: the systems were measured on different numbers of examples.
    """
    counts = {len(seed) for conditions in rows.values() for seeds in conditions.values() for seed in seeds}
    if len(counts) != 1:
        raise ValueError(f"systems were measured on different examples: {', '.join(map(str, sorted(counts)))} of them")
    examples = counts.pop()
    rng = np.random.default_rng(_SEED)
    times_RE = rng.multinomial(examples, np.full(examples, 1 / examples), size=samples).astype(np.float64)
    found = Draws({}, {})
    picks: dict[tuple[str, int], np.ndarray] = {}  # the same runs of a model are drawn under all conditions
    for system, conditions in rows.items():
        for condition, seeds in conditions.items():
            model = (models or {}).get(system, system), len(seeds)
            if model not in picks:  # from a stream of its own, so that no other system changes its interval
                own = np.random.default_rng([_SEED, zlib.crc32(model[0].encode()), model[1]])
                picks[model] = own.integers(0, len(seeds), (samples, max(1, len(seeds) - 1)))
            scores_KR = np.stack([metric(times_RE @ seed) for seed in seeds])
            drawn_RK = np.take_along_axis(scores_KR.T, picks[model], axis=1)
            found.values[system, condition] = float(np.mean([metric(seed.sum(0)[None])[0] for seed in seeds]))
            found.samples[system, condition] = drawn_RK.mean(axis=1)
        if noises and all(noise in conditions for noise in noises):
            found.values[system, NOISE] = float(np.mean([found.values[system, noise] for noise in noises]))
            found.samples[system, NOISE] = np.mean([found.samples[system, noise] for noise in noises], axis=0)
    return found


def over_tasks(tasks: Sequence[Draws]) -> Draws:
    """Returns the means over tasks, of the systems and conditions that all tasks have."""
    found = Draws({}, {})
    for key in tasks[0].values if tasks else ():
        if all(key in task.values for task in tasks):
            found.values[key] = float(np.mean([task.values[key] for task in tasks]))
            found.samples[key] = np.mean([_shuffled(task, key, n) for n, task in enumerate(tasks)], axis=0)
    return found


def _shuffled(task: Draws, key: tuple[str, str], number: int) -> np.ndarray:
    """Returns the resamples of a task in an order of its own: the examples of two tasks are drawn independently."""
    samples = task.samples[key]
    return samples[np.random.default_rng([_SEED, number]).permutation(len(samples))]


def ranks(draws: Draws, condition: str) -> dict[str, int]:
    """Returns the rank of each system: one more than the number of systems that are ahead of it beyond doubt.

    A system is ahead of another one if the interval of their difference does not include 0. So systems that cannot be
    told apart from the best share the first rank.
    """
    there = [system for system in draws.systems() if draws.has(system, condition)]
    ahead = lambda a, b: draws.difference(a, b, condition).low > 0
    return {b: 1 + sum(ahead(a, b) for a in there if a != b) for b in there}


def answer(claim: Claim, tasks: Mapping[str, Draws], whole: bool = True) -> Answer:
    """Returns whether a claim holds: the interval of the difference is above what it says, below it, or neither.

    Args:
      tasks: what was measured.
      whole: whether these are all tasks of the league; if not, a claim on all is not answered.
    """
    on_all = over_tasks(list(tasks.values())) if claim.task == ALL and whole and tasks else None
    draws = on_all if claim.task == ALL else tasks.get(claim.task)
    if draws is None or not (draws.has(claim.a, claim.noise) and draws.has(claim.b, claim.noise)):
        return Answer(claim, UNKNOWN, None)
    found = draws.difference(claim.a, claim.b, claim.noise)
    least = claim.points / 100
    above = found.low >= least if claim.points else found.low > 0
    below = found.high < least
    return Answer(claim, HOLDS if above else FAILS if below else UNDECIDED, found)
