"""Embeddings of characters and relative positions, and what all layers share: initialisers, Dense, norms, GELU.

Open it to change how parameters are initialised, or how tables of word vectors are read by position.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core import Scope
from jax.typing import DTypeLike

from charlm.nn.kernels import summed_in_float32, this_machine
from charlm.nn.ngrams import ngram_rows
from charlm.nn.pieces import NO_PIECES, PieceTable, piece_rows
from charlm.nn.products import matmul, rounds_for_speed

Initializer = Callable[..., jax.Array]  # (key, shape, dtype) -> an array


def kernel_init(name: str) -> Initializer:
    """Returns the initialiser of a kernel [fan_in, fan_out].

    "bert": normal with standard deviation 0.02. "torch": uniform, +-1/sqrt(fan_in), as PyTorch's nn.Linear. "lecun":
    normal with 1/sqrt(fan_in), which keeps the size of states at any width; at widths below a few hundred 0.02 is too
    small and delays the use of context.
    """
    if name == "bert":
        return nn.initializers.normal(0.02)
    if name == "lecun":
        return nn.initializers.lecun_normal()
    return lambda key, shape, dtype=jnp.float32: _uniform(key, shape, dtype, fan_in=shape[0])


def bias_init(name: str, fan_in: int) -> Initializer:
    """Returns the initialiser of a bias: zeros, or with "torch" uniform +-1/sqrt(fan_in)."""
    if name == "torch":
        return lambda key, shape, dtype=jnp.float32: _uniform(key, shape, dtype, fan_in=fan_in)
    return nn.initializers.zeros


def table_init(name: str, tied_width: int = 0) -> Initializer:
    """Returns the initialiser of an embedding table: normal, with standard deviation 0.02 for "bert", else 1.

    Args:
      tied_width: width of the rows of tables that are read beside one whose rows predict, too; 0: none does. For
        "lecun" the standard deviation is 1/sqrt(tied_width) then: rows of 1 would make logits of sqrt(tied_width),
        losses of tens, which a model spends its first thousand steps to undo.
    """
    if name == "lecun" and tied_width:
        return nn.initializers.normal(1 / math.sqrt(tied_width))
    return nn.initializers.normal(0.02 if name == "bert" else 1.0)


def _uniform(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike, fan_in: int) -> jax.Array:
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, dtype, -bound, bound)


class Held:
    """Makes a module read the parameters that it has without a look at how they were initialised.

    Flax traces the initialiser at every read, only to compare shapes: two fifths of the time to trace an HLM. A
    parameter of another shape is left to flax, which says what is wrong.
    """

    scope: Scope | None

    def param(self, name: str, init_fn: Initializer, *init_args: Any, **init_kwargs: Any) -> Any:  # as flax has it
        """Returns a parameter; see `nn.Module.param`. The first of `init_args` is its shape."""
        if self.scope is not None and self.scope.has_variable("params", name):
            value = self.scope.get_variable("params", name)
            if init_args and isinstance(init_args[0], tuple) and getattr(value, "shape", None) == init_args[0]:
                self.scope.reserve(name, "params")
                return value
        return super().param(name, init_fn, *init_args, **init_kwargs)  # pyright: ignore[reportAttributeAccessIssue]


class LayerNorm(Held, nn.LayerNorm):
    """`nn.LayerNorm`, see `layer_norm`."""


class RMSNorm(Held, nn.RMSNorm):
    """`nn.RMSNorm`, see `norm_layer`."""


class Embed(Held, nn.Embed):
    """`nn.Embed`."""


class Dense(Held, nn.Module):
    """`nn.Dense` that sums in float32, also in the gradients of kernel and bias; see `kernels.sum_dtype`."""

    features: int
    dtype: DTypeLike
    kernel_init: Initializer
    bias_init: Initializer = nn.initializers.zeros
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns [..., features] for x [..., K]."""
        kernel_KF = self.param("kernel", self.kernel_init, (x.shape[-1], self.features), jnp.float32)
        if rounds_for_speed(self.dtype):
            y = matmul(x.astype(jnp.float32), kernel_KF, self.dtype)
        else:
            x, kernel_KF = summed_in_float32(x.astype(self.dtype), kernel_KF.astype(self.dtype))
            y = jax.lax.dot_general(x, kernel_KF, (((x.ndim - 1,), (0,)), ((), ())))
        if self.use_bias:
            bias_F = self.param("bias", self.bias_init, (self.features,), jnp.float32)
            y += bias_F.astype(y.dtype).reshape((1,) * (y.ndim - 1) + (-1,))
        return y.astype(self.dtype)


