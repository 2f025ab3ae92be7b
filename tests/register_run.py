"""What somebody does who has the package in tests/package: trains, fine-tunes, asks, mistypes; prints what came of it.

`test_register.py` runs it in a process of its own, where that package is installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flax import traverse_util
from small_charbert import small_charbert_config
from small_run import ROOT, WORDS, main, on_devices, write_text

from charlm.families.family import family
from charlm.finetune.predictor import FineTuned
from charlm.robustness.settings import Settings, planned
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


def run() -> dict[str, Any]:
    """Returns what came of it."""
    Path(CONFIG).write_text("from register_run import get_config\n", encoding="utf-8")
    lines = [f"the {word} sat{'?' * (n % 3)}" for n, word in enumerate(WORDS * 2)]
    Path("lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tune = (*TUNE, "--config.init_from=run", "--config.data.train=lines.txt", "--workdir=tuned")
    with on_devices(1):
        trained = command(f"--config={CONFIG}", "--config.model.fusion=gated", "--workdir=run")
        tuned = command(
            *tune, "--config.shouting.sign=?", "--config.data.noise=vowels:0.5", "--config.train.epochs=1",
            "--config.data.max_length=8",  # one length, so one program
        )  # fmt: skip
    model = FineTuned.from_checkpoint("tuned")
    names = traverse_util.flatten_dict(model.pretrained.params, sep="/")
    levels, _ = planned(Settings(("tuned",), ("lines.txt",), "report", noise=("all", "vowels:0.3"), levels=(0.1,)))
    return {
        "train": [trained.returncode, trained.stderr],
        "tune": [tuned.returncode, tuned.stderr],
        "fusion": [model.pretrained.config.fusion, *sorted(name for name in names if "fusion" in name)],
        "settings": model.task.settings(),
        "answers": [prediction.label in ("loud", "quiet") for prediction in model.classify(["the cat sat"])],
        "noised": Noiser(Noise.parse("vowels:1"), 0).text("A quiet morning", "key").text,
        "levels": [level.spec for level in levels if level.kind == "vowels"],
        "family": [family("short_hlm").title, family("short_hlm").get_units is not None],
        "errors": {
            "task": errors(*TUNE, "--config.shouting.sign=?", "--config.task=shoutin", "--config.shoutin.x=1"),
            "key": errors(*tune, "--config.shouting.sgin=?"),
            "value": errors(*tune, "--config.shouting.least=0"),
            "foreign": errors(*tune, "--config.data.scheme=iob1"),
            "noise": errors(*tune, "--config.data.noise=vowel:0.1"),
            "fusion": errors(f"--config={CONFIG}", "--config.model.fusion=gatd"),
            "family": errors(f"--config={CONFIG}", "--config.family=short_hml"),
        },
    }


if __name__ == "__main__":
    print(json.dumps(run()))
