"""How far noise moves what a model makes of words: S of CharBERT (Ma et al., 2020, Eq. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charlm.finetune.predictor import FineTuned
from charlm.robustness.batches import Batches
from charlm.tasks.base import Row
from charlm.tasks.tagging import word_rows


class Sensitivity(NamedTuple):
    """Mean distance over all words, and over those that are written otherwise; None of no words."""

    all: float | None
    changed: float | None


def distances(clean_WD: np.ndarray, noisy_WD: np.ndarray) -> np.ndarray:
    """Returns (1 - cos) / 2 of each word's two vectors, float64 [W]: 0 where they point the same way, 1 opposite ways.

    Of a vector of zeros, the cosine with another is 0, and with zeros 1.

    Raises:
      ValueError: the arrays are not of the same words and dimensions.
    """
    a, b = np.asarray(clean_WD, np.float64), np.asarray(noisy_WD, np.float64)
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(f"states: expected [words, dimensions] of the same words, got {a.shape} and {b.shape}")
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cos = np.divide((a * b).sum(axis=1), lengths, out=np.zeros(len(a)), where=lengths > 0)
    cos[(a == b).all(axis=1)] = 1.0  # exactly, whatever rounding says
    return (1 - np.clip(cos, -1, 1)) / 2


def sensitivity(clean_WD: np.ndarray, noisy_WD: np.ndarray) -> float:
    """Returns S, the mean of `distances`; ValueError as there, and when there are no words."""
    found = distances(clean_WD, noisy_WD)
    if not len(found):
        raise ValueError("sensitivity: expected the states of at least one word")
    return float(found.mean())


def word_states(model: FineTuned, sentences: Sequence[Sequence[str]], batches: Batches | None = None) -> np.ndarray:
    """Returns the last state before the head at each word's first unit (left to right models: last), float32 [W, D].

    Args:
      model: of any task. sentences: words, none empty; those of all sentences follow each other in the result.
      batches: of the model, when there are some already: what was compiled for them is used again.
    """
    batches = batches or Batches(model)
    starts = np.concatenate([[0], np.cumsum([len(words) for words in sentences])]).astype(int)
    rows = word_rows(sentences, model.evaluator.units)
    found: dict[str, np.ndarray] = {}

    def take(row: Row, states_LD: np.ndarray) -> None:
        table = found.setdefault("states", np.zeros((starts[-1], states_LD.shape[1]), np.float32))
        table[starts[row.example] + row.places.words] = states_LD[row.places.positions]

    batches.states(rows, take)
    return found.get("states", np.zeros((0, 0), np.float32))


def sensitivity_of(
    model: FineTuned,
    sentences: Sequence[Sequence[str]],
    noisy: Sequence[Sequence[str]],
    batches: Batches | None = None,
    clean_WD: np.ndarray | None = None,
) -> Sensitivity:
    """Returns how far noise moves the words of a model.

    Args:
      sentences: words before noise. noisy: the same sentences with noise, word for word.
      batches: see `word_states`. clean_WD: the states of `sentences`, when they are known.

    Raises:
      ValueError: a noisy sentence has another number of words.
    """
    for n, (words, others) in enumerate(zip(sentences, noisy, strict=True)):
        if len(words) != len(others):
            raise ValueError(f"sentence {n}: expected {len(words)} noisy words, one for each, got {len(others)}")
    pairs = [pair for words, others in zip(sentences, noisy, strict=True) for pair in zip(words, others, strict=True)]
    if not pairs:
        return Sensitivity(None, None)
    batches = batches or Batches(model)
    if clean_WD is None:
        clean_WD = word_states(model, sentences, batches)
    found = distances(clean_WD, word_states(model, noisy, batches))
    changed = np.array([word != other for word, other in pairs])
    return Sensitivity(float(found.mean()), float(found[changed].mean()) if changed.any() else None)
