"""Post-norm Transformer encoder with disentangled relative attention (DeBERTa-v2 form; HLM, section 3.5)."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.nn.attention import DisentangledAttention
from charlm.nn.embed import RelativeTable, dense, layer_norm


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Shape and rates of an encoder; see the keys of the same names in `charlm/config.py`."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    max_distance: int  # where the logarithmic position buckets end, in positions
    position_buckets: int = 256
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-7  # of every LayerNorm; 1e-5 shifts outputs by 1e-4
    initializer: str = "bert"
    dtype: Any = jnp.float32
    remat: bool = False


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each followed by residual and LayerNorm."""

    config: EncoderConfig
    queries: int | None = None  # leading positions to compute; None: all
    deterministic: bool = True

    @nn.compact
    def __call__(self, x_BLD: jax.Array, mask_BL: jax.Array, positions_RD: jax.Array) -> jax.Array:
        cfg = self.config
        queries = x_BLD.shape[1] if self.queries is None else self.queries
        attention = DisentangledAttention(
            cfg.heads, cfg.max_distance, cfg.attention_dropout, cfg.dropout, cfg.initializer, cfg.dtype, name="attention"
        )
        drop = nn.Dropout(cfg.dropout, deterministic=self.deterministic)
        attended = attention(x_BLD, mask_BL, positions_RD, queries, self.deterministic)
        x = layer_norm(cfg.epsilon, cfg.dtype, name="attention_norm")(x_BLD[:, :queries] + drop(attended))
        hidden = dense(cfg.ffn, cfg.hidden, cfg.initializer, cfg.dtype, name="ffn_in")(x)
        hidden = jax.nn.gelu(hidden, approximate=False)  # the exact form: tanh is 1e-3 off
        hidden = dense(cfg.hidden, cfg.ffn, cfg.initializer, cfg.dtype, name="ffn_out")(hidden)
        return layer_norm(cfg.epsilon, cfg.dtype, name="ffn_norm")(x + drop(hidden))


class Encoder(nn.Module):
    """A stack of layers over [B, L, D] that share one table of relative positions."""

    config: EncoderConfig

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, *, last_queries: int | None = None, deterministic: bool = True
    ) -> jax.Array:
        """Returns the states [B, L, D], or [B, last_queries, D] when only so many leading positions are read.

        Args:
          x_BLD: input states. mask_BL: bool, True = real; what stands at False positions never reaches a True one.
          last_queries: number of leading positions that the last layer computes; None: all.
        """
        cfg = self.config
        positions = RelativeTable(cfg.position_buckets, cfg.hidden, cfg.epsilon, cfg.initializer, name="positions")()
        layer = nn.remat(EncoderLayer) if cfg.remat else EncoderLayer
        x = x_BLD
        for i in range(cfg.layers):
            queries = last_queries if i == cfg.layers - 1 else None
            x = layer(cfg, queries, deterministic, name=f"layer_{i}")(x, mask_BL, positions)
        return x
