"""Makes the sequences that an HLM learns to write from: all words of a text are read, and each is predicted.

`writing` batches them. Open it to change what is read of a word, or predicted.
"""

from __future__ import annotations

import numpy as np

from charlm.data.batching import WordSequence, framed
from charlm.data.pipeline import SentenceMaker

ROOM = 1  # slots behind a word that is read, for its end


class SpacedWords(SentenceMaker):
    """Makes sequences of all words of a text, each to be predicted with its end; nothing is masked."""

    def make(self, parts: list[np.ndarray], number: tuple[int, ...]) -> WordSequence:
        """Joins sentences of records of the form `SpacedForm` to a sequence."""
        del number
        return predicted(np.concatenate(parts))


def predicted(spaced_WC: np.ndarray) -> WordSequence:
    """Returns the sequence of words in which all are predicted.

    Args:
      spaced_WC: uint16 [W, C], each word with an end, `SPACED` or `JOINED`, behind its letters.
    """
    read_WC = spaced_WC.copy()
    read_WC[np.arange(len(read_WC)), np.count_nonzero(read_WC, axis=1) - 1] = 0
    labels_WC = spaced_WC.copy()
    labels_WC[:, 0] = 0
    return framed(read_WC, labels_WC)
