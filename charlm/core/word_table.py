"""Vectors of frequent words on disk, beside a model, so that a new process need not encode these words.

A table is a folder with the words' characters as the model reads them, their vectors, and a hash of the parameters that
computed them; with other parameters it is refused. The vectors are memory-mapped: only those that are read are loaded.
`charlm.core.cache.WordCache` reads a table before it encodes. Open it to change the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import ml_dtypes
import numpy as np

from charlm.core.durable import replacing, write_json, write_text
from charlm.core.reading import read_object
from charlm.core.types import Params
from charlm.core.version import __version__

FOLDER = "word_table"  # beside a model
ABOUT, WORDS, CHARS, VECTORS = "table.json", "words.txt", "chars.npy", "vectors.npy"
DTYPES: Mapping[str, np.dtype] = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


class WordTable:
    """The vectors of N words, each known by its characters.

    Args:
      folder: a folder that `write` made.

    Attributes:
      identity: hash of the parameters that computed the vectors; see `identity_of`.
      vectors_ND: the vectors, in a file that is mapped into memory.

    Raises:
      ValueError: files are missing or damaged; names one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            about = read_object(folder / ABOUT)
            self.identity, dtype = str(about["identity"]), DTYPES[about["dtype"]]
            chars_NC = np.load(folder / CHARS, mmap_mode="r")  # whatever size it claims
            stored_ND = np.load(folder / VECTORS, mmap_mode="r")
            self.vectors_ND = stored_ND if stored_ND.dtype == dtype else stored_ND.view(dtype)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder} is no word table, or a damaged one: {' '.join(str(error).split())}") from None
        sizes = {len(chars_NC), len(self.vectors_ND), about.get("words")}
        if len(sizes) > 1 or chars_NC.dtype != np.uint16 or chars_NC.ndim != 2 or stored_ND.ndim != 2:
            raise ValueError(f"{folder} is a damaged word table: its files hold different numbers of words")
        self._rows = {key: row for row, key in enumerate(keys_of(chars_NC))}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, keys: Sequence[bytes]) -> np.ndarray:
        """Returns the row of each word, int [W]; -1 for a word that is not in the table; see `keys_of`."""
        return np.array([self._rows.get(key, -1) for key in keys], np.int64)


def keys_of(chars_NC: np.ndarray) -> list[bytes]:
    """Returns what words are known by, their characters without padding, from uint16 [N, C]."""
    text, width = np.ascontiguousarray(chars_NC).tobytes(), chars_NC.shape[1] * chars_NC.itemsize
    return [text[at : at + width].rstrip(b"\0") for at in range(0, len(text), width)]


def identity_of(params: Params) -> str:
    """Returns the SHA-256 of parameters, by their names, shapes and numbers, in hexadecimal."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        value = np.ascontiguousarray(jax.device_get(leaf))
        found.update(f"{jax.tree_util.keystr(path)} {value.dtype} {value.shape};".encode())
        found.update(value.view(np.uint8).reshape(-1).data)
    return found.hexdigest()


def write(
    folder: Path, words: Sequence[str], chars_NC: np.ndarray, vectors_ND: np.ndarray, identity: str, dtype: str
) -> None:
    """Writes a table into a folder, whole or not at all.

    Args:
      folder: to be made; it may not exist.
      words: as users know them, one for each row.
      chars_NC: uint16, their characters as the model reads them, 0 pads.
      vectors_ND: float32.
      identity: see `identity_of`.
      dtype: what the vectors are rounded to, one of `DTYPES`.

    Raises:
      OSError: it cannot be written.
    """
    with replacing(folder) as temporary:
        made = Path(temporary)
        made.mkdir()
        np.save(made / CHARS, chars_NC)
        np.save(made / VECTORS, vectors_ND.astype(DTYPES[dtype], copy=False))
        write_text(made / WORDS, "".join(f"{word}\n" for word in words))
        about = {"charlm": __version__, "identity": identity, "dtype": dtype, "words": len(words)}
        write_json(made / ABOUT, about)
