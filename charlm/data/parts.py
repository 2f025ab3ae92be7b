"""What all readers of raw text share: the parts of a corpus, and why a document is skipped."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

MAX_DOCUMENT_CHARS = 1_000_000  # longer documents are skipped: they are rarely prose and would need unbounded memory
TOO_LONG = f"longer than {MAX_DOCUMENT_CHARS:,} characters"
BAD_UTF8 = "invalid UTF-8"


@dataclasses.dataclass(frozen=True)
class Part:
    """One piece of a source that can be read on its own.

    Attributes:
      name: stable and unique within the source.
      kind: "lines", "jsonl", "parquet", "tfds" or "builtin".
      path: file, or folder of a prepared TFDS data set; empty for the built-in corpus.
      start: first byte, row group or example.
      stop: one past the last; None: to the end.
      detail: TFDS split expression, or the split of the built-in corpus.
    """

    name: str
    kind: str
    path: str = ""
    start: int = 0
    stop: int | None = None
    detail: str = ""


def is_heldout(data: bytes, fraction: float) -> bool:
    """Whether `data` falls into the held-out share: by its own hash, so order and duplicates do not matter."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") < fraction * 2**64


def decode(data: bytes) -> str | None:
    """Returns UTF-8 as text, None when it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def column_texts(values: Sequence[Any], skipped: Counter[str]) -> Iterator[str]:
    """Yields the values of a column as text; counts those that are none."""
    for value in values:
        text = decode(value) if isinstance(value, bytes) else value
        if text is None:
            skipped["no text" if value is None else BAD_UTF8] += 1
        elif not isinstance(text, str):
            skipped["not a string"] += 1
        elif text := text.strip():
            yield text


def nearest(value: str, choices: Sequence[str]) -> str:
    """Returns the end of a message that names the choice most like `value`, if any is like it."""
    near = difflib.get_close_matches(value, choices, n=1, cutoff=0.6)
    return f"; nearest: {near[0]!r}" if near else ""


@contextlib.contextmanager
def clear_read_errors(path: str) -> Iterator[None]:
    """Turns errors of the file system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
