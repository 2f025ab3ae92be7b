"""Writes the folder of a shipped model: weights, vocabularies, `card.json` and the model card, all or nothing.

Open it to change which files a shipped model has.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax

from charlm.convert.files import new_folder
from charlm.convert.heads import FINE_TUNED
from charlm.convert.sentence_files import copy_sentence_files
from charlm.core import checkpoint as checkpoints
from charlm.core.durable import write_json, write_text
from charlm.core.trained import CARD, MODEL_CARD
from charlm.core.types import Json, JsonObject
from charlm.families import elsewhere
from charlm.families.family import FAMILIES
from charlm.families.lookup import converter_of
from charlm.families.stored import family_of, metadata_of
from charlm.ship import card, facts
from charlm.text.wordlist import WORDS_FILE

_OF_CONFIGS = ("config", "fine_tuning", "started_from")  # entries of a checkpoint's metadata that hold paths


def pack(
    checkpoint: str, output: str, about: str, report: str, dtype: str, most: int, rest: str = "", install: str = ""
) -> str:
    """Packs a model; returns the line to print.

    Args:
      checkpoint: a workdir or a checkpoint.
      output: the folder to create; its name is that of the model.
      about: JSON file with what the run does not tell, see `charlm.ship.facts.read_about`.
      report: `report.json` of a robustness report; "": the scores are those that the run measured.
      dtype: what the weights are stored as, one of `charlm.core.trained.PACKED`.
      most: bytes that the folder may have.
      rest: "PACKAGE:FOLDER" of a model whose parameters are left out where they are the same; "": all are packed.
      install: the name to install that package by.

    Raises:
      ValueError: there is no such model, a file is missing or wrong, or the folder would be too large.
    """
    source = checkpoints.find(checkpoint, key="--checkpoint")
    metadata = metadata_of(source, tuple(FAMILIES))
    said = facts.read_about(about)
    converter = converter_of(family_of(metadata))
    head = converter.head_of(metadata)
    model = converter.load(source, metadata)
    known = facts.of_model(model, converter.title, head, dtype) | facts.of_run(source, metadata, said)
    known |= facts.scores_of(source, metadata, report)
    known["headline"] = card.headline(known)
    with new_folder(output) as folder:
        converter.write_beside(model, folder)
        if head in FINE_TUNED:
            (folder / WORDS_FILE).unlink(missing_ok=True)  # the words for gaps, which such a model does not fill
        params, stored = model.params, without_folders(metadata)
        if rest:
            params, about_rest = elsewhere.without_rest(params, rest, install)
            stored[elsewhere.KEY], known["rest"] = about_rest, facts.of_rest(about_rest)
            known["dtype"] = dtype if jax.tree.leaves(params) else None
            elsewhere.copy_beside(rest, install, folder)
        copy_sentence_files(model.folder, folder)
        checkpoints.save_compact(folder, params, stored, dtype)
        write_json(folder / CARD, known)
        write_text(folder / MODEL_CARD, card.text(Path(output).absolute().name, known))
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if size > most:
            raise ValueError(f"--output={output}: it would have {size / 1e6:.2f} MB, --max-mb allows {most / 1e6:g}")
    return f"{output}: {known['title']}, {size / 1e6:.2f} MB; {known['headline']}"


def without_folders(metadata: JsonObject) -> JsonObject:
    """Returns the metadata of a checkpoint with the folders of the machine that trained it taken from all paths."""
    return metadata | {name: _named(metadata[name]) for name in _OF_CONFIGS if name in metadata}


def _named(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _named(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_named(one) for one in value]
    return Path(value).name if isinstance(value, str) and os.path.isabs(value) else value
