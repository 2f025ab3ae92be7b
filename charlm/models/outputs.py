"""What the models return."""

from __future__ import annotations

from typing import NamedTuple

import jax


class HLMOutput(NamedTuple):
    """States of a batch; N = S * B sequences in shard order.

    Attributes:
      words_NWD: word vectors r, before context (HLM, section 3.1).
      context_NWD: contextual word vectors w (section 3.2).
      mask_NW: bool, True where there is a word; elsewhere the vectors mean nothing.
      char_states: per bucket of `WordBatch.masked` [S, P, C, D], the intra-word states of its table.
    """

    words_NWD: jax.Array
    context_NWD: jax.Array
    mask_NW: jax.Array
    char_states: tuple[jax.Array, ...]
