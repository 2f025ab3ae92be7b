"""Generating the characters of words: the loss of XR-Dec, and what of it is right (Pinter et al., 2021, section 4)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from charlm.tasks.label_sums import label_sums

REDUCTIONS = ("mean", "sum_per_word")


class GenerationSums(NamedTuple):
    """Sums over the words of a batch, float32 scalars; they add up exactly over batches of any size.

    Attributes:
      nats: negative log-likelihood of all characters and of the symbols that end words. characters: their number.
      right: those predicted as the most likely ones, with what is before them given. words: the number of words.
    """

    nats: jax.Array
    characters: jax.Array
    right: jax.Array
    words: jax.Array

    def loss(self, reduction: Literal["mean", "sum_per_word"] = "mean") -> tuple[jax.Array, jax.Array]:
        """Returns the loss as (sum, weight).

        Args:
          reduction: "mean": over characters, as the released code; "sum_per_word": characters of a word are added up,
            as section 4 has it, and words averaged.

        Raises:
          ValueError: `reduction` is neither.
        """
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is not one of {', '.join(REDUCTIONS)}")
        return self.nats, self.characters if reduction == "mean" else self.words


def generation_sums(logits_UTV: jax.Array, chars_UC: jax.Array) -> GenerationSums:
    """Returns the sums of words whose characters were given to the generator.

    Args:
      logits_UTV: what `XRDecoder` returned for these words, T = C - 1.
      chars_UC: int, the words; a row of zeros is none.
    """
    classes_UT = chars_UC[:, 1:].astype(jnp.int32) - 1  # class c is id c + 1; padding becomes -1, which is no label
    nats, characters, right = label_sums(logits_UTV, classes_UT)
    return GenerationSums(nats, characters, right, (classes_UT >= 0).any(axis=1).sum(dtype=jnp.float32))
