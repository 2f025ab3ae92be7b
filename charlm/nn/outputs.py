"""What the models return."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class HLMOutput(NamedTuple):
    """States of a batch; N = S * B sequences in shard order.

    Attributes:
      words_NWD: word vectors r, before context (HLM, section 3.1).
      context_NWD: contextual word vectors w (section 3.2).
      mask_NW: bool, True where there is a word; elsewhere the vectors mean nothing.
      char_states: per bucket of `WordBatch.masked` [S, P, C, D], the intra-word states of its table.
    """

    words_NWD: jax.Array
    context_NWD: jax.Array
    mask_NW: jax.Array
    char_states: tuple[jax.Array, ...]


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


class CharBertOutput(NamedTuple):
    """States of a CharBERT's two channels; they mean nothing at padding.

    Attributes:
      tokens_BLD, chars_BLD: the last states, in the model's dtype.
      pooled_BD, char_pooled_BD: tanh(Linear(first state)) of each, the same layer; None without a pooler.
      layers: on request, both channels [B, L, D] before, between and after the layers.
    """

    tokens_BLD: jax.Array
    chars_BLD: jax.Array
    pooled_BD: jax.Array | None = None
    char_pooled_BD: jax.Array | None = None
    layers: tuple[tuple[jax.Array, jax.Array], ...] = ()

    @property
    def both_BLE(self) -> jax.Array:
        """Both channels side by side [B, L, 2D], as the heads of tasks read them (CharBERT, section 3.6)."""
        return jnp.concatenate([self.tokens_BLD, self.chars_BLD], axis=-1)


class NoisyOutput(NamedTuple):
    """Logits of a CharBERT that is being pre-trained; see `charlm.core.batch.NoisyBatch`.

    Attributes:
      mlm_logits_SMV: float32, of subwords.
      nlm_logits_SPT: float32, of whole words, at subwords of noised ones; None for a model without that head.
      states: they were computed from.
    """

    mlm_logits_SMV: jax.Array
    nlm_logits_SPT: jax.Array | None
    states: Any
