"""Applies a model to texts that come one after another, of which only some are in memory: `Model.stream`.

Open it to change how many texts are read ahead.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from charlm.api.model import Model

BATCHES_AT_ONCE = 4  # batches of texts that are read before they are answered, so that similar lengths share one
PAIRED = {"classify": "pairs", "measure": "pairs", "answer": "contexts"}  # the argument for the second of two texts


def streamed(
    model: Model, texts: Iterable[str | Sequence[Any]], ability: str, progress: bool, options: Mapping[str, Any]
) -> Iterator[Any]:
    """Returns an iterator over the results; see `charlm.api.model.Model.stream`."""
    name = ability or ("" if not model.task else model.abilities[0])
    if name == "rank" or (name and name not in model.abilities):
        able = ", ".join(one for one in model.abilities if one != "rank")
        raise ValueError(f"stream: {model.path} cannot {name} texts one by one; it can {able or 'do nothing so'}")
    if isinstance(texts, str):
        raise ValueError("stream: texts is one string; expected an iterable of texts, such as an open file")
    work: Callable[..., Any] = getattr(model, name) if name else model
    return _results(work, PAIRED.get(name, ""), texts, BATCHES_AT_ONCE * model.batch_size, progress, options)


def _results(
    work: Callable[..., Any],
    second: str,
    texts: Iterable[str | Sequence[Any]],
    size: int,
    progress: bool,
    options: Mapping[str, Any],
) -> Iterator[Any]:
    """Yields the results of chunks of texts; `second` names the argument that takes the second texts of pairs."""
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(_bar(len(texts) if isinstance(texts, Sized) else None)) if progress else None
        rest = iter(texts)
        while chunk := list(itertools.islice(rest, size)):
            if second and not isinstance(chunk[0], str):
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
