"""Heads: from the states of a model to the logits of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.batch import MaskedWords
from charlm.nn.embed import dense, kernel_init, layer_norm
from charlm.nn.transformer import Encoder

if TYPE_CHECKING:
    from charlm.models.hlm import HLMConfig

HEAD_EPSILON = 1e-5  # LayerNorm epsilon of projection and transform in the released code (PyTorch's default)


class Pooler(nn.Module):
    """tanh(Linear(x)) of the [CLS] word's state [..., D], as the released code classifies sequences."""

    hidden: int
    initializer: str
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(dense(self.hidden, self.hidden, self.initializer, self.dtype, name="dense")(x))


class CharPredictionHead(nn.Module):
    """Predicts the characters of masked words from [w_i ; h_i1 ... h_iC] (HLM, section 3.3).

    One intra-word Transformer layer, one fully connected layer (`head_transform`) and a softmax layer whose weights
    are its own, not the embedding's. With `wiring="reference"` the characters first pass
    g = Dropout(LN(GELU(Linear([h_ic ; w_i])))), as in the released code.
    """

    config: HLMConfig

    @nn.compact
    def __call__(
        self, context_SND: jax.Array, states_SPCD: jax.Array, masked: MaskedWords, *, deterministic: bool
    ) -> jax.Array:
        """Returns float32 logits [S, M, C - 1, V] of the characters (slot 0 left out).

        Args:
          context_SND: contextual word vectors, N = B * W positions of a shard.
          states_SPCD: intra-word states of the bucket's table.
          masked: which positions and rows to read.
        """
        cfg = self.config
        pick = jax.vmap(lambda table, rows: table[rows])
        context_SMD = pick(context_SND.astype(jnp.float32), masked.position_SM).astype(cfg.dtype)
        states_SMCD = pick(states_SPCD.astype(jnp.float32), masked.row_SM).astype(cfg.dtype)
        mask_SMC = pick(masked.chars_SPC != 0, masked.row_SM)
        chars = states_SMCD[:, :, 1:]
        if cfg.wiring == "reference":
            chars = self._project(chars, context_SMD, deterministic)
        x = jnp.concatenate([context_SMD[:, :, None], chars], axis=2)
        S, M, C, D = x.shape
        encoder = Encoder(cfg.head, name="encoder")
        x = encoder(x.reshape(S * M, C, D), mask_SMC.reshape(S * M, C), deterministic)[:, 1:]
        if cfg.head_transform:
            x = jax.nn.gelu(dense(D, D, cfg.initializer, cfg.dtype, name="transform")(x), approximate=False)
            x = layer_norm(HEAD_EPSILON, cfg.dtype, name="transform_norm")(x)
        kernel = self.param("output_kernel", kernel_init(cfg.initializer), (D, cfg.vocab_size))
        bias = self.param("output_bias", nn.initializers.zeros, (cfg.vocab_size,))
        logits = jnp.einsum("ncd,dv->ncv", x, kernel.astype(cfg.dtype), preferred_element_type=jnp.float32)
        logits += bias[None, None]
        return logits.reshape(S, M, C - 1, cfg.vocab_size)

    def _project(self, chars_SMCD: jax.Array, context_SMD: jax.Array, deterministic: bool) -> jax.Array:
        cfg = self.config
        context = jnp.broadcast_to(context_SMD[:, :, None], chars_SMCD.shape)
        x = jnp.concatenate([chars_SMCD, context], axis=-1)
        x = jax.nn.gelu(
            dense(cfg.hidden, 2 * cfg.hidden, cfg.initializer, cfg.dtype, name="projection")(x), approximate=False
        )
        x = layer_norm(HEAD_EPSILON, cfg.dtype, name="projection_norm")(x)
        return nn.Dropout(cfg.dropout)(x, deterministic=deterministic)
