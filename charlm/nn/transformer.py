"""Transformer encoder with disentangled relative attention, post-norm (DeBERTa-v2 form; HLM, section 3.5).

HLM stacks it twice, inside words and between words (`charlm.families.hlm.model`). What later work changed about such
layers are choices of `EncoderConfig`: rotary positions, pre-norm, RMSNorm, GeGLU, no biases, local layers. Open it to
change HLM's layers or their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.attention import DisentangledAttention
from charlm.nn.embed import RelativeTable, dense, gelu, norm_layer
from charlm.nn.rotary import Kept, RotaryAttention, nothing_kept
from charlm.nn.scan import in_turn


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Shape and rates of an encoder; see the keys of the same names in `charlm.families.hlm.keys`.

    Attributes:
      norm_position: "post": LN(x + f(x)) (Vaswani et al., 2017, section 3.1); "pre": x + f(LN(x)), with one more norm
        after the last layer (Xiong et al., 2020, section 3.1).
      feed_forward: "gelu"; or "geglu": GELU(x V) * x W (Shazeer, 2020, section 2), as wide as `gated_width` says.
      local_words: positions on each side that a local layer sees; 0: every layer sees all.
      global_every: with `local_words`, one of so many layers sees all, beginning with the first.
      causal: whether a position sees only itself and those before it; with rotary positions.
    """

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
    position: Literal["disentangled", "rotary"] = "disentangled"
    rotary_base: float = 10_000.0  # see `charlm.nn.rotary.rotated`
    norm_position: Literal["post", "pre"] = "post"
    norm: Literal["layer", "rms"] = "layer"
    feed_forward: Literal["gelu", "geglu"] = "gelu"
    bias: bool = True  # of projections, feed-forward layers and LayerNorms
    local_words: int = 0
    global_every: int = 3
    causal: bool = False

    def __post_init__(self) -> None:
        if self.causal and self.position != "rotary":
            raise ValueError(f"position={self.position!r}: causal layers need rotary positions")

    def window(self, layer: int) -> int:
        """Returns how many positions on each side the layer of this number sees; 0: all."""
        return self.local_words if layer % self.global_every else 0


def kept_by_layers(config: EncoderConfig, rows: int, positions: int) -> dict[str, dict[str, Kept]]:
    """Returns the collection `charlm.nn.rotary.KEPT` of an `Encoder` before its first position, which may be mutable.

    Then each call goes on where the one before has ended, its mask being of all `positions`.
    """
    one = nothing_kept(rows, positions, config.heads, config.hidden, config.dtype)
    return {f"layer_{n}": {"attention": Kept(**one)} for n in range(config.layers)}


