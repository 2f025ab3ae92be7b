"""An XRayEmb run small enough for tests: its config, and what makes its sequences without a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from small_char2subword_run import LENGTH, small_tokenizer
from small_charbert import small_records
from small_run import WORDS, short

from charlm.config import get_config
from charlm.data.masking import Hiding
from charlm.data.streams import SequenceStream
from charlm.data.subword_building import build_byte_level
from charlm.families.xrayemb.chars import XRayChars
from charlm.families.xrayemb.policies import get_policy
from charlm.families.xrayemb.sequences import CharacterRows, XRaySequence, XRaySequenceMaker
from charlm.families.xrayemb.words import XRayWords
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.word_pieces import WordPieces

CHARS = XRayChars({letter for word in WORDS for letter in word} | {"."})
SLOTS = 12


def small_maker(folder: Path, kind: str = "bert", **changes: Any) -> XRaySequenceMaker:
    """Returns what makes sequences of a BERT or GPT-2, whose subwords are written into `folder`."""
    if kind == "bert":
        tokenizer = small_tokenizer(folder / kind)
        ordinary = [i for i in tokenizer.ids() if tokenizer.surface(i) is not None]
        hiding = Hiding(0.2, 0.8, 0.1, tokenizer.special.mask, np.array(ordinary, np.int32))
    else:
        if not (folder / kind).exists():
            build_byte_level(dict.fromkeys(WORDS, 1) | dict.fromkeys(WORDS[:12], 3), 300, str(folder / kind), kind)
        tokenizer, hiding = SubwordTokenizer.load(folder / kind), None
    fields = {
        "tokenizer": tokenizer,
        "words": WordPieces(tokenizer),
        "found": XRayWords(tokenizer),
        "rows": CharacterRows(tokenizer, CHARS, SLOTS),
        "learn": get_policy("stochastic:0.3"),
        "infer": get_policy("all_multi"),
        "hiding": hiding,
        "writes": "all",
        "share": 1.0,
        "length": LENGTH,
        "slots": SLOTS,
        "seed": 0,
    }
    return XRaySequenceMaker(**{**fields, **changes})


def small_xrayemb_config(text: Path, cache: Path) -> Any:
    """Returns the config of a model of some 10,000 parameters, from nothing; its batch divides among eight devices."""
    config = short(get_config("xrayemb"), text, cache)
    config.text.pieces = 300  # as many as there are, some 90
    config.data.max_length = LENGTH
    config.data.batch_size = 16
    config.data.accumulation = 2
    config.data.table_shards = 8
    config.data.bucket_slots = config.data.written_slots = (SLOTS,)
    config.cycle.every = 2
    config.cycle.batches = "joined"
    config.cycle.words = 32
    config.cycle.vocabulary = 20
    config.cycle.slots = (5, SLOTS)
    config.model.hidden = 16
    config.model.heads = 2
    config.model.layers = 1
    config.model.ffn = 32
    config.model.max_positions = 32
    config.model.char_slots = SLOTS
    config.model.char_embedding = 8
    config.model.char_hidden = 8
    config.model.generator_hidden = 8
    config.train.sample_words = 2
    return config


def sequences_of(maker: XRaySequenceMaker, count: int = 40, **options: Any) -> list[XRaySequence]:
    """Returns the sequences of so many small records."""
    return list(iter(SequenceStream(iter(small_records(count)), maker, **options).next, None))


def row_text(row: np.ndarray) -> str:
    """Returns the word of a row of characters."""
    return CHARS.decode(row)
