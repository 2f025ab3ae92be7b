"""The libraries of the extra [eval], and the checks that all metrics share."""

from __future__ import annotations

import importlib
from collections.abc import Sized
from typing import Any


def load(module: str) -> Any:
    """Returns a module of the extra [eval]; ValueError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f'scores need {module.split(".")[0]}: pip install -e ".[eval]"') from error


def check_lengths(gold: Sized, predicted: Sized, what: str = "examples") -> None:
    """Raises ValueError when there is nothing to score or not one prediction for each."""
    if len(gold) != len(predicted):
        raise ValueError(f"predictions: expected {len(gold)} (one for each of the {what}), got {len(predicted)}")
    if not len(gold):
        raise ValueError(f"no {what} to score")
