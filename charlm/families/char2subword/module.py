"""The Char2Subword module: turns the characters of a word into a vector that replaces its row of a subword table.

Open it to change the character transformer. It follows appendix A of Aguilar et al. (2021), arXiv 2010.12730; no code
was released. The steps are: characters with sinusoidal positions, a small Transformer, a projection to the table's
width, a maximum over the characters, LayerNorm. The residual of a layer is its *normalised* input, which is neither
post-norm nor pre-norm; attention has no biases and divides scores by the root of the whole width, not of a head's.
Residual and scale are as the paper writes them, and the config can switch both to the usual form.

The module reads only characters, so the vector of a distinct word serves all its occurrences and can be kept between
calls, as in `charlm.families.hlm.model`.

The gate is ours, not the paper's: it lets the vector of a word stand beside the rows of the word's pieces.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.choices import InitializerName, Kernel
from charlm.nn.embed import Embed, gelu, layer_norm, sinusoids, table_init
from charlm.nn.kernels import attend
from charlm.nn.mixed import MixedDense
from charlm.nn.scan import in_turn

GATE = "gate"  # the name of the gate among the module's parameters


@dataclasses.dataclass(frozen=True)
class Char2SubwordConfig:
    """Shape of the module. Defaults: 50.8 M parameters beside mBERT's table of 91.8 M (section 5 says 45 % less).

    Attributes:
      char_vocab_size: rows of the character table; id 0 pads.
      hidden: width D of the characters' states.
      layers, heads: layers and attention heads of the Transformer; its feed-forward width is 4 D.
      output: width E of the subword table.
      char_slots: characters of the longest word; see `charlm.families.char2subword.spelling`.
      attention_scale: scores are divided by the root of D ("model", as in the paper) or of D / heads ("head").
      residual: a layer adds to its outputs LN(x) ("normalised", as in the paper) or x ("plain").
      dropout: dropout of the embeddings and of the outputs of attention and feed-forward.
      attention_dropout: dropout of the attention probabilities.
      epsilon: epsilon of every LayerNorm.
      dtype: dtype of the inputs of products; states are float32.
      gate: whether the module has a gate, see `Char2Subword.beside`.
    """

    char_vocab_size: int = 10_000
    hidden: int = 768
    layers: int = 6
    heads: int = 12
    output: int = 768
    char_slots: int = 64
    attention_scale: Literal["model", "head"] = "model"
    residual: Literal["normalised", "plain"] = "normalised"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    epsilon: float = 1e-5
    initializer: InitializerName = "lecun"
    dtype: DTypeLike = jnp.float32
    remat: bool = False
    attention_kernel: Kernel = "auto"
    scan_layers: bool = False
    gate: bool = False

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"char2subword: hidden={self.hidden} is not a multiple of heads={self.heads}")
        if self.hidden % 2:
            raise ValueError(f"char2subword: hidden={self.hidden} must be even, for sine and cosine")
        choices = {"attention_scale": ("model", "head"), "residual": ("normalised", "plain")}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"char2subword: {name}={getattr(self, name)!r} is not one of {', '.join(known)}")


class CharAttention(nn.Module):
    """Self-attention among the characters of a word, without biases (appendix A)."""

    config: Char2SubwordConfig

    @nn.compact
    def __call__(
        self, x_UCD: jax.Array, mask_UC: jax.Array, deterministic: bool, probabilities: bool
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns [U, C, D], and with `probabilities` those of attention, float32 [U, H, C, C].

        Attention reads only the positions where mask_UC is True, the characters.
        """
        cfg = self.config
        U, C, D = x_UCD.shape
        K = D // cfg.heads

        def project(name: str, x: jax.Array) -> jax.Array:
            return MixedDense(D, cfg.initializer, cfg.dtype, use_bias=False, name=name)(x)

        query, key, value = (
            project(name, x_UCD).reshape(U, C, cfg.heads, K).swapaxes(1, 2).astype(cfg.dtype)
            for name in ("query", "key", "value")
        )
        scale = 1 / math.sqrt(D if cfg.attention_scale == "model" else K)
        drops = cfg.attention_dropout > 0 and not deterministic
        drop = nn.Dropout(cfg.attention_dropout, deterministic=False) if drops else None
        mixed_UHCK, probs_UHCC = attend(
            cfg.attention_kernel, query, key, value, mask_UC[:, None, None], scale=scale, drop=drop,
            probabilities=probabilities,
        )  # fmt: skip
        output = project("output", mixed_UHCK.swapaxes(1, 2).reshape(U, C, D))
        return output, probs_UHCC if probabilities else None


