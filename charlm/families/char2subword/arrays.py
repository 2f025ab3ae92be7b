"""The plain arrays that a Char2Subword reads outside of charlm: characters of words, and rows of the table of subwords.

`charlm.export` makes programs of them. Open it to change what such a program reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from charlm.core.types import JsonObject
from charlm.families.char2subword.model import GATED
from charlm.families.char2subword.units import Char2SubwordUnits
from charlm.families.spelled.arrays import SpelledArrays
from charlm.families.units import Units
from charlm.text.chars import CHAR_VOCAB_FILE, UNK

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained


class Char2SubwordArrays(SpelledArrays):
    """A word is one position: the row of its entry of the vocabulary (in hybrid mode), or its characters behind ##."""

    units: Char2SubwordUnits
    texts = (
        "a word is one position. Normalise it as tokenizer.json does; if reading.mode is hybrid and the vocabulary has "
        "it as a whole word, its id stands in ids; otherwise its characters behind ## are a row of chars, by "
        "char_vocab.json, characters that are not there being reading.unknown. reading.before and reading.after are "
        "the ids around a text"
    )

    def __init__(self, pretrained: Pretrained, units: Units) -> None:
        super().__init__(pretrained, units)
        if pretrained.config.mode == GATED:
            raise ValueError(f"{pretrained.folder}: a model in {GATED} mode cannot be exported; mode='hybrid' can")

    def reading(self) -> JsonObject:
        """See `Arrays`."""
        config = self.pretrained.config
        return super().reading() | {
            "unknown": UNK,
            "mode": config.mode,
            "splitter": config.splitter,
            "language": config.language,
        }

    def write_beside(self, folder: Path) -> None:
        """See `Arrays`."""
        super().write_beside(folder)
        self.pretrained.vocab().save(folder / CHAR_VOCAB_FILE)
