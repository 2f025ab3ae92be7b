"""A CharBERT run small enough for tests: its config, and vocabularies and blocks without a run."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from small_run import WORDS, short

from charlm.config import get_config
from charlm.data.text_records import TextRecord
from charlm.families.charbert.blocks import BlockMaker
from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.masking import SubwordMasking
from charlm.families.charbert.noise import WordNoise
from charlm.families.charbert.terms import TermVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.word_pieces import WordPieces
from charlm.text.symbols import SymbolVocab

LENGTH, SLOTS = 24, 96
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = sorted({letter for word in WORDS for letter in word} - {"ï"})  # so that a word is unknown


def small_charbert_config(text: Path, cache: Path) -> Any:
    """Returns the config of a CharBERT of some 20,000 parameters; its batch divides among eight devices."""
    config = short(get_config("charbert"), text, cache)
    config.data.max_length = LENGTH
    config.data.batch_size = 8
    config.data.table_shards = 8
    config.text.pieces = 90
    config.text.terms = 24
    config.model.hidden = 16
    config.model.heads = 2
    config.model.layers = 1
    config.model.ffn = 32
    config.model.max_positions = 32
    config.model.char_hidden = 8
    config.model.windows = (3,)
    return config


@functools.cache
def small_tokenizer(folder: Path) -> SubwordTokenizer:
    """Returns a WordPiece vocabulary of letters and a few longer pieces, written into a folder."""
    folder.mkdir(exist_ok=True)
    pieces = [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "sm", "##all", "house", "."]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n", encoding="utf-8")
    return SubwordTokenizer.load(folder, lowercase=False)


def small_maker(tokenizer: SubwordTokenizer, **changes: Any) -> BlockMaker:
    """Returns what makes blocks of 24 subwords, with noise in a third of the words."""
    fields = {
        "tokenizer": tokenizer,
        "pieces": WordPieces(tokenizer),
        "chars": PieceChars(tokenizer, SymbolVocab([" ", *LETTERS, "<unk>"])),
        "terms": TermVocab([*sorted({word.lower() for word in WORDS[:-2]}), "<unk>"]),
        "noise": WordNoise("paper", 0.3, 0),
        "masking": SubwordMasking(0.2, 0.8, 0.1, tokenizer.special.mask, np.arange(5, 40, dtype=np.int32)),
        "length": LENGTH,
        "slots": SLOTS,
        "seed": 0,
    }
    return BlockMaker(**fields | changes)


def small_records(count: int = 30, seed: int = 0) -> list[TextRecord]:
    """Returns records of some sentences each."""
    rng = np.random.default_rng(seed)

    def sentences() -> Iterator[list[str]]:
        for length in rng.integers(1, 9, rng.integers(1, 5)):
            yield [*rng.choice(WORDS, length).tolist(), "."]

    records = []
    for _ in range(count):
        found = list(sentences())
        words = list(itertools.chain.from_iterable(found))
        records.append(TextRecord.of([len(s) for s in found], words, [word != "." for word in words]))
    return records
