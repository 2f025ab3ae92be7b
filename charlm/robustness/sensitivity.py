"""Measures how far noise moves the hidden states of words: S of CharBERT (Ma et al., 2020, Eq. 8).

Open it to change how a word's state is taken or compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charlm.finetune.predictor import FineTuned
from charlm.robustness.batches import ModelRunner
from charlm.tasks.base import Row
from charlm.tasks.tagging import word_rows


class Sensitivity(NamedTuple):
    """The mean distance over all words, and over the words that noise changed; None if there are no such words."""

    all: float | None
    changed: float | None


def distances(clean_WD: np.ndarray, noisy_WD: np.ndarray) -> np.ndarray:
    """Returns (1 - cos) / 2 for the two vectors of each word, float64 [W]: 0 for equal directions, 1 for opposite ones.

    The cosine of a zero vector is 1 with another zero vector, and 0 with any other vector.

    Raises:
      ValueError: the arrays are not [W, D] of equal shape.
    """
    a, b = np.asarray(clean_WD, np.float64), np.asarray(noisy_WD, np.float64)
    if a.shape != b.shape or a.ndim != 2:
        raise ValueError(f"states: expected [words, dimensions] of the same words, got {a.shape} and {b.shape}")
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cos = np.divide((a * b).sum(axis=1), lengths, out=np.zeros(len(a)), where=lengths > 0)
    cos[(a == b).all(axis=1)] = 1.0  # exactly, in spite of rounding errors
    return (1 - np.clip(cos, -1, 1)) / 2


def sensitivity(clean_WD: np.ndarray, noisy_WD: np.ndarray) -> float:
    """Returns S, the mean of `distances`; raises ValueError in the same cases, and if there are no words."""
    found = distances(clean_WD, noisy_WD)
    if not len(found):
        raise ValueError("sensitivity: expected the states of at least one word")
    return float(found.mean())


def word_states(model: FineTuned, sentences: Sequence[Sequence[str]], batches: ModelRunner | None = None) -> np.ndarray:
    """Returns the last hidden state of each word before the head, float32 [W, D].

    The state of a word is that of its first unit; in left-to-right models, that of its last unit.

    Args:
      model: a model of any task.
      sentences: sentences of words, none empty; the result has the words of all sentences in order.
      batches: the `ModelRunner` of the model, if they exist already; this avoids compiling again.
    """
    batches = batches or ModelRunner(model)
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
    batches: ModelRunner | None = None,
    clean_WD: np.ndarray | None = None,
) -> Sensitivity:
    """Returns how far noise moves the hidden states of words.

    Args:
      model: a model of any task.
      sentences: sentences of words without noise.
      noisy: the same sentences with noise, word for word.
      batches: see `word_states`.
      clean_WD: the states of `sentences`, if they are known.

    Raises:
      ValueError: a noisy sentence has a different number of words.
    """
    for n, (words, others) in enumerate(zip(sentences, noisy, strict=True)):
        if len(words) != len(others):
            raise ValueError(f"sentence {n}: expected {len(words)} noisy words, one for each, got {len(others)}")
    pairs = [pair for words, others in zip(sentences, noisy, strict=True) for pair in zip(words, others, strict=True)]
    if not pairs:
        return Sensitivity(None, None)
    batches = batches or ModelRunner(model)
    if clean_WD is None:
        clean_WD = word_states(model, sentences, batches)
    found = distances(clean_WD, word_states(model, noisy, batches))
    changed = np.array([word != other for word, other in pairs])
    return Sensitivity(float(found.mean()), float(found[changed].mean()) if changed.any() else None)
