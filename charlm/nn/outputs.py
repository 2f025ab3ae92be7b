"""What transformers and language models return, whichever family they are of."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax


class TransformerOutput(NamedTuple):
    """States of a BERT or GPT-2; what was not asked for, or the model does not have, is empty or None.

    Attributes:
      states_BLD: the last states, in the model's dtype; they mean nothing at padding.
      pooled_BD: tanh(Linear(first state)) of BERT.
      layers: on request, [B, L, D] of the embeddings and of each layer; GPT-2's last has passed the final LayerNorm.
      attention: on request, probabilities of each layer, float32 [B, H, L, L] ([B, H, L, N] with a cache of N).
      cache: GPT-2's keys and values with this call's among them, when one was passed in.
    """

    states_BLD: jax.Array
    pooled_BD: jax.Array | None = None
    layers: tuple[jax.Array, ...] = ()
    attention: tuple[jax.Array, ...] = ()
    cache: Any = None

    @property
    def transformer(self) -> TransformerOutput:
        """Itself: what reads states may ask models with and without a head alike."""
        return self


class LanguageModelOutput(NamedTuple):
    """Logits of a language model.

    Attributes:
      logits: float32 [B, L, V], or [B, M, V] at the positions asked for.
      transformer: the states they were computed from.
      next_sentence_BN: float32 [B, 2], is the next sentence / is random; of models with that head (BERT, section 3.1).
    """

    logits: jax.Array
    transformer: TransformerOutput
    next_sentence_BN: jax.Array | None = None
