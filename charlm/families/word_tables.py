"""Writes and reads the table of a model's word vectors that lies beside it (`charlm.core.word_table`).

Predictors whose words have vectors without context read it when they are made from a loaded model. Open it to change
when a table is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from charlm.core import word_table
from charlm.core.durable import remove_folder
from charlm.core.word_table import WordTable, identity_of, keys_of
from charlm.families.arguments import checked_list
from charlm.families.predictor import Predictor

log = logging.getLogger("charlm")

Made = TypeVar("Made", bound=Predictor)


def write_table(predictor: Predictor, words: Iterable[str], folder: Path, dtype: str = "float32") -> int:
    """Computes the vectors of words and writes them beside a model, in place of an older table; returns their number.

    Args:
      words: most frequent first; words that the model reads as others, or does not read from characters, count once or
        not at all.
      folder: the model's, where `with_table` looks.
      dtype: what the vectors are rounded to, one of `charlm.core.word_table.DTYPES`.

    Raises:
      ValueError: the model has no vectors of words, or there is no word.
      OSError: the table cannot be written.
    """
    names, rows_UC = predictor.word_rows(checked_list(words))
    first = {key: row for row, key in reversed(list(enumerate(keys_of(rows_UC))))}
    kept = sorted(first.values())
    if not kept:
        raise ValueError("no word to keep: the model reads none of them from characters")
    cache, params = predictor.cache, predictor.word_params
    assert cache is not None  # whoever has rows of words has a cache
    vectors_UD = cache.encoded(params, rows_UC[kept])
    target = folder / word_table.FOLDER
    made = folder / f".{word_table.FOLDER}.new"
    if made.exists():  # of a run that was killed
        remove_folder(made)
    word_table.write(made, [names[n].lstrip("\0") for n in kept], rows_UC[kept], vectors_UD, identity_of(params), dtype)
    if target.exists():
        remove_folder(target)
    made.rename(target)
    return len(kept)


def with_table(predictor: Made, folder: Path) -> Made:
    """Returns the predictor, which reads the words of the table beside its model from there, if there is one.

    A table that is damaged, or that other parameters have computed, is left alone, with a line in the log.
    """
    if predictor.cache is None or not (folder / word_table.FOLDER).is_dir():
        return predictor
    try:
        table = WordTable(folder / word_table.FOLDER)
        if table.identity != identity_of(predictor.word_params):
            raise ValueError(f"{table.folder} was made with other parameters")
        predictor.cache.read_first(table, predictor.word_params)
        predictor.table = table
    except ValueError as error:
        log.warning("%s: words are encoded instead; charlm export --format=words makes it anew", error)
    return predictor
