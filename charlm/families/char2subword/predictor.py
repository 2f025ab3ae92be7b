"""The predictor of Char2Subword: vectors of words, words for gaps, and the subwords nearest to a string.

`charlm.predict` runs it; most of it is in `charlm.families.spelled.predictor`. Open it to change how the nearest
subwords are found.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.cache import WordCache
from charlm.core.types import ModelConfig, Params
from charlm.families.arguments import check_top
from charlm.families.char2subword.beside import GatedUnits
from charlm.families.char2subword.imitation import unit as unit_vectors
from charlm.families.char2subword.model import GATED, Char2SubwordBert
from charlm.families.char2subword.module import Char2Subword
from charlm.families.char2subword.spelling import spell_rows, spell_word
from charlm.families.char2subword.units import Char2SubwordUnits
from charlm.families.char2subword.words import full_words
from charlm.families.gaps import Length
from charlm.families.predictor import Neighbor, Predictor
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.piece_predictor import SpelledPiecePredictor
from charlm.families.spelled.predictor import WordPredictor
from charlm.families.spelled.units import WordUnits
from charlm.families.subword.gaps import Gap, Pieces
from charlm.families.views import AttentionMap, AttentionView
from charlm.families.windows import Text, Window
from charlm.families.word_tables import with_table
from charlm.text.subwords import SubwordTokenizer


class CharAttentions(NamedTuple):
    """How the characters of a word read each other.

    Attributes:
      chars: the characters, the mark of a full word ("##") first.
      weights_LHCC: float32, of every layer and head: how much the character of a row reads from that of a column.
    """

    chars: tuple[str, ...]
    weights_LHCC: np.ndarray


class ModulePredictor(Predictor):
    """The part of a Char2Subword's predictor that asks the module alone, in any mode."""

    config: ModelConfig
    pretrained: Pretrained
    tokenizer: SubwordTokenizer
    _params: Params

    def _take_module(self) -> None:
        """Makes the programs of the module that all modes have."""
        module = Char2Subword(self.config.characters)
        self._module_params = self._params["char2subword"]
        self._vectors = jax.jit(lambda p, chars_UC: module.apply({"params": p}, chars_UC))
        self._nearest = jax.jit(_nearest, static_argnums=3)
        self._attention = jax.jit(lambda p, chars_UC: module.apply({"params": p}, chars_UC, method="attention"))

    def attention(self, string: str) -> CharAttentions:
        """Returns the attention among the characters of a string, which is spelled as a full word (Figure 5).

        Raises:
          ValueError: the string is empty.
        """
        if not isinstance(string, str) or not string:
            raise ValueError(f"attention of {string!r}: expected a string of at least one character")
        spelled, cfg = spell_word(string), self.config.characters
        chars_1C = spell_rows([spelled], self.pretrained.vocab(), cfg.char_slots)
        count = int((chars_1C != 0).sum())
        weights_1LHCC = jax.device_get(self._attention(self._module_params, chars_1C[:, :count]))
        return CharAttentions(tuple(spelled[:count]), weights_1LHCC[0])

    def neighbors(self, string: str, top: int = 5) -> list[Neighbor]:
        """Returns the entries of the vocabulary whose rows are nearest, by cosine, to the vector of a string.

        The string is spelled as a full word exactly as given: it is not lowercased (table 3 of the paper). Special
        tokens and reserved rows ([unused1]) are left out.

        Raises:
          ValueError: the string is empty, `top` is not positive, or the model has no table.
        """
        self.require("neighbors")
        if not isinstance(string, str) or not string:
            raise ValueError(f"neighbors of {string!r}: expected a string of at least one character")
        check_top(top)
        looks = [(index, self.tokenizer.surface(index)) for index in self.tokenizer.ids()]
        shown = {index: ("" if look.starts_word else "##") + look.chars for index, look in looks if look and look.whole}
        allowed_V = np.zeros(self.config.vocab_size, bool)
        allowed_V[list(shown)] = True
        chars_1C = spell_rows([spell_word(string)], self.pretrained.vocab(), self.config.characters.char_slots)
        vector_D = self._vectors(self._module_params, chars_1C)[0]
        table_VD = self._params["bert"]["embed"]["token"]["embedding"]
        cosines, ids = jax.device_get(self._nearest(vector_D, table_VD, allowed_V, min(top, len(shown))))
        return [Neighbor(shown[index], float(cosine)) for index, cosine in zip(ids.tolist(), cosines, strict=True)]


