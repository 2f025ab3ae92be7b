"""Post-norm Transformer encoder with disentangled relative attention (DeBERTa-v2 form; HLM, section 3.5).

HLM stacks it twice, inside words and between words (`charlm.families.hlm.model`). Open it to change HLM's layers or
their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.attention import DisentangledAttention
from charlm.nn.embed import RelativeTable, dense, gelu, layer_norm
from charlm.nn.scan import in_turn


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Shape and rates of an encoder; see the keys of the same names in `charlm.config.pretraining`."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    max_distance: int  # distance at which the logarithmic position buckets end, in positions
    position_buckets: int = 256
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-7  # of every LayerNorm; 1e-5 would shift outputs by 1e-4
    initializer: str = "bert"
    dtype: DTypeLike = jnp.float32
    remat: bool = False
    attention_kernel: str = "auto"  # one of `charlm.nn.kernels.KERNELS`
    scan_layers: bool = False  # see `charlm.nn.scan`


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each followed by a residual connection and a LayerNorm."""

    config: EncoderConfig

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, positions_RD: jax.Array, queries: int, deterministic: bool
    ) -> jax.Array:
        """Returns the states [B, queries, D] of the first `queries` positions; see `DisentangledAttention`."""
        cfg = self.config
        attention = DisentangledAttention(
            cfg.heads,
            cfg.max_distance,
            cfg.attention_dropout,
            cfg.dropout,
            cfg.initializer,
            cfg.dtype,
            cfg.attention_kernel,
            name="attention",
        )
        drop = nn.Dropout(cfg.dropout, deterministic=deterministic)
        attended = attention(x_BLD, mask_BL, positions_RD, queries, deterministic)
        x = layer_norm(cfg.epsilon, cfg.dtype, name="attention_norm")(x_BLD[:, :queries] + drop(attended))
        hidden = dense(cfg.ffn, cfg.hidden, cfg.initializer, cfg.dtype, name="ffn_in")(x)
        hidden = dense(cfg.hidden, cfg.ffn, cfg.initializer, cfg.dtype, name="ffn_out")(gelu(hidden))
        return layer_norm(cfg.epsilon, cfg.dtype, name="ffn_norm")(x + drop(hidden))


class Encoder(nn.Module):
    """A stack of layers over [B, L, D] that share one table of relative positions.

    `__call__` computes every position. Where only the leading positions of some rows are needed, call `lower` for all
    layers but the last, then `last` for the number of leading positions that are needed.
    """

    config: EncoderConfig

    def setup(self) -> None:
        cfg = self.config
        self.positions = RelativeTable(cfg.position_buckets, cfg.hidden, cfg.epsilon, cfg.initializer)
        layer = nn.remat(EncoderLayer, static_argnums=(4, 5)) if cfg.remat else EncoderLayer
        self.layer = [layer(cfg) for _ in range(cfg.layers)]

    def __call__(self, x_BLD: jax.Array, mask_BL: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the states [B, L, D]; padding (`charlm.nn.masks`) does not affect those of real positions."""
        if self.config.scan_layers:  # with the last layer in the same loop, it is not compiled a second time
            return self._through(self.layer, x_BLD, mask_BL, deterministic)
        return self.last(self.lower(x_BLD, mask_BL, deterministic), mask_BL, x_BLD.shape[1], deterministic)

    def lower(self, x_BLD: jax.Array, mask_BL: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the states [B, L, D] before the last layer."""
        return self._through(self.layer[:-1], x_BLD, mask_BL, deterministic)

    def last(self, x_BLD: jax.Array, mask_BL: jax.Array, queries: int, deterministic: bool = True) -> jax.Array:
        """Returns the output [B, queries, D] of the last layer at the first `queries` positions."""
        return self.layer[-1](x_BLD, mask_BL, self.positions(), queries, deterministic)

    def _through(
        self, layers: Sequence[EncoderLayer], x_BLD: jax.Array, mask_BL: jax.Array, deterministic: bool
    ) -> jax.Array:
        positions = self.positions()
        step = lambda x_BLD, layer: layer(x_BLD, mask_BL, positions, x_BLD.shape[1], deterministic)
        return in_turn(self, step, x_BLD, layers, scan=self.config.scan_layers, remat=self.config.remat)

    def project_positions(self) -> None:
        """Fills the collection `PROJECTED`, when it is mutable, with every layer's projections of the position table.

        They depend on parameters alone. If they are passed in beside the parameters they were made from, they are not
        computed again where dropout is off. They are layers x 4 x buckets x hidden numbers in the layers' dtype, 36 MiB
        in the float32 encoder between the words of HLM-Base.
        """
        one_BLD = jnp.zeros((1, 1, self.config.hidden), self.config.dtype)
        self(one_BLD, jnp.ones((1, 1), bool))  # the compiler drops the output, which is not used
