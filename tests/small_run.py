"""A run that is small enough for tests: its text, its config, and how to compile it in seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from absl.testing import flagsaver
from jax.experimental.compilation_cache import compilation_cache

import charlm.finetune.fine_tuning
import charlm.training.run
import charlm.training.train
from charlm import cli
from charlm.config import get_config
from charlm.core.sharding import make_mesh
from charlm.data.corpus import PreparedData, prepare
from charlm.training.run import Run, build

TEXT = "the cat sat on a mat and dog ran to every small house in town while we slept near old trees 3.14 naïve"
WORDS = [*TEXT.split(), "supercalifragilistic"]
ROOT = Path(__file__).resolve().parents[1]
UNITS = ("words", "subwords", "spellings", "positions", "rows", "texts")
SPEEDS = {f"{unit}_per_second" for unit in (*UNITS, "tflops")}
TIMINGS = {*SPEEDS, "mfu", "ms_per_step", "data_wait", "goodput"}


def write_text(path: Path, lines: int = 400, extra: str = "") -> Path:
    """Writes sentences of a few words each, the same in every run; `extra` is one more document."""
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(WORDS, rng.integers(3, 13))) + "." for _ in range(lines)]
    path.write_text("\n".join([*documents, extra]) + "\n", encoding="utf-8")
    return path


def short(config: Any, text: Path, cache: Path) -> Any:
    """Returns a config of any family with one file of text, for a run of eight steps."""
    config.data.train = (str(text),)
    config.data.heldout_fraction = 0.1
    config.data.cache_dir = str(cache)
    config.data.encode_processes = 1
    config.optim.learning_rate = 1e-2
    config.optim.warmup_steps = 2
    config.optim.schedule = "constant"  # so that a longer run begins as a shorter one
    config.train.steps = 8
    config.train.log_every = 4
    config.train.eval_every = 4
    config.train.checkpoint_every = 3
    config.train.examples = 0
    return config


def small_config(text: Path, cache: Path) -> Any:
    """Returns the config of a model of some 10,000 parameters; its batch divides among eight devices."""
    config = short(get_config(), text, cache)
    config.text.splitter = "rules"
    config.data.max_words = 16
    config.data.batch_size = 8
    config.data.table_shards = 8
    config.data.bucket_slots = (8,)
    config.model.vocab_size = 64
    config.model.hidden = 16
    config.model.heads = 2
    config.model.intra_layers = config.model.inter_layers = config.model.head_layers = 1
    config.model.intra_ffn = config.model.inter_ffn = 32
    config.model.char_slots = 8
    config.model.position_buckets = 8
    config.model.max_relative_words = 16
    config.optim.learning_rate = 3e-3
    config.train.steps = 12
    config.train.eval_every = 6
    return config


@contextlib.contextmanager
def quick_compilation(folder: Path) -> Iterator[None]:
    """Compiles without most optimizations, and every program once: `folder` keeps them."""
    settings = {
        "jax_disable_most_optimizations": True,
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config._read(name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    with mock.patch.dict(os.environ, {name.upper(): str(value) for name, value in settings.items()}):  # subprocesses
        try:
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


@contextlib.contextmanager
def on_devices(count: int) -> Iterator[None]:
    """Within it, runs of training and of fine-tuning are built for the first so many devices, not for all there are."""
    some = lambda config, devices=None: make_mesh(config, devices or jax.devices()[:count])
    with (
        mock.patch.object(charlm.training.run, "make_mesh", some),
        mock.patch.object(charlm.finetune.fine_tuning, "make_mesh", some),
    ):
        yield


def python(*arguments: str, cwd: Path = ROOT, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process of its own, which sees the devices that this one sees."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd, env=environment, input=stdin, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def main(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs the command that trains as `python("-m", "charlm.main", ...)` would, but for the seconds of its imports."""
    import charlm.main  # here, since configs of tests import this module while that one runs as a command

    return _in_process("charlm/main.py", charlm.main.main, arguments, cwd)


def corpus_command(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs the command that encodes corpora as `python("-m", "charlm.data.corpus", ...)` would."""
    import charlm.data.corpus.__main__

    return _in_process("charlm/data/corpus/__main__.py", charlm.data.corpus.__main__.main, arguments, cwd)


def _in_process(
    name: str, program: Callable[[Any], None], arguments: Sequence[str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Runs a program that reads a config from the command line, with its output and exit status."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    log = logging.getLogger("charlm")
    # As in a new process: what an earlier command shows its lines with would go on writing where that one did.
    kept = [handler for handler in log.handlers if not isinstance(handler, logging.StreamHandler)]
    with (
        flagsaver.flagsaver(),
        mock.patch.object(log, "handlers", kept),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", [name, *arguments]),
    ):
        try:
            cli.run(program)
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


@dataclasses.dataclass(frozen=True)
class Trained:
    """A finished run on one device. `config` is as it was given: what the run measured is in its workdir."""

    config: Any
    workdir: Path
    data: PreparedData
    run: Run

    def copy(self, folder: Path) -> Path:
        """Returns a copy of the workdir, for a test to change."""
        return Path(shutil.copytree(self.workdir, folder))

    def new_config(self) -> Any:
        """Returns a copy of the config, for a test to change."""
        return small_config(Path(self.config.data.train[0]), Path(self.config.data.cache_dir))


def train_once(folder: Path) -> Trained:
    """Trains the small model for its twelve steps, on one device: the fewer, the quicker."""
    config = small_config(write_text(folder / "text.txt"), folder / "cache")
    made = []
    keep = lambda *arguments: made.append(build(*arguments)) or made[0]
    with on_devices(1), mock.patch.object(charlm.training.train, "build", keep):
        charlm.training.train.train(small_config(folder / "text.txt", folder / "cache"), str(folder / "run"))
    return Trained(config, folder / "run", prepare(config), made[0])


def metrics_without_timings(workdir: Path) -> list[dict[str, float]]:
    """Returns the lines of metrics.jsonl without what depends on the machine's speed."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    timing = lambda name: name.removeprefix("train_") in TIMINGS  # as fine-tuning calls them
    return [{k: v for k, v in json.loads(line).items() if not timing(k)} for line in lines]
