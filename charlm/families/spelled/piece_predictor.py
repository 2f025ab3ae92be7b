"""The predictor of models that read pieces of a tokenizer, some of them with characters: gated Char2Subword, XRayEmb.

Open it to change how such models are run or cached. `charlm.families.spelled.predictor` has that of models that read
word by word.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Self, TypeVar

import flax.linen as nn
import jax
import numpy as np

from charlm.core.cache import CacheStats, WordCache
from charlm.core.types import Params, Tree
from charlm.families.arguments import list_to_cache
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.predictor import put_in, read_codes, spelled_probing, spelled_programs
from charlm.families.spelled.units import SpelledUnits
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.word_tables import with_table

U = TypeVar("U", bound=SpelledUnits)


class SpelledPiecePredictor(SubwordPredictor, Generic[U]):
    """A `SubwordPredictor` whose pieces may have characters; a subclass sets `_units`, `word_params` and `cache`.

    Attributes:
      word_params: the parameters of what reads characters.
      cache: the vectors of spellings kept between calls; predictors of models of one shape may share it. None: none are
        kept, and a batch runs as one program.
    """

    caches = True
    _units: U
    word_params: Params
    cache: WordCache | None

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        """Returns the predictor of a loaded model, with the tokenizer and the table of word vectors beside it."""
        return with_table(cls(pretrained), pretrained.folder)

    def _programs(self, model: nn.Module) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
        return spelled_programs(model)

    def _probing(self, model: nn.Module) -> Callable[..., dict[str, list[jax.Array]]]:
        return spelled_probing(model)

    def _inputs(self, ids_BL: np.ndarray, mask_BL: np.ndarray, unknown: Sequence[dict[int, str]]) -> tuple[Tree, ...]:
        """Returns the name of the model's method, and its inputs."""
        inputs, method = read_codes(self._units, self.cache, self.word_params, ids_BL, mask_BL)
        return method, *inputs

    def _fresh(self) -> Self:
        """Returns a copy for a single call, which starts without spellings and is discarded with those it collects."""
        other = copy.copy(self)
        other._units = self._units.fresh()
        return other

    def precompute(self, words: Iterable[str]) -> CacheStats:
        """Puts the vectors of words into the cache for later calls of `encode`; returns the cache's counts.

        Words that are not read from characters are skipped.

        Raises:
          ValueError: there is no cache, or `words` is one string.
        """
        words, cache = list_to_cache(words, self.cache)
        units = self._units.fresh()
        (encoded,) = units.encode_words([words])
        return put_in(cache, self.word_params, units, encoded.content)

    def word_rows(self, words: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Returns what is read from characters of these words, and the characters; see `Predictor.word_rows`."""
        units = self._units.fresh()
        units.encode_words([words])
        return units.spellings.known()
