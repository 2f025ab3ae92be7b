"""Checks that all metrics share, so that a new metric reports wrong inputs as the others do.

Open it when you write a metric, or when a metric refuses its inputs.
"""

from __future__ import annotations

from collections.abc import Sized


def check_lengths(gold: Sized, predicted: Sized, what: str = "examples") -> None:
    """Raises ValueError if there is nothing to score, or if the numbers of examples and predictions differ."""
    if len(gold) != len(predicted):
        raise ValueError(f"predictions: expected {len(gold)} (one for each of the {what}), got {len(predicted)}")
    if not len(gold):
        raise ValueError(f"no {what} to score")
