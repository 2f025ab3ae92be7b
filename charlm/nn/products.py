"""Matrix products whose inputs are rounded and whose sums, outputs and gradients are float32.

Open it to see which values are rounded, or on which processors products of bfloat16 are the faster ones.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.core.processor import instruction_sets
from charlm.nn.kernels import device_count, this_machine


def multiplies_bfloat16() -> bool:
    """Returns whether this processor multiplies matrices of bfloat16 faster than those of float32.

    Two kinds do: those with a unit for matrices (AMX of Intel's Xeons), and those whose vectors have an instruction for
    pairs of bfloat16 (AVX512-BF16, as AMD's EPYCs have from the fourth generation on). A product of two bfloat16
    matrices that is asked for in float32 then takes a third to a fifth of the time of the same in float32, or half of
    it. Elsewhere XLA converts bfloat16 first, which is slower than float32. Linux alone tells.
    """
    return bool({"amx_bf16", "avx512_bf16"} & instruction_sets())


def rounds_for_speed(dtype: DTypeLike) -> bool:
    """Returns whether `matmul` with a dtype is, on a CPU, faster than a product in float32."""
    return jnp.dtype(dtype) == jnp.bfloat16 and this_machine().platform == "cpu" and multiplies_bfloat16()


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
