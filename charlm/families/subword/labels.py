"""The models of fine-tuned BERT, RoBERTa, RoFormer and GPT-2: an output layer for labels or answers.

They compute the same as the models of Hugging Face's transformers, whose weights `charlm.convert` reads and writes;
those with other heads (`ForLabels.label_head`) have no counterpart there.
Encoders that read words through characters use the same heads (`ForLabels.encoder`). Open it to change how a fine-tuned
model turns states into logits.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.convert.heads import MEAN, PERCEPTRON, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.core.types import Option, Tree
from charlm.families.labels import ForLabels
from charlm.families.subword.bert import Bert
from charlm.families.subword.gpt2 import GPT2
from charlm.nn.blocks import ACTIVATION_FUNCTIONS
from charlm.nn.heads import Pooler
from charlm.nn.masks import numbers_texts, starts
from charlm.nn.mixed import MixedDense
from charlm.nn.outputs import TransformerOutput


class BertForLabels(ForLabels):
    """BERT, RoBERTa or RoFormer for labels; those of sequences are Linear(Dropout(tanh(Linear(x_CLS)))) (BERT, 4.1).

    In BERT the tanh layer is the pooler of pre-training. RoBERTa and RoFormer have no pooler in pre-training
    (`config.pooler` is False), so the tanh layer belongs to the head. RoFormer's has the activation of its layers in
    place of tanh, as released.
    """

    encoder: type[nn.Module] = Bert

    def setup(self) -> None:
        super().setup()
        if self.kind == SEQUENCE_CLASSIFICATION and not (self.config.pooler or self.label_head in (MEAN, PERCEPTRON)):
            cfg = self.config
            activation = ACTIVATION_FUNCTIONS[cfg.activation] if cfg.position == "rotary" else jnp.tanh
            self.pooler = Pooler(cfg.hidden, cfg.initializer, cfg.dtype, activation)

    def sequences(self, output: TransformerOutput, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the states of the first position, after the layer that pools them if the head has one."""
        first = starts(output.states_BLD, self.mask_of(*inputs, **options))
        if self.label_head == PERCEPTRON:
            return first
        if output.pooled_BD is not None:
            return output.pooled_BD
        return self.pooler(self.dropout(first, deterministic=deterministic))


class GPT2ForLabels(ForLabels):
    """GPT-2 for labels; those of sequences are Linear(x) of the last token, without bias.

    A token has read only what is to its left, so the last token is the only one that has read everything. For the same
    reason the question stands before the context when answers are predicted.
    """

    encoder: type[nn.Module] = GPT2

    def output_layer(self) -> MixedDense:
        """Returns the output layer of the labels."""
        if self.kind != SEQUENCE_CLASSIFICATION:
            return super().output_layer()
        return MixedDense(self.labels, self.config.initializer, self.config.dtype, use_bias=False)

    @property
    def drops(self) -> bool:
        """Whether dropout precedes the output layer."""
        return self.kind == TOKEN_CLASSIFICATION

    def sequences(self, output: TransformerOutput, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the states of the last real position."""
        states_BLD = output.states_BLD
        B, L, _ = states_BLD.shape
        mask_BL = self.mask_of(*inputs, **options)
        if mask_BL is not None and numbers_texts(mask_BL):
            return states_BLD
        real_BL = jnp.ones((B, L), bool) if mask_BL is None else mask_BL
        last_B = jnp.max(jnp.where(real_BL, jnp.arange(L)[None], 0), axis=1)
        return jnp.take_along_axis(states_BLD, last_B[:, None, None], axis=1)[:, 0]
