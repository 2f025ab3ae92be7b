"""Makes folders of a tiny CharBERT as the authors' code writes them, for tests of import and export."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file
from subword_cases import run

from charlm.convert.rules import export_state
from charlm.families.charbert.model import CharBertConfig
from charlm.families.charbert.tensors import ON_BERT, ON_ROBERTA

KINDS = {"bert": ON_BERT, "roberta": ON_ROBERTA}
KIND = pytest.mark.parametrize("kind", KINDS)
SHAPE = {
    "vocab_size": 20, "hidden": 8, "layers": 2, "heads": 2, "ffn": 12, "max_positions": 16, "char_vocab_size": 9,
    "char_hidden": 4, "word_vocab_size": 7, "fusion": "reference", "windows": (3,),
}  # fmt: skip
ROBERTA = {"type_vocab": 1, "position_offset": 2, "pad_id": 1, "epsilon": 1e-5, "shared_head_norm": True}
THEIRS = {"finetuning_task": None, "num_labels": 2, "output_past": True, "pruned_heads": {}, "use_bfloat16": False}


def config_of(kind: str, **changes: object) -> CharBertConfig:
    return CharBertConfig(**SHAPE | (ROBERTA if kind == "roberta" else {}) | changes)


def write_release(folder: Path, kind: str, head: str = "masked_lm", labels: int = 0) -> dict[str, np.ndarray]:
    """Writes what the authors' code would: all copies of tensors, a config that says nothing of characters."""
    family, config = KINDS[kind], config_of(kind)
    _, abstract, table = family.target(config, head, labels)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), abstract)
    state = export_state(table, family.aliases(config, head), params)
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    theirs = {key: getattr(config, known.ours) for key, known in family.keys.items()} | THEIRS | {"hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(theirs), encoding="utf-8")
    return state


def assert_same_bytes(state: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert state.keys() == other.keys()
    for name, value in other.items():
        assert state[name].tobytes() == value.tobytes(), name


def bring(release: Path, output: Path, *more: str) -> int:
    return run("import", f"--input={release}", f"--output={output}", *more)


def take(checkpoint: Path, output: Path) -> int:
    return run("export", f"--checkpoint={checkpoint}", f"--output={output}")
