"""Marks the cases of a test that repeat, with other values, what its other cases show: slow."""

from __future__ import annotations

from typing import Any

import pytest


def again(*values: Any) -> Any:
    """Returns a case of `pytest.mark.parametrize` that is left to the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)