def dense(
    features: int, fan_in: int, initializer: str, dtype: DTypeLike, name: str | None = None, bias: bool = True
) -> Dense:
    """Returns a Dense layer [..., fan_in] -> [..., features] with the named initialisation."""
    return Dense(features, dtype, kernel_init(initializer), bias_init(initializer, fan_in), bias, name=name)


def layer_norm(epsilon: float, dtype: DTypeLike, name: str | None = None) -> LayerNorm:
    """Returns a LayerNorm with float32, two-pass statistics (the one-pass variance loses digits)."""
    return LayerNorm(epsilon=epsilon, dtype=dtype, use_fast_variance=False, name=name)


def norm_layer(kind: str, epsilon: float, dtype: DTypeLike, bias: bool = True, name: str | None = None) -> nn.Module:
    """Returns the normalisation of states [..., D] over D, with float32 statistics and a learned scale.

    Args:
      kind: "layer": LayerNorm, `layer_norm`; "rms": x / sqrt(mean(x^2) + epsilon), which neither subtracts the mean nor
        has a bias (Zhang and Sennrich, 2019, RMSNorm, section 4).
      bias: whether a LayerNorm adds a learned bias.
    """
    if kind == "rms":
        return RMSNorm(epsilon=epsilon, dtype=dtype, name=name)
    return LayerNorm(epsilon=epsilon, dtype=dtype, use_bias=bias, use_fast_variance=False, name=name)


def sinusoids(length: int, width: int) -> np.ndarray:
    """Returns position vectors float32 [length, width]: sine in even columns, cosine in odd ones.

    Vaswani et al. (2017), section 3.5. Columns 2 i and 2 i + 1 have the period 2 pi 10000^(2 i / width); the width is
    even.
    """
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width).astype(np.float32)


def gelu(x: jax.Array) -> jax.Array:
    """Returns the exact GELU, x times the normal distribution function (Hendrycks and Gimpel, 2016).

    The approximation by tanh would be 1e-3 off. This form uses erf, as PyTorch does; JAX's own form uses erfc and takes
    2.5 times as long. Below float32, erf has too few digits: see `_rounded_gelu`.
    """
    return _gelu(x) if x.dtype == jnp.float32 else _rounded_gelu(x)


def _gelu(x: jax.Array) -> jax.Array:
    y = 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))
    # Below -5.5, 1 + erf is nothing but rounding, and the true value is above -1.1e-7. Two more reasons for this form:
    # without it XLA for CPUs would fuse a whole feed-forward layer, which is slower, and NaN must pass through.
    return jnp.where(x < -5.5, 0.0, y)


@jax.custom_vjp
def _rounded_gelu(x: jax.Array) -> jax.Array:
    """Returns `gelu` of an array below float32; its gradient is computed in float32 and keeps the array alone.

    The gradient of JAX's form keeps or computes more arrays of the size of a feed-forward layer, which XLA for GPUs
    writes to memory. CPUs convert arrays at no cost, so there the form in float32 is the faster one, too.
    """
    if this_machine().platform == "cpu":
        return _gelu(x.astype(jnp.float32)).astype(x.dtype)
    return jax.nn.gelu(x, approximate=False)


def _rounded_gelu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _rounded_gelu(x), x


def _rounded_gelu_backward(x: jax.Array, grad: jax.Array) -> tuple[jax.Array]:
    y = x.astype(jnp.float32)
    below = 0.5 * (1 + jax.lax.erf(y * math.sqrt(0.5)))
    slope = below + y * jnp.exp(-0.5 * y * y) * (1 / math.sqrt(2 * math.pi))
    return ((grad.astype(jnp.float32) * slope).astype(x.dtype),)


_rounded_gelu.defvjp(_rounded_gelu_forward, _rounded_gelu_backward)


