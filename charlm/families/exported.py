"""The folder in which sentence-transformers finds a model of charlm; `charlm export` writes it.

`modules.json` names one module, a class of charlm; the model lies in the folder `INSIDE`, as charlm reads it anywhere.
Prompts and the longest text are those of the outer folder, where that library writes them when it saves a model. Open
it to change the layout.
"""

from __future__ import annotations

import os
from pathlib import Path

from charlm.convert.sentence_files import MODULES
from charlm.core.durable import write_json
from charlm.core.reading import read_json, read_object
from charlm.core.types import JsonObject

TYPE = "charlm.export.sentence_module.SentenceModule"  # stands in users' folders, so the class keeps name and place
INSIDE = "charlm"
SETTINGS = "charlm_module.json"


def model_inside(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Returns the folder of the model in an exported folder; any other path, or name of a model, as it is.

    Raises:
      ValueError: other modules follow that of charlm, which charlm does not have.
    """
    kinds = _kinds(Path(path))
    if TYPE not in kinds:
        return path
    if len(kinds) > 1:
        others = ", ".join(kind for kind in kinds if kind != TYPE)
        raise ValueError(f"{Path(path) / MODULES}: expected the module of charlm alone, found {others}, too")
    return Path(path) / INSIDE


def around(folder: Path) -> Path | None:
    """Returns the exported folder around the folder of a model; None if there is none."""
    return folder.parent if folder.name == INSIDE and _kinds(folder.parent) == [TYPE] else None


def write_settings(folder: Path, longest: int | None, normalize: bool) -> None:
    """Writes how the module of an exported folder makes vectors; OSError if it cannot be written."""
    write_json(folder / SETTINGS, {"max_seq_length": longest, "normalize": normalize})


def read_longest(folder: Path) -> int | None:
    """Returns the most positions of a text that are read; None for all; ValueError if the file is damaged."""
    return checked_longest(_settings(folder).get("max_seq_length"), str(folder / SETTINGS))


def read_normalize(folder: Path) -> bool:
    """Returns whether vectors get length 1 whatever the model's own files say; ValueError if the file is damaged."""
    found = _settings(folder).get("normalize", True)
    if not isinstance(found, bool):
        raise ValueError(f"{folder / SETTINGS}: normalize: expected true or false, got {str(found)[:40]}")
    return found


def checked_longest(found: object, where: str) -> int | None:
    """Returns a number of positions, or None for all; ValueError, naming `where`, for anything else."""
    if found is None or (isinstance(found, int) and not isinstance(found, bool) and found >= 1):
        return found
    raise ValueError(f"{where}: max_seq_length: expected a whole number of at least 1, got {str(found)[:40]}")


def _settings(folder: Path) -> JsonObject:
    return read_object(folder / SETTINGS)


def _kinds(folder: Path) -> list[str]:
    """Returns the types of the modules that a folder lists; [] if it lists none, or not as it should."""
    try:
        listed = read_json(folder / MODULES) if (folder / MODULES).is_file() else []
    except (ValueError, OSError):  # whoever reads the modules says what is wrong; here it is no export
        return []
    modules = listed if isinstance(listed, list) else []
    return [str(module.get("type")) for module in modules if isinstance(module, dict)]
