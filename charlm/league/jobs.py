"""Defines a job of a league: `plan` makes them, `running` runs them. Open it to see what a job tells of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Job(NamedTuple):
    """A process of a league.

    Attributes:
      name: its kind and what it is about, such as "tune/pos/bert/0".
      needs: names of the jobs that must be done before.
      command: returns its command line, once those are done.
      finished: says whether its result is there and whole.
    """

    name: str
    needs: tuple[str, ...]
    command: Callable[[], list[str]]
    finished: Callable[[], bool]
