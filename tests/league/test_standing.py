"""Tests of intervals, ranks and claims, on sums of examples whose scores are known."""

from __future__ import annotations

import numpy as np
import pytest

from charlm.league.config import Claim
from charlm.league.standing import (
    CLEAN,
    FAILS,
    HOLDS,
    NOISE,
    UNDECIDED,
    UNKNOWN,
    Draws,
    answer,
    draws_of,
    over_tasks,
    ranks,
)
from charlm.metrics import paired_bootstrap

EXAMPLES = 400


def share(sums_RS: np.ndarray) -> np.ndarray:
    """The metric of these tests: right of all."""
    return sums_RS[:, 0] / sums_RS[:, 1]


def rows(accuracy: float, seed: int, of: int = EXAMPLES) -> np.ndarray:
    """The sums of examples of which so many are right."""
    right = np.zeros(of)
    right[: round(accuracy * of)] = 1
    return np.stack([np.random.default_rng(seed).permutation(right), np.ones(of)], axis=1)


def draws(noises=("swap:0.1", "drop:0.1"), samples=800, **accuracies):
    """The draws of systems with three seeds each: clean as given, and lower under noise."""
    found = {}
    for number, (name, accuracy) in enumerate(accuracies.items()):
        of_seeds = lambda fall, number=number, accuracy=accuracy: [
            rows(accuracy - fall, 10 * number + k) for k in range(3)
        ]
        found[name] = {CLEAN: of_seeds(0.0), **{noise: of_seeds(0.1 * (n + 1)) for n, noise in enumerate(noises)}}
    return draws_of(found, share, noises, samples)


def test_a_score_is_the_mean_over_seeds_inside_its_interval():
    found = draws(a=0.8).score("a", CLEAN)
    assert found.value == pytest.approx(0.8)
    assert found.low < 0.8 < found.high
    spread = 2 * 1.96 * np.sqrt(0.8 * 0.2 / EXAMPLES / 3)  # three independent runs on the same number of examples
    assert spread < found.high - found.low < 1.5 * spread  # its runs disagree about examples, which widens it


def test_the_mean_over_noises_is_a_condition():
    found = draws(a=0.8)
    assert found.score("a", NOISE).value == pytest.approx(0.65)
    assert not draws_of({"a": {CLEAN: [rows(0.8, 0)]}}, share, ("swap:0.1",), 50).has("a", NOISE)


def test_with_one_seed_a_difference_is_that_of_the_paired_bootstrap():
    a, b = rows(0.8, 0), rows(0.7, 1)
    found = draws_of({"a": {CLEAN: [a]}, "b": {CLEAN: [b]}}, share, (), 4000).difference("a", "b", CLEAN)
    usual = paired_bootstrap(a, b, share, 4000)
    assert (found.value, found.low, found.high) == pytest.approx((usual.difference, usual.low, usual.high), abs=0.01)


def test_seeds_that_differ_widen_the_interval():
    equal = {"a": {CLEAN: [rows(0.7, 0)] * 3}}
    spread = {"a": {CLEAN: [rows(0.5, 0), rows(0.7, 0), rows(0.9, 0)]}}
    narrow, wide = (draws_of(one, share, (), 800).score("a", CLEAN) for one in (equal, spread))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_the_luck_of_runs_has_the_variance_of_their_mean():
    halves = lambda accuracy: np.stack([np.full(EXAMPLES, accuracy), np.ones(EXAMPLES)], axis=1)  # no luck of examples
    for runs in ((0.5, 0.9), (0.5, 0.6, 0.9), (0.1, 0.5, 0.6, 0.7, 0.9)):
        found = draws_of({"a": {CLEAN: [halves(accuracy) for accuracy in runs]}}, share, (), 20_000)
        assert np.var(found.samples["a", CLEAN]) == pytest.approx(np.var(runs, ddof=1) / len(runs), rel=0.05)


@pytest.mark.parametrize("stray", [0.0, 1.0, 2.0])
def test_equal_systems_are_seldom_told_apart(stray):
    """Runs stray by that multiple of what the choice of the examples does; 95 % intervals may leave out 0 in 5 %."""
    rng, repetitions, misses = np.random.default_rng(0), 120, 0
    luck = stray * 0.7 * np.sqrt(0.25 / EXAMPLES)
    for _ in range(repetitions):
        easy_E = rng.beta(0.5, 0.5, EXAMPLES)
        runs = lambda easy_E=easy_E: [
            np.stack([rng.random(EXAMPLES) < easy_E + rng.normal(0, luck), np.ones(EXAMPLES)], axis=1) for _ in range(3)
        ]
        found = draws_of({name: {CLEAN: runs()} for name in "ab"}, share, (), 200).difference("a", "b", CLEAN)
        misses += not found.low <= 0 <= found.high
    assert misses <= 0.05 * repetitions


