"""CharacterBERTs small enough for tests: one with random weights, and the config of a run."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from flax import traverse_util
from small_run import short
from tiny_models import POSITIONS, _weight

from charlm.config import get_config
from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.convert.model import Model
from charlm.families.characterbert.cnn import CharacterBertConfig
from charlm.families.characterbert.conversion import CONVERTER
from charlm.families.characterbert.vocab import WORD_VOCAB_FILE, WordVocab
from charlm.families.subword.layout import config_to_dict

WORDS = ("the", "cat", "birds", "dog", "town", "house", "naive", "of", "and", "tree")
LENGTH = 24


@functools.cache
def characterbert(head: str = "masked_lm", labels: int = 0, position: str = "absolute") -> Path:
    """Returns a checkpoint as training writes them: random weights, and the words that it predicts."""
    config = CharacterBertConfig(
        vocab_size=len(WORDS), hidden=24, layers=1, heads=4, ffn=48, max_positions=POSITIONS, char_hidden=4,
        windows=(1, 3), filters=(6, 10), highways=1, char_slots=14, splitter="rules",
        pooler=head == SEQUENCE_CLASSIFICATION, position=position,
    )  # fmt: skip
    metadata: dict[str, Any] = {"family": "characterbert", "model": config_to_dict(config), "head": head}
    metadata |= {"labels": labels} if labels else {}
    flat = traverse_util.flatten_dict(CONVERTER.target(metadata, "here").params, sep="/")
    params = traverse_util.unflatten_dict({path: _weight(path, leaf) for path, leaf in flat.items()}, sep="/")
    source, folder = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp()) / "characterbert"
    WordVocab(WORDS).save(source / WORD_VOCAB_FILE)
    CONVERTER.save(Model(params, metadata, source, folder), folder)
    return folder


def small_characterbert_config(text: Path, cache: Path) -> Any:
    """Returns the config of a CharacterBERT of some 10,000 parameters; its batch divides among eight devices."""
    config = short(get_config("characterbert"), text, cache)
    config.text.splitter = "rules"
    config.text.mlm_words = 20
    config.data.max_length = LENGTH
    config.data.batch_size = 8
    config.data.accumulation = 1
    config.data.table_shards = 8
    config.data.bucket_slots = (12,)
    config.model.hidden = 16
    config.model.heads = 2
    config.model.layers = 1
    config.model.ffn = 32
    config.model.max_positions = 32
    config.model.char_slots = 12
    config.model.char_hidden = 4
    config.model.windows = (1, 3)
    config.model.filters = (8, 8)
    config.model.highways = 1
    config.model.initializer = "lecun"
    return config
