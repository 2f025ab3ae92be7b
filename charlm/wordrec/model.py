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

from charlm.nn.lstm import BiLSTM
from charlm.nn.mixed import MixedDense


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
        self.lstm = BiLSTM(3 * cfg.alphabet, cfg.hidden, cfg.dtype)
        nn.share_scope(self, self.lstm)
        self.label = MixedDense(cfg.labels, "torch", cfg.dtype)

    def __call__(self, first_BL: jax.Array, inner_BLA: jax.Array, last_BL: jax.Array, mask_BL: jax.Array) -> jax.Array:
        """Returns float32 logits [B, L, V], which are meaningless at padding; padding changes no others.

        Args:
          first_BL, last_BL: int32, numbers of characters from 1 to A.
          inner_BLA: counts of the characters between them.
          mask_BL: bool, True for words.
        """
        states_BLD = self.lstm(semi_characters(first_BL, inner_BLA, last_BL), mask_BL)
        return self.label(states_BLD)


def semi_characters(first_BL: jax.Array, inner_BLA: jax.Array, last_BL: jax.Array) -> jax.Array:
    """Returns [one of A ; counts ; one of A] of each word, float32 [B, L, 3 A]; zeros where a number is 0, padding."""
    A = inner_BLA.shape[-1]
    ends = (jax.nn.one_hot(x_BL - 1, A, dtype=jnp.float32) for x_BL in (first_BL, last_BL))
    first_BLA, last_BLA = ends
    return jnp.concatenate([first_BLA, inner_BLA.astype(jnp.float32), last_BLA], axis=-1)
