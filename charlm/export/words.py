"""Writes the table of a model's word vectors beside the model; see `charlm.core.word_table`.

Open it to change which words a table has.
"""

from __future__ import annotations

import os
from pathlib import Path

from charlm.convert.files import new_folder
from charlm.core import trained
from charlm.core.reading import read_text
from charlm.core.word_table import FOLDER, VECTORS
from charlm.export.sentence_folder import copy_model
from charlm.families.family import family
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.word_tables import write_table


def write(
    path: str | os.PathLike[str], words: str = "", size: int = 0, dtype: str = "float32", output: str = ""
) -> str:
    """Writes the vectors of frequent words beside a model, or beside a copy of it; returns a line about the table.

    Args:
      path: what `charlm.from_pretrained` reads.
      words: a file of words, the most frequent first, separated by white space; "": the list beside the model.
      size: how many of these words to take at most; 0: all.
      dtype: what the vectors are rounded to, one of `charlm.core.word_table.DTYPES`.
      output: the folder to create, a copy of the model with the table; "": the table is put beside the model itself.

    Raises:
      ValueError: there is no such model or file, the model has no vectors of words, no list lies beside it, it is part
        of charlm and no output is named, or the table cannot be written.
    """
    pretrained = from_pretrained(path)
    predictor = family(pretrained.family).get_predictor().from_pretrained(pretrained)
    predictor.word_rows([])  # refuses a model without vectors of words, before anything is asked for
    listed = read_text(words).split() if words else predictor.frequent_words()
    if not listed:
        raise ValueError(f"{path}: no list of words lies beside the model; --words=FILE names one")
    listed = listed[:size] if size else listed
    if output:
        with new_folder(output) as folder:
            copy_model(pretrained, folder)
            told = _write_beside(from_pretrained(folder).folder, predictor, listed, dtype)
        return f"{output}: a copy of {path} with {told}"
    if pretrained.folder.is_relative_to(trained.FOLDER):
        raise ValueError(f"{path} is part of charlm and stays as it is; --output=FOLDER writes a copy with the table")
    try:
        told = _write_beside(pretrained.folder, predictor, listed, dtype)
    except OSError as error:
        raise ValueError(f"{pretrained.folder / FOLDER} cannot be written: {error.strerror or error}") from error
    return f"{pretrained.folder / FOLDER}: {told}"


def _write_beside(folder: Path, predictor: Predictor, words: list[str], dtype: str) -> str:
    count = write_table(predictor, words, folder, dtype)
    size = (folder / FOLDER / VECTORS).stat().st_size
    return f"vectors of {count:,} words in {dtype}, {size:,} bytes"
