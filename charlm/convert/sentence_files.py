"""The files of sentence-transformers beside a model, which say how its states become vectors of texts.

`charlm.families.sentences` reads them. Open it if such a file is not copied with a model.
"""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

from charlm.core.reading import read_json

MODULES = "modules.json"  # the transformer, and what its states go through: pooling, dense layers
TEXTS = "sentence_bert_config.json"  # how texts are read
PROMPTS = "config_sentence_transformers.json"


def module_folders(source: Path) -> list[str]:
    """Returns the folders beside a model that its modules lie in; none that `modules.json` names outside the folder.

    Raises:
      ValueError: the file is no JSON.
    """
    modules = read_json(source / MODULES) if (source / MODULES).is_file() else []
    named = [one.get("path") for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    paths = [PurePosixPath(path) for path in named if isinstance(path, str) and path]
    return list(dict.fromkeys(path.parts[0] for path in paths if not path.is_absolute() and ".." not in path.parts))


def copy_sentence_files(source: Path, target: Path) -> None:
    """Copies what says how vectors are made, as far as it lies beside a model, into another folder.

    Raises:
      ValueError: `modules.json` is no JSON.
      OSError: a file cannot be copied.
    """
    for name in (MODULES, TEXTS, PROMPTS, *module_folders(source)):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
        elif (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
