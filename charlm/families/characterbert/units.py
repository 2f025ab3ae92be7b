"""How CharacterBERT reads text for fine-tuning: its units are words, all of them spelled in characters.

Fine-tuning tasks and the predictor read text through it; open it to change the length buckets of words. A row is [CLS]
words [SEP], or [CLS] words [SEP] words [SEP].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import jax
import numpy as np

from charlm.core.flops import TotalLengths, lengths_of, text_lengths
from charlm.core.types import Params
from charlm.data.batching import slots_up_to
from charlm.families.characterbert.characters import (
    CLS_WORD,
    MARKS,
    MASK_WORD,
    SEP_WORD,
    normalized,
    spell_rows,
)
from charlm.families.characterbert.cnn import CharacterBertConfig
from charlm.families.characterbert.flops import cnn_forward
from charlm.families.characterbert.model import CharacterBert
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.spellings import Spellings
from charlm.families.spelled.units import WordUnits
from charlm.families.subword.flops import bert_forward
from charlm.families.subword.units import Template
from charlm.families.units import Encoded, Lost, checked_longest
from charlm.nn.apply import applied
from charlm.text.words import get_splitter

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

# Character slots of the buckets of shorter words, marks included; one more holds the longest.
WORD_SLOTS = (8, 12, 20)


def word_slots(longest: int) -> tuple[int, ...]:
    """Returns the character slots of the length buckets of words, ascending, up to `longest`."""
    return slots_up_to(longest, WORD_SLOTS)


class CharacterBertUnits(WordUnits):
    """Words as the splitter of the model's config cuts them, or as they are given. A unit is -1 - n for spelling n.

    [CLS] and [SEP] are spelled like words, each with a special character. The strings "[CLS]" and "[SEP]" in a text are
    ordinary words.

    Args:
      pretrained: the model.
      longest: see `charlm.families.lookup.units_of`.
    """

    def __init__(self, pretrained: Pretrained, longest: int = 0) -> None:
        config: CharacterBertConfig = pretrained.config
        self._lowercase, self._slots = config.lowercase, config.char_slots
        self.spellings = Spellings(None, config.char_slots, lambda words, _, slots: spell_rows(words, slots))
        cls, sep, self._mask = self.spellings.codes((CLS_WORD, SEP_WORD, MASK_WORD)).tolist()
        self._splitter = get_splitter(config.splitter, config.language)
        self._pad = 0  # an arbitrary unit, since padding is not read
        # A model with only one segment has no row for a second one.
        second = int(config.type_vocab > 1)
        none, rows = np.zeros((0, 2), np.int32), lambda *units: np.array(units, np.int32).reshape(-1, 2)
        self._single = Template(rows((cls, 0)), rows((sep, 0)), none, (0, 0))
        self._double = Template(rows((cls, 0)), rows((sep, 0)), rows((sep, second)), (0, second))
        self.buckets = word_slots(config.char_slots)
        self.longest = checked_longest(longest, config.longest, self.specials(True) + 4)

    def fresh(self) -> Self:
        """Returns a copy of these units without the words met so far; see `SpelledUnits.fresh`."""
        other = super().fresh()
        other.spellings.codes((CLS_WORD, SEP_WORD, MASK_WORD))  # first in every list, so they keep the same units
        return other

    @property
    def mask(self) -> tuple[str, int]:
        """The string that shows a masked word, and its unit."""
        return "[MASK]", self._mask

    def read(self, words: Sequence[str]) -> list[int | str]:
        """Returns the normal form of each word, which is what is spelled."""
        return [normalized(word, self._lowercase) for word in words]

    def lost(self, sentences: Sequence[Sequence[str]], encoded: Sequence[Encoded]) -> Lost:
        """Returns the share of words with more bytes than there are slots; unknown characters do not exist."""
        room = self._slots - MARKS
        forms = (normalized(word, self._lowercase) for words in sentences for word in words)
        long = [len(form.encode("utf-8", "ignore")) > room for form in forms]
        return Lost(0.0, sum(long) / len(long))

    def forward_flops(self, config: CharacterBertConfig, inputs: SpelledBatch) -> float:
        """Returns the operations of the CNN over the distinct words, and of the layers; see `Units.forward_flops`."""
        words = sum((lengths_of(chars) for chars in inputs.chars), TotalLengths())
        return cnn_forward(config, words) + bert_forward(config, text_lengths(inputs.mask_SBL))

    def states(self, config: CharacterBertConfig, params: Params, inputs: SpelledBatch) -> jax.Array:
        """Returns the last states; see `Units.states`."""
        encoder = {name: params[name] for name in ("bert", "cnn")}
        return applied(CharacterBert(config), {"params": encoder})(inputs).states_BLD
