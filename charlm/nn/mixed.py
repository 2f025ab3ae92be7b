"""Layers in lower precision over float32 states: inputs of products are rounded; sums, outputs, gradients are not.

This is what autocast does in other libraries. States that stay float32 lose no digits in residuals and LayerNorms. They
are also faster on CPUs, where bfloat16 is slow outside of products. The modules of Char2Subword and XRayEmb that read
and write characters use it; open it to see which values are rounded.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.embed import Held, bias_init, kernel_init
from charlm.nn.products import matmul


class MixedDense(Held, nn.Module):
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
