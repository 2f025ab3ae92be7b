"""Trains, fine-tunes and applies models with the package in tests/package, as its user would, and prints the results.

`test_register.py` runs it in a process of its own, where that package is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
from small_charbert import small_charbert_config
from small_run import ROOT, WORDS, main, on_devices, small_config, write_text

import charlm.convert.__main__ as convert
from charlm import predict
from charlm.config import from_dict
from charlm.convert.model import Model
from charlm.core import checkpoint as checkpoints
from charlm.families.family import family
from charlm.families.predict_options import load_with_options
from charlm.families.pretrained import from_pretrained
from charlm.finetune.predictor import FineTuned
from charlm.robustness.settings import ReportSettings, planned
from charlm.text.chars import CharVocab
from charlm.text.noise import Noise, Noiser

CONFIG = "charbert.py"  # a user's own config file
TUNE = (f"--config={ROOT}/configs/classify.py", "--config.task=shouting", "--config.data.batch_size=8")


def get_config() -> Any:
    """Returns the config of `CONFIG`."""
    config = small_charbert_config(write_text(Path("text.txt"), 100), Path("cache"))
    config.data.batch_size, config.data.table_shards = 2, 1
    config.train.steps = 1
    return config


def command(*arguments: str) -> Any:
    """Runs `charlm.main` in the current folder."""
    return main(*arguments, cwd=Path.cwd())


def errors(*arguments: str) -> str:
    """Returns the last line that the command says."""
    return command(*arguments).stderr.splitlines()[-1]


def save_short_hlm(folder: str) -> None:
    """Writes a model of the installed family, with numbers that no training made."""
    converter = family("short_hlm").get_converter()
    config = from_dict(small_config(Path("text.txt"), Path("cache")).to_dict() | {"family": "short_hlm"})
    vocab = CharVocab.build(Counter("".join(WORDS)), config.model.vocab_size)
    metadata = {"config": config.to_dict(), "char_vocab": vocab.to_dict()}
    rng = np.random.default_rng(0)
    params = converter.target(metadata, folder).params
    params = jax.tree.map(lambda leaf: rng.normal(scale=0.1, size=leaf.shape).astype(np.float32), params)
    converter.save(Model(params, metadata, Path(), Path()), Path(folder).absolute())


def converted(*arguments: str) -> list[Any]:
    """Runs `charlm.convert`; returns its exit status and all that it says."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = convert.main([*arguments])
    return [status, out.getvalue().strip()]


def predicted(*arguments: str) -> list[Any]:
    """Runs `charlm.predict`; returns its exit status, its lines and what it says on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = predict.main([*arguments])
    return [status, [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue()]


def refused_by_predict(**options: str) -> str:
    """Returns the message about options of `charlm.predict`."""
    try:
        load_with_options(from_pretrained, argparse.Namespace(**options))
    except ValueError as error:
        return str(error)
    return ""


def run() -> dict[str, Any]:
    """Returns what came of it."""
    Path(CONFIG).write_text("from register_run import get_config\n", encoding="utf-8")
    lines = [f"the {word} sat{'?' * (n % 3)}" for n, word in enumerate(WORDS * 2)]
    Path("lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = ("--config.data.train=lines.txt", "--workdir=tuned")
    tune = (*TUNE, "--config.init_from=short", *files)
    save_short_hlm("short")
    with on_devices(1):
        trained = command(
            f"--config={CONFIG}", "--config.model.fusion=gated", "--workdir=run",
            "--config.optim.freeze=^(?!.*fusion)",  # quicker to compile
        )  # fmt: skip
        tuned = command(
            *tune, "--config.shouting.sign=?", "--config.data.noise=vowels:0.5", "--config.train.epochs=1",
            "--config.model.aggregation=mean", "--config.optim.freeze=^hlm/",  # quicker to compile
            "--config.data.max_length=8",  # one length, so one program
        )  # fmt: skip
    model = FineTuned.from_checkpoint("tuned")
    fused = checkpoints.find("run")
    names = checkpoints.parameter_shapes(fused)
    config = json.loads(Path("tuned/config.json").read_text(encoding="utf-8"))
    levels, _ = planned(
        ReportSettings(("tuned",), ("lines.txt",), "report", noise=("all", "vowels:0.3"), levels=(0.1,))
    )
    return {
        "train": [trained.returncode, trained.stderr],
        "tune": [tuned.returncode, tuned.stderr],
        "fusion": [
            checkpoints.read_metadata(fused)["model"]["fusion"],
            *sorted(name for name in names if "fusion" in name),
        ],
        "settings": model.task.settings(),
        "answers": predicted("predict", "--checkpoint=tuned", "lines.txt"),
        "no answers": predicted("predict", "--checkpoint=tuned", "nowhere.txt"),
        "no class": predicted("classify", "--checkpoint=tuned", "the cat sat"),
        "noised": Noiser(Noise.parse("vowels:1"), 0).text("A quiet morning", "key").text,
        "levels": [level.spec for level in levels if level.kind == "vowels"],
        "family": [model.pretrained.family, config["model"]["aggregation"], model.pretrained.config.aggregation],
        "asked": load_with_options(
            from_pretrained, argparse.Namespace(checkpoint="short", aggregation="max")
        ).config.aggregation,
        "letters": [
            *converted("export", "--checkpoint=tuned", "--output=letters", "--letters"),
            len(Path("letters/letters.txt").read_text(encoding="utf-8").splitlines()),
        ],
        "imported": [
            converted("export", "--checkpoint=short", "--output=theirs")[0],
            converted("import", "--input=theirs", "--made-by=max", "--output=again")[0],
            from_pretrained("again").family,
            from_pretrained("again").config.aggregation,
        ],
        "errors": {
            "task": errors(*TUNE, "--config.shouting.sign=?", "--config.task=shoutin", "--config.shoutin.x=1"),
            "key": errors(*tune, "--config.shouting.sgin=?"),
            "value": errors(*tune, "--config.shouting.least=0"),
            "foreign": errors(*tune, "--config.data.scheme=iob1"),
            "noise": errors(*tune, "--config.data.noise=vowel:0.1"),
            "fusion": errors(f"--config={CONFIG}", "--config.model.fusion=gatd"),
            "family": errors(f"--config={CONFIG}", "--config.family=short_hml"),
            "own key": errors(*tune, "--config.model.agregation=mean"),
            "own value": errors(*tune, "--config.model.aggregation=median"),
            "own of another": errors(
                *TUNE, "--config.init_from=run", *files[:1], "--workdir=no", "--config.model.aggregation=mean"
            ),
            "own form": converted("export", "--checkpoint=run", "--output=no", "--letters")[1],
            "own import": converted("import", "--family=bert", "--input=theirs", "--made-by=max", "--output=no")[1],
            "own option": refused_by_predict(checkpoint="short", aggregation="median"),
            "own option of another": refused_by_predict(checkpoint="run", aggregation="max"),
        },
    }


if __name__ == "__main__":
    print(json.dumps(run()))
