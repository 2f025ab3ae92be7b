"""Reads the description of a checkpoint, and finds the family of its model even if the checkpoint does not name it.

Use it instead of `charlm.core.checkpoint.read_metadata` wherever only models of some families are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from charlm.core import checkpoint as checkpoints
from charlm.core.types import Json, JsonObject
from charlm.families.family import UNNAMED


def family_of(metadata: Mapping[str, Json]) -> str:
    """Returns the name of the family of the model that a checkpoint's metadata describe."""
    return metadata.get("family") or metadata["config"].get("family", UNNAMED)


def metadata_of(checkpoint: Path, families: Sequence[str]) -> JsonObject:
    """Returns the metadata of a checkpoint; see `charlm.core.checkpoint.read_metadata`.

    Args:
      families: the names of the families that the model may belong to.

    Raises:
      ValueError: the folder is not a checkpoint of charlm, or its model is of another family.
    """
    metadata = checkpoints.read_metadata(checkpoint)
    if (stored := family_of(metadata)) not in families:
        raise ValueError(f"{checkpoint} is a model of the family {stored}, expected {' or '.join(families)}")
    return metadata
