"""The arrays that CharBERT reads and learns from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from charlm.core.batch import Array


class CharBertBatch(NamedTuple):
    """Subwords and the characters under them (CharBERT, section 3.3); `charlm.families.charbert.char_inputs` makes the
    last three.

    Axes: B sequences, L subwords, N slots of characters.

    Attributes:
      ids_BL: int32, subword ids; the vocabulary's own padding id where there is none.
      types_BL: int32, segments; None: all 0.
      mask_BL: bool, True where there is a subword; None: everywhere.
      chars_BN: int32, character ids; 0 between subwords, at subwords without characters, and after the last.
      starts_BL: int32, the slot of each subword's first character; any slot, such as 0, at padding.
      ends_BL: int32, the slot of its last character.
    """

    ids_BL: Array
    types_BL: Array | None
    mask_BL: Array | None
    chars_BN: Array
    starts_BL: Array
    ends_BL: Array

    @property
    def real_BL(self) -> Array:
        """True where there is a subword; on the host."""
        return np.ones(np.shape(self.ids_BL), bool) if self.mask_BL is None else self.mask_BL


class NoisyBatch(NamedTuple):
    """A batch for pre-training on masked subwords and on noised words (CharBERT, section 3.5).

    The B sequences are S groups of B / S in their order, and positions count from the first subword of a group, so
    that a budget of labelled positions is for a group, and the softmax over a vocabulary runs on no others. S = B has
    positions of its own for every sequence; S = 1 one list for all.

    Attributes:
      inputs: the sequences, masked and noised.
      mlm_position_SM: int32 in [0, B / S * L), the masked subwords; 0 where there is none.
      mlm_labels_SM: int32, the original subword ids; -1 where there is none.
      nlm_position_SP: int32, the subwords of noised words; 0 where there is none.
      nlm_labels_SP: int32, the original words in the vocabulary of words; -1 where there is none.
    """

    inputs: CharBertBatch
    mlm_position_SM: Array
    mlm_labels_SM: Array
    nlm_position_SP: Array
    nlm_labels_SP: Array
