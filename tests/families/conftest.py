"""The commands run in this process: what they log is collected, and the logger left as it was."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_logger(log_lines: object) -> None:
    """Keeps `start_logging` from tying the logger to the standard error of one test."""
