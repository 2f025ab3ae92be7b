"""CharBERT with its pre-training heads and with heads for tasks, and the paper's control without character channel.

Open it to change what is predicted from which channel; `model` has the encoder below these heads.
"""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.core.types import Option
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.model import CharBert, CharBertConfig, CharBertOutput
from charlm.families.labels import ForLabels
from charlm.families.subword.bert import Bert, BertConfig, MaskedLMHead
from charlm.nn.blocks import ACTIVATION_FUNCTIONS
from charlm.nn.embed import dense, kernel_init, layer_norm
from charlm.nn.heads import at_group_positions
from charlm.nn.kernels import product
from charlm.nn.outputs import TransformerOutput


class NoisyOutput(NamedTuple):
    """Output of a CharBERT in pre-training; see `NoisyBatch`.

    Attributes:
      mlm_logits_SMV: float32 logits of subwords.
      nlm_logits_SPT: float32 logits of whole words, at subwords of noised words; None for a model without that head.
      states: the output of the encoder, from which the logits were computed.
    """

    mlm_logits_SMV: jax.Array
    nlm_logits_SPT: jax.Array | None
    states: CharBertOutput | TransformerOutput


class CharBertHead(MaskedLMHead):
    """Predicts masked subwords from the token channel, and the words behind noised ones from the character channel.

    The head of subwords is BERT's. The head of words is LN(GELU(Linear(h))) and a softmax layer of its own (section
    3.5, Eq. 7; the LayerNorm comes from the released code).
    """

    config: CharBertConfig  # pyright: ignore[reportIncompatibleVariableOverride]  # modules are frozen: it may be narrower

    def setup(self) -> None:
        super().setup()
        cfg = self.config
        if not cfg.nlm:
            return
        self.word_transform = dense(cfg.hidden, cfg.hidden, cfg.initializer, cfg.dtype)
        if not cfg.shared_head_norm:
            self.word_transform_norm = layer_norm(cfg.epsilon, cfg.dtype)
        shape = (cfg.hidden, cfg.word_vocab_size)
        self.word_output_kernel = self.param("word_output_kernel", kernel_init(cfg.initializer), shape, jnp.float32)
        self.word_output_bias = self.param("word_output_bias", nn.initializers.zeros, shape[1:], jnp.float32)

    def words(self, x_SPD: jax.Array) -> jax.Array:
        """Returns float32 logits [S, P, T] of words."""
        cfg = self.config
        norm = self.transform_norm if cfg.shared_head_norm else self.word_transform_norm
        x_SPD = norm(ACTIVATION_FUNCTIONS[cfg.activation](self.word_transform(x_SPD)))
        kernel_DT = self.word_output_kernel.astype(cfg.dtype)
        logits = product("spd,dt->spt", x_SPD, kernel_DT)
        return logits + self.word_output_bias[None, None]


class CharBertForMaskedLM(nn.Module):
    """CharBERT with both pre-training heads (section 3.5)."""

    config: CharBertConfig

    def setup(self) -> None:
        self.charbert = CharBert(self.config)
        self.head = CharBertHead(self.config)

    def __call__(
        self,
        inputs: CharBertBatch,
        mlm_position_SM: jax.Array | None = None,
        nlm_position_SP: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> NoisyOutput:
        """Returns the logits at the labelled positions, or at all positions where none are given.

        Args:
          inputs: see `CharBertBatch`.
          mlm_position_SM, nlm_position_SP: see `NoisyBatch`.
        """
        states = self.charbert(inputs, deterministic=deterministic)
        table_VD = self.charbert.embed.token.embedding
        read_BLE = states.tokens_BLD if self.config.nlm else states.both_BLE
        mlm = self.head(at_group_positions(read_BLE, mlm_position_SM), table_VD)
        if not self.config.nlm:
            return NoisyOutput(mlm, None, states)
        return NoisyOutput(mlm, self.head.words(at_group_positions(states.chars_BLD, nlm_position_SP)), states)


class AdvBertForMaskedLM(nn.Module):
    """The control model of section 4.5: a BERT pre-trained on the same noised text, without a character channel.

    Its parameters are those of `BertForMaskedLM`, so the result is a BERT. It takes CharBERT's batches, but ignores the
    characters.
    """

    config: BertConfig

    def setup(self) -> None:
        self.bert = Bert(self.config)
        self.head = MaskedLMHead(self.config)

    def __call__(
        self, inputs: CharBertBatch, mlm_position_SM: jax.Array | None = None, *, deterministic: bool = True
    ) -> NoisyOutput:
        """Returns the logits of subwords; see `CharBertForMaskedLM`."""
        states = self.bert(inputs.ids_BL, inputs.mask_BL, types_BL=inputs.types_BL, deterministic=deterministic)
        x_SMD = at_group_positions(states.states_BLD, mlm_position_SM)
        return NoisyOutput(self.head(x_SMD, self.bert.embed.token.embedding), None, states)


class CharBertForLabels(ForLabels):
    """CharBERT with an output layer for labels, which reads both channels concatenated (section 3.6).

    The config's `channels` may choose one of them, or their sum (section 5.3). For labels of sequences it reads their
    mean over tokens. The mean includes special tokens, as released, and padding only with `compat_reference`.
    """

    encoder: type[nn.Module] = CharBert

    @property
    def read_width(self) -> int:
        """Width of what is read of the channels."""
        return self.config.read_width

    def positions(self, output: CharBertOutput, deterministic: bool, *inputs: CharBertBatch, **_: Option) -> jax.Array:
        """Returns what is read of the channels, [B, L, E]."""
        return output.read(self.config.channels)

    def sequences(self, output: CharBertOutput, deterministic: bool, *inputs: CharBertBatch, **_: Option) -> jax.Array:
        """Returns the mean [B, E] over tokens of what is read of the channels."""
        read_BLE, mask_BL = output.read(self.config.channels).astype(jnp.float32), inputs[0].mask_BL
        if mask_BL is None or self.config.compat_reference:
            mean_BE = read_BLE.mean(axis=1)
        else:
            weight_BL = mask_BL.astype(jnp.float32)
            mean_BE = jnp.einsum("ble,bl->be", read_BLE, weight_BL) / jnp.maximum(weight_BL.sum(1, keepdims=True), 1)
        return mean_BE.astype(self.config.dtype)
