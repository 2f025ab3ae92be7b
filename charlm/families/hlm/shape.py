"""Builds from a run's config the masking and the shape of its batches.

The objective calls it at the start of a run, and the benchmark does. Open it when a batch has an unexpected shape.
"""

from __future__ import annotations

import ml_collections

from charlm.data.batching import BatchShape
from charlm.data.budgets import measure_shape
from charlm.data.corpus import PreparedData
from charlm.data.masking import Masking
from charlm.data.pipeline import SentenceMaker, training_records
from charlm.families.text_objective import sequences_of
from charlm.nn.kernels import this_machine


def masking_of(config: ml_collections.ConfigDict, chars_end: int) -> Masking:
    """Returns the masking of `config.data`; random character ids are drawn below `chars_end`."""
    data = config.data
    return Masking(data.mask_rate, data.mask_share, data.random_share, chars_end, data.masking)


def batch_shape(
    config: ml_collections.ConfigDict,
    data: PreparedData,
    shards: int,
    maker: SentenceMaker | None = None,
    room: int = 0,
) -> BatchShape:
    """Returns the shape of every batch, with the config's budgets or, where it names none, with measured ones.

    Args:
      maker: makes the sequences that budgets are measured on; None: one that masks words.
      room: as in `BatchShape`.

    Raises:
      ValueError: when the batch does not divide into micro-batches and table shards, or the config's budgets name
        different numbers of buckets.
    """
    cfg, sequences = config.data, sequences_of(config, shards)
    if cfg.bucket_words or cfg.bucket_masked or cfg.bucket_labels:
        budgets = (cfg.bucket_slots, cfg.bucket_words, cfg.bucket_masked, cfg.bucket_labels)
        expected = len(cfg.bucket_slots) if cfg.unique_words else 1
        if (cfg.unique_words and len({len(b) for b in budgets}) != 1) or len(cfg.bucket_labels) != expected:
            raise ValueError(
                "data.bucket_slots, _words, _masked and _labels must name equally many buckets each, or none"
            )
        return BatchShape(shards, sequences, cfg.max_words, *budgets, unique_words=cfg.unique_words, room=room)
    with training_records(config, data.train) as records:
        return measure_shape(
            records,
            sequences=sequences,
            shards=shards,
            max_words=cfg.max_words,
            char_slots=config.model.char_slots,
            masking=masking_of(config, data.vocab.size),
            unique_words=cfg.unique_words,
            bucket_slots=tuple(cfg.bucket_slots),
            platform=this_machine().platform,
            maker=maker,
            room=room,
        )
