"""Plain Transformer layers: post-norm as in BERT, or pre-norm and causal as in GPT-2.

BERT, RoBERTa, RoFormer, GPT-2 and the models on them are stacks of these layers. Open it to change such a layer or to
add an activation. Sources: Vaswani et al. (2017), sections 3.1 to 3.3; Radford et al. (2019), section 2.3, put the
LayerNorms before the sublayers; Su et al. (2021), section 3.2, turn queries and keys.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.choices import PositionName
from charlm.nn.embed import dense, gelu, layer_norm
from charlm.nn.kernels import attend, choose_tiled, this_machine
from charlm.nn.rotary import rotated
from charlm.nn.sizes import is_symbolic

ROTARY_BASE = 10_000.0  # Su et al. (2021), section 3.2.2
# gelu_new: the tanh approximation (Hendrycks and Gimpel), up to 5e-4 off. Weights need the form they were trained with.
ACTIVATION_FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}


@dataclasses.dataclass(frozen=True)
class BlockConfig:
    """Shape and rates of a layer.

    Attributes:
      pre_norm: True: x + f(LN(x)), as in GPT-2; False: LN(x + f(x)), as in BERT.
      activation: one of `ACTIVATION_FUNCTIONS`.
      epsilon: epsilon of both LayerNorms.
      attention_kernel: one of `charlm.nn.kernels.KERNELS`.
      position: "absolute": the states that come in tell positions; "rotary": queries and keys are turned by them.
    """

    hidden: int
    heads: int
    ffn: int
    pre_norm: bool
    activation: str
    epsilon: float
    dropout: float
    attention_dropout: float
    initializer: str
    dtype: DTypeLike
    attention_kernel: str = "auto"
    position: PositionName = "absolute"


class KeyValue(NamedTuple):
    """Keys and values of one layer, [B, N, H, K] each in the layer's dtype, with N positions filled from the left."""

    key_BNHK: jax.Array
    value_BNHK: jax.Array


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017, section 3.2.2); scores and softmax in float32.

    Attributes:
      kernel, position: see `BlockConfig`.
    """

    heads: int
    dropout: float
    initializer: str
    dtype: DTypeLike
    kernel: str = "auto"
    position: PositionName = "absolute"

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        visible_B1QN: jax.Array,
        cache: KeyValue | None = None,
        start: jax.Array | None = None,
        deterministic: bool = True,
        probabilities: bool = True,
    ) -> tuple[jax.Array, jax.Array | None, KeyValue | None]:
        """Returns for each position the attention-weighted mean of the values that it sees.

        Args:
          x_BLD: states.
          visible_B1QN: bool, broadcast to [B, 1, L, N]: True where a query sees a key. Hidden keys get probability
            exactly 0; the output of a query that sees no key is finite but meaningless.
          cache: keys and values of earlier positions; None: the N keys are those of x_BLD.
          start: int scalar, the index in the cache at which the keys and values of x_BLD are written.
          probabilities: whether the caller reads the probabilities; not every kernel returns them.

        Returns:
          Output [B, L, D]; probabilities float32 [B, H, L, N] before dropout, or None where the kernel has none; and
          the cache, updated with the keys and values of x_BLD.
        """
        B, L, D = x_BLD.shape
        K = D // self.heads

        def project(name: str) -> jax.Array:
            return dense(D, D, self.initializer, self.dtype, name=name)(x_BLD).reshape(B, L, self.heads, K)

        def heads_first(y_BNHK: jax.Array) -> jax.Array:
            return y_BNHK.swapaxes(1, 2)  # neither product below has to copy this layout

        query = project("query") * jnp.asarray(1 / math.sqrt(K), self.dtype)  # cheaper than to scale the scores
        key, value = project("key"), project("value")
        if self.position == "rotary":
            turned = lambda y_BLHK: rotated(y_BLHK, ROTARY_BASE, neighbours=True).astype(self.dtype)
            query, key = turned(query), turned(key)
        records = self.is_mutable_collection("intermediates")
        probabilities = probabilities or records
        if cache is not None:
            assert start is not None  # callers pass it together with a cache
            put = lambda all_BNHK, new: jax.lax.dynamic_update_slice_in_dim(all_BNHK, new, start, axis=1)
            cache = KeyValue(put(cache.key_BNHK, key), put(cache.value_BNHK, value))
            key, value = cache
        drops = self.dropout > 0 and not deterministic
        if self._by_tiles(x_BLD, visible_B1QN, cache, probabilities):
            from charlm.nn import tiled  # see `charlm.nn.kernels`

            side_by_side = lambda y_BNHK: y_BNHK.reshape(B, L, D)
            mixed = tiled.tiled_attention(
                side_by_side(query),
                side_by_side(key),
                side_by_side(value),
                jnp.broadcast_to(visible_B1QN[:, 0, 0], (B, L)),
                heads=self.heads,
                rate=self.dropout if drops else 0.0,
                seed_2=jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32) if drops else None,
                chip=this_machine().tiles,
                interpret=this_machine().platform == "cpu",
            )
            return dense(D, D, self.initializer, self.dtype, name="output")(mixed), None, None
        query, key, value = map(heads_first, (query, key, value))
        drop = nn.Dropout(self.dropout, deterministic=False) if drops else None
        mixed, probs = attend(self.kernel, query, key, value, visible_B1QN, drop=drop, probabilities=probabilities)
        if records:
            self.sow("intermediates", "probs", probs)
        mixed = mixed.swapaxes(1, 2).reshape(B, L, D)
        return dense(D, D, self.initializer, self.dtype, name="output")(mixed), probs, cache

    def _by_tiles(self, x_BLD: jax.Array, visible_B1QN: jax.Array, cache: KeyValue | None, probabilities: bool) -> bool:
        _, L, D = x_BLD.shape
        of_head = jax.ShapeDtypeStruct((L, D // self.heads), self.dtype)
        if is_symbolic(L):
            return False
        chosen = choose_tiled(self.kernel, this_machine(), of_head, L, probabilities)
        # The tiles know masks of keys alone: causal attention, and that of a cache, are the other kernels'.
        return chosen and cache is None and visible_B1QN.shape[1:3] == (1, 1) and not self.is_initializing()


class Block(nn.Module):
    """Attention and feed-forward, each with a residual connection and a LayerNorm."""

    config: BlockConfig

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        visible_B1QN: jax.Array,
        cache: KeyValue | None = None,
        start: jax.Array | None = None,
        deterministic: bool = True,
        probabilities: bool = True,
    ) -> tuple[jax.Array, jax.Array | None, KeyValue | None]:
        """Returns the states [B, L, D], the attention probabilities and the cache; see `Attention`."""
        cfg = self.config
        of_attention = cfg.heads, cfg.attention_dropout, cfg.initializer, cfg.dtype, cfg.attention_kernel, cfg.position
        attention = Attention(*of_attention, name="attention")
        attention_norm = layer_norm(cfg.epsilon, cfg.dtype, name="attention_norm")
        ffn_norm = layer_norm(cfg.epsilon, cfg.dtype, name="ffn_norm")
        drop = nn.Dropout(cfg.dropout, deterministic=deterministic)

        def feed_forward(x_BLD: jax.Array) -> jax.Array:
            hidden_BLF = dense(cfg.ffn, cfg.hidden, cfg.initializer, cfg.dtype, name="ffn_in")(x_BLD)
            hidden_BLF = ACTIVATION_FUNCTIONS[cfg.activation](hidden_BLF)
            return dense(cfg.hidden, cfg.ffn, cfg.initializer, cfg.dtype, name="ffn_out")(hidden_BLF)

        attended_from = attention_norm(x_BLD) if cfg.pre_norm else x_BLD
        attended, probs, cache = attention(attended_from, visible_B1QN, cache, start, deterministic, probabilities)
        if cfg.pre_norm:
            x_BLD = x_BLD + drop(attended)
            return x_BLD + drop(feed_forward(ffn_norm(x_BLD))), probs, cache
        x_BLD = attention_norm(x_BLD + drop(attended))
        return ffn_norm(x_BLD + drop(feed_forward(x_BLD))), probs, cache


def block_class(remat: bool) -> type[Block]:
    """Returns `Block`; with `remat`, one whose activations are recomputed in the backward pass instead of kept."""
    # The indices, counted from self, of `deterministic` and `probabilities`.
    return nn.remat(Block, static_argnums=(5, 6)) if remat else Block


def at_positions(x_BLD: jax.Array, positions_BM: jax.Array | None) -> jax.Array:
    """Returns the states [B, M, D] at the positions int [B, M]; None: the states of all positions.

    Raises:
      ValueError: the positions have another shape.
    """
    if positions_BM is None:
        return x_BLD
    if positions_BM.ndim != 2 or len(positions_BM) != len(x_BLD):
        raise ValueError(f"positions_BM is {positions_BM.shape}, expected [{len(x_BLD)}, positions]")
    return jnp.take_along_axis(x_BLD, positions_BM[:, :, None], axis=1)


class Sizes(Protocol):
    """The part of a Transformer's config that `check_block` checks."""

    @property
    def hidden(self) -> int:
        """Width D of the states."""
        ...

    @property
    def heads(self) -> int:
        """Number of attention heads."""
        ...

    @property
    def activation(self) -> str:
        """Name of the activation, one of `ACTIVATION_FUNCTIONS`."""
        ...


