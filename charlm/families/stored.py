"""Reads the description of a checkpoint, and finds the family of its model even if the checkpoint does not name it.

Use it instead of `charlm.core.checkpoint.read_metadata` wherever only models of some families are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from charlm.core import checkpoint as checkpoints
from charlm.core.types import Json, JsonObject
from charlm.families.family import FAMILIES, UNNAMED


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


def checkpoint_of(source: str, family: str, key: str = "init_from") -> Path | None:
    """Returns the checkpoint at `source`; None if its model is of another family, or if there is no checkpoint.

    Where there is none, there may be a folder of PyTorch weights; `charlm.families.pretrained.from_pretrained` reads
    it.

    Args:
      family: the name of the family that the model has to be of.
      key: the config key that names the source, for messages.

    Raises:
      ValueError: the folder is not a checkpoint of charlm, or of no known family.
    """
    try:
        checkpoint = checkpoints.find(source, key=key)
    except ValueError:
        return None
    return checkpoint if family_of(metadata_of(checkpoint, tuple(FAMILIES))) == family else None