class Char2SubwordPredictor(ModulePredictor, WordPredictor):
    """A Char2Subword with the tokenizer of its transformer. A word is one unit: a spelling or a row of the table.

    A gap is read as the row of the mask token and filled with entries of the vocabulary, also in full mode; pieces
    inside words are written like "##ing". See `WordPredictor` for the cache.

    Args:
      pretrained: the model; its config says the mode.

    Raises:
      ValueError: there is no tokenizer, or the tokenizer or the characters do not fit the model.
    """

    suited = ("encode", "fill_mask", "neighbors")

    def __init__(self, pretrained: Pretrained) -> None:
        units, self.tokenizer = Char2SubwordUnits(pretrained), pretrained.tokenizer()
        super().__init__(pretrained, units, Char2Subword(pretrained.config.characters), "char2subword")
        self._spelled = units.words
        if pretrained.metadata.get("rows"):
            reason = f"{pretrained.folder}: the table of subwords was left out of this model"
            self.missing = {**self.missing, "neighbors": reason}
        self._take_module()

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        """Returns the predictor of a loaded model in its mode."""
        kind: Any = GatedPredictor if pretrained.config.mode == GATED else cls  # of another class, by design
        return with_table(kind(pretrained), pretrained.folder)

    @functools.cached_property
    def _entries(self) -> dict[str, int]:
        return full_words(self.tokenizer)

    def entry(self, word: str) -> int | None:
        """Returns the id of the entry for a full word, or None; see `WordPredictor.entry`."""
        return self._entries.get(self._spelled.normalized(word))

    @functools.cached_property
    def anything(self) -> Pieces:
        """The entries of the vocabulary."""
        return Pieces(self.tokenizer, self.config.vocab_size)

    def _inside(self, units: WordUnits, words: Sequence[str]) -> list[AttentionView]:
        """Returns the attention of the module over the characters of the words that are spelled (Figure 5)."""
        read = units.read(words)
        spelled = [(word, what) for word, what in zip(words, read, strict=True) if isinstance(what, str)]
        maps = []
        if spelled:
            rows_UC = units.spellings.rows(units.spellings.codes([what for _, what in spelled]))
            found = jax.device_get(self._attention(self._module_params, rows_UC))
            for (word, what), row_C, weights_LHCC in zip(spelled, rows_UC, found, strict=True):
                count = int((row_C != 0).sum())
                maps.append(
                    AttentionMap(tuple(what[:count]), tuple(what[:count]), weights_LHCC[..., :count, :count], word)
                )
        about = "How much the characters of a word read from each other; ## marks a full word."
        left = len(words) - len(spelled)
        if left:
            about += f" {left} of {len(words)} words are not spelled: they are rows of the table of subwords."
        return [AttentionView("Inside words", about, tuple(maps))]


class GatedPredictor(ModulePredictor, SpelledPiecePredictor[GatedUnits]):
    """A Char2Subword in gated mode: it reads pieces, with a spelling beside those of words that are split.

    Words, offsets, gaps and windows are those of the transformer with its tokenizer; see `SubwordPredictor`.

    Args:
      pretrained: the model.

    Raises:
      ValueError: there is no tokenizer, or the tokenizer or the characters do not fit the model.
    """

    def __init__(self, pretrained: Pretrained) -> None:
        super().__init__(pretrained)
        self.suited = ("encode", "fill_mask", "neighbors")
        self._units = GatedUnits(pretrained)
        self._take_module()
        encoder = Char2SubwordBert(self.config)
        spell = jax.jit(lambda p, chars_UC: encoder.apply({"params": p}, chars_UC, method="spell"))
        table = {"embed": {"token": self._params["bert"]["embed"]["token"]}}
        self.word_params = {"char2subword": self._module_params, "bert": table}
        self.cache = WordCache(spell, self.config.hidden, np.float32, self._units.buckets)

    def _views_of(
        self, stacks: dict[str, list[np.ndarray]], names: Sequence[str], pieces: Text, window: Window
    ) -> list[AttentionView]:
        stack = next(stack for name, stack in stacks.items() if name.startswith("bert"))
        about = f"{self._about_pieces} The pieces of a word that is split also read its characters."
        return [AttentionView("Between pieces", about, (self._map(stack, names),))]

    def _beside(self, text: Text) -> Text:
        codes = self._units.codes(text.ids, text.offsets, text.words, [text.text] * len(text.ids))
        return text._replace(ids=codes.tolist())

    def _texts(self, texts: Sequence[str]) -> list[Text]:
        return [self._beside(text) for text in super()._texts(texts)]

    def _shown(self, pieces: Text) -> list[str]:
        ids = self._units.spellings.ids(np.array(pieces.ids, np.int32))
        return [self.tokenizer.token(index) for index in np.where(ids < 0, -2 - ids, ids).tolist()]

    def _find_gaps(self, text: str, length: Length) -> tuple[Text, list[Gap]]:
        pieces, gaps = super()._find_gaps(text, length)
        return self._beside(pieces), gaps


def _nearest(vector_D: jax.Array, table_VD: jax.Array, allowed_V: jax.Array, top: int) -> tuple[jax.Array, jax.Array]:
    """Returns cosines and ids of the `top` rows with the largest cosine among the allowed rows."""
    cosine_V = unit_vectors(table_VD) @ unit_vectors(vector_D)
    return jax.lax.top_k(jnp.where(allowed_V, cosine_V, -jnp.inf), top)
