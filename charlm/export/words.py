"""Writes the table of a model's word vectors beside the model; see `charlm.core.word_table`.

Open it to change which words a table has.
"""

from __future__ import annotations

import os

from charlm.core.reading import read_text
from charlm.core.word_table import FOLDER, VECTORS
from charlm.families.family import family
from charlm.families.pretrained import from_pretrained
from charlm.families.word_tables import write_table


def write(path: str | os.PathLike[str], words: str = "", size: int = 0, dtype: str = "float32") -> str:
    """Writes the vectors of frequent words beside a model; returns a line about the table.

    Args:
      path: what `charlm.from_pretrained` reads.
      words: a file of words, the most frequent first, separated by white space; "": the list beside the model.
      size: how many of these words to take at most; 0: all.
      dtype: what the vectors are rounded to, one of `charlm.core.word_table.DTYPES`.

    Raises:
      ValueError: there is no such model or file, the model has no vectors of words, no list lies beside it, or the
        table cannot be written.
    """
    pretrained = from_pretrained(path)
    predictor = family(pretrained.family).get_predictor().from_pretrained(pretrained)
    predictor.word_rows([])  # refuses a model without vectors of words, before anything is asked for
    listed = read_text(words).split() if words else predictor.frequent_words()
    if not listed:
        raise ValueError(f"{path}: no list of words lies beside the model; --words=FILE names one")
    try:
        count = write_table(predictor, listed[:size] if size else listed, pretrained.folder, dtype)
    except OSError as error:
        raise ValueError(f"{pretrained.folder / FOLDER} cannot be written: {error.strerror or error}") from error
    bytes_of = (pretrained.folder / FOLDER / VECTORS).stat().st_size
    return f"{pretrained.folder / FOLDER}: vectors of {count:,} words in {dtype}, {bytes_of:,} bytes"
