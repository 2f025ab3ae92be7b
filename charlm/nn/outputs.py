"""The outputs of Transformers and language models of all families.

Open it to see what a model returns beside its last states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax


class TransformerOutput(NamedTuple):
    """States of a BERT or GPT-2. A field that was not requested, or that the model does not have, is empty or None.

    Attributes:
      states_BLD: the last states, in the model's dtype; meaningless at padding.
      pooled_BD: tanh(Linear(first state)) of BERT; [B, L, D] where texts share rows (`charlm.nn.masks.starts`).
      layers: on request, the embeddings and the output of each layer, [B, L, D]; GPT-2's last output has passed the
        final LayerNorm.
      attention: on request, probabilities of each layer, float32 [B, H, L, L] ([B, H, L, N] with a cache of N).
      cache: GPT-2's keys and values, updated with those of this call, when a cache was passed in.
    """

    states_BLD: jax.Array
    pooled_BD: jax.Array | None = None
    layers: tuple[jax.Array, ...] = ()
    attention: tuple[jax.Array, ...] = ()
    cache: Any = None  # a `Cache` of GPT-2, a family, which this room must not import

    @property
    def transformer(self) -> TransformerOutput:
        """Itself, so that states can be read from the outputs of models with and without a head alike."""
        return self


class LanguageModelOutput(NamedTuple):
    """Logits of a language model.

    Attributes:
      logits: float32 [B, L, V], or [B, M, V] at the requested positions.
      transformer: the states that the logits were computed from.
      next_sentence_BN: float32 [B, 2], is the next sentence / is random; only of models with that head (BERT, section
        3.1).
    """

    logits: jax.Array
    transformer: TransformerOutput
    next_sentence_BN: jax.Array | None = None
