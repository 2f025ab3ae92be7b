"""Inference with a trained CharacterBERT: vectors of words, and the likeliest frequent words for gaps.

`charlm.predict` runs it; most of it is in `charlm.families.spelled.predictor`. Open it to change which words may fill a
gap.
"""

from __future__ import annotations

import functools

from charlm.families.characterbert.characters import normalized
from charlm.families.characterbert.cnn import CharacterCNN
from charlm.families.characterbert.units import CharacterBertUnits
from charlm.families.characterbert.vocab import WORD_VOCAB_FILE, WordVocab
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.predictor import EntryWords, WordPredictor
from charlm.families.word_tables import with_table


class CharacterBertPredictor(WordPredictor):
    """A CharacterBERT with the words that it predicts, read from the file beside it. See `WordPredictor` for the cache.

    Args:
      pretrained: the model.

    Raises:
      ValueError: when that file cannot be read, or does not have as many words as the model predicts.
    """

    unknown_words = "are none of the words that the model predicts"

    def __init__(self, pretrained: Pretrained) -> None:
        units = CharacterBertUnits(pretrained)
        super().__init__(pretrained, units, CharacterCNN(pretrained.config), "cnn")
        file = pretrained.folder / WORD_VOCAB_FILE
        self._vocab: WordVocab | None = None
        if "fill_mask" not in self.missing and file.is_file():
            self._vocab = WordVocab.load(file)
            if self._vocab.size != self.config.vocab_size:
                raise ValueError(f"{file} has {self._vocab.size} words, the model predicts {self.config.vocab_size}")
        elif "fill_mask" not in self.missing:
            self.missing = {"fill_mask": f"{file}, the words that this model predicts, is missing"}

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> CharacterBertPredictor:
        """Returns the predictor of a loaded model."""
        return with_table(cls(pretrained), pretrained.folder)

    def frequent_words(self) -> list[str]:
        """Returns the words that the model predicts, which are the frequent ones of its training text."""
        return [] if self._vocab is None else list(self._vocab.words)

    def entry(self, word: str) -> int | None:
        """Returns the id of a word, after normalising it; see `WordPredictor.entry`."""
        assert self._vocab is not None, "`require` refuses what has no words"
        return self._vocab.id(normalized(word, self.config.lowercase))

    @functools.cached_property
    def anything(self) -> EntryWords:
        """All words that the model predicts, as a list to rank; see `WordPredictor`."""
        assert self._vocab is not None, "`require` refuses what has no words"
        return EntryWords(self._vocab.words, self._units, self._vocab.id)
