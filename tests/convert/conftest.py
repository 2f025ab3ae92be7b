"""Fixtures for commands that run in the test's process: their log lines are collected, and the logger is restored."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_logger(log_lines: object) -> None:
    """Keeps `start_logging` from tying the logger to the standard error of one test."""
