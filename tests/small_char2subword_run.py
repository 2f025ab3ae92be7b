"""A Char2Subword run in three stages small enough for tests: its config, and a BERT to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp
from programs import initial
from small_charbert import LETTERS, SPECIALS
from small_run import WORDS, on_devices, short, write_text

import charlm.training.train
from charlm.config import get_config
from charlm.core import checkpoint as checkpoints
from charlm.core.sharding import path_name
from charlm.families.char2subword.keys import of_stage
from charlm.families.subword.bert import Bert, BertConfig, BertForMaskedLM
from charlm.families.subword.layout import config_to_dict
from charlm.text.subwords import SubwordTokenizer
from charlm.training.run import Run, build
from charlm.training.stages import train_stages

LENGTH = 24
STAGES = ("1_approximation", "2_contextual", "3_approximation")


def small_tokenizer(folder: Path) -> SubwordTokenizer:
    """Returns a WordPiece vocabulary of letters and of most words of the text, written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [word.lower() for word in WORDS[:-1] if word.isascii() and word.isalpha()]
    pieces = [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *words[:-4], "[unused1]", "##all", "."]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    return SubwordTokenizer.load(folder, lowercase=False)


def small_backbone(folder: Path, head: bool = True) -> Path:
    """Writes an untrained BERT of one layer and its tokenizer; returns its folder. Its zeros are negative ones."""
    tokenizer = small_tokenizer(folder.parent / "small_tokenizer")
    shape = BertConfig(vocab_size=tokenizer.size, hidden=16, layers=1, heads=2, ffn=32, max_positions=32, pooler=False,
                       initializer="lecun")  # fmt: skip
    model = BertForMaskedLM(shape) if head else Bert(shape)
    params = jax.device_get(initial(model, np.ones((1, 4), np.int32), seed=5))
    params = jax.tree.map(lambda x: np.where(x == 0, np.float32(-0.0), x), params)  # adding 0 would change these bits
    kind = "masked_lm" if head else "encoder"
    checkpoints.save_params(folder, params, {"family": "bert", "model": config_to_dict(shape), "head": kind})
    tokenizer.save(folder)
    return folder


def small_char2subword_config(text: Path, cache: Path, backbone: Path | None = None) -> Any:
    """Returns the config of three stages with a module of some 5,000 parameters; its batches divide among eight.

    Args:
      backbone: what it starts from; None: one that is written beside the text.
    """
    config = short(get_config("char2subword"), text, cache)
    backbone = backbone or text.parent / "backbone"
    config.init_from = str(backbone if backbone.exists() else small_backbone(backbone))
    config.data.max_length = LENGTH
    config.data.batch_size = 32
    config.data.table_shards = 8
    config.model.hidden = 16
    config.model.heads = 2
    config.model.layers = 1
    config.model.char_slots = 24
    config.contextual.steps = 8
    config.contextual.batch_size = 16
    config.contextual.accumulation = 2
    config.contextual.learning_rate = 1e-2
    config.contextual.warmup_steps = 2
    config.contextual.log_every = 4
    config.contextual.eval_every = 4
    config.contextual.checkpoint_every = 3
    return config


class Finished(NamedTuple):
    """A finished run of three stages of eight steps each, on one device; `runs` are what each was built to."""

    folder: Path
    runs: list[Run]

    def config(self, **changes: Any) -> Any:
        """Returns a copy of its config, with changes written section__key=value."""
        return changed(small_char2subword_config(self.folder / "text.txt", self.folder / "cache"), changes)

    def contextual(self, **changes: Any) -> Any:
        """Returns the config of the second stage, which starts from the first."""
        config = of_stage(self.config(), "contextual")
        config.init_from = str(self.stage(1))
        return changed(config, changes)

    def stage(self, number: int) -> Path:
        """Returns the folder of a stage."""
        return self.folder / "run" / STAGES[number - 1]


def changed(config: Any, changes: dict[str, Any]) -> Any:
    """Returns a config with changes written section__key=value."""
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
    return config


def train_three_stages(folder: Path) -> Finished:
    """Trains the small module in three stages."""
    write_text(folder / "text.txt")
    runs: list[Run] = []
    keep = lambda *arguments: runs.append(build(*arguments)) or runs[-1]
    finished = Finished(folder, runs)
    with on_devices(1), mock.patch.object(charlm.training.train, "build", keep):
        assert train_stages(finished.config(), str(folder / "run"))
    assert len(runs) == 3
    return finished


def saved(folder: Path) -> tuple[dict[str, bytes], bytes]:
    """Returns the arrays of the last checkpoint, and the data position."""
    checkpoint = checkpoints.find(folder)
    state = ocp.load_checkpointables(checkpoint, {"state": None})["state"]
    (position,) = (checkpoint / "data").glob("process_*.json")
    return flat(state), position.read_bytes()


def flat(tree: Any) -> dict[str, bytes]:
    """Returns the bytes of the arrays of a tree, by name."""
    return {path_name(path): np.asarray(leaf).tobytes() for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
