"""Evaluation on held-out text: every word once, always the same masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grain
import jax
import numpy as np

from charlm import hosts
from charlm.batch import WordBatch
from charlm.tasks.mlm import MaskedCharSums, summarize


def count_words(batch: WordBatch) -> int:
    """Returns the words of text in a host batch [..., B, W]; [CLS] and [SEP] do not count."""
    return int(batch.mask_SBW.sum() - 2 * batch.mask_SBW[..., 0].sum())


def evaluate(
    eval_step: Callable[[Any, WordBatch], MaskedCharSums],
    params: Any,
    batches: grain.IterDataset[WordBatch],
    place: Callable[[WordBatch], WordBatch],
    empty: WordBatch,
    max_words: int = 0,
) -> dict[str, float]:
    """Returns the summary of `charlm.tasks.mlm` over the batches, and the number of words read.

    Args:
      eval_step: parameters and a placed batch -> sums.
      batches: held-out batches [1, S, ...], without repetition; iterated afresh.
      place: puts a host batch onto the devices.
      empty: a batch without a word, for a process that has none left while another has.
      max_words: stop once so many words are read; 0: read all.
    """
    iterator, sums, words = iter(batches), [], 0
    try:
        while not max_words or words < max_words:
            batch = next(iterator, empty)
            found = hosts.total(count_words(batch))
            if not found:
                break
            sums.append(eval_step(params, place(batch)))
            words += found
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    # Added in float64 on the host: over a long evaluation float32 sums would lose digits.
    total = (
        MaskedCharSums(*(np.sum([np.float64(x) for x in column]) for column in zip(*jax.device_get(sums), strict=True)))
        if sums
        else MaskedCharSums(*[0.0] * 5)
    )
    return summarize(total) | {"words": float(words)}