def check_block(family: str, config: Sizes) -> None:
    """Checks the fields that the configs of all plain Transformers share.

    Raises:
      ValueError: a wrong value; names the field, the value and what was expected.
    """
    for name in ("vocab_size", "hidden", "layers", "heads", "ffn", "max_positions"):
        if getattr(config, name) < 1:
            raise ValueError(f"{family}: {name}={getattr(config, name)}, expected a positive number")
    if config.hidden % config.heads:
        raise ValueError(f"{family}: hidden={config.hidden} is not a multiple of heads={config.heads}")
    if config.activation not in ACTIVATION_FUNCTIONS:
        raise ValueError(f"{family}: activation={config.activation!r} is not one of {', '.join(ACTIVATION_FUNCTIONS)}")


def check_inputs(
    ids_BL: jax.Array | None, embeddings_BLD: jax.Array | None, hidden: int, **beside: jax.Array | None
) -> tuple[int, int]:
    """Checks a model's inputs: ids or embeddings, not both, and arrays [B, L] beside them.

    Returns:
      B and L.

    Raises:
      ValueError: a wrong array; names the array, its shape or type, and what was expected.
    """
    if ids_BL is not None and embeddings_BLD is None:
        if ids_BL.ndim != 2 or not jnp.issubdtype(ids_BL.dtype, jnp.integer):
            raise ValueError(f"ids_BL is {ids_BL.dtype} {ids_BL.shape}, expected integers [batch, length]")
        shape = ids_BL.shape
    elif embeddings_BLD is not None and ids_BL is None:
        if embeddings_BLD.ndim != 3 or embeddings_BLD.shape[-1] != hidden:
            raise ValueError(f"embeddings_BLD is {embeddings_BLD.shape}, expected [batch, length, {hidden}]")
        shape = embeddings_BLD.shape[:2]
    else:
        given = "both" if ids_BL is not None else "neither"
        raise ValueError(f"expected either ids_BL or embeddings_BLD, got {given}")
    for name, array in beside.items():
        is_mask = name.startswith("mask")
        is_kind = array is None or jnp.issubdtype(array.dtype, jnp.integer) or (is_mask and array.dtype == jnp.bool_)
        if array is not None and (array.shape != shape or not is_kind):
            what = "bool (True = real), or the numbers of texts," if is_mask else "integers"
            raise ValueError(f"{name} is {array.dtype} {array.shape}, expected {what} {tuple(shape)}")
    return shape[0], shape[1]