class NGramEmbed(Held, nn.Module):
    """Character ids [..., C] -> for each slot the sum of the rows of the n-grams that end there, float32 [..., C, D].

    Slots at which no n-gram ends get zeros. Rows begin as zeros, so an n-gram that training never saw says nothing
    (unless it shares its row), and a new model computes what it would without them.

    Attributes:
      rows: rows of the table that all sizes share.
      hidden: the width D.
      sizes: slots of the n-grams.
    """

    rows: int
    hidden: int
    sizes: tuple[int, ...]

    @nn.compact
    def __call__(self, chars: jax.Array) -> jax.Array:
        """Returns the sums; `chars` are integers, 0 pads."""
        table_RD = self.param("embedding", nn.initializers.zeros, (self.rows, self.hidden), jnp.float32)
        total = jnp.zeros((*chars.shape, self.hidden), jnp.float32)
        for size in self.sizes:
            row, there = ngram_rows(chars, size, self.rows)
            total += jnp.where(there[..., None], table_RD[row], 0)
        return total


class PieceEmbed(Held, nn.Module):
    """Character ids [..., C] -> for each slot the row of the longest piece that ends there, float32 [..., C, D].

    Slots at which no piece ends get zeros, and rows begin as zeros, as in `NGramEmbed`.

    Attributes:
      pieces: the known pieces, a row each.
      hidden: the width D.
    """

    pieces: PieceTable
    hidden: int

    @nn.compact
    def __call__(self, chars: jax.Array) -> jax.Array:
        """Returns the rows; `chars` are integers, 0 pads."""
        table_RD = self.param("embedding", nn.initializers.zeros, (self.pieces.size, self.hidden), jnp.float32)
        row, there = piece_rows(chars, self.pieces)
        return jnp.where(there[..., None], table_RD[row], 0)


class CharEmbed(nn.Module):
    """Character ids [..., C] -> LayerNorm(table[id]) [..., C, D]; no position and no segment (HLM, section 3.5).

    Lookup and LayerNorm run in float32, because the gradient of a frequent character sums many thousands of rows.

    Attributes:
      norm, bias: of the norm, see `norm_layer`.
      ngrams: rows of the table of character n-grams, which are added before the norm; 0: none are.
      ngram_sizes: see `NGramEmbed`.
      pieces: known pieces, of which the longest that ends at a character is added to it likewise.
    """

    vocab_size: int
    hidden: int
    epsilon: float
    dropout: float
    initializer: str
    dtype: DTypeLike
    norm: str = "layer"
    bias: bool = True
    ngrams: int = 0
    ngram_sizes: tuple[int, ...] = ()
    pieces: PieceTable = NO_PIECES

    @nn.compact
    def __call__(self, chars: jax.Array, deterministic: bool) -> jax.Array:
        """Returns the vectors in `dtype`."""
        table = Embed(self.vocab_size, self.hidden, embedding_init=table_init(self.initializer), name="table")
        x = table(chars.astype(jnp.int32))
        if self.ngrams:
            x += NGramEmbed(self.ngrams, self.hidden, self.ngram_sizes, name="ngrams")(chars)
        if self.pieces:
            x += PieceEmbed(self.pieces, self.hidden, name="pieces")(chars)
        x = norm_layer(self.norm, self.epsilon, jnp.float32, self.bias, name="norm")(x)
        return nn.Dropout(self.dropout)(x, deterministic=deterministic).astype(self.dtype)


class RelativeTable(Held, nn.Module):
    """The table of relative positions [2 * buckets, D] after LayerNorm, shared by the layers of an encoder.

    Row `bucket + buckets` holds the signed bucket of (query position - key position); He et al. (2021).
    """

    buckets: int
    hidden: int
    epsilon: float
    initializer: str
    norm: str = "layer"
    bias: bool = True

    @nn.compact
    def __call__(self) -> jax.Array:
        """Returns the table, float32."""
        table = self.param("embedding", table_init(self.initializer), (2 * self.buckets, self.hidden), jnp.float32)
        return norm_layer(self.norm, self.epsilon, jnp.float32, self.bias, name="norm")(table)


def gather_words(table_SUD: jax.Array, index_SBW: jax.Array) -> jax.Array:
    """Returns table_SUD[s, index[s]] [S, B, W, D].

    The gradient adds one row for each position of a word, thousands for a frequent word, so it is summed in float32.
    """
    rows = jax.vmap(lambda table, index: table[index])(table_SUD.astype(jnp.float32), index_SBW)
    return rows.astype(table_SUD.dtype)