def gated_width(ffn: int) -> int:
    """Returns the width of a GeGLU layer with as many parameters as a GELU layer of width `ffn`.

    It has three matrices instead of two, so two thirds of the width (Shazeer, 2020, section 3), to the nearest multiple
    of 8.
    """
    return max(8, 8 * round(ffn / 12))


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each with a residual connection and a norm.

    Attributes:
      window: positions on each side that a query sees; 0: all.
    """

    config: EncoderConfig
    window: int = 0

    @nn.compact
    def __call__(
        self, x_BLD: jax.Array, mask_BL: jax.Array, positions_RD: jax.Array | None, queries: int, deterministic: bool
    ) -> jax.Array:
        """Returns the states [B, queries, D] of the first `queries` positions; see `DisentangledAttention`."""
        cfg = self.config
        drop = nn.Dropout(cfg.dropout, deterministic=deterministic)
        norm = lambda name: norm_layer(cfg.norm, cfg.epsilon, cfg.dtype, cfg.bias, name=name)
        attention_norm, ffn_norm = norm("attention_norm"), norm("ffn_norm")
        if cfg.norm_position == "pre":
            attended = _attention(
                cfg, self.window, attention_norm(x_BLD), mask_BL, positions_RD, queries, deterministic
            )
            x = x_BLD[:, :queries] + drop(attended)
            return x + drop(_feed_forward(cfg, ffn_norm(x)))
        attended = _attention(cfg, self.window, x_BLD, mask_BL, positions_RD, queries, deterministic)
        x = attention_norm(x_BLD[:, :queries] + drop(attended))
        return ffn_norm(x + drop(_feed_forward(cfg, x)))


# Functions, not methods: what watches the calls of layers (`nn.intercept_methods`) shall see `__call__` alone.
def _attention(
    cfg: EncoderConfig,
    window: int,
    x_BLD: jax.Array,
    mask_BL: jax.Array,
    positions_RD: jax.Array | None,
    queries: int,
    deterministic: bool,
) -> jax.Array:
    """Returns what the attention of a layer gives, made inside the layer that calls this."""
    shared = {"bias": cfg.bias, "window": window, "name": "attention"}
    of_all = cfg.initializer, cfg.dtype, cfg.attention_kernel
    if positions_RD is None:
        own = {"base": cfg.rotary_base, "causal": cfg.causal}
        rotary = RotaryAttention(cfg.heads, cfg.attention_dropout, *of_all, **own, **shared)
        return rotary(x_BLD, mask_BL, queries, deterministic)
    attention = DisentangledAttention(
        cfg.heads, cfg.max_distance, cfg.attention_dropout, cfg.dropout, *of_all, **shared
    )
    return attention(x_BLD, mask_BL, positions_RD, queries, deterministic)


def _feed_forward(cfg: EncoderConfig, x_BLD: jax.Array) -> jax.Array:
    """Returns what the feed-forward network of a layer gives, made inside the layer that calls this."""
    gated = cfg.feed_forward == "geglu"
    width = gated_width(cfg.ffn) if gated else cfg.ffn
    layer = lambda features, fan_in, name: dense(features, fan_in, cfg.initializer, cfg.dtype, name, cfg.bias)
    hidden = gelu(layer(width, cfg.hidden, "ffn_in")(x_BLD))
    if gated:
        hidden = hidden * layer(width, cfg.hidden, "ffn_value")(x_BLD)
    return layer(cfg.hidden, width, "ffn_out")(hidden)


class Encoder(nn.Module):
    """A stack of layers over [B, L, D] that share one table of relative positions, or have rotary ones.

    `__call__` computes every position. Where only the leading positions of some rows are needed, call `lower` for all
    layers but the last, then `last` for the number of leading positions that are needed.
    """

    config: EncoderConfig

    def setup(self) -> None:
        cfg = self.config
        if cfg.position == "disentangled":
            self.positions = RelativeTable(
                cfg.position_buckets, cfg.hidden, cfg.epsilon, cfg.initializer, cfg.norm, cfg.bias
            )
        layer = nn.remat(EncoderLayer, static_argnums=(4, 5)) if cfg.remat else EncoderLayer
        self.layer = [layer(cfg, cfg.window(n)) for n in range(cfg.layers)]
        if cfg.norm_position == "pre":
            self.norm = norm_layer(cfg.norm, cfg.epsilon, cfg.dtype, cfg.bias)

    def __call__(self, x_BLD: jax.Array, mask_BL: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the states [B, L, D]; padding (`charlm.nn.masks`) does not affect those of real positions."""
        if self.config.scan_layers:  # with the last layer in the same loop, it is not compiled a second time
            return self._ended(self._through(self.layer, x_BLD, mask_BL, deterministic))
        return self.last(self.lower(x_BLD, mask_BL, deterministic), mask_BL, x_BLD.shape[1], deterministic)

    def lower(self, x_BLD: jax.Array, mask_BL: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the states [B, L, D] before the last layer."""
        return self._through(self.layer[:-1], x_BLD, mask_BL, deterministic)

    def last(self, x_BLD: jax.Array, mask_BL: jax.Array, queries: int, deterministic: bool = True) -> jax.Array:
        """Returns the output [B, queries, D] of the last layer at the first `queries` positions."""
        return self._ended(self.layer[-1](x_BLD, mask_BL, self._positions(), queries, deterministic))

    def _ended(self, x_BLD: jax.Array) -> jax.Array:
        return self.norm(x_BLD) if self.config.norm_position == "pre" else x_BLD

    def _positions(self) -> jax.Array | None:
        return self.positions() if self.config.position == "disentangled" else None

    def _through(
        self, layers: Sequence[EncoderLayer], x_BLD: jax.Array, mask_BL: jax.Array, deterministic: bool
    ) -> jax.Array:
        cfg, positions = self.config, self._positions()

        def step(x_BLD: jax.Array, *layers: EncoderLayer) -> jax.Array:
            for layer in layers:
                x_BLD = layer(x_BLD, mask_BL, positions, x_BLD.shape[1], deterministic)
            return x_BLD

        # Layers that a loop runs must be alike, so with local layers each turn runs a global one and its local ones.
        together = cfg.global_every if cfg.local_words else 1
        whole = len(layers) // together * together
        parts = [layers[n:whole:together] for n in range(together)]
        x_BLD = in_turn(self, step, x_BLD, *parts, scan=cfg.scan_layers, remat=cfg.remat)
        return step(x_BLD, *layers[whole:])

    def project_positions(self) -> None:
        """Fills the collection `PROJECTED`, when it is mutable, with every layer's projections of the position table.

        They depend on parameters alone. If they are passed in beside the parameters they were made from, they are not
        computed again where dropout is off. They are layers x 4 x buckets x hidden numbers in the layers' dtype, 36 MiB
        in the float32 encoder between the words of HLM-Base. With rotary positions there are none.
        """
        one_BLD = jnp.zeros((1, 1, self.config.hidden), self.config.dtype)
        self(one_BLD, jnp.ones((1, 1), bool))  # the compiler drops the output, which is not used
