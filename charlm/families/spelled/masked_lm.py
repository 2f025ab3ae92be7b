"""Masked language modelling over words or subwords that are read from characters: what its objectives share.

Open it to see how a family that reads spellings is pre-trained; the family says what a sequence is and what is hidden.
"""

from __future__ import annotations

import abc
import logging
from typing import Any, ClassVar

import jax
import numpy as np

from charlm.data.pipeline import training_records
from charlm.families.spelled.batch import MaskedBatch
from charlm.families.spelled.masked_batches import (
    MaskedMaker,
    MaskedShape,
    MaskedShard,
    measure_tables,
)
from charlm.families.spelled.masked_loss import MaskedSums, masked_sums, summarize
from charlm.families.spelled.model import SpelledLM
from charlm.families.text_objective import TextObjective, sequences_of

log = logging.getLogger("charlm")

BEST = 5  # guesses shown
CONTEXT = 8  # positions shown on either side


class MaskedSpelledLM(TextObjective):
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
        cfg, sequences = self.config.data, sequences_of(self.config, self.shards, self.section)
        given = (tuple(cfg.bucket_slots), tuple(cfg.bucket_rows))
        with training_records(self.config, self.data.train, self.read) as records:
            tables = measure_tables(records, self.training_maker, sequences, *given, self.section)
        return MaskedShape(self.shards, sequences, cfg.max_length, *tables, sequences * self.training_maker.most)

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns the loss before and after."""
        values = [line["heldout_loss"] for line in (first, last)]
        return (
            f"held-out loss: {values[0]:.3f} before (step {first['step']}), {values[1]:.3f} after (step {last['step']})"
        )

    def shard(self) -> MaskedShard:
        """Returns a shard without a word."""
        return MaskedShard(self.shape, self.training_maker.pad)

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
        if (batch := self.first_heldout()) is None:
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
