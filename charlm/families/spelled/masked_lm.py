"""Masked language modelling over words or subwords that are read from characters: what its objectives share.

Open it to see how a family that reads spellings is pre-trained; the family says what a sequence is and what is hidden.
"""

from __future__ import annotations

import abc
import logging
from typing import Any, ClassVar

import grain
import jax
import numpy as np

from charlm.data.pipeline import record_dataset, record_lanes
from charlm.data.text_records import read_text_record
from charlm.families.objective import Objective
from charlm.families.spelled.batch import MaskedBatch
from charlm.families.spelled.masked_batches import (
    MaskedMaker,
    MaskedShape,
    empty_masked_batch,
    masked_batches,
    measure_tables,
)
from charlm.families.spelled.masked_loss import MaskedSums, masked_sums, summarize
from charlm.families.spelled.model import SpelledLM

log = logging.getLogger("charlm")

EVAL_MASKS = 1  # what is hidden of held-out text comes from a stream of its own, the same in every run
BEST = 5  # guesses shown
CONTEXT = 8  # positions shown on either side


class MaskedSpelledLM(Objective):
    """Hidden words or subwords are predicted; `shape` is that of every batch.

    A subclass makes `model`, then `shape` by `measure`; its data have the corpora `train` and `heldout` as text.

    Attributes:
      section: of the config that has the sizes of batches, for messages.
    """

    sums = MaskedSums
    section: ClassVar[str] = "data"
    model: SpelledLM
    shape: MaskedShape

    @abc.abstractmethod
    def maker(self, seed: int, hiding: bool) -> MaskedMaker:
        """Returns what makes sequences; `hiding`: whatever is chosen is hidden, none of it is shown."""

    @abc.abstractmethod
    def name_of(self, label: int) -> str:
        """Returns what a label stands for."""

    @abc.abstractmethod
    def read_at(self, batch: MaskedBatch, row: int, place: int) -> str:
        """Returns what the model reads at a place of the first shard, for people."""

    def measure(self) -> MaskedShape:
        """Returns the shape of every batch, with the tables that the config leaves open measured on the corpus.

        Raises:
          ValueError: when the batch does not divide into micro-batches and shards, or tables are given that do not fit.
        """
        cfg, parts = self.config.data, self.config.data.accumulation * self.shards
        if cfg.batch_size % parts:
            raise ValueError(
                f"{self.section}.batch_size={cfg.batch_size} must be a multiple of {self.section}.accumulation="
                f"{cfg.accumulation} x data.table_shards={self.shards}"
            )
        sequences = cfg.batch_size // parts
        maker, given = self.maker(self.config.seed, hiding=False), (tuple(cfg.bucket_slots), tuple(cfg.bucket_rows))
        records = iter(self.records(seed=self.config.seed, shuffle=True, repeat=True))
        try:
            tables = measure_tables(records, maker, sequences, *given, self.section)
        finally:
            records.close()
        return MaskedShape(self.shards, sequences, cfg.max_length, *tables, sequences * maker.most)

    def records(self, **order: Any) -> grain.IterDataset:
        """Returns the records of the training text in one stream; `order`: of `charlm.data.pipeline.record_lanes`."""
        return record_dataset(self.data.train, tuple(self.config.data.weights), **order, read=read_text_record)

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns the loss before and after."""
        values = [line["heldout_loss"] for line in (first, last)]
        return (
            f"held-out loss: {values[0]:.3f} before (step {first['step']}), {values[1]:.3f} after (step {last['step']})"
        )

    def train_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[MaskedBatch]:
        """Returns batches without end; see `Objective.train_batches`."""
        cfg = self.config.data
        order = {"seed": self.config.seed, "shuffle": cfg.shuffle, "repeat": True}
        records = record_lanes(self.data.train, tuple(cfg.weights), **order, **self._lanes(lanes))
        sizes = {"accumulation": cfg.accumulation, "prefetch": cfg.prefetch}
        return masked_batches(records, self.maker(self.config.seed, hiding=False), self.shape, **sizes)

    def heldout_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[MaskedBatch]:
        """Returns held-out batches; see `Objective.heldout_batches`."""
        records = record_lanes(self.data.heldout, **self._lanes(lanes))
        # All that is chosen is hidden: what is seen as it is would flatter the model.
        maker, prefetch = self.maker(EVAL_MASKS, hiding=True), self.config.data.prefetch
        return masked_batches(records, maker, self.shape, accumulation=1, prefetch=prefetch, by_record=True)

    def _lanes(self, lanes: tuple[int, ...]) -> dict[str, Any]:
        threads = self.config.data.reader_threads
        return {"lanes": lanes, "of": self.shards, "reader_threads": threads, "read": read_text_record}

    def empty(self, shards: int) -> MaskedBatch:
        """Returns a batch [1, shards, ...] without a word."""
        return empty_masked_batch(self.shape, self.maker(self.config.seed, hiding=False).pad, shards)

    def count(self, batch: MaskedBatch) -> int:
        """Returns the words or subwords of text in a host batch; special ones do not count."""
        mask = batch.inputs.mask_SBL
        return int(mask.sum() - 2 * mask[..., 0].sum())

    def loss_sums(self, params: Any, micro_batch: MaskedBatch, dropout_key: jax.Array | None) -> MaskedSums:
        """Returns the sums of a micro-batch [S, ...]."""
        return masked_sums(self.model, params, micro_batch, dropout_key)

    def summarize(self, sums: MaskedSums) -> dict[str, float]:
        """Returns loss and accuracy; see `charlm.families.spelled.masked_loss.summarize`."""
        return summarize(sums)

    def measured(self) -> dict[str, Any]:
        """Returns shards and length buckets."""
        shape = self.shape
        return {"data.table_shards": shape.shards, "data.bucket_slots": shape.slots, "data.bucket_rows": shape.rows}

    def batch_line(self) -> str:
        """Returns the shape of a batch, for people."""
        s = self.shape
        tables = ", ".join(f"{rows} of {slots}" for slots, rows in zip(s.slots, s.rows, strict=True))
        return (
            f"batch  {s.shards} shards x {s.sequences} sequences x {s.length} {self.unit}; a shard holds "
            f"{sum(s.rows):,} distinct spellings ({tables} characters) and {s.masked:,} hidden {self.unit}"
        )

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss."""
        return f"loss {scalars['loss']:.4f}"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns the loss and the share of what was hidden that is right."""
        return f"loss {metrics['loss']:.4f}, {100 * metrics['mlm_accuracy']:.1f} % of hidden {self.unit} right"

    def show_examples(self, params: Any) -> None:
        """Logs the likeliest guesses at `train.examples` hidden places of held-out text."""
        count = self.config.train.examples
        if not count:
            return
        batches = iter(self.heldout_batches((0,)))
        try:
            batch = next(batches, None)
        finally:
            getattr(batches, "close", lambda: None)()  # of a thread, where there is one
        if batch is None:  # less held-out text than there are shards
            return
        part = jax.tree.map(lambda x: x[0], batch)
        apply = jax.jit(lambda params, batch: self.model.apply({"params": params}, batch.inputs, batch.position_SM))
        logits_MV = np.asarray(apply(params, part).logits[0])
        labels_M = part.labels_SM[0]
        (real,) = np.nonzero(labels_M >= 0)
        log.info("held-out text and the %d best guesses:", BEST)
        for place in real[np.linspace(0, len(real) - 1, min(count, len(real))).astype(int)]:
            right = self.name_of(int(labels_M[place]))
            log.info("hidden  %s", self._context(part, int(part.position_SM[0, place]), right))
            guesses = np.argsort(-logits_MV[place])[:BEST].tolist()
            log.info("        %s", ", ".join(map(self.name_of, guesses)))

    def _context(self, batch: MaskedBatch, at: int, right: str) -> str:
        """Returns what stands around a place as the model reads it, and what is right there."""
        row, place = divmod(at, self.shape.length)
        length = int(batch.inputs.mask_SBL[0, row].sum())
        first, end = max(0, place - CONTEXT), min(length, place + 1 + CONTEXT)
        shown = [self.read_at(batch, row, i) for i in range(first, end)]
        shown[place - first] = f"[{shown[place - first]}, right: {right}]"
        return " ".join(shown)

    def spelling_at(self, batch: MaskedBatch, row: int, place: int) -> np.ndarray:
        """Returns the characters, uint16, that are read at a place of the first shard, without padding."""
        at, tables = int(batch.inputs.index_SBL[0, row, place]), batch.inputs.chars
        bucket = int(np.searchsorted(np.cumsum(self.shape.rows), at, side="right"))
        chars_C = tables[bucket][0, at - sum(self.shape.rows[:bucket])]
        return chars_C[chars_C != 0]
