"""BERT, RoBERTa and GPT-2 with an output layer for labels: sequences, tokens, answers.

The models of Hugging Face's transformers of the same names, whose weights `charlm.convert` reads and writes. Encoders
that read words through characters have the same heads (`ForLabels.encoder`).
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.convert.heads import SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.families.labels import ForLabels
from charlm.families.subword.bert import Bert
from charlm.families.subword.gpt2 import GPT2
from charlm.nn.embed import Dense, kernel_init
from charlm.nn.heads import Pooler
from charlm.nn.outputs import TransformerOutput


class BertForLabels(ForLabels):
    """Sequences are read as Linear(Dropout(tanh(Linear(x_CLS)))) (BERT, section 4.1).

    BERT's tanh layer is the pooler of its pre-training; RoBERTa, whose pre-training has none (`config.pooler` False),
    has one of the head's own.
    """

    encoder: type[nn.Module] = Bert

    def setup(self) -> None:
        super().setup()
        if self.kind == SEQUENCE_CLASSIFICATION and not self.config.pooler:
            self.pooler = Pooler(self.config.hidden, self.config.initializer, self.config.dtype)

    def sequences(self, output: TransformerOutput, deterministic: bool, *inputs: Any, **options: Any) -> jax.Array:
        """Returns the pooled states [N, D] of the first position."""
        if output.pooled_BD is not None:
            return output.pooled_BD
        return self.pooler(self.dropout(output.states_BLD[:, 0], deterministic=deterministic))


class GPT2ForLabels(ForLabels):
    """Sequences are read as Linear(x) of the last token, without bias: the only one that has read everything.

    A token has read what is to its left; of an answer, the question comes first.
    """

    encoder: type[nn.Module] = GPT2

    def output_layer(self) -> Dense:
        """Returns the layer of the labels."""
        if self.kind != SEQUENCE_CLASSIFICATION:
            return super().output_layer()
        return Dense(self.labels, self.config.dtype, kernel_init(self.config.initializer), use_bias=False)

    @property
    def drops(self) -> bool:
        """Whether what the output layer reads drops out."""
        return self.kind == TOKEN_CLASSIFICATION

    def sequences(self, output: TransformerOutput, deterministic: bool, *inputs: Any, **options: Any) -> jax.Array:
        """Returns the states [N, D] of the last real position."""
        states_BLD = output.states_BLD
        B, L, _ = states_BLD.shape
        mask_BL = self.reader.mask_of(*inputs, **options)
        real_BL = jnp.ones((B, L), bool) if mask_BL is None else mask_BL
        last_B = jnp.max(jnp.where(real_BL, jnp.arange(L)[None], 0), axis=1)
        return jnp.take_along_axis(states_BLD, last_B[:, None, None], axis=1)[:, 0]
