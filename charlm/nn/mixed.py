"""Matrix products in lower precision over float32 states: inputs are rounded; sums, outputs and gradients are not.

This is what autocast does in other libraries. States that stay float32 lose no digits in residuals and LayerNorms. They
are also faster on CPUs, where bfloat16 is slow outside of products. The modules of Char2Subword and XRayEmb that read
and write characters use it; open it to see which values are rounded.
"""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.embed import bias_init, kernel_init
from charlm.nn.kernels import device_count, this_machine


def _matmul(x: jax.Array, kernel_KN: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Returns x @ kernel, float32 [..., N], with both inputs rounded to a dtype.

    Args:
      x: float32 [..., K].
      kernel_KN: float32.
      dtype: what both inputs are rounded to.
    """
    return jnp.einsum("...k,kn->...n", x.astype(dtype), kernel_KN.astype(dtype), preferred_element_type=jnp.float32)


matmul = jax.custom_vjp(_matmul, nondiff_argnums=(2,))


def _forward(x: jax.Array, kernel_KN: jax.Array, dtype: DTypeLike) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return matmul(x, kernel_KN, dtype), (x, kernel_KN)


def _backward(dtype: DTypeLike, kept: tuple[jax.Array, jax.Array], grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel_KN = kept
    dx = jnp.einsum("...n,kn->...k", grad.astype(dtype), kernel_KN.astype(dtype), preferred_element_type=jnp.float32)
    return dx, sum_of_outer(x, grad, dtype)


def sum_of_outer(x: jax.Array, y: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Returns the sum of outer products of rows, float32 [K, N]: the gradient of a kernel.

    Args:
      x: float32 [..., K].
      y: float32 [..., N].
      dtype: what both are rounded to where that is faster.
    """
    if device_count() == 1:  # flat axes are faster, but one on several devices would be gathered
        x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    leading = tuple(range(x.ndim - 1))
    # CPUs sum over rows faster in float32 than in bfloat16, and twice as fast if the narrower array comes first.
    if this_machine().platform != "cpu":
        x, y = x.astype(dtype), y.astype(dtype)
    product = functools.partial(jnp.tensordot, axes=(leading, leading), preferred_element_type=jnp.float32)
    return product(x, y) if x.shape[-1] <= y.shape[-1] else product(y, x).T


matmul.defvjp(_forward, _backward)


class MixedDense(nn.Module):
    """A Dense layer over float32 states that multiplies in lower precision; it has the parameters of nn.Dense."""

    features: int
    initializer: str
    dtype: DTypeLike
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns float32 [..., features]."""
        width = x.shape[-1]
        kernel = self.param("kernel", kernel_init(self.initializer), (width, self.features), jnp.float32)
        y = matmul(x.astype(jnp.float32), kernel, self.dtype)
        if not self.use_bias:
            return y
        bias = self.param("bias", bias_init(self.initializer, width), (self.features,), jnp.float32)
        return y + bias.reshape((1,) * (y.ndim - 1) + (-1,))
