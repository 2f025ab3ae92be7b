"""Reads text in gated mode: in pieces, as the transformer's tokenizer cuts it, with spellings beside split words.

Words that the tokenizer leaves whole are read as their rows of the table, as the transformer itself reads them. Each
piece of a word that it splits reads its row and, beside it, the spelling of the whole word; so does the unknown token.
Open it to change which words are spelled, or how they are told apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from charlm.core.types import Params
from charlm.families.char2subword.flops import batch_flops
from charlm.families.char2subword.model import Char2SubwordBertConfig, encoder_states
from charlm.families.char2subword.spelling import spell_rows, spell_word
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.spellings import Spellings, spelling_slots
from charlm.families.spelled.units import SpelledUnits
from charlm.families.units import Encoded, check_ids, words_at
from charlm.text.subwords import Subwords
from charlm.text.words import KEPT_WORDS, Span

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained


class SpellingsBeside(Spellings):
    """Spellings beside pieces: a code -1 - m is the m-th distinct pair of a piece and the spelling of its word."""

    def __init__(self, vocab: object, slots: int, write: Callable[..., np.ndarray]) -> None:
        """Starts without spellings; see `Spellings`."""
        super().__init__(vocab, slots, write)
        self._pairs: dict[tuple[int, str], int] = {}
        self._pieces: list[int] = []  # of every pair
        self._words: list[int] = []  # for every pair, the code of its spelling alone
        self._first: list[int] = []  # for every pair, the first code with the same spelling
        self._first_of: dict[str, int] = {}

    def emptied(self) -> SpellingsBeside:
        """Returns a new object with the same characters and no spellings."""
        return SpellingsBeside(self._vocab, self._slots, self._write)

    def beside(self, read: Sequence[tuple[int, str]]) -> np.ndarray:
        """Returns pieces as codes, int32 [P].

        Args:
          read: for each piece its row of the table, and the spelling of its word; "": there is none beside it.
        """
        new = [pair for pair in dict.fromkeys(read) if pair[1] and pair not in self._pairs]
        words = self.codes([spelling for _, spelling in new]).tolist()
        for (piece, spelling), word in zip(new, words, strict=True):
            number = self._pairs[piece, spelling] = len(self._pieces)
            self._pieces.append(piece)
            self._words.append(word)
            self._first.append(self._first_of.setdefault(spelling, -1 - number))
        return np.array([-1 - self._pairs[pair] if pair[1] else pair[0] for pair in read], np.int32)

    def of_words(self, codes: np.ndarray) -> np.ndarray:
        """Returns codes of the same spellings, one code for each spelling."""
        return _looked_up(self._first, codes)

    def ids(self, codes: np.ndarray) -> np.ndarray:
        """Returns rows of the table as they are, and -2 - n for row n beside a spelling."""
        return _looked_up([-2 - piece for piece in self._pieces], codes)

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """Returns the characters uint16 [..., C] of the words of pieces; zeros at pieces without a spelling."""
        return super().rows(_looked_up(self._words, codes))

    def spelled(self, code: int) -> str:
        """Returns the spelling of a code; IndexError if it was not met."""
        return super().spelled(self._words[-1 - code])


def _looked_up(values: Sequence[int], codes: np.ndarray) -> np.ndarray:
    """Returns the value of each pair, int32; codes of pieces without a spelling as they are."""
    if not values:
        return codes
    return np.where(codes < 0, np.asarray(values, np.int32)[np.where(codes < 0, -1 - codes, 0)], codes)


class GatedUnits(SpelledUnits):
    """Reads text as pieces by the tokenizer's template, with a spelling beside those of words that it splits.

    A unit is the id of a piece, or -1 - m for a piece with a spelling; see `SpellingsBeside`. Spellings are kept as
    long as this object; see `fresh`.

    Args:
      pretrained: the model.
      longest: see `charlm.families.lookup.units_of`.

    Raises:
      ValueError: there is no tokenizer, or the tokenizer or the characters do not fit the model.
    """

    def __init__(self, pretrained: Pretrained, longest: int = 0) -> None:
        super().__init__(pretrained, longest)
        characters, vocab, tokenizer = pretrained.config.characters, pretrained.vocab(), self._tokenizer
        check_ids(pretrained.folder, "characters have", vocab.size, characters.char_vocab_size)
        self.spellings = SpellingsBeside(vocab, characters.char_slots, spell_rows)
        self.buckets = spelling_slots(characters.char_slots)
        # A given word may hold several words of the tokenizer. Only WordPiece marks where each of them begins.
        self._begins_V = np.zeros(tokenizer.size, bool)
        if tokenizer.marks_continuations:
            looks = [(index, tokenizer.surface(index)) for index in tokenizer.ids()]
            self._begins_V[[index for index, look in looks if look is None or look.starts_word]] = True
        self._known: dict[str, str] = {}

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the pieces of texts."""
        items = self._tokenizer.encode_batch(list(texts))
        return [self._encoded(item, [text], False) for item, text in zip(items, texts, strict=True)]

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the pieces of given words; a word without pieces gets the unknown token."""
        sentences = [list(words) for words in sentences]
        items = self._tokenizer.encode_words_batch(sentences)
        return [self._encoded(item, words, True) for item, words in zip(items, sentences, strict=True)]

    def _encoded(self, item: Subwords, texts: Sequence[str], given: bool) -> Encoded:
        inner = [place for place, special in enumerate(item.special) if not special]
        ids, offsets = [item.ids[place] for place in inner], [item.offsets[place] for place in inner]
        words = [item.words[place] for place in inner]
        of = [texts[word] for word in words_at(words, range(len(words)))] if given else [texts[0]] * len(words)
        content = self.codes(ids, offsets, words, of)
        return Encoded(content, tuple(offsets), words_at(item.words, inner) if given else None)

    def codes(
        self, ids: Sequence[int], offsets: Sequence[Span], words: Sequence[int | None], texts: Sequence[str]
    ) -> np.ndarray:
        """Returns pieces as units, int32 [P].

        Args:
          ids: the pieces of a text, without special tokens around them.
          offsets: of each piece its characters (start, end) in its text.
          words: of each piece the index of its word, as the tokenizer says.
          texts: of each piece the text that its offsets refer to.
        """
        starts = [
            place
            for place, index in enumerate(ids)
            if not place or words[place] != words[place - 1] or self._begins_V[index]
        ]
        read: list[tuple[int, str]] = []
        for start, end in itertools.pairwise([*starts, len(ids)]):
            spelled = end - start > 1 or ids[start] == self._tokenizer.special.unk
            spelling = self._spelling(texts[start][offsets[start][0] : offsets[end - 1][1]]) if spelled else ""
            read += [(index, spelling) for index in ids[start:end]]
        assert isinstance(self.spellings, SpellingsBeside)  # so made above, and so emptied
        return self.spellings.beside(read)

    def _spelling(self, word: str) -> str:
        """Returns the spelling of a word in its normalised form; "" if nothing is left of it."""
        found = self._known.get(word)
        if found is None:
            form = "".join(self._tokenizer.normalized(word).split())
            found = spell_word(form) if form else ""
            if len(self._known) >= KEPT_WORDS:
                self._known.clear()
            self._known[word] = found
        return found

    def forward_flops(self, config: Char2SubwordBertConfig, inputs: SpelledBatch) -> float:
        """Returns the operations of the module over the distinct spellings plus those of the transformer."""
        return batch_flops(config, inputs)

    def states(self, config: Char2SubwordBertConfig, params: Params, inputs: SpelledBatch) -> jax.Array:
        """Returns the states of the last layer; see `Units.states`."""
        return encoder_states(config, params, inputs)
