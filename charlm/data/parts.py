"""What all readers of raw text share: the parts of a corpus, and the reasons for which a document is skipped.

Open it to see what a part of a source is, how held-out documents are chosen, or why a document was skipped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

MAX_DOCUMENT_CHARS = 1_000_000  # longer documents are skipped: they are rarely prose and would need unbounded memory
TOO_LONG = f"longer than {MAX_DOCUMENT_CHARS:,} characters"
BAD_UTF8 = "invalid UTF-8"


@dataclasses.dataclass(frozen=True)
class Part:
    """One piece of a source that can be read on its own.

    Attributes:
      name: stable and unique within the source.
      kind: "lines", "jsonl", "parquet", "wet", "tfds" or "builtin".
      path: the file, or the folder of a prepared TFDS data set; empty for the built-in corpus.
      start: index of the first byte, row group or example.
      stop: index one past the last; None: up to the end.
      detail: the TFDS split expression, or the split of the built-in corpus.
    """

    name: str
    kind: str
    path: str = ""
    start: int = 0
    stop: int | None = None
    detail: str = ""


def is_heldout(data: bytes, fraction: float) -> bool:
    """Returns whether `data` is held out; its own hash decides, so order and duplicates do not matter."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") < fraction * 2**64


def decode(data: bytes) -> str | None:
    """Returns bytes decoded as UTF-8, or None when they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def column_texts(values: Sequence[object], skipped: Counter[str]) -> Iterator[str]:
    """Yields the values of a column that are text; skips and counts the others."""
    for value in values:
        text = decode(value) if isinstance(value, bytes) else value
        if text is None:
            skipped["no text" if value is None else BAD_UTF8] += 1
        elif not isinstance(text, str):
            skipped["not a string"] += 1
        elif text := text.strip():
            yield text


@contextlib.contextmanager
def clear_read_errors(path: str) -> Iterator[None]:
    """Turns errors of the file system into a one-line ValueError that names the file."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
