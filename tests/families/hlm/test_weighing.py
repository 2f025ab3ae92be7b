"""Tests how weights of candidates are fitted and stored: the optimum, what holds them, and files that are none."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from charlm.families.corrections import WEIGHING_FILE, read_weighing, write_weighing
from charlm.families.hlm.weighing import RIDGE, Choice, Weighing, Weights, best_weights, nats, weighing_in

TRUE = np.array([0.3, 0.9, 0.5, 1.0, -0.5, 0.2, 0.0, 0.1, -0.2, 0.4, 0.6])


def drawn(count: int, seed: int = 0) -> list[Choice]:
    """Choices that are made with the weights `TRUE`."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        features_KF = rng.normal(size=(int(rng.integers(2, 7)), len(TRUE)))
        chances = np.exp(features_KF @ TRUE)
        found.append(Choice(features_KF, int(rng.choice(len(chances), p=chances / chances.sum()))))
    return found


def test_the_weights_that_made_the_choices_are_found():
    found = best_weights(drawn(4000), Weights())
    np.testing.assert_allclose(found.vector(), TRUE, atol=0.15)
    new = drawn(500, seed=1)
    assert nats(new, found) < nats(new, Weights()) - 0.1


def test_the_optimum_is_that_of_likelihood_and_ridge():
    choices, start = drawn(40), Weights()

    def loss(vector):
        return len(choices) * nats(choices, Weights(*vector)) + RIDGE / 2 * ((vector - start.vector()) ** 2).sum()

    best = best_weights(choices, start).vector()
    for way in np.eye(len(best)):
        assert loss(best) <= min(loss(best + 0.01 * way), loss(best - 0.01 * way))


def test_few_choices_move_the_weights_little():
    many, start = drawn(3000), Weights().vector()
    few = [next(one for one in many if one.meant > 0), next(one for one in many if not one.meant)]
    moved = lambda choices: np.abs(best_weights(choices, Weights()).vector() - start).sum()
    assert moved(few) < 0.5 * moved(many)


@pytest.mark.parametrize("meant", [[], [0, 0], [1]])
def test_to_fit_takes_misspelled_words_and_others(meant):
    choices = [Choice(np.zeros((2, 11)), one) for one in meant]
    with pytest.raises(ValueError, match=r"words with what is meant among their candidates \d are misspelled"):
        best_weights(choices, Weights())


def test_what_is_far_from_likely_has_its_nats():
    assert nats([Choice(np.eye(2, 11) * 5000, 1)], Weights(model=1.0, prior=0.0)) == pytest.approx(5000)


def test_few_words_of_the_user_leave_the_weights_nearly_as_they_are():
    weighing = Weighing(Weights(same=1.0), Weights(same=3.0), share=0.5)
    found = [weighing.at(share)[3] for share in (0.0, 0.25, 0.5, 0.9)]
    np.testing.assert_allclose(found, [1.0, 2.0, 3.0, 3.0])


def test_weights_are_stored_beside_a_model(tmp_path):
    assert read_weighing(tmp_path) is None
    assert weighing_in(tmp_path) == Weighing()
    weighing = Weighing(Weights(model=0.25), Weights(same=-1.5), 0.75)
    write_weighing(tmp_path, weighing.settings())
    assert weighing_in(tmp_path) == weighing
    other_order = {name: dict(sorted(of.items())) for name, of in weighing.settings().items() if name != "share"}
    write_weighing(tmp_path, {"share": 0.75, **other_order})
    assert weighing_in(tmp_path) == weighing


@pytest.mark.parametrize(
    "change",
    [lambda w: w.pop("told"), lambda w: w["own"].pop("context"), lambda w: w["own"].pop("model"),
     lambda w: w["told"].update(same="1"),
     lambda w: w["own"].update(extra=1.0), lambda w: w["own"].update(model=float("nan")),
     lambda w: w["own"].update(model=10**400), lambda w: w.pop("share"), lambda w: w.update(share=0)],
)  # fmt: skip
def test_a_file_that_holds_no_weights_is_named(tmp_path, change):
    stored = Weighing().settings()
    change(stored)
    (tmp_path / WEIGHING_FILE).write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=rf"{WEIGHING_FILE}.*(expected a number|NaN|nan|digits)"):
        weighing_in(tmp_path)


def test_the_usual_weights_have_a_place_for_each_part():
    assert len(dataclasses.fields(Weights)) == len(Weights().vector()) == len(TRUE)
