"""The golden cases of the released HLM code, and folders of state dicts made from them."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from charlm.convert.golden import Case, find_cases
from charlm.convert.heads import MASKED_LM
from charlm.families.hlm.golden import state_of
from charlm.text.chars import CharVocab

TESTS = Path(__file__).resolve().parent
HLM = TESTS / "goldens" / "hlm"
SHARED_HLM = TESTS.parents[1] / "shared" / "golden" / "hlm"  # the larger cases these were cut down from
VOCAB = CharVocab([chr(33 + i) for i in range(90)])  # fits into the cases' table of 128 rows


@functools.cache
def case(name: str) -> Case:
    """Returns a golden case, "reference" or "paper"."""
    return next(found for found in find_cases(HLM) if found.name == name)


def shared_folder() -> Path:
    """Returns the folder of the larger cases; skips the test where it is not there."""
    if not SHARED_HLM.is_dir():
        pytest.skip(f"the larger golden cases are not there: {SHARED_HLM}")
    return SHARED_HLM


def write_release(folder: Path, name: str = "reference", head: str = MASKED_LM, head_layers: int = 1) -> Path:
    """Writes what a release of the authors would hold: state dict, model config, characters; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state_of(case(name), head, head_layers), folder / "model.safetensors")
    config = case(name).meta["config"] | {"n_local_layer_last": head_layers}
    (folder / "config_model.json").write_text(json.dumps(config), encoding="utf-8")
    VOCAB.save(folder / "char_vocab.json")
    return folder
