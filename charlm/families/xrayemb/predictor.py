"""The predictor of XRayEmb: vectors of texts, whose selected words are read as characters, and words for gaps.

`charlm.predict` runs it; it builds on the predictors of `charlm.families.subword` and `charlm.families.spelled`. Open
it to change what an XRayEmb can do in inference, or how its word vectors are cached.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from charlm.core.cache import WordCache
from charlm.families.gaps import Length
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.piece_predictor import SpelledPiecePredictor
from charlm.families.subword.gaps import Gap, find_gaps
from charlm.families.subword.gpt2 import GPT2Config
from charlm.families.views import AttentionMap, AttentionView, layers_of
from charlm.families.windows import Text, Window, text_of
from charlm.families.xrayemb.chars import END
from charlm.families.xrayemb.encoder import XREncoder
from charlm.families.xrayemb.policies import Policy
from charlm.families.xrayemb.units import XRayEmbUnits
from charlm.nn.probes import probed
from charlm.text.subwords import Subwords, SubwordTokenizer


class XRayEmbPredictor(SpelledPiecePredictor[XRayEmbUnits]):
    """An XRayEmb with its tokenizer. A word that the policy selects has the state of its one position.

    With `unit="pieces"` such a word is one piece, shown as the text has it. `fill_mask` fills gaps with pieces of the
    vocabulary; the policy selects words around the gaps.

    A GPT-2 with XRayEmb can only encode, since the words that it reads as one position are not among the subwords that
    it predicts. Its GPT-2 alone can score and generate; `python -m charlm.convert export --backbone-only` writes it.

    Args:
      pretrained: the model.
      tokenizer: the model's tokenizer; None: it is read from the model's folder.
      policy: which words are read as characters; None: the policy in the model's config, see `XRayEmbUnits`.

    Raises:
      ValueError: there is no tokenizer or no such policy, or the tokenizer or the characters do not fit the model.
    """

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
        self.cache = WordCache(spell, self.config.hidden, np.float32, self._units.buckets)

    def _refusal(self, ability: str) -> ValueError:
        """Adds a solution to the error where a plain GPT-2 has the ability; see `Predictor.require`."""
        error = super()._refusal(ability)
        if ability in ("score", "generate") and isinstance(self.config, GPT2Config):
            return ValueError(f"{error}; the GPT-2 that python -m charlm.convert export --backbone-only writes does")
        return error

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
