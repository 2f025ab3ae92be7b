"""Applies a method of a model to texts that come one after another, of which only some are in memory: `Model.stream`.

Open it to change how many texts are read ahead.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

BATCHES_AT_ONCE = 4  # batches of texts that are read before they are answered, so that similar lengths share one
PAIRED = {"classify": "pairs", "measure": "pairs", "answer": "contexts"}  # the argument for the second of two texts


def streamed(
    work: Callable[..., Any],  # a method of a model: what it returns is a result for each text
    second: str,
    texts: Iterable[str | Sequence[Any]],  # the second part of a pair may be None
    size: int,
    progress: bool,
    options: Mapping[str, Any],  # those of the method
) -> Iterator[Any]:  # the results
    """Yields the results of texts, in their order; see `charlm.api.model.Model.stream`.

    Args:
      second: name of the argument that takes the second texts of pairs; "": texts are no pairs.
      size: number of texts that are read before they are answered.
      progress: show on standard error how many texts are done.
    """
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(_bar(len(texts) if isinstance(texts, Sized) else None)) if progress else None
        rest = iter(texts)
        while chunk := list(itertools.islice(rest, size)):
            if second and any(not isinstance(one, str) for one in chunk):
                if any(isinstance(one, str) or len(one) != 2 for one in chunk):
                    raise ValueError("stream: expected texts, or pairs of texts, not both")
                firsts, seconds = zip(*chunk, strict=True)
                found = work(list(firsts), **{second: list(seconds)}, **options)
            else:
                found = work(chunk, **options)
            for result in found:
                yield result
                if bar is not None:
                    bar.update()


def _bar(total: int | None) -> Any:  # a `tqdm`, which has no types
    from tqdm import tqdm  # only for people who want to see it

    return tqdm(total=total, unit=" texts", dynamic_ncols=True)
