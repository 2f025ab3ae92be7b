"""Results as a table: `charlm.to_pandas(model.tag(texts))`.

Open it to change which columns a kind of result has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from charlm.api.results import Answer, Class, Corrected, Encoding, Gap, Score
from charlm.core import extras

if TYPE_CHECKING:
    import pandas

_LEFT_OUT = {Answer: ("candidates",), Score: ("pieces",), Corrected: ("edits",)}  # fields that are tables themselves


def to_pandas(results: Any) -> pandas.DataFrame:  # whatever a method of a model returns
    """Returns what a method of `charlm.load(...)` returned as a table with a row for each result.

    The column "example" counts from 0 what the list holds: texts, or the tagged words of one text. Where a text of
    several has more than one result (words with tags, gaps, neighbours), each has a row. Of a class there are also the
    probabilities of all classes, in columns named "p(LABEL)"; of a gap a row for each of its words; of an `Encoding` a
    row for each word, whose "vector" is float32 [D]. Vectors of whole texts, [N, D] or [D], have a column for each of
    their numbers. The candidates of answers, the pieces of scores and the edits of corrections are left out;
    `pandas.DataFrame(answer.candidates)` has them.

    Args:
      results: one result, a list of them, a list of such lists, an iterable such as `Model.stream` gives, or an array.

    Raises:
      ValueError: pandas is not installed, or these are no results of a model.
    """
    frame = extras.load("to_pandas", "pandas").DataFrame
    if isinstance(results, np.ndarray):
        return frame(np.atleast_2d(results))
    several = list(results) if _is_many(results) else [results]
    if several and all(isinstance(one, np.ndarray) for one in several):  # a stream of vectors
        return frame(np.stack(several))
    return frame([{"example": number} | row for number, one in enumerate(several) for row in _rows(one)])


def _is_many(results: object) -> bool:
    return isinstance(results, Iterable) and not isinstance(results, str | Mapping)


def _rows(result: Any) -> list[dict[str, Any]]:  # of any kind
    """Returns the rows of the results of one text."""
    if isinstance(result, list | tuple):
        return [row for one in result for row in _rows(one)]
    if isinstance(result, float | int | np.number):
        return [{"value": result}]
    if isinstance(result, Encoding):
        columns = zip(result.words, result.offsets, result.vectors, strict=True)
        return [{"word": word, "start": start, "end": end, "vector": v} for word, (start, end), v in columns]
    if isinstance(result, Gap):
        place = {"start": result.start, "end": result.end}
        return [place | {"rank": rank} | dataclasses.asdict(word) for rank, word in enumerate(result.words, start=1)]
    if isinstance(result, Class):
        of_each = {f"p({label})": value for label, value in result.probabilities.items()}
        return [{"label": result.label, "probability": result.probability} | of_each]
    if not dataclasses.is_dataclass(result):
        raise ValueError(f"to_pandas: expected results of a model, got {type(result).__name__}")
    left_out = _LEFT_OUT.get(type(result), ())
    names = [field.name for field in dataclasses.fields(result) if field.name not in left_out]
    return [{name: getattr(result, name) for name in names}]
