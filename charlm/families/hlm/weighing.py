"""How candidates of a correction are weighed, and how the weights are fitted to texts whose misspellings are known.

`charlm.families.hlm.candidates` makes the candidates. Open it to change how weights are fitted or kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charlm.core.types import Json, JsonObject
from charlm.families.corrections import WEIGHING_FILE, read_weighing

RIDGE = 1.0  # how strongly fitted weights are held to those they start from: as a normal prior of variance 1 holds them
_STEPS = 100  # most of Newton's method; some ten are taken
_MOST = 1e6  # of a stored weight
_ENOUGH = 1e-6  # a step so small is the last


@dataclasses.dataclass(frozen=True)
class Weights:
    """What each part of a candidate's score counts.

    The usual ones were fitted on 2,000 sentences of WikiText-2, half of them with misspellings of words that are kept
    from training (`spelling.heldout_words`), with a model of an hour's training, once with the words beside it and once
    with 80,000 more. `charlm spelling --fit` fits them anew.

    Attributes:
      model: of the mean log-probability that the model gives to the characters of another word.
      prior: of the log-probability of the word in the list.
      typing: of the cost of the typing errors, which is subtracted.
      same: added to the word as it stands.
      unknown: added to a word that is in no list.
      name: added to a word as it stands, in no list, with a capital inside a sentence.
      capitals: added to a word as it stands that is all capitals.
      stands: of the mean log-probability that the model gives to the characters of the word as it stands.
      letter: added for each letter of a word as it stands that is in no list, up to `candidates.MOST_LETTERS`: few long
        words are like known ones by chance.
      start: as `name`, where a sentence begins.
      context: of the mean log-probability of a word's characters where the model does not see the word.
    """

    model: float = 0.29
    prior: float = 0.79
    typing: float = 0.66
    same: float = 4.54
    unknown: float = 0.55
    name: float = 1.41
    capitals: float = 6.98
    stands: float = 0.15
    letter: float = -0.4
    start: float = 2.23
    context: float = 0.34

    def vector(self) -> np.ndarray:
        """Returns the weights in the order of `Candidate.features`, float64 [11]."""
        return np.array(dataclasses.astuple(self))


class Choice(NamedTuple):
    """A word with its candidates: float64 [candidates, 11], and the number of the one that is meant."""

    features_KF: np.ndarray
    meant: int


class Weighing(NamedTuple):
    """The weights of a model.

    Attributes:
      own: with the words that lie beside it alone.
      told: with words of the user's that are `share` of all.
      share: from 0 to 1; with a smaller share the weights lie between the two.
    """

    own: Weights = Weights()
    told: Weights = Weights()
    share: float = 1.0

    def at(self, share: float) -> np.ndarray:
        """Returns the weights, float64 [11], where a share of the known words, from 0 to 1, is of the user's."""
        part = min(share / self.share, 1.0)
        return (1 - part) * self.own.vector() + part * self.told.vector()

    def settings(self) -> JsonObject:
        """Returns the weights in a form that JSON can store, as `of` reads it."""
        return {"own": dataclasses.asdict(self.own), "told": dataclasses.asdict(self.told), "share": self.share}

    @classmethod
    def of(cls, stored: Mapping[str, Json]) -> Weighing:
        """Returns stored weights; ValueError if they are none."""
        share = stored.get("share")
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"share={share!r}: expected a number above 0, at most 1")
        return cls(_weights(stored, "own"), _weights(stored, "told"), share)


def _weights(stored: Mapping[str, Json], name: str) -> Weights:
    values, names = stored.get(name), [field.name for field in dataclasses.fields(Weights)]
    if (
        not isinstance(values, dict)
        or values.keys() != set(names)
        or not all(type(x) in (int, float) and -_MOST < x < _MOST for x in values.values())
    ):
        raise ValueError(
            f"{name}: expected a number for each of {', '.join(names)}; charlm spelling --fit writes such a file anew"
        )
    return Weights(**values)


def weighing_in(folder: Path) -> Weighing:
    """Returns the weights stored beside a model, else the usual ones; ValueError if the file is damaged."""
    stored = read_weighing(folder)
    try:
        return Weighing() if stored is None else Weighing.of(stored)
    except ValueError as error:
        raise ValueError(f"{folder / WEIGHING_FILE}: {error}") from None


def best_weights(choices: Sequence[Choice], start: Weights) -> Weights:
    """Returns the weights with which what is meant is likeliest: conditional likelihood, held to `start` by a ridge.

    Newton's method finds them, with shorter steps where a whole one goes too far; the problem has one optimum.

    Raises:
      ValueError: there is no misspelled word, or no other, with what is meant among its candidates.
    """
    wrong = sum(one.meant > 0 for one in choices)
    if not 0 < wrong < len(choices):
        raise ValueError(
            f"of {len(choices):,} words with what is meant among their candidates {wrong:,} are misspelled: to fit "
            "takes both kinds"
        )
    features_NKF = np.zeros((len(choices), max(len(one.features_KF) for one in choices), len(start.vector())))
    absent_NK = np.full(features_NKF.shape[:2], -np.inf)
    for n, one in enumerate(choices):
        features_NKF[n, : len(one.features_KF)], absent_NK[n, : len(one.features_KF)] = one.features_KF, 0
    rows_N, meant_N = np.arange(len(choices)), np.array([one.meant for one in choices])
    start_F = weights_F = start.vector()

    def log_chances(weights_F: np.ndarray) -> np.ndarray:
        return _log_chances(features_NKF @ weights_F + absent_NK)

    def loss(weights_F: np.ndarray) -> float:
        likely = log_chances(weights_F)[rows_N, meant_N].sum()
        return RIDGE / 2 * float(((weights_F - start_F) ** 2).sum()) - float(likely)

    for _ in range(_STEPS):
        chances_NK = np.exp(log_chances(weights_F))
        mean_NF = np.einsum("nk,nkf->nf", chances_NK, features_NKF)
        slope_F = (features_NKF[rows_N, meant_N] - mean_NF).sum(axis=0) - RIDGE * (weights_F - start_F)
        square_FF = np.einsum("nk,nkf,nkg->fg", chances_NK, features_NKF, features_NKF, optimize=True)
        step_F = np.linalg.solve(square_FF - mean_NF.T @ mean_NF + RIDGE * np.eye(len(start_F)), slope_F)
        before = loss(weights_F)
        while np.abs(step_F).max() >= _ENOUGH and not loss(weights_F + step_F) < before:  # far from the optimum
            step_F = step_F / 2
        if np.abs(step_F).max() < _ENOUGH:
            break
        weights_F = weights_F + step_F
    return Weights(*np.round(weights_F, 4).tolist())


def nats(choices: Sequence[Choice], weights: Weights) -> float:
    """Returns the mean of -log(probability of what is meant) over choices."""
    weights_F = weights.vector()
    return float(np.mean([-_log_chances((one.features_KF @ weights_F)[None])[0, one.meant] for one in choices]))


def _log_chances(scores_NK: np.ndarray) -> np.ndarray:
    return scores_NK - np.logaddexp.reduce(scores_NK, axis=1, keepdims=True)
