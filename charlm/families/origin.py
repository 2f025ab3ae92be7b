"""Identifies what a run started from, a checkpoint or PyTorch weights, so that an exchanged model is noticed.

Runs store it with their checkpoints and compare it when they are resumed. Open it to change what counts as another
model.
"""

from __future__ import annotations

import os
from typing import NamedTuple, TypeAlias

from charlm.convert.files import state_files
from charlm.core import checkpoint as checkpoints
from charlm.core.files import default_cache_dir, stable_hash
from charlm.core.types import JsonObject
from charlm.data.digests import file_sha256


class Weights(NamedTuple):
    """Identifies PyTorch weights by the content of their files: a sha256 (hex)."""

    sha256: str

    def __str__(self) -> str:
        return f"sha256 {self.sha256[:12]}"


Origin: TypeAlias = checkpoints.Identity | Weights


def origin_at(path: str | os.PathLike[str]) -> Origin | None:
    """Returns the identity of the model that `from_pretrained` reads there, the same wherever it is moved.

    Files of weights are read once: the cache keeps their digests while size and modification time stay the same.

    Returns:
      None if there is no model, or if it cannot be read.
    """
    found = checkpoints.identity(path)
    if found is not None:
        return found
    try:
        digests = [file_sha256(str(file), default_cache_dir()) for file in state_files(path)]
    except (ValueError, OSError):
        return None
    return Weights(digests[0] if len(digests) == 1 else stable_hash(*digests))


def described(origin: Origin | None) -> JsonObject:
    """Returns an identity as the entries that a run stores; `stored_origin` reads them."""
    if isinstance(origin, Weights):
        return {"checkpoint": None, "weights": origin.sha256}
    return {"checkpoint": origin}


def stored_origin(entries: JsonObject) -> Origin | None:
    """Returns the identity that `described` made the entries from; None if they have none."""
    if entries.get("weights"):
        return Weights(entries["weights"])
    found = entries.get("checkpoint")
    return checkpoints.Identity(*found) if found else None
