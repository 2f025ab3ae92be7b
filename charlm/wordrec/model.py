"""The semi-character RNN (Sakaguchi et al., AAAI 2017), which recognises each word of a row from all of them.

    x = [first ; bag of inner ; last]      h = [LSTM forwards (x) ; LSTM backwards (x)]      logits = W h + b

Pruthi et al. (ACL 2019, section 3) made its LSTM read in both directions. Open it to change the recogniser itself.
Axes: B rows, L words, A characters, K units in each direction, V labels.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.embed import dense
from charlm.nn.lstm import LSTM


@dataclasses.dataclass(frozen=True)
class RecogniserConfig:
    """The shape of a recogniser.

    Attributes:
      alphabet: A, characters that are told apart.
      labels: V, words that can be recognised, and the label of all others.
      hidden: K, units in each direction.
      dtype: of the inputs of matrix products.
    """

    alphabet: int
    labels: int
    hidden: int
    dtype: DTypeLike = jnp.float32


class Recogniser(nn.Module):
    """Recognises words.

    Attributes:
      config: its shape.
    """

    config: RecogniserConfig

    def setup(self) -> None:
        cfg = self.config
        self.forward = LSTM(3 * cfg.alphabet, cfg.hidden, cfg.dtype)
        self.backward = LSTM(3 * cfg.alphabet, cfg.hidden, cfg.dtype)
        self.label = dense(cfg.labels, 2 * cfg.hidden, "torch", cfg.dtype)

    def __call__(self, first_BL: jax.Array, inner_BLA: jax.Array, last_BL: jax.Array, mask_BL: jax.Array) -> jax.Array:
        """Returns float32 logits [B, L, V], which are meaningless at padding; padding changes no others.

        Args:
          first_BL, last_BL: int32, numbers of characters from 1 to A.
          inner_BLA: counts of the characters between them.
          mask_BL: bool, True for words; those of a row stand first.
        """
        x_BLE = semi_characters(first_BL, inner_BLA, last_BL)
        x_LBE, length_B = jnp.swapaxes(x_BLE, 0, 1), mask_BL.sum(axis=1)
        start_BK = jnp.zeros((x_LBE.shape[1], self.config.hidden), jnp.float32)
        before_LBK = self.forward(x_LBE, start_BK)
        after_LBK = reversed_rows(self.backward(reversed_rows(x_LBE, length_B), start_BK), length_B)
        states_BLD = jnp.swapaxes(jnp.concatenate([before_LBK, after_LBK], axis=-1), 0, 1)
        return self.label(states_BLD.astype(self.config.dtype)).astype(jnp.float32)


def semi_characters(first_BL: jax.Array, inner_BLA: jax.Array, last_BL: jax.Array) -> jax.Array:
    """Returns [one of A ; counts ; one of A] of each word, float32 [B, L, 3 A]; zeros where a number is 0, padding."""
    A = inner_BLA.shape[-1]
    ends = (jax.nn.one_hot(x_BL - 1, A, dtype=jnp.float32) for x_BL in (first_BL, last_BL))
    first_BLA, last_BLA = ends
    return jnp.concatenate([first_BLA, inner_BLA.astype(jnp.float32), last_BLA], axis=-1)


def reversed_rows(x_LBE: jax.Array, length_B: jax.Array) -> jax.Array:
    """Returns the first `length` steps of each row in reverse order, and its other steps as they are."""
    step_L1 = jnp.arange(len(x_LBE))[:, None]
    from_LB = jnp.where(step_L1 < length_B[None], length_B[None] - 1 - step_L1, step_L1)
    return jnp.take_along_axis(x_LBE, from_LB[..., None], axis=0)
