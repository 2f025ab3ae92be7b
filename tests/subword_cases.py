"""The golden cases of BERT, RoBERTa, RoFormer and GPT-2, our models of them, and folders as transformers has them."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import traverse_util
from programs import applied
from safetensors.numpy import save_file

from charlm.convert.__main__ import main
from charlm.convert.golden import Case, find_cases
from charlm.families.subword.conversion import TABLES
from charlm.families.subword.golden import ours_of

GOLDENS = Path(__file__).resolve().parent / "goldens"
CASES = {"bert": "gelu", "roberta": "masked_lm", "roformer": "masked_lm", "gpt2": "lm"}  # the first case of each family


@functools.cache
def case(family: str, name: str = "") -> Case:
    """Returns a golden case of a family."""
    return next(found for found in find_cases(GOLDENS / family) if found.name == (name or CASES[family]))


# Fewer than the cases have, for compilation's sake; goldens test all.
LAYERS = {"bert": 1, "roberta": 1, "roformer": 1, "gpt2": 2}


@functools.cache
def ours(family: str, head: str = "") -> tuple[Any, Any]:
    """Returns our model of the family's first case, cut to its first `LAYERS`, and its parameters."""
    model, params, _ = ours_of(case(family), TABLES[family], head)
    model = model.clone(config=dataclasses.replace(model.config, layers=LAYERS[family]))
    flat = traverse_util.flatten_dict(params, sep="/")
    number = re.compile(r"/layer_(\d+)/")
    kept = {k: v for k, v in flat.items() if int((number.search(f"/{k}") or ["", 0])[1]) < LAYERS[family]}
    return model, jax.tree.map(jax.numpy.asarray, traverse_util.unflatten_dict(kept, sep="/"))


def apply(family: str, *arguments: Any, head: str = "", changed: Any = None, **named: Any) -> Any:
    """Runs our model of a family's first case; `changed` is a module to run in its place with the same parameters."""
    model, params = ours(family, head)
    static = {name: named.pop(name) for name in list(named) if isinstance(named[name], bool)}
    return applied(changed or model, **static)(params, *arguments, **named)


def write_release(folder: Path, family: str, name: str = "", **config: Any) -> Path:
    """Writes a case as transformers would: weights, config with some changed keys, tokenizer files."""
    folder.mkdir(parents=True, exist_ok=True)
    source = case(family, name)
    save_file(source.state, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(source.meta["config"] | config), encoding="utf-8")
    (folder / "vocab.txt").write_text("[PAD]\nthe\n", encoding="utf-8")
    (folder / "sentencepiece.bpe.model").write_bytes(b"\x0a\x0b")
    return folder


def rewrite(release: Path, state: dict[str, np.ndarray]) -> Path:
    """Puts other tensors into a release."""
    save_file(state, release / "model.safetensors")
    return release


def run(*arguments: object) -> int:
    """Runs `python -m charlm.convert`; returns its status."""
    return main([str(argument) for argument in arguments])


def bring(family: str, release: Path, output: Path, *more: str) -> int:
    """Imports a release."""
    return run("import", f"--family={family}", f"--input={release}", f"--output={output}", *more)


def take(family: str, checkpoint: Path, output: Path) -> int:
    """Exports a checkpoint."""
    return run("export", f"--family={family}", f"--checkpoint={checkpoint}", f"--output={output}")


def failure(capsys: pytest.CaptureFixture[str], status: int) -> str:
    """Returns the one line that a failed command printed."""
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 1
    assert line.startswith("error: ")
    return line
