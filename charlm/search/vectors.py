"""Vectors of many texts, kept on disk by content and model, so that the same documents are embedded once.

Open it to change what makes two models the same, or where vectors are kept. A run that is stopped goes on with the
parts that it has written.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from charlm.api.model import Model
from charlm.core.durable import replacing
from charlm.core.files import default_cache_dir
from charlm.core.word_table import identity_of
from charlm.text.speller.files import FILES as SPELLER_FILES

log = logging.getLogger("charlm")

PART = 128  # texts in a file
_READING_FILES = (
    "vocab.txt", "vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "*.model", *SPELLER_FILES,
)  # fmt: skip


def identity(model: Model) -> str:
    """Returns the SHA-256 of all that the vectors of a model depend on, in hexadecimal.

    These are its parameters, its config, the files of its tokenizer, speller or characters, and how states are pooled.

    Raises:
      ValueError: the model's files are damaged.
    """
    pretrained = model.pretrained
    found = hashlib.sha256(identity_of(pretrained.params).encode())
    found.update(f"{pretrained.family};{pretrained.config!r};{model.sentence_settings.digest};".encode())
    found.update(json.dumps(pretrained.metadata.get("char_vocab"), sort_keys=True).encode())
    found.update("\n".join(pretrained.metadata.get("pieces", ())).encode())
    for pattern in _READING_FILES:
        for path in sorted(pretrained.folder.glob(pattern)):
            found.update(f"{path.name};{hashlib.sha256(path.read_bytes()).hexdigest()};".encode())
    return found.hexdigest()


def digest_of(texts: Iterable[str]) -> str:
    """Returns the SHA-256 of texts in their order, in hexadecimal."""
    found = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        found.update(f"{len(data)};".encode() + data)
    return found.hexdigest()


def vectors_of(
    model: Model, texts: Sequence[str], made_by: str, *, prompt_name: str | None = None, cache: Path | None = None
) -> np.ndarray:
    """Returns the unit vectors of texts, float32 [N, D]; those that were computed before are read from disk.

    Args:
      model: makes the vectors.
      texts: the texts.
      made_by: `identity` of the model.
      prompt_name: the prompt in front of each text; None: the model's default one.
      cache: the folder of all vectors; None: "vectors" in the cache folder of charlm.

    Raises:
      ValueError: the model makes no such vectors.
      OSError: the folder cannot be written.
    """
    place = (Path(default_cache_dir()) / "vectors" if cache is None else cache) / digest_of(
        [made_by, prompt_name or "", str(PART), *texts]
    )
    order = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
    starts = range(0, len(order), PART)
    done = sum(_part(place, start).is_file() for start in starts)
    if done < len(starts):
        place.mkdir(parents=True, exist_ok=True)
        log.info("embedding %d texts, %d parts of %d were there", len(texts), done, len(starts))
    found: list[np.ndarray] = [np.zeros(0, np.float32)] * len(texts)
    for start in starts:
        chosen = order[start : start + PART]
        vectors_PD = _read(_part(place, start), len(chosen))
        if vectors_PD is None:
            vectors_PD = model.encode([texts[n] for n in chosen], normalize=True, prompt_name=prompt_name)
            _write(_part(place, start), vectors_PD)
        for n, vector_D in zip(chosen, vectors_PD, strict=True):
            found[n] = vector_D
    return np.stack(found) if found else np.zeros((0, 0), np.float32)


def _part(place: Path, start: int) -> Path:
    return place / f"{start:09d}.npy"


def _read(path: Path, rows: int) -> np.ndarray | None:
    """Returns the vectors of a part; None if it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        found_PD = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        log.warning("%s is damaged: it is made again (%s)", path, error)
        return None
    fits = found_PD.dtype == np.float32 and found_PD.ndim == 2 and len(found_PD) == rows
    return found_PD if fits else None


def _write(path: Path, vectors_PD: np.ndarray) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, vectors_PD)
