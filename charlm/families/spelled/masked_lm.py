"""The shared objective of masked language modelling over words or subwords that are read from characters.

A family that reads spellings subclasses `MaskedSpelledLM` and provides the sequences and the hiding in them.
Char2Subword's contextual stage and CharacterBERT's pre-training do so. Open it to change what their runs measure or
log.
"""

from __future__ import annotations

import abc
import functools
import logging
from typing import ClassVar

import jax
import numpy as np

from charlm.core.types import JsonObject, Params
from charlm.data.pipeline import training_records
from charlm.families.examples import BEST, in_context, spread
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


class MaskedSpelledLM(TextObjective):
    """Predicts hidden words or subwords; `shape` is the shape of every batch.

    A subclass sets `model`, then `shape` by `measure`; its data hold the corpora `train` and `heldout` as text.

    Attributes:
      section: section of the config that has the sizes of batches, for messages.
    """

    sums = MaskedSums
    section: ClassVar[str] = "data"
    model: SpelledLM
    shape: MaskedShape

    @abc.abstractmethod
    def maker(self, seed: int, hiding: bool) -> MaskedMaker:
        """Returns the maker of sequences; with `hiding`, all chosen words or subwords are replaced by masks."""

    @abc.abstractmethod
    def name_of(self, label: int) -> str:
        """Returns the word or subword of a label as text."""

    @abc.abstractmethod
    def read_at(self, batch: MaskedBatch, row: int, place: int) -> str:
        """Returns the word or subword that the model reads at a position of the first shard, as text for the user."""

    def measure(self) -> MaskedShape:
        """Returns the shape of every batch; table sizes that the config leaves open are measured on the corpus.

        Raises:
          ValueError: the batch does not divide into micro-batches and shards, or given table sizes do not fit.
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
        """Returns an empty shard."""
        return MaskedShard(self.shape, self.training_maker.pad)

    def count(self, batch: MaskedBatch) -> int:
        """Returns the number of words or subwords of text in a host batch, without special tokens."""
        mask = batch.inputs.mask_SBL
        return int(mask.sum() - 2 * mask[..., 0].sum())

    def loss_sums(self, params: Params, micro_batch: MaskedBatch, dropout_key: jax.Array | None) -> MaskedSums:
        """Returns the sums of a micro-batch [S, ...]."""
        return masked_sums(self.model, params, micro_batch, dropout_key)

    def summarize(self, sums: MaskedSums) -> dict[str, float]:
        """Returns loss and accuracy; see `charlm.families.spelled.masked_loss.summarize`."""
        return summarize(sums)

    def measured(self) -> JsonObject:
        """Returns the number of shards and the length buckets, for the config that is saved."""
        shape = self.shape
        return {"data.table_shards": shape.shards, "data.bucket_slots": shape.slots, "data.bucket_rows": shape.rows}

    def batch_line(self) -> str:
        """Returns the shape of a batch as a line for the user."""
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
        """Returns the loss and the share of hidden words or subwords that are predicted right."""
        return f"loss {metrics['loss']:.4f}, {100 * metrics['mlm_accuracy']:.1f} % of hidden {self.unit} right"

    def show_examples(self, params: Params) -> None:
        """Logs the likeliest guesses at `train.examples` hidden positions of held-out text."""
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
        for place in spread(real, count):
            right = self.name_of(int(labels_M[place]))
            log.info("hidden  %s", self._context(part, int(part.position_SM[0, place]), right))
            guesses = np.argsort(-logits_MV[place])[:BEST].tolist()
            log.info("        %s", ", ".join(map(self.name_of, guesses)))

    def _context(self, batch: MaskedBatch, at: int, right: str) -> str:
        """Returns the context of a position as the model reads it, with the right answer at the position."""
        row, place = divmod(at, self.shape.length)
        read = functools.partial(self.read_at, batch, row)
        return in_context(place, int(batch.inputs.mask_SBL[0, row].sum()), read, f"[{read(place)}, right: {right}]")

    def spelling_at(self, batch: MaskedBatch, row: int, place: int) -> np.ndarray:
        """Returns the characters that the model reads at a position of the first shard, uint16, without padding."""
        at, tables = int(batch.inputs.index_SBL[0, row, place]), batch.inputs.chars
        bucket = int(np.searchsorted(np.cumsum(self.shape.rows), at, side="right"))
        chars_C = tables[bucket][0, at - sum(self.shape.rows[:bucket])]
        return chars_C[chars_C != 0]
