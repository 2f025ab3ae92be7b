"""XRayEmb, ready to be asked: vectors of texts in which a policy's words are read as characters, and words for gaps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import numpy as np

from charlm.core.cache import CacheStats, WordCache
from charlm.families.predictor import Encoding, Fill, KnownWords, list_to_cache
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.predictor import put_in, read_codes
from charlm.families.subword.gaps import Gap, Pieces, find_gaps
from charlm.families.subword.gpt2 import GPT2Config
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.windows import Text, text_of
from charlm.families.xrayemb.encoder import XREncoder
from charlm.families.xrayemb.policies import Policy
from charlm.families.xrayemb.units import XRayEmbUnits
from charlm.nn.apply import applied
from charlm.text.subwords import Subwords, SubwordTokenizer


class XRayEmbPredictor(SubwordPredictor):
    """An XRayEmb with its tokenizer. With `unit="pieces"` a word that the policy selects is one piece.

    A GPT-2 with XRayEmb encodes alone: words that it reads at once are no subwords that it could predict. The GPT-2
    itself, after second pre-training, scores and generates; `python -m charlm.convert export --backbone-only` writes it
    as what it is.

    Args:
      pretrained: the model. tokenizer: that of the model; None: the one whose files lie beside it.
      policy: which words are read as characters; None: what the model's config says, see `XRayEmbUnits`.

    Attributes:
      cache: the vectors of words kept between calls; may be shared by predictors of one shape. None: none are kept,
        and all of a batch runs as one program.

    Raises:
      ValueError: when there is no tokenizer or policy, or tokenizer or characters do not fit the model.
    """

    def __init__(
        self, pretrained: Pretrained, tokenizer: SubwordTokenizer | None = None, policy: str | Policy | None = None
    ) -> None:
        super().__init__(pretrained, tokenizer)
        self._units = XRayEmbUnits(pretrained, eval_policy=policy)
        causal = isinstance(self.config, GPT2Config)
        self.suited = ("encode",) if causal else ("encode", "fill_mask")
        # Byte-level pieces without a space begin words, too, where a text begins.
        self._wordpiece = self.tokenizer.family == "bert"
        module = XREncoder(self.config.encoder)
        spell = jax.jit(lambda p, chars_UC: module.apply({"params": p}, chars_UC))
        self._module_params = self._params["xr_enc"]
        self.cache: WordCache | None = WordCache(spell, self.config.hidden, np.float32, self._units.buckets)

    def _refusal(self, ability: str) -> ValueError:
        """Names the way out where GPT-2 could; see `Predictor.require`."""
        error = super()._refusal(ability)
        if ability in ("score", "generate") and isinstance(self.config, GPT2Config):
            return ValueError(f"{error}; the GPT-2 that python -m charlm.convert export --backbone-only writes does")
        return error

    def _programs(self, model: nn.Module) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
        """Returns the compiled states and log-probabilities, of a method and what it reads; see `SubwordPredictor`."""

        def states(p: Any, method: str | None, *inputs: Any) -> jax.Array:
            output = applied(model, {"params": p}, method=method)(*inputs)
            return getattr(output, "transformer", output).states_BLD.astype(np.float32)

        def fill(p: Any, method: str | None, *inputs: Any) -> jax.Array:
            return jax.nn.log_softmax(applied(model, {"params": p}, method=method)(*inputs).logits)

        return jax.jit(states, static_argnums=1), jax.jit(fill, static_argnums=1)

    def _inputs(self, ids_BL: np.ndarray, mask_BL: np.ndarray, unknown: Sequence[dict[int, str]]) -> tuple[Any, ...]:
        """Returns the method of the model that reads and what it reads."""
        inputs, method = read_codes(self._units, self.cache, self._module_params, ids_BL, mask_BL)
        return method, *inputs

    def _fresh(self) -> XRayEmbPredictor:
        """Returns one like this for a single call: it knows no word yet, and what it learns goes with it."""
        other = copy.copy(self)
        other._units = self._units.fresh()
        return other

    def _collapse(self, text: Text) -> tuple[Text, np.ndarray]:
        """Returns a text with words as units in place of their pieces, and the position of each piece."""
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

    def _find_gaps(self, text: str, length: int | Literal["auto"]) -> tuple[Text, list[Gap]]:
        pieces, gaps = find_gaps(text, self.tokenizer, length)
        read, position_P = self._collapse(pieces)
        return read, [gap._replace(place=int(position_P[gap.place])) for gap in gaps]

    def encode(
        self, texts: Iterable[str], batch_size: int = 32, unit: Literal["words", "pieces"] = "words"
    ) -> list[Encoding]:
        """Returns words or pieces, offsets and vectors of each text; see `SubwordPredictor.encode`.

        A word that the policy selects has the state of its one position, and is one piece, shown as the text has it.

        Raises:
          ValueError: when `texts` is one string, `batch_size` is not positive, or there is no such unit.
        """
        return super(XRayEmbPredictor, self._fresh()).encode(texts, batch_size, unit)

    def fill_mask(
        self,
        text: str,
        *,
        length: int | Literal["auto"] = "auto",
        top: int = 5,
        known: KnownWords | Iterable[str] | None = None,
    ) -> list[list[Fill]]:
        """Returns for each "[MASK]" the likeliest pieces or known words; see `SubwordPredictor.fill_mask`.

        The policy selects words around the gaps; what stands in them is made of pieces of the vocabulary.

        Raises:
          ValueError: when the model fills no gaps, the text has none, or an argument is out of range.
        """
        self.require("fill_mask")
        if self._pieces is None:
            self._pieces = Pieces(self.tokenizer, self.config.vocab_size, self._wordpiece)
        return super(XRayEmbPredictor, self._fresh()).fill_mask(text, length=length, top=top, known=known)

    def precompute(self, words: Iterable[str]) -> CacheStats:
        """Puts the vectors of words into the cache, so that `encode` finds them; returns what the cache holds then.

        Those that the policy does not select need none.

        Raises:
          ValueError: when there is no cache, or `words` is one string.
        """
        words, cache = list_to_cache(words, self.cache)
        units = self._units.fresh()
        (encoded,) = units.encode_words([words])
        return put_in(cache, self._module_params, units, encoded.content)
