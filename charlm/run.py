"""A run: what config and data say, built once: batches, model, optimizer, compiled steps and their placement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import grain
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm.batch import WordBatch
from charlm.data.batching import BatchShape
from charlm.data.budgets import measure_shape
from charlm.data.corpus import PreparedData
from charlm.data.masking import Masking
from charlm.data.pipeline import batch_dataset, empty_batch, record_dataset, record_lanes
from charlm.models.hlm import HLMConfig, HLMForMaskedLM
from charlm.optim import make_optimizer
from charlm.sharding import (
    batch_sharding,
    local_shards,
    make_mesh,
    path_name,
    place_batch,
    place_state,
    state_sharding,
    table_shards,
)
from charlm.state import TrainState, init_state, on_processor
from charlm.step import TrainStep, make_train_step
from charlm.tasks.mlm import MaskedCharSums, masked_char_sums

EVAL_MASKS = 1  # masks of held-out text come from this stream of their own, the same in every run


def model_config(config: ml_collections.ConfigDict) -> HLMConfig:
    """Returns the model's dataclass from `config.model`."""
    fields = {**config.model.to_dict(), "dtype": jnp.dtype(config.model.dtype)}
    return HLMConfig(**fields)


def masking_of(config: ml_collections.ConfigDict, chars_end: int) -> Masking:
    """Returns the masking of `config.data`; random characters are drawn below `chars_end`."""
    data = config.data
    return Masking(data.mask_rate, data.mask_share, data.random_share, chars_end, data.masking)


def batch_shape(config: ml_collections.ConfigDict, data: PreparedData, shards: int) -> BatchShape:
    """Returns the shape of every batch: the config's budgets, or measured ones where it names none.

    Raises:
      ValueError: when the batch does not divide into micro-batches and table shards.
    """
    cfg = config.data
    pieces = cfg.accumulation * shards
    if cfg.batch_size < 1 or cfg.batch_size % pieces:
        raise ValueError(
            f"data.batch_size={cfg.batch_size} must be a multiple of data.accumulation={cfg.accumulation} x "
            f"data.table_shards={shards}"
        )
    sequences = cfg.batch_size // pieces
    if cfg.bucket_words or cfg.bucket_masked or cfg.bucket_labels:
        budgets = (cfg.bucket_slots, cfg.bucket_words, cfg.bucket_masked, cfg.bucket_labels)
        expected = len(cfg.bucket_slots) if cfg.unique_words else 1
        if (cfg.unique_words and len({len(b) for b in budgets}) != 1) or len(cfg.bucket_labels) != expected:
            raise ValueError(
                "data.bucket_slots, _words, _masked and _labels must name equally many buckets each, or none"
            )
        return BatchShape(shards, sequences, cfg.max_words, *budgets, unique_words=cfg.unique_words)
    records = iter(record_dataset(data.train, tuple(cfg.weights), seed=config.seed, shuffle=True, repeat=True))
    try:
        return measure_shape(
            records,
            sequences=sequences,
            shards=shards,
            max_words=cfg.max_words,
            char_slots=config.model.char_slots,
            masking=masking_of(config, data.vocab.size),
            unique_words=cfg.unique_words,
            bucket_slots=tuple(cfg.bucket_slots),
        )
    finally:
        records.close()


EvalStep = Callable[[Any, WordBatch], MaskedCharSums]


def make_eval_step(model: HLMForMaskedLM) -> EvalStep:
    """Returns parameters and a batch [1, S, ...] -> its sums, without dropout."""

    def eval_step(params: Any, batch: WordBatch) -> MaskedCharSums:
        return masked_char_sums(model, params, jax.tree.map(lambda x: x[0], batch), None)

    return eval_step


def count_parameters(params: Any) -> dict[str, int]:
    """Returns the number of parameters of each part (two levels of names) and in total, under "total"."""
    counts: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        part = "/".join(path_name(path).split("/")[: 2 if len(path) > 2 else 1])
        counts[part] = counts.get(part, 0) + int(np.prod(leaf.shape))
    return counts | {"total": sum(counts.values())}


@dataclasses.dataclass
class Run:
    """A run: what is built once from config and data, and what changes with every step.

    Attributes:
      shape: of every batch. place: puts a host batch, [accumulation, S', ...] with the S' shards of this process, onto
        the devices. empty: such a batch without a word, for evaluation. init: makes the state of step 0.
    """

    shape: BatchShape
    place: Callable[[WordBatch], WordBatch]
    train_step: TrainStep
    eval_step: EvalStep
    train_batches: grain.IterDataset[WordBatch]
    heldout_batches: grain.IterDataset[WordBatch]
    empty: WordBatch
    init: Callable[[], TrainState]
    abstract_state: TrainState


def build(config: ml_collections.ConfigDict, data: PreparedData) -> Run:
    """Compiles nothing yet: returns the run of a resolved config.

    Raises:
      ValueError: when config, data and devices do not fit each other.
    """
    mesh = make_mesh(config)
    shape = batch_shape(config, data, table_shards(config, mesh))
    masking = masking_of(config, data.vocab.size)
    model, optimizer = HLMForMaskedLM(model_config(config)), make_optimizer(config)

    local = local_shards(mesh, shape.shards)
    lanes = {"lanes": local, "of": shape.shards, "reader_threads": config.data.reader_threads}
    records = record_lanes(
        data.train, tuple(config.data.weights), seed=config.seed, shuffle=config.data.shuffle, repeat=True, **lanes
    )
    heldout = record_lanes(data.heldout, **lanes)
    train_batches = batch_dataset(
        records, shape, masking, accumulation=config.data.accumulation, seed=config.seed, prefetch=config.data.prefetch
    )
    # Every chosen held-out word is hidden: words that are seen as they are, or nearly, would flatter the model.
    hiding = dataclasses.replace(masking, mask_share=1.0, random_share=0.0)
    heldout_batches = batch_dataset(
        heldout, shape, hiding, accumulation=1, seed=EVAL_MASKS, prefetch=config.data.prefetch, by_record=True
    )

    sample = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), empty_batch(shape, shards=1))
    init = lambda: init_state(
        model, optimizer, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sample), config.seed
    )
    abstract = jax.eval_shape(init)
    placed = state_sharding(abstract, mesh)
    spread = batch_sharding(mesh)
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    # Pinned outputs: left to themselves, the first step returns other placements and the step compiles twice.
    loss_sums = lambda params, batch, key: masked_char_sums(model, params, batch, key)
    train_step = jax.jit(
        make_train_step(loss_sums, optimizer, config.seed, tuple(config.optim.freeze)),
        in_shardings=(placed, spread),
        out_shardings=(placed, everywhere, everywhere),
        donate_argnums=0,
    )
    eval_step = jax.jit(make_eval_step(model), in_shardings=(placed.params, spread), out_shardings=everywhere)
    return Run(
        shape=shape,
        place=lambda batch: place_batch(batch, mesh, shape.shards),
        train_step=train_step,
        eval_step=eval_step,
        train_batches=train_batches,
        heldout_batches=heldout_batches,
        empty=empty_batch(shape, len(local)),
        init=lambda: place_state(on_processor(init), placed),
        abstract_state=jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, placed),
    )
