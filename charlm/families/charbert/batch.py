"""CharBERT's batches: the arrays that the model reads, and those with the labels of pre-training.

Read it first, since the model, the losses and the packing all rely on these arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from charlm.core.types import Array


class CharBertBatch(NamedTuple):
    """Subwords and their characters (CharBERT, section 3.3); `charlm.families.charbert.char_inputs` makes the last
    three arrays.

    Axes: B sequences, L subwords, N slots of characters.

    Attributes:
      ids_BL: int32, subword ids; the padding id of the vocabulary at padding.
      types_BL: int32, segments; None: all 0.
      mask_BL: bool, True where there is a subword; None: everywhere.
      chars_BN: int32, character ids; 0 between subwords, at subwords without characters, and after the last one.
      starts_BL: int32, the slot of each subword's first character; any slot, such as 0, at padding.
      ends_BL: int32, the slot of each subword's last character.
    """

    ids_BL: Array
    types_BL: Array | None
    mask_BL: Array | None
    chars_BN: Array
    starts_BL: Array
    ends_BL: Array

    @property
    def real_BL(self) -> Array:
        """bool, True where there is a subword; computed on the host."""
        return np.ones(np.shape(self.ids_BL), bool) if self.mask_BL is None else self.mask_BL


class NoisyBatch(NamedTuple):
    """A batch for pre-training on masked subwords and on noised words (CharBERT, section 3.5).

    The B sequences form S groups of B / S consecutive ones. Positions count from the first subword of a group, so each
    group has its own budget of labelled positions, and the softmax over a vocabulary runs on labelled positions only.
    With S = B every sequence has its own list of positions, with S = 1 all sequences share one.

    Attributes:
      inputs: the sequences, masked and noised.
      mlm_position_SM: int32 in [0, B / S * L), positions of masked subwords; 0 in unused entries.
      mlm_labels_SM: int32, ids of the original subwords; -1 in unused entries.
      nlm_position_SP: int32, positions of subwords of noised words; 0 in unused entries.
      nlm_labels_SP: int32, ids of the original words in the word vocabulary; -1 in unused entries.
    """

    inputs: CharBertBatch
    mlm_position_SM: Array
    mlm_labels_SM: Array
    nlm_position_SP: Array
    nlm_labels_SP: Array
