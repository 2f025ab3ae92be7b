"""A tiny reader with files of sentence-transformers, which tests export for that library."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tiny_models import release

from charlm.search.reader import make_reader
from charlm.text.speller.settings import SpellerSettings

LIBRARY = "sentence_transformers.models."
PROMPTS = {"query": "old ", "document": ""}
TEXTS = ["they tells stories", "htey raed", "dog", "", "  the old tree near a mat ", "the old tree " * 12]


def encoder(folder: Path, normalized: bool = False) -> Path:
    """Writes a tiny BERT whose vectors are the states of the first position of 12; perhaps brought to length 1."""
    shutil.copytree(release("bert"), folder)
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalized else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [{"idx": n, "name": str(n), "path": paths[n], "type": LIBRARY + kind} for n, kind in enumerate(kinds)]
    files = {
        "modules.json": modules,
        "1_Pooling/config.json": {"pooling_mode_cls_token": True},
        "sentence_bert_config.json": {"max_seq_length": 12},
        "config_sentence_transformers.json": {"prompts": PROMPTS, "similarity_fn_name": "dot"},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def reader(folder: Path) -> Path:
    """Writes a reader of that encoder."""
    make_reader(str(encoder(folder / "encoder")), str(folder / "reader"), [], SpellerSettings())
    return folder / "reader"
