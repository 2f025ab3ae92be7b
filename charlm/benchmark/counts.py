"""The case `counts`: how many bits per character held-out words cost if only counts of characters are used.

The result is a scale for the bits per masked character of a model. Nothing is timed. Open it to see what is known about
a character when its bits are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import ml_collections
import numpy as np

from charlm.benchmark.figures import Figure
from charlm.data.corpus import prepare

if TYPE_CHECKING:
    from charlm.data.records import EncodedRecord

ADDED = 1.0  # added to every count, so that no character has probability 0


def counts(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Returns the bits per character of held-out words, by counts in the training part.

    There are three figures: given the length of a word and the place in it, given the length only, and given nothing.
    Words, characters and the two parts are those of a training run with this config.
    """
    from charlm.data.pipeline import record_dataset

    del repeats  # nothing is timed
    config.data.heldout = ()  # the built-in corpus has a held-out part; of others, training sets a share aside
    data = prepare(config)
    slots, chars = config.model.char_slots, data.vocab.size
    train, heldout = (_counts(record_dataset(part), slots, chars) for part in (data.train, data.heldout))
    known = {"length and place": (), "length": (1,), "nothing": (0, 1)}
    figures = []
    for name, axes in known.items():
        seen = np.broadcast_to(train.sum(axis=axes, keepdims=True) + ADDED, train.shape)
        bits = -(heldout * np.log2(seen / seen.sum(axis=-1, keepdims=True))).sum() / heldout.sum()
        figure = {"case": "counts", "path": f"{name} known", "value": round(float(bits), 3)}
        figures.append(figure | {"unit": "bits/char", "characters": int(heldout.sum())})
    return figures


def _counts(records: Iterable[EncodedRecord], slots: int, chars: int) -> np.ndarray:
    """Returns how often each character occurs at each place of words of each length, [length, place, character]."""
    counts = np.zeros((slots, slots, chars))
    for record in records:
        lengths_W = record.words.astype(np.int64)
        place = np.arange(lengths_W.sum()) - np.repeat(np.cumsum(lengths_W) - lengths_W, lengths_W)
        np.add.at(counts, (np.repeat(lengths_W, lengths_W), place, record.chars), 1)
    return counts
