"""Counts which misspelled words systems mend and which right words they break, sentence by sentence, with intervals.

A correction is right if the word becomes the one meant, in its case. Precision is the share of right ones among all
changed words, recall their share among all misspelled words, and F0.5 weighs precision twice as much. A false alarm is
a right word that is changed. Open it to change what counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.types import JsonObject
from charlm.evaluate_spelling.data import Example
from charlm.evaluate_spelling.systems import NONE, System
from charlm.metrics.compare import paired_bootstrap
from charlm.text.noise.edits import Edit, NoisedText

SCORES = ("precision", "recall", "f0.5", "false_alarms")
COLUMNS = ("right", "changed", "misspelled", "false", "words")  # counts of a sentence


class Measured(NamedTuple):
    """A system on the sentences of a set.

    Attributes:
      system: its name.
      rows_NF: float64, the `COLUMNS` of each sentence.
      seconds: that it took.
      edits: its corrections of each sentence.
    """

    system: str
    rows_NF: np.ndarray
    seconds: float
    edits: list[list[Edit]]


def run(system: System, examples: Sequence[Example]) -> Measured:
    """Asks a system for the corrections of all sentences, and counts them; `warm` says how it is made ready."""
    start = time.perf_counter()
    edits = system.edits(examples)
    seconds = time.perf_counter() - start
    rows = [counts_of(example, made) for example, made in zip(examples, edits, strict=True)]
    return Measured(system.name, np.array(rows, np.float64), seconds, edits)


def warm(system: System, examples: Sequence[Example]) -> None:
    """Asks a system for the clean form of all sentences, so that nothing is loaded or compiled while it is timed."""
    system.edits([one.as_meant for one in examples])


def counts_of(example: Example, edits: Sequence[Edit]) -> tuple[int, ...]:
    """Returns the `COLUMNS` of a sentence; words whose meaning is not known do not count."""
    noised = NoisedText.of(example.text, list(edits))
    right = changed = wrong = false = words = 0
    for (start, end), meant in zip(example.spans, example.meant, strict=True):
        if meant is None:
            continue
        first, last = noised.move(start, end)
        read, found = example.text[start:end], noised.text[first:last]
        words += read == meant
        wrong += read != meant
        changed += found != read
        right += found == meant != read
        false += found != read == meant
    return right, changed, wrong, false, words


def scores(sums_RF: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the `SCORES` [R] of sums [R, 5]; false alarms are a thousand right words'."""
    right, changed, misspelled, false, words = np.atleast_2d(sums_RF).T
    share = lambda part, whole: np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return {
        "precision": share(right, changed),
        "recall": share(right, misspelled),
        "f0.5": share(1.25 * right, changed + 0.25 * misspelled),
        "false_alarms": 1000 * share(false, words),
    }


def summary(found: Measured, samples: int, seed: int) -> JsonObject:
    """Returns the scores of a system with 95 % intervals by sentence, its counts and its speed, JSON-able."""
    none = np.zeros_like(found.rows_NF)
    said: JsonObject = {"system": found.system}
    for name in SCORES:
        one = paired_bootstrap(found.rows_NF, none, lambda sums, name=name: scores(sums)[name], samples, seed)
        said[name] = {"value": one.a, "low": one.low, "high": one.high}
    said |= dict(zip(COLUMNS, found.rows_NF.sum(axis=0).astype(int).tolist(), strict=True))
    speed = None if found.system == NONE else len(found.rows_NF) / max(found.seconds, 1e-9)
    return said | {"sentences_per_second": speed}


def differences(first: Measured, second: Measured, samples: int, seed: int) -> list[JsonObject]:
    """Returns the differences of F0.5 and of false alarms between two systems, on the same resamples, JSON-able."""
    said = []
    for name in ("f0.5", "false_alarms"):
        one = paired_bootstrap(first.rows_NF, second.rows_NF, lambda sums, n=name: scores(sums)[n], samples, seed)
        said.append(
            {"a": first.system, "b": second.system, "score": name, "difference": one.difference}
            | {"low": one.low, "high": one.high}
        )
    return said
