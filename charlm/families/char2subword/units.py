"""How Char2Subword reads text for tasks and predictors: a unit is a whole word, a row of the table or a spelling.

Fine-tuning tasks and the predictor read text through it. Open it to see how words and special tokens become positions;
`words` decides which words are spelled. See section 3.3 of Aguilar et al. (2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from charlm.core.types import Params
from charlm.families.char2subword.beside import GatedUnits
from charlm.families.char2subword.flops import batch_flops
from charlm.families.char2subword.model import GATED, Char2SubwordBertConfig, encoder_states
from charlm.families.char2subword.spelling import spell_rows
from charlm.families.char2subword.words import SpelledWords
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.spellings import Spellings, spelling_slots
from charlm.families.spelled.units import WordUnits
from charlm.families.subword.units import Template
from charlm.families.units import check_ids, checked_longest
from charlm.text.words import get_splitter

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained


def units_of_mode(pretrained: Pretrained, longest: int = 0) -> Char2SubwordUnits | GatedUnits:
    """Returns the units of a model in its mode; see `charlm.families.lookup.units_of`."""
    gated = pretrained.config.mode == GATED
    return GatedUnits(pretrained, longest) if gated else Char2SubwordUnits(pretrained, longest)


class Char2SubwordUnits(WordUnits):
    """Reads text as [CLS] words [SEP], by the template of the transformer's tokenizer, with one position per word.

    Texts are cut into words by the splitter that the model's config names; words that are given stay as they are. A
    unit is a word's row of the table, or -1 - n for spelling n. Spellings are kept as long as this object; see `fresh`.

    Args:
      pretrained: the model; its config says the mode.
      longest: see `charlm.families.lookup.units_of`.

    Raises:
      ValueError: there is no tokenizer, or the tokenizer or the characters do not fit the model.
    """

    def __init__(self, pretrained: Pretrained, longest: int = 0) -> None:
        config = pretrained.config
        self._tokenizer, vocab = pretrained.tokenizer(), pretrained.vocab()
        rows = pretrained.metadata.get("rows", ())
        if not rows:
            check_ids(pretrained.folder, "the tokenizer has", self._tokenizer.size, config.vocab_size)
        check_ids(pretrained.folder, "characters have", vocab.size, config.characters.char_vocab_size)
        self.words = SpelledWords(self._tokenizer, config.mode, rows)
        self.spellings = Spellings(vocab, config.characters.char_slots, spell_rows)
        self._splitter = get_splitter(config.splitter, config.language)
        pad = self._tokenizer.special.pad
        self._pad = 0 if pad is None else self.words.row(pad)
        # A model with a single segment embedding has no row for the second text of a pair.
        self._one_type = config.type_vocab < 2
        self._single, self._double = (self._own_template(pair) for pair in (False, True))
        self.buckets = spelling_slots(config.characters.char_slots)
        self.longest = checked_longest(longest, config.longest, self.specials(True) + 4)

    def _own_template(self, pair: bool) -> Template:
        """Returns the template of the tokenizer, its special tokens replaced by their rows of the model's table."""
        template = super()._template(pair)
        parts = {}
        for name in ("before", "between", "after"):
            parts[name] = getattr(template, name).copy()
            parts[name][:, 0] = [self.words.row(int(index)) for index in parts[name][:, 0]]
        return template._replace(**parts)

    @property
    def around_shown(self) -> tuple[list[str], list[str]]:
        """The special tokens around a text."""
        template = super()._template(False)
        before, after = template.before[:, 0].tolist(), template.between[:, 0].tolist()
        return [*map(self._tokenizer.token, before)], [*map(self._tokenizer.token, after)]

    def read(self, words: Sequence[str]) -> list[int | str]:
        """Returns the row or the spelling of each word; see `SpelledWords`."""
        return self.words.read(words)

    @property
    def mask(self) -> tuple[str, int]:
        """The mask token of the vocabulary, and its row; ValueError when there is none."""
        index = self._tokenizer.special.mask
        if index is None:
            raise ValueError("the vocabulary has no mask token: its model fills no gaps")
        return self._tokenizer.token(index), self.words.row(index)

    def forward_flops(self, config: Char2SubwordBertConfig, inputs: SpelledBatch) -> float:
        """Returns the operations of the module over the distinct spellings plus those of the transformer."""
        return batch_flops(config, inputs)

    def states(self, config: Char2SubwordBertConfig, params: Params, inputs: SpelledBatch) -> jax.Array:
        """Returns the states of the last layer; see `Units.states`."""
        return encoder_states(config, params, inputs)
