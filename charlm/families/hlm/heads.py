"""HLM's heads, which read contextual word vectors together with character states (section 3.3).

Open it to change how characters are predicted. `CharPredictionHead` predicts the characters of masked words; fine-tuned
models use `IntraWordHead`.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.data.word_batch import MaskedWords
from charlm.families.hlm.config import HLMConfig
from charlm.nn.embed import dense, kernel_init, norm_layer
from charlm.nn.kernels import product
from charlm.nn.transformer import Encoder

HEAD_EPSILON = 1e-5  # LayerNorm epsilon of projection and transform in the released code (PyTorch's default)


class IntraWordHead(nn.Module):
    """The intra-word layers of a head, over [w_i ; h_i1 ... h_iC]: a word in context and its characters (section 3.3).

    With `wiring="reference"` each character state first becomes g = Dropout(LN(GELU(Linear([h_ic ; w_i])))), as in the
    released code. Without layers (`head_layers=0`) the states are only laid side by side.
    """

    config: HLMConfig

    def setup(self) -> None:
        cfg = self.config
        if cfg.wiring == "reference":
            self.projection = dense(cfg.hidden, 2 * cfg.hidden, cfg.initializer, cfg.dtype, bias=cfg.bias)
            self.projection_norm = norm_layer(cfg.norm, HEAD_EPSILON, cfg.dtype, cfg.bias)
            self.dropout = nn.Dropout(cfg.dropout)
        if cfg.head_layers:
            self.encoder = Encoder(cfg.head)

    def __call__(
        self, context_SND: jax.Array, states_SPCD: jax.Array, masked: MaskedWords, *, deterministic: bool
    ) -> jax.Array:
        """Returns the states [S, M, D] of slot 0, which holds the word itself; the arguments are those of `read`."""
        return self.read(context_SND, states_SPCD, masked, 1, deterministic)[:, :, 0]

    def read(
        self, context_SND: jax.Array, states_SPCD: jax.Array, masked: MaskedWords, queries: int, deterministic: bool
    ) -> jax.Array:
        """Returns the states [S, M, queries, D] of the first `queries` slots.

        Args:
          context_SND: contextual word vectors of the N = B * W positions of each shard.
          states_SPCD: intra-word states of the bucket's table.
          masked: the positions and table rows to read.
        """
        cfg = self.config
        pick = jax.vmap(lambda table, rows: table[rows])
        context_SMD = pick(context_SND.astype(jnp.float32), masked.position_SM).astype(cfg.dtype)
        states_SMCD = pick(states_SPCD.astype(jnp.float32), masked.row_SM).astype(cfg.dtype)
        mask_SMC = pick(masked.chars_SPC != 0, masked.row_SM)
        chars = states_SMCD[:, :, 1:]
        if cfg.wiring == "reference":
            chars = self.project(chars, context_SMD, deterministic)
        x = jnp.concatenate([context_SMD[:, :, None], chars], axis=2)
        if not cfg.head_layers:
            return x[:, :, :queries]
        S, M, C, D = x.shape
        mask_NC = mask_SMC.reshape(S * M, C)
        x = self.encoder.lower(x.reshape(S * M, C, D), mask_NC, deterministic)
        return self.encoder.last(x, mask_NC, queries, deterministic).reshape(S, M, queries, D)

    def project(self, chars_SMCD: jax.Array, context_SMD: jax.Array, deterministic: bool) -> jax.Array:
        """Returns the character states mixed with their word vectors, [S, M, C, D] (`wiring="reference"`)."""
        context = jnp.broadcast_to(context_SMD[:, :, None], chars_SMCD.shape)
        x = jnp.concatenate([chars_SMCD, context], axis=-1)
        x = self.projection_norm(jax.nn.gelu(self.projection(x), approximate=False))
        return self.dropout(x, deterministic=deterministic)

    def init_unused(self) -> None:
        """Creates the projection's parameters where no layer uses them: released checkpoints always hold them."""
        if self.config.wiring == "reference" and not self.config.head_layers:
            context_SMD = jnp.zeros((1, 1, self.config.hidden), self.config.dtype)
            self.project(context_SMD[:, :, None], context_SMD, True)


class CharPredictionHead(IntraWordHead):
    """Predicts the characters of masked words from [w_i ; h_i1 ... h_iC] (HLM, section 3.3).

    It has one intra-word Transformer layer, one fully connected layer (`head_transform`) and a softmax layer, whose
    weights are not tied to the embedding.
    """

    def setup(self) -> None:
        super().setup()
        cfg = self.config
        if cfg.head_transform:
            self.transform = dense(cfg.hidden, cfg.hidden, cfg.initializer, cfg.dtype, bias=cfg.bias)
            self.transform_norm = norm_layer(cfg.norm, HEAD_EPSILON, cfg.dtype, cfg.bias)
        self.output_kernel = self.param("output_kernel", kernel_init(cfg.initializer), (cfg.hidden, cfg.vocab_size))
        self.output_bias = self.param("output_bias", nn.initializers.zeros, (cfg.vocab_size,))

    def __call__(
        self, context_SND: jax.Array, states_SPCD: jax.Array, masked: MaskedWords, *, deterministic: bool
    ) -> jax.Array:
        """Returns float32 logits [S, M, C - 1, V] of the characters, without slot 0; see `IntraWordHead.read`."""
        x = self.read(context_SND, states_SPCD, masked, states_SPCD.shape[2], deterministic)[:, :, 1:]
        S, M, C, D = x.shape
        x = x.reshape(S * M, C, D)
        if self.config.head_transform:
            x = self.transform_norm(jax.nn.gelu(self.transform(x), approximate=False))
        kernel = self.output_kernel.astype(self.config.dtype)
        logits = product("ncd,dv->ncv", x, kernel)
        logits += self.output_bias[None, None]
        return logits.reshape(S, M, C, self.config.vocab_size)