def test_a_model_behind_a_defence_that_changes_nothing_differs_by_nothing():
    seeds = {CLEAN: [rows(accuracy, 0) for accuracy in (0.5, 0.7, 0.9)]}
    same = draws_of({"a": seeds, "a+x": seeds}, share, (), 200, {"a+x": "a"}).difference("a", "a+x", CLEAN)
    assert same == (0, 0, 0)
    apart = draws_of({"a": seeds, "b": seeds}, share, (), 200).difference("a", "b", CLEAN)
    assert apart.low < 0 < apart.high


def test_another_system_changes_no_interval():
    found, more = draws(a=0.8, b=0.7), draws(a=0.8, b=0.7, c=0.6)
    for name in ("a", "b"):
        assert found.score(name, CLEAN) == more.score(name, CLEAN)
    seeds = {name: {CLEAN: [rows(0.8, 3), rows(0.5, 4), rows(0.7, 5)]} for name in ("x", "y")}
    alone = draws_of({"y": seeds["y"]}, share, (), 200).score("y", CLEAN)
    assert draws_of(seeds, share, (), 200).score("y", CLEAN) == alone
    assert not np.array_equal(*draws_of(seeds, share, (), 200).samples.values())  # their runs are drawn apart


def test_what_cannot_be_told_apart_shares_a_rank():
    found = draws(a=0.9, b=0.895, c=0.6)
    assert ranks(found, CLEAN) == {"a": 1, "b": 1, "c": 3}
    assert ranks(draws(a=0.9, b=0.7, c=0.5), NOISE) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("a", "b", "points", "verdict"),
    [
        (0.9, 0.6, 0.0, HOLDS),
        (0.6, 0.9, 0.0, FAILS),
        (0.9, 0.895, 0.0, UNDECIDED),
        (0.9, 0.6, 10.0, HOLDS),
        (0.9, 0.6, 29.0, UNDECIDED),
        (0.9, 0.6, 50.0, FAILS),
    ],
)
def test_claims_are_answered(a, b, points, verdict):
    found = answer(Claim("", "a", "b", "pos", CLEAN, points), {"pos": draws(a=a, b=b)})
    assert found.verdict == verdict
    assert found.difference is not None
    assert found.difference.value == pytest.approx(a - b)


def test_a_difference_that_may_be_nothing_is_undecided_from_both_sides():
    level = Draws({(name, CLEAN): 0.5 for name in "ab"}, {("a", CLEAN): np.zeros(99), ("b", CLEAN): np.zeros(99)})
    assert {answer(Claim("", *pair, "pos", CLEAN), {"pos": level}).verdict for pair in ("ab", "ba")} == {UNDECIDED}
    assert ranks(level, CLEAN) == {"a": 1, "b": 1}


def test_a_claim_about_what_was_not_measured_says_so():
    found = answer(Claim("", "a", "b", "pos", "repeat:0.1"), {"pos": draws(a=0.9, b=0.8)})
    assert (found.verdict, found.difference) == (UNKNOWN, None)
    assert answer(Claim("", "a", "b", "none"), {}).verdict == UNKNOWN


def test_the_mean_over_tasks_is_narrower_than_one_task():
    one, other = draws(a=0.9, b=0.8), draws(a=0.7, b=0.7)
    found = over_tasks([one, other])
    assert found.score("a", CLEAN).value == pytest.approx(0.8)
    assert found.difference("a", "b", CLEAN).value == pytest.approx(0.05)
    width = lambda draws: draws.score("a", CLEAN).high - draws.score("a", CLEAN).low
    assert width(found) < width(other)
    assert not over_tasks([one, draws(c=0.5)]).values


def test_other_examples_are_refused():
    with pytest.raises(ValueError, match="measured on different examples: 10, 400 of them"):
        draws_of({"a": {CLEAN: [rows(0.5, 0)]}, "b": {CLEAN: [rows(0.5, 0, of=10)]}}, share, (), 10)
