"""CharacterBERT: BERT's encoder over vectors that a CNN makes of words (section 3).

Parameters are `bert` and `head` or `label` as in a BERT, and `cnn`. A batch (`SpelledBatch`) spells every position, so
the table of subwords, which BERT would have, is never made.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.families.characterbert.cnn import CharacterBertConfig, CharacterCNN
from charlm.families.spelled.model import Spelled, SpelledEncoder, SpelledLM
from charlm.families.subword.bert import Bert
from charlm.nn.blocks import ACTIVATIONS
from charlm.nn.embed import dense, kernel_init, layer_norm
from charlm.nn.kernels import product


class _Words(Spelled):
    """What every model of the family has: the CNN."""

    config: Any  # a `CharacterBertConfig`; a type would contradict that of the model behind, a part of it

    def setup(self) -> None:
        super().setup()  # of the model that reads the vectors: it makes `bert` and the head
        self.cnn = CharacterCNN(self.config)

    def vectors(self, chars_UC: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the vectors [U, D] of words, float32; nothing is dropped here."""
        return self.cnn(chars_UC)

    def mix(self, spelled_NLD: jax.Array, ids_NL: jax.Array) -> jax.Array:
        """Returns the vectors as they are: every position is spelled."""
        return spelled_NLD


class WordHead(nn.Module):
    """logits = LN(activation(Linear(x))) W + b: BERT's prediction head with a matrix of its own.

    There is no table of words that could be its transpose.
    """

    config: CharacterBertConfig

    def setup(self) -> None:
        cfg = self.config
        self.transform = dense(cfg.hidden, cfg.hidden, cfg.initializer, cfg.dtype)
        self.transform_norm = layer_norm(cfg.epsilon, cfg.dtype)
        self.output_kernel = self.param("output_kernel", kernel_init(cfg.initializer), (cfg.hidden, cfg.vocab_size))
        self.output_bias = self.param("output_bias", nn.initializers.zeros, (cfg.vocab_size,), jnp.float32)

    def __call__(self, x_NMD: jax.Array) -> jax.Array:
        """Returns float32 logits [N, M, V]."""
        cfg = self.config
        x_NMD = self.transform_norm(ACTIVATIONS[cfg.activation](self.transform(x_NMD)))
        return product("nmd,dv->nmv", x_NMD, self.output_kernel.astype(cfg.dtype)) + self.output_bias[None, None]


class _MaskedWords(SpelledLM):
    config: CharacterBertConfig

    def setup(self) -> None:
        self.bert = Bert(self.config)
        self.head = WordHead(self.config)

    def predict(self, states_NMD: jax.Array) -> jax.Array:
        """Returns float32 logits [N, M, V] of the words that a mask hides."""
        return self.head(states_NMD)


class CharacterBert(_Words, SpelledEncoder):
    """The encoder: words -> contextual states."""


class CharacterBertForMaskedLM(_Words, _MaskedWords):
    """With a prediction head over frequent words."""
