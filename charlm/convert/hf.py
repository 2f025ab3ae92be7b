"""BERT, RoBERTa and GPT-2: folders of Hugging Face's transformers to checkpoints of ours and back.

A checkpoint made here stands alone: it says its family, config and head, and holds the tokenizer's files.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from charlm import checkpoint as checkpoints
from charlm.convert.bert import BERT, ROBERTA
from charlm.convert.family import Family, config_from_dict, config_to_dict
from charlm.convert.files import Tensor, find_state, new_folder, open_state, read_json, write_safetensors
from charlm.convert.gpt2 import GPT2
from charlm.convert.rules import describe, export_state, group, import_state, names_any

log = logging.getLogger("charlm")

FAMILIES = {family.name: family for family in (BERT, ROBERTA, GPT2)}
CONFIG_FILE = "config.json"
TOKENIZER_FILES = (
    "vocab.txt", "tokenizer.json", "merges.txt", "vocab.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "*.model",
)  # fmt: skip


def read_folder(family: Family, source: str) -> tuple[Path, dict[str, Any], dict[str, Tensor]]:
    """Returns the file of a state dict, the config beside it, and its tensors by canonical name, not yet read.

    Raises:
      ValueError: when something is missing or cannot be read, or the model is of another family.
    """
    file = find_state(source)
    config = file.parent / CONFIG_FILE
    if not config.is_file():
        raise ValueError(f"{file} has no {CONFIG_FILE} beside it: the config says what the tensors do not")
    theirs = read_json(config)
    family.check_type(theirs, str(config))
    return file, theirs, open_family(family, file)


def open_family(family: Family, file: Path) -> dict[str, Tensor]:
    """Returns the tensors of a state dict by canonical name, not yet read.

    Raises:
      ValueError: when it cannot be read, or holds no tensor of that family.
    """
    stored = open_state(file)
    state = family.canonical(stored, str(file))
    rules = [rule for head in family.heads.values() for rule in head.rules]
    if not names_any(rules, state):
        raise ValueError(
            f"{file} holds no tensor of a {family.name} model: expected names such as {rules[0].theirs}, got "
            f"{', '.join(list(stored)[:3]) or 'none'}; see --family"
        )
    return state


def import_checkpoint(family: Family, source: str, output: str, head: str = "") -> str:
    """Writes a model of theirs as a checkpoint of ours; returns one line that says what it is.

    Args:
      source: their folder, or a file in it. output: folder to make. head: one of the family's; "": what the file holds.

    Raises:
      ValueError: when anything does not fit; nothing is written then.
    """
    with new_folder(output) as folder:
        file, theirs, state = read_folder(family, source)
        head = family.find_head(state, str(file), head)
        config = family.from_theirs(theirs, head, str(file.parent / CONFIG_FILE))
        _, _, table = family.target(config, head)
        leave = family.heads[head].leave
        params = import_state(table, leave, state, f"{file} (sizes from {CONFIG_FILE})")
        metadata = {"family": family.name, "model": config_to_dict(config), "head": head, "hf_config": theirs}
        checkpoints.save_params(folder, params, metadata)
        _copy_tokenizer(file.parent, folder)
        shutil.copyfile(file.parent / CONFIG_FILE, folder / CONFIG_FILE)
        for line in _left(state.keys() - table.keys(), family, head):
            log.info("%s", line)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return f"{output}: {family.name}, {head.replace('_', ' ')}, {size:,} parameters of {len(table)} tensors from {file}"


def _left(names: set[str], family: Family, head: str) -> list[str]:
    """Returns a line for each reason why tensors were not imported."""
    reasons: dict[str, list[str]] = {}
    for name in names:
        reasons.setdefault(describe((), family.heads[head].leave, name), []).append(name)
    return [f"{reason}: {', '.join(group(members))}" for reason, members in sorted(reasons.items())]


def _copy_tokenizer(source: Path, target: Path) -> None:
    for pattern in TOKENIZER_FILES:
        for file in sorted(source.glob(pattern)):
            shutil.copyfile(file, target / file.name)


def load_checkpoint(family: Family, checkpoint: str) -> tuple[Path, Any, Mapping[str, Any]]:
    """Returns the folder of a checkpoint of that family, its config and its metadata.

    Raises:
      ValueError: when there is none, or of another family.
    """
    source = checkpoints.find(checkpoint)
    metadata = checkpoints.read_metadata(source, [family.name])
    head = metadata.get("head")
    if head not in family.heads:
        raise ValueError(f"{source}: head={head!r} is not one of {', '.join(family.heads)}")
    return source, config_from_dict(family.config, metadata["model"], str(source)), metadata


def export_checkpoint(family: Family, checkpoint: str, output: str) -> str:
    """Writes a checkpoint of ours as transformers reads it; returns one line that says what it is.

    Raises:
      ValueError: when there is no checkpoint of that family, or `output` cannot be written.
    """
    with new_folder(output) as folder:
        source, config, metadata = load_checkpoint(family, checkpoint)
        head = metadata["head"]
        _, abstract, table = family.target(config, head)
        # Without aliases: transformers ties them itself. The parameters are let go before the file is laid out.
        state = export_state(table, (), checkpoints.load_params(source, checkpoints.on_one_device(abstract)))
        write_safetensors(folder / "model.safetensors", state)
        theirs = family.to_theirs(config, head, metadata.get("hf_config") or {})
        (folder / CONFIG_FILE).write_text(json.dumps(theirs, indent=2) + "\n", encoding="utf-8")
        _copy_tokenizer(source, folder)
    return f"{output}: {len(state)} tensors, {theirs['architectures'][0]}, from {source}"


def inspect(family: Family, source: str, head: str = "") -> list[str]:
    """Returns a line for each tensor of a state dict: today's name, shape, dtype, our parameter or why it has none.

    Raises:
      ValueError: when it cannot be read, or is of another family.
    """
    file = find_state(source)
    state = open_family(family, file)
    head = family.find_head(state, str(file), head)
    chosen = family.heads[head]
    rows = [
        (name, str(value.shape), value.dtype.name, describe(chosen.rules, chosen.leave, name))
        for name, value in state.items()
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)) for row in rows]
    return [f"{file}: {family.name}, {head.replace('_', ' ')}, {len(state)} tensors", *lines]
