"""Arrays that a report has measured, each in a file of its own, so that nothing is measured twice.

Open it to change when a file counts as damaged.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from charlm.core.durable import replacing

log = logging.getLogger("charlm")


def kept_rows(path: Path, shape: tuple[int, ...], compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Returns the rows in a file; computes and writes them where it is missing, damaged or of another shape."""
    if path.is_file():
        try:
            rows = np.load(path, allow_pickle=False)
            if isinstance(rows, np.ndarray) and rows.shape == shape and np.isfinite(rows).all():
                return rows
            error = f"expected {shape} numbers"
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as damage:
            error = damage
        log.warning("%s is damaged: it is measured again (%s)", path, error)
    rows = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, rows)
    return rows