class CharLayer(nn.Module):
    """x' = LN(x) + Attention(LN(x));  x'' = LN(x') + FFN(LN(x')); "plain" adds x and x' instead (appendix A)."""

    config: Char2SubwordConfig

    @nn.compact
    def __call__(
        self, x_UCD: jax.Array, mask_UC: jax.Array, deterministic: bool, probabilities: bool = False
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the states [U, C, D], and with `probabilities` those of attention; see `CharAttention`."""
        cfg = self.config
        D = cfg.hidden
        drop = nn.Dropout(cfg.dropout, deterministic=deterministic)
        plain = cfg.residual == "plain"
        normed = layer_norm(cfg.epsilon, jnp.float32, name="attention_norm")(x_UCD)
        attended, probs = CharAttention(cfg, name="attention")(normed, mask_UC, deterministic, probabilities)
        x = (x_UCD if plain else normed) + drop(attended)
        normed = layer_norm(cfg.epsilon, jnp.float32, name="ffn_norm")(x)
        hidden = gelu(MixedDense(4 * D, cfg.initializer, cfg.dtype, name="ffn_in")(normed))
        x = (x if plain else normed) + drop(MixedDense(D, cfg.initializer, cfg.dtype, name="ffn_out")(hidden))
        return x, probs


class Char2Subword(nn.Module):
    """The module f: characters of words [U, C] -> vectors [U, E] that replace rows of the table."""

    config: Char2SubwordConfig

    def setup(self) -> None:
        cfg = self.config
        self.chars = Embed(cfg.char_vocab_size, cfg.hidden, embedding_init=table_init(cfg.initializer))
        self.dropout = nn.Dropout(cfg.dropout)
        layer = nn.remat(CharLayer, static_argnums=(3, 4)) if cfg.remat else CharLayer
        self.layer = [layer(cfg) for _ in range(cfg.layers)]
        self.projection = MixedDense(cfg.output, cfg.initializer, cfg.dtype)
        self.norm = layer_norm(cfg.epsilon, jnp.float32)
        if cfg.gate:
            zeros = nn.initializers.zeros
            self.gate_in = nn.Dense(cfg.hidden, dtype=jnp.float32)
            self.gate = nn.Dense(cfg.output, kernel_init=zeros, bias_init=zeros, dtype=jnp.float32)

    def __call__(self, chars_UC: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Returns float32 [U, E]; a row of padding, which stands for no word, gives the bias of the LayerNorm.

        Args:
          chars_UC: int, ids of the characters of words as `charlm.families.char2subword.spelling` spells them; 0 pads
            on the right.
        """
        cfg = self.config
        mask_UC = chars_UC != 0
        x_UCD = self._embedded(chars_UC, deterministic)
        step = lambda x_UCD, layer: layer(x_UCD, mask_UC, deterministic, False)[0]
        x_UCD = in_turn(self, step, x_UCD, self.layer, scan=cfg.scan_layers, remat=cfg.remat)
        return self.norm(_maximum(self.projection(x_UCD), mask_UC))

    def beside(self, rows_NLE: jax.Array, vectors_NLE: jax.Array) -> jax.Array:
        """Returns rows of the table, each moved towards the vector of the word that it is a piece of, [N, L, E].

        Each dimension has its own gate in (-1, 1), computed from both by two layers. The last layer of a fresh module
        is 0, so that the rows stay as they are to the bit; then only this layer has a gradient, and the rest once it
        has opened.

        Args:
          rows_NLE: float32, rows of pieces.
          vectors_NLE: float32, a vector for the word of each piece.
        """
        hidden = gelu(self.gate_in(jnp.concatenate([rows_NLE, vectors_NLE], axis=-1)))
        gate_NLE = jnp.tanh(self.gate(hidden))
        return rows_NLE + gate_NLE * (vectors_NLE - rows_NLE)

    def attention(self, chars_UC: jax.Array) -> jax.Array:
        """Returns how much each character reads from each other, float32 [U, layers, H, C, C] (Figure 5).

        Rows are the characters that read, and add up to 1; those at padding are meaningless.

        Args:
          chars_UC: see `__call__`.
        """
        x_UCD, found = self._embedded(chars_UC, deterministic=True), []
        for layer in self.layer:
            x_UCD, probs_UHCC = layer(x_UCD, chars_UC != 0, True, True)
            found.append(probs_UHCC)
        return jnp.stack(found, axis=1)

    def _embedded(self, chars_UC: jax.Array, deterministic: bool) -> jax.Array:
        """Returns the sums of characters and sinusoidal positions, [U, C, D]."""
        positions_CD = jnp.asarray(sinusoids(chars_UC.shape[1], self.config.hidden))
        return self.dropout(self.chars(chars_UC) + positions_CD[None], deterministic=deterministic)


def _maximum(x_UCE: jax.Array, mask_UC: jax.Array) -> jax.Array:
    """Returns the maximum over the characters of each word, float32 [U, E]; 0 for a row of padding."""
    most = jnp.where(mask_UC[..., None], x_UCE, -jnp.inf).max(axis=1)
    return jnp.where(mask_UC.any(axis=1, keepdims=True), most, 0)
