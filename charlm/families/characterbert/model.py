"""The CharacterBERT model: BERT's encoder over word vectors that a CNN makes from characters (section 3).

The parameters are `bert` and `head` or `label` as in a BERT, and `cnn`. A batch (`SpelledBatch`) holds the characters
of every position, so BERT's table of subwords is never created. Open it to see how the CNN and BERT's layers are put
together.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.core.types import ModelConfig
from charlm.families.characterbert.cnn import CharacterBertConfig, CharacterCNN
from charlm.families.spelled.model import Spelled, SpelledEncoder, SpelledLM
from charlm.families.subword.bert import Bert
from charlm.nn.blocks import ACTIVATION_FUNCTIONS
from charlm.nn.embed import dense, kernel_init, layer_norm
from charlm.nn.kernels import product


class _Words(Spelled):
    """The part that all models of the family share: the CNN."""

    config: (
        ModelConfig  # a `CharacterBertConfig`; declaring that type would contradict the type in the other base class
    )

    def setup(self) -> None:
        super().setup()  # of the other base class, which reads the vectors: it creates `bert` and the head
        self.cnn = CharacterCNN(self.config)

    def vectors(self, chars_UC: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the vectors [U, D] of words, float32; the CNN has no dropout."""
        return self.cnn(chars_UC)

    def mix(self, spelled_NLD: jax.Array, ids_NL: jax.Array) -> jax.Array:
        """Returns the CNN's vectors unchanged, since every position is spelled."""
        return spelled_NLD


class WordHead(nn.Module):
    """logits = LN(activation(Linear(x))) W + b: BERT's prediction head with an output matrix of its own.

    The model has no word table that the output matrix could be tied to.
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
        x_NMD = self.transform_norm(ACTIVATION_FUNCTIONS[cfg.activation](self.transform(x_NMD)))
        return product("nmd,dv->nmv", x_NMD, self.output_kernel.astype(cfg.dtype)) + self.output_bias[None, None]


class _MaskedWords(SpelledLM):
    config: CharacterBertConfig

    def setup(self) -> None:
        self.bert = Bert(self.config)
        self.head = WordHead(self.config)

    def predict(self, states_NMD: jax.Array) -> jax.Array:
        """Returns float32 logits [N, M, V] of the masked words."""
        return self.head(states_NMD)


class CharacterBert(_Words, SpelledEncoder):
    """The encoder: words -> contextual states."""


class CharacterBertForMaskedLM(_Words, _MaskedWords):
    """CharacterBERT with its pre-training head, which predicts frequent words."""
