"""BERT, RoBERTa and GPT-2 with an output layer for labels: sequences, tokens, answers.

The models of Hugging Face's transformers of the same names, whose weights `charlm.convert` reads and writes.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.families.subword.bert import Bert, BertConfig
from charlm.families.subword.gpt2 import GPT2, GPT2Config
from charlm.nn.embed import Dense, dense, kernel_init
from charlm.nn.heads import Pooler


class _BertForLabels(nn.Module):
    config: BertConfig
    labels: int

    def setup(self) -> None:
        cfg = self.config
        self.bert = Bert(cfg)
        self.dropout = nn.Dropout(cfg.dropout)
        self.label = dense(self.labels, cfg.hidden, cfg.initializer, cfg.dtype)


class BertForSequenceClassification(_BertForLabels):
    """Linear(Dropout(tanh(Linear(x_CLS)))) (BERT, section 4.1).

    BERT's tanh layer is the pooler of its pre-training; RoBERTa, whose pre-training has none (`config.pooler` False),
    has one of the head's own.
    """

    def setup(self) -> None:
        super().setup()
        if not self.config.pooler:
            self.pooler = Pooler(self.config.hidden, self.config.initializer, self.config.dtype)

    def __call__(
        self, ids_BL: jax.Array, mask_BL: jax.Array | None = None, *, deterministic: bool = True, **inputs: Any
    ) -> jax.Array:
        """Returns float32 logits [B, labels]; the other arguments are those of `Bert.__call__`."""
        output = self.bert(ids_BL, mask_BL, deterministic=deterministic, **inputs)
        pooled_BD = output.pooled_BD
        if pooled_BD is None:
            pooled_BD = self.pooler(self.dropout(output.states_BLD[:, 0], deterministic=deterministic))
        return self.label(self.dropout(pooled_BD, deterministic=deterministic)).astype(jnp.float32)


class BertForTokenClassification(_BertForLabels):
    """Linear(Dropout(x_i)) for every token (BERT, section 5.3)."""

    def __call__(
        self, ids_BL: jax.Array, mask_BL: jax.Array | None = None, *, deterministic: bool = True, **inputs: Any
    ) -> jax.Array:
        """Returns float32 logits [B, L, labels]; the other arguments are those of `Bert.__call__`."""
        states_BLD = self.bert(ids_BL, mask_BL, deterministic=deterministic, **inputs).states_BLD
        return self.label(self.dropout(states_BLD, deterministic=deterministic)).astype(jnp.float32)


class BertForQuestionAnswering(_BertForLabels):
    """Linear(x_i): every token scored as first and as last of the answer (BERT, section 4.2)."""

    labels: int = 2

    def __call__(
        self, ids_BL: jax.Array, mask_BL: jax.Array | None = None, *, deterministic: bool = True, **inputs: Any
    ) -> jax.Array:
        """Returns float32 logits [B, L, 2] of start and end; the other arguments are those of `Bert.__call__`."""
        states_BLD = self.bert(ids_BL, mask_BL, deterministic=deterministic, **inputs).states_BLD
        return self.label(states_BLD).astype(jnp.float32)


class GPT2ForSequenceClassification(nn.Module):
    """Linear(x) of the last token, without bias: the only one that has read everything."""

    config: GPT2Config
    labels: int

    def setup(self) -> None:
        cfg = self.config
        self.gpt2 = GPT2(cfg)
        self.label = Dense(self.labels, cfg.dtype, kernel_init(cfg.initializer), use_bias=False)

    def __call__(
        self, ids_BL: jax.Array, mask_BL: jax.Array | None = None, *, deterministic: bool = True, **inputs: Any
    ) -> jax.Array:
        """Returns float32 logits [B, labels]; the other arguments are those of `GPT2.__call__`."""
        states_BLD = self.gpt2(ids_BL, mask_BL, deterministic=deterministic, **inputs).states_BLD
        B, L, _ = states_BLD.shape
        real_BL = jnp.ones((B, L), bool) if mask_BL is None else mask_BL
        last_B = jnp.max(jnp.where(real_BL, jnp.arange(L)[None], 0), axis=1)
        last_BD = jnp.take_along_axis(states_BLD, last_B[:, None, None], axis=1)[:, 0]
        return self.label(last_BD).astype(jnp.float32)


class _GPT2ForLabels(nn.Module):
    config: GPT2Config
    labels: int

    def setup(self) -> None:
        cfg = self.config
        self.gpt2 = GPT2(cfg)
        self.dropout = nn.Dropout(cfg.dropout)
        self.label = dense(self.labels, cfg.hidden, cfg.initializer, cfg.dtype)


class GPT2ForTokenClassification(_GPT2ForLabels):
    """Linear(Dropout(x_i)) for every token, which has read what is to its left."""

    def __call__(
        self, ids_BL: jax.Array, mask_BL: jax.Array | None = None, *, deterministic: bool = True, **inputs: Any
    ) -> jax.Array:
        """Returns float32 logits [B, L, labels]; the other arguments are those of `GPT2.__call__`."""
        states_BLD = self.gpt2(ids_BL, mask_BL, deterministic=deterministic, **inputs).states_BLD
        return self.label(self.dropout(states_BLD, deterministic=deterministic)).astype(jnp.float32)


class GPT2ForQuestionAnswering(_GPT2ForLabels):
    """Linear(x_i): every token scored as first and as last of the answer; the question comes first."""

    labels: int = 2

    def __call__(
        self, ids_BL: jax.Array, mask_BL: jax.Array | None = None, *, deterministic: bool = True, **inputs: Any
    ) -> jax.Array:
        """Returns float32 logits [B, L, 2] of start and end; the other arguments are those of `GPT2.__call__`."""
        states_BLD = self.gpt2(ids_BL, mask_BL, deterministic=deterministic, **inputs).states_BLD
        return self.label(states_BLD).astype(jnp.float32)
