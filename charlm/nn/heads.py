"""Parts that heads of several families share: selecting the positions they read, and the pooled state of a sequence.

The heads themselves are in the folders of the families. Open it when you write a head.
"""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.embed import dense


def at_group_positions(x_BLD: jax.Array, position_SM: jax.Array | None) -> jax.Array:
    """Returns the states [S, M, D] at positions of S groups of B / S sequences; None: all states, [B, L, D].

    Args:
      position_SM: int in [0, B / S * L), counted from the first position of the group.

    Raises:
      ValueError: the sequences do not divide into S groups.
    """
    if position_SM is None:
        return x_BLD
    B, _, D = x_BLD.shape
    if position_SM.ndim != 2 or B % len(position_SM):
        raise ValueError(f"positions are {position_SM.shape}, expected [S, M] with S a divisor of the {B} sequences")
    x_SND = x_BLD.reshape(len(position_SM), -1, D)
    return jnp.take_along_axis(x_SND, position_SM[:, :, None], axis=1)


class Pooler(nn.Module):
    """tanh(Linear(x)) of the [CLS] word's state [..., D]: the vector that the released code classifies sequences by.

    Attributes:
      activation: in place of tanh.
    """

    hidden: int
    initializer: str
    dtype: DTypeLike
    activation: Callable[[jax.Array], jax.Array] = jnp.tanh

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(dense(self.hidden, self.hidden, self.initializer, self.dtype, name="dense")(x))
