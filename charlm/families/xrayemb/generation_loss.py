"""The loss and accuracy of XR-Dec in writing the characters of given words (Pinter et al., 2021, section 4).

Second pre-training, the golden check and the benchmark share it; `loss` has the other losses. Open it to change how
characters and words are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from charlm.families.xrayemb.decoder import Predicted
from charlm.nn.label_sums import label_sums

REDUCTIONS = ("mean", "sum_per_word")


class GenerationSums(NamedTuple):
    """Sums over the words of a batch, float32 scalars; they add up exactly over batches of any size.

    Attributes:
      nats: negative log-likelihood of all characters and of the symbols that end words.
      characters: the number of these characters and symbols.
      right: how many of them are the most likely prediction, given the characters before.
      words: the number of words.
    """

    nats: jax.Array
    characters: jax.Array
    right: jax.Array
    words: jax.Array

    def loss(self, reduction: Literal["mean", "sum_per_word"] = "mean") -> tuple[jax.Array, jax.Array]:
        """Returns the loss as (sum, weight).

        Args:
          reduction: "mean": the mean over characters, as in the released code; "sum_per_word": the mean over words of
            the sum over a word's characters, as in section 4.

        Raises:
          ValueError: `reduction` is neither of the two.
        """
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction={reduction!r} is not one of {', '.join(REDUCTIONS)}")
        return self.nats, self.characters if reduction == "mean" else self.words


def generation_sums(predicted: Sequence[Predicted]) -> GenerationSums:
    """Returns the sums over words whose characters were given to the generator.

    Args:
      predicted: the result of `XRDecoder.tables`; a row of zeros in its tables is no word.
    """
    # Class c is id c + 1, so padding becomes -1, which means no label.
    sums = [label_sums(part.logits_NBV, part.ids_NB - 1) for part in predicted]
    nats, characters, right = (sum(x, jnp.zeros(())) for x in zip(*sums, strict=True))
    words = (predicted[0].ids_NB[0] > 0).sum(dtype=jnp.float32)  # every word has a character after its first symbol
    return GenerationSums(nats, characters, right, words)
