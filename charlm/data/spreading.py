"""Spreads the preparation of corpora over workers, which may be other machines.

Preparing a corpus consists of independent pieces of work, each of which writes its results to files of the cache.
`charlm.data.encode`, `charlm.data.digests` and `charlm.data.vocab` give such pieces to the `Workers` that `working_on`
sets; without workers, this machine does all the work. So the corpora of every family can be prepared by other machines,
and no family has code for it. `charlm.data.beam` has such workers; open this module to write others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """Does pieces of work elsewhere, at once and in any order."""

    def run(self, title: str, work: Callable[[T], None], items: Sequence[T]) -> None:
        """Does a piece of work for each item, and returns when all of them are done.

        Args:
          title: what the work is, in a word.
          work: takes an item; can be pickled. It may be called twice with the same item, even at the same time, and
            leaves the same files then.
          items: can be pickled.

        Raises:
          ValueError: what `work` raised for the first of the items for which it raised something.
        """
        ...


_workers: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextlib.contextmanager
def working_on(workers: Workers) -> Iterator[None]:
    """Has corpora prepared by these workers inside the block."""
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)


def current() -> Workers | None:
    """Returns the workers of the innermost `working_on`, or None: this machine does the work."""
    return _workers.get()
