"""Writes a model as a folder of sentence-transformers, in which charlm itself makes the vectors.

`charlm.families.exported` says what lies where, `charlm.export.sentence_module` is what that library loads. Open it to
change which files of a model are taken along. It needs no PyTorch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from charlm.convert.files import new_folder, state_files
from charlm.convert.sentence_files import MODULES, PROMPTS, module_folders
from charlm.core import checkpoint as checkpoints
from charlm.core.durable import write_json, write_text
from charlm.core.reading import read_object
from charlm.core.types import JsonObject
from charlm.core.version import __version__
from charlm.core.word_table import FOLDER as WORD_TABLE
from charlm.export.program import EXAMPLES, TOLERANCE
from charlm.families import elsewhere
from charlm.families.exported import INSIDE, TYPE, around, read_normalize, write_settings
from charlm.families.family import family
from charlm.families.predictor import Predictor
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.sentences import SentenceSettings, read_settings, sentence_vectors

SIMILARITY = "similarity_fn_name"  # in the file of prompts
_WEIGHTS = (".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth", ".safetensors")

_PAGE = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- charlm
---

# {title}

Vectors of texts, {width} numbers each, made by charlm {version}. {needed} have to be installed.

```python
from charlm.export.sentence_module import sentence_transformer

model = sentence_transformer("FOLDER")  # a SentenceTransformer
vectors = model.encode(["a text", "another"])
```

`SentenceTransformer("FOLDER")` gives the same up to version 5. From version 6 on, sentence-transformers asks for
`trust_remote_code=True` before it imports a class that is not its own. This folder as charlm wrote it has no code: what
is imported is the charlm that is installed.

`charlm.load("FOLDER").encode(texts, normalize=True)` gives the same vectors without PyTorch.
"""


class TextModel(NamedTuple):
    """A model that makes vectors of texts, with how it makes them.

    Attributes:
      pretrained, predictor: the model.
      settings: pooling, prompts and the longest text.
      normalize: whether vectors get length 1 even if the settings do not say so.
      similarity: the name by which vectors are compared in sentence-transformers; "": its default, the cosine.
    """

    pretrained: Pretrained
    predictor: Predictor
    settings: SentenceSettings
    normalize: bool
    similarity: str


def load_text_model(path: str | Path) -> TextModel:
    """Loads a model, anything that `charlm.from_pretrained` reads.

    Raises:
      ValueError: there is no model, it makes no vectors of texts, or its files ask for what charlm cannot do.
    """
    pretrained = from_pretrained(path)
    predictor = family(pretrained.family).get_predictor().from_pretrained(pretrained)
    predictor.require("encode")
    outer, settings = around(pretrained.folder), read_settings(pretrained.folder)
    beside = (outer or pretrained.folder) / PROMPTS
    similarity = read_object(beside).get(SIMILARITY) if beside.is_file() else None
    normalize = True if outer is None else read_normalize(outer)
    return TextModel(pretrained, predictor, settings, normalize, similarity if isinstance(similarity, str) else "")


def write_sentence_folder(path: str, output: str) -> str:
    """Writes a model as a folder of sentence-transformers, whole or not at all; returns a line about it.

    Args:
      path: what `charlm.from_pretrained` reads.
      output: the folder to create.

    Raises:
      ValueError: there is no such model, it makes no vectors of texts, its copy makes others, or the folder exists or
        cannot be written.
    """
    model = load_text_model(path)
    expected_ND = _examples(model)
    with new_folder(output) as folder:
        copy_model(model.pretrained, folder / INSIDE)
        write_settings(folder, model.settings.longest, model.normalize)
        write_json(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": TYPE}])
        write_json(folder / PROMPTS, _prompts(model))
        page = _PAGE.format(
            title=model.pretrained.title,
            width=expected_ND.shape[1],
            version=__version__,
            needed=_needed(model.pretrained),
        )
        write_text(folder / "README.md", page)
        apart = float(np.abs(_examples(load_text_model(folder)) - expected_ND).max())
        if not apart <= TOLERANCE:
            raise ValueError(
                f"--output={output}: the copy of {path} makes other vectors than it: {apart:.1e} apart, expected at "
                f"most {TOLERANCE:.0e}"
            )
    return f"{output}: {model.pretrained.title} for sentence-transformers, vectors of {expected_ND.shape[1]} numbers"


def _needed(pretrained: Pretrained) -> str:
    """Returns the packages that a folder needs, as the beginning of a sentence."""
    rest = pretrained.metadata.get(elsewhere.KEY)
    return f"sentence-transformers, charlm and {rest['install']}, which has weights," if rest else "Both packages"


def copy_model(pretrained: Pretrained, target: Path) -> None:
    """Copies a model with all that makes its vectors into a new folder.

    A checkpoint of a run, wherever it was copied to, is written anew without what only the run needs. Of a folder of
    weights, those that are read are taken, and folders only if they belong to the vectors.

    Raises:
      ValueError: the folder that the model was read from is gone, or the target cannot be written.
      OSError: a file cannot be copied.
    """
    source = pretrained.folder
    if not source.is_dir():
        raise ValueError(f"{source}, where the model was read, is gone")
    checkpoint = source.parent if source.name == checkpoints.FILES else source
    if not checkpoints.complete(checkpoint):
        _copy(source, target, _left_out(source))
    elif checkpoint == source and not checkpoint.name.isdigit():
        _copy(source, target, ())
    else:
        pretrained.save_pretrained(target)


def _copy(source: Path, target: Path, left_out: Iterable[str]) -> None:
    """Copies a folder without names of its own that are left out or hidden."""
    skipped = set(left_out)

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name.startswith(".") or name in skipped} if Path(folder) == source else set()

    shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)


def _left_out(source: Path) -> set[str]:
    """Returns what is not taken of a folder of PyTorch weights: folders of other uses, and weights in other formats."""
    read = {path.name for path in state_files(source)}
    kept = {WORD_TABLE, *module_folders(source)}
    return {
        one.name
        for one in source.iterdir()
        if (one.name not in kept if one.is_dir() else one.suffix in _WEIGHTS and one.name not in read)
    }


def _prompts(model: TextModel) -> JsonObject:
    settings = model.settings
    content: JsonObject = {"model_type": "SentenceTransformer", "prompts": dict(settings.prompts)}
    content |= {"default_prompt_name": settings.default_prompt}
    return content | ({SIMILARITY: model.similarity} if model.similarity else {})


def _examples(model: TextModel) -> np.ndarray:
    """Returns the vectors of the examples, float32 [N, D]."""
    return sentence_vectors(model.predictor, EXAMPLES, model.settings, normalize=model.normalize)
