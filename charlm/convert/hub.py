"""Finds models by name in the local cache of the `huggingface_hub` library; nothing is ever downloaded.

It lets `bert-base-cased` stand for a folder that was downloaded before. Open it when a downloaded model is not found
under its name.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")  # "bert-base-cased", "google-bert/bert-base-cased"


def find_cached(name: str) -> Path:
    """Returns the folder of a model in the cache.

    Raises:
      ValueError: the cache does not have it, or `name` is not a valid name of a model.
    """
    if not _NAME.fullmatch(name) or name.strip(".") == "":
        raise ValueError(f"{name} does not exist")
    try:
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError:
        message = f"{name} does not exist; huggingface_hub, whose cache may hold a model of that name, is not installed"
        raise ValueError(message) from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except HFValidationError:
        raise ValueError(f"{name} does not exist") from None
    except (LocalEntryNotFoundError, OSError):
        raise ValueError(
            f"{name} does not exist, and no model of that name is in the cache of huggingface_hub "
            f"({constants.HF_HUB_CACHE}); charlm downloads nothing"
        ) from None
