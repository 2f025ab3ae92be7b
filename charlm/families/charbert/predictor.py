"""Inference with a trained CharBERT: vectors of both channels, and words for gaps.

`charlm.predict` runs it; it inherits nearly everything from `charlm.families.subword.predictor`. Open it to change
which states are returned as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import numpy as np

from charlm.core.types import Params, Tree
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.conversion import symbols_of
from charlm.families.pretrained import Pretrained
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.views import AttentionView
from charlm.families.windows import Text, Window
from charlm.nn.apply import applied
from charlm.text.subwords import SubwordTokenizer

_TOKENS = "Here a piece begins as its row of the table of tokens."
_CHARS = "Here a piece begins as the states of its first and of its last character."


class CharBertPredictor(SubwordPredictor):
    """A CharBERT with its tokenizer and characters. Vectors are both channels concatenated, as tasks read them.

    Args:
      pretrained: the model.
      tokenizer: the model's tokenizer; None: read from the files beside the model.

    Raises:
      ValueError: when there is no tokenizer, it does not fit, or the model has no character vocabulary.
    """

    no_word_rows = "it reads the characters of a whole text as one stream, so a word's vector depends on its neighbours"
    shares_rows = False  # for the same reason, and since its fusion mixes neighbouring tokens

    def __init__(self, pretrained: Pretrained, tokenizer: SubwordTokenizer | None = None) -> None:
        super().__init__(pretrained, tokenizer)
        self._width = 2 * self.config.hidden
        self._chars = PieceChars(self.tokenizer, symbols_of(pretrained), self.config.compat_reference)

    def _programs(self, model: nn.Module) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
        """Returns the compiled functions for states and log-probabilities; see `SubwordPredictor._programs`."""

        def states(p: Params, inputs: CharBertBatch) -> jax.Array:
            output = applied(model, {"params": p})(inputs)
            return getattr(output, "states", output).both_BLE.astype(np.float32)

        def fill(p: Params, inputs: CharBertBatch, positions_BM: jax.Array) -> jax.Array:
            # Words behind noised ones are not needed, but the model expects at least one position for them.
            output = applied(model, {"params": p})(inputs, positions_BM, positions_BM[:, :1] * 0)
            return jax.nn.log_softmax(output.mlm_logits_SMV)

        return jax.jit(states), jax.jit(fill)

    def _inputs(self, ids_BL: np.ndarray, mask_BL: np.ndarray, unknown: Sequence[dict[int, str]]) -> tuple[Tree, ...]:
        """Returns the rows with their characters; unknown pieces have the characters of their text."""
        ids = [row_L[mask_L] for row_L, mask_L in zip(ids_BL[: len(unknown)], mask_BL, strict=False)]
        B, L = ids_BL.shape
        return (CharBertBatch(ids_BL, None, mask_BL, *self._chars.rows(ids, B, L, unknown)),)

    def _views_of(
        self, stacks: dict[str, list[np.ndarray]], names: Sequence[str], pieces: Text, window: Window
    ) -> list[AttentionView]:
        """Returns the attention of both channels, which the layers read as two rows of a batch."""
        ((_, stack),) = stacks.items()
        # Row 0 is the tokens' channel, row 1 the characters'; see `CharBertEncoder`.
        return [
            AttentionView("The channel of tokens", f"{self._about_pieces} {_TOKENS}", (self._map(stack, names, 0),)),
            AttentionView("The channel of characters", f"{self._about_pieces} {_CHARS}", (self._map(stack, names, 1),)),
        ]
