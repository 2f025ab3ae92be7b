"""The predictor of XRayEmb: vectors of texts, whose selected words are read as characters, and words for gaps.

`charlm.predict` runs it; it builds on the predictors of `charlm.families.subword` and `charlm.families.spelled`. Open
it to change what an XRayEmb can do in inference, or how its word vectors are cached.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import flax.linen as nn
import jax
import numpy as np

from charlm.core.cache import CacheStats, WordCache
from charlm.core.types import Tree
from charlm.families.gaps import Length
from charlm.families.predictor import list_to_cache
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.predictor import put_in, read_codes, spelled_probing, spelled_programs
from charlm.families.subword.gaps import Gap, find_gaps
from charlm.families.subword.gpt2 import GPT2Config
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.views import AttentionMap, AttentionView, layers_of
from charlm.families.windows import Text, Window, text_of
from charlm.families.word_tables import with_table
from charlm.families.xrayemb.chars import END
from charlm.families.xrayemb.encoder import XREncoder
from charlm.families.xrayemb.policies import Policy
from charlm.families.xrayemb.units import XRayEmbUnits
from charlm.nn.probes import probed
from charlm.text.subwords import Subwords, SubwordTokenizer


class XRayEmbPredictor(SubwordPredictor):
    """An XRayEmb with its tokenizer. A word that the policy selects has the state of its one position.

    With `unit="pieces"` such a word is one piece, shown as the text has it. `fill_mask` fills gaps with pieces of the
    vocabulary; the policy selects words around the gaps.

    A GPT-2 with XRayEmb can only encode, since the words that it reads as one position are not among the subwords that
    it predicts. Its GPT-2 alone can score and generate; `python -m charlm.convert export --backbone-only` writes it.

    Args:
      pretrained: the model.
      tokenizer: the model's tokenizer; None: it is read from the model's folder.
      policy: which words are read as characters; None: the policy in the model's config, see `XRayEmbUnits`.

    Attributes:
      cache: the vectors of words kept between calls; predictors of models of one shape may share it. None: no vectors
        are kept, and a whole batch runs as one program.

    Raises:
      ValueError: there is no tokenizer or no such policy, or the tokenizer or the characters do not fit the model.
    """

    caches = True

    def __init__(
        self, pretrained: Pretrained, tokenizer: SubwordTokenizer | None = None, policy: str | Policy | None = None
    ) -> None:
        super().__init__(pretrained, tokenizer)
        self._units = XRayEmbUnits(pretrained, eval_policy=policy)
        causal = isinstance(self.config, GPT2Config)
        self.suited = ("encode",) if causal else ("encode", "fill_mask")
        module = XREncoder(self.config.encoder)
        spell = jax.jit(lambda p, chars_UC: module.apply({"params": p}, chars_UC))
        self.word_params = self._params["xr_enc"]
        self._probe_chars = jax.jit(lambda p, chars_UC: probed(module, p, chars_UC)[1])
        self.cache: WordCache | None = WordCache(spell, self.config.hidden, np.float32, self._units.buckets)

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        """Returns the predictor of a loaded model, with the tokenizer and the table of word vectors beside it."""
        return with_table(cls(pretrained), pretrained.folder)

    def _refusal(self, ability: str) -> ValueError:
        """Adds a solution to the error where a plain GPT-2 has the ability; see `Predictor.require`."""
        error = super()._refusal(ability)
        if ability in ("score", "generate") and isinstance(self.config, GPT2Config):
            return ValueError(f"{error}; the GPT-2 that python -m charlm.convert export --backbone-only writes does")
        return error

    def _programs(self, model: nn.Module) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
        return spelled_programs(model)

    def _probing(self, model: nn.Module) -> Callable[..., dict[str, list[jax.Array]]]:
        return spelled_probing(model)

    def _views_of(
        self, stacks: dict[str, list[np.ndarray]], names: Sequence[str], pieces: Text, window: Window
    ) -> list[AttentionView]:
        """Returns the attention between pieces and words, and before it that of XR-Enc, if it is a Transformer."""
        backbone = next(stack for name, stack in stacks.items() if not name.startswith("xr_enc"))
        about = f"{self._about_pieces} A word that the encoder reads from its characters is one position."
        between = AttentionView("Between pieces and words", about, (self._map(backbone, names),))
        codes = np.array([code for code in pieces.ids[window.start : window.end] if code < 0], np.int32)
        if not len(codes):
            return [between]
        rows_UC = self._units.spellings.rows(codes)
        (inside,) = jax.device_get(self._probe_chars(self.word_params, rows_UC)).values() or ((),)
        maps = []
        for n, row_C in enumerate(rows_UC if len(inside) else ()):
            used = slice(int((row_C != 0).sum()))
            word = self._units.spellings.spelled(int(codes[n]))
            chars = (END, *word[: used.stop - 2], END)
            maps.append(AttentionMap(chars, chars, layers_of(inside, n, used, used), word))
        about = f"How much the characters of a word that the encoder reads, {END} at both ends, read from each other."
        return [*([AttentionView("Inside words", about, tuple(maps))] if maps else []), between]

    def _inputs(self, ids_BL: np.ndarray, mask_BL: np.ndarray, unknown: Sequence[dict[int, str]]) -> tuple[Tree, ...]:
        """Returns the name of the model's method, and its inputs."""
        inputs, method = read_codes(self._units, self.cache, self.word_params, ids_BL, mask_BL)
        return method, *inputs

    def _fresh(self) -> Self:
        """Returns a copy for a single call, which starts without words and is discarded with those that it collects."""
        other = copy.copy(self)
        other._units = self._units.fresh()
        return other

    def _collapse(self, text: Text) -> tuple[Text, np.ndarray]:
        """Returns the text with each selected word as one unit instead of pieces, and the position of each piece."""
        P = len(text.ids)
        item = Subwords(tuple(text.ids), (0,) * P, (False,) * P, tuple(text.offsets), tuple(text.words), (0,) * P)
        found = self._units.collapse(item, [text.text])
        codes = self._units.spellings.codes(found.items).tolist()
        read = text._replace(ids=codes, offsets=list(found.offsets), words=list(found.words))
        return read, found.positions_P

    def _texts(self, texts: Sequence[str]) -> list[Text]:
        items = self.tokenizer.encode_batch(texts)
        return [self._collapse(text_of(item, text))[0] for item, text in zip(items, texts, strict=True)]

    def _shown(self, pieces: Text) -> list[str]:
        return [
            self.tokenizer.token(code) if code >= 0 else pieces.text[a:b].strip()
            for code, (a, b) in zip(pieces.ids, pieces.offsets, strict=True)
        ]

    def _find_gaps(self, text: str, length: Length) -> tuple[Text, list[Gap]]:
        pieces, gaps = find_gaps(text, self.tokenizer, length)
        read, position_P = self._collapse(pieces)
        return read, [gap._replace(place=int(position_P[gap.place])) for gap in gaps]

    def precompute(self, words: Iterable[str]) -> CacheStats:
        """Puts the vectors of words into the cache for later calls of `encode`; returns the cache's counts.

        Words that the policy does not select are skipped.

        Raises:
          ValueError: there is no cache, or `words` is one string.
        """
        words, cache = list_to_cache(words, self.cache)
        units = self._units.fresh()
        (encoded,) = units.encode_words([words])
        return put_in(cache, self.word_params, units, encoded.content)

    def word_rows(self, words: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Returns the words that the policy selects, and their characters; see `Predictor.word_rows`."""
        units = self._units.fresh()
        units.encode_words([words])
        return units.spellings.known()
