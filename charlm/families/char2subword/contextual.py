"""Char2Subword learns from context, in front of a frozen transformer (section 3.2: contextual pre-training)."""

from __future__ import annotations

import logging
from typing import Any

import grain
import jax
import ml_collections
import numpy as np

from charlm.data.pipeline import record_dataset, record_lanes
from charlm.data.text_records import read_text_record
from charlm.families.char2subword.batch import CharacterMaskedBatch
from charlm.families.char2subword.contextual_batches import (
    CharacterShape,
    character_batches,
    empty_character_batch,
    measure_tables,
    pad_id_of,
)
from charlm.families.char2subword.contextual_loss import CharacterMaskedSums, character_masked_sums, summarize
from charlm.families.char2subword.flops import character_masked_training
from charlm.families.char2subword.masking import CharacterMasking, PieceRows
from charlm.families.char2subword.model import Char2SubwordForMaskedLM
from charlm.families.char2subword.objective import Char2SubwordObjective
from charlm.families.char2subword.sequences import SequenceMaker
from charlm.families.char2subword.shape import Char2SubwordData
from charlm.families.char2subword.spelling import WORD_MARK
from charlm.text.chars import MASK
from charlm.text.subwords.word_pieces import WordPieces

log = logging.getLogger("charlm")

EVAL_MASKS = 1  # what is hidden of held-out text comes from a stream of its own, the same in every run
BEST = 5  # guesses shown
CONTEXT = 8  # subwords shown on either side
HIDDEN = "_"  # stands for a hidden character


class CharacterMaskedLM(Char2SubwordObjective):
    """Masked language modelling of subwords whose characters are hidden; `shape` is that of every batch."""

    sums = CharacterMaskedSums
    unit = "subwords"

    def __init__(self, config: ml_collections.ConfigDict, data: Char2SubwordData, shards: int) -> None:
        """Measures the tables of distinct spellings; see `Objective`."""
        super().__init__(config, data, shards)
        cfg, parts = config.data, config.data.accumulation * shards
        if cfg.batch_size % parts:
            raise ValueError(
                f"contextual.batch_size={cfg.batch_size} must be a multiple of contextual.accumulation="
                f"{cfg.accumulation} x data.table_shards={shards}"
            )
        # What composition is measured on must not be learned here: like a special token it has its row of the table.
        self._spelled = data.entries.where(~self.unseen_N)
        self._pieces = PieceRows.of(self._spelled, data.chars, data.tokenizer.size, config.model.char_slots)
        self._maker = self._sequence_maker(config.seed, hiding=False)
        sequences = cfg.batch_size // parts
        slots, rows = tuple(cfg.bucket_slots), tuple(cfg.bucket_rows)
        records = iter(self._records(seed=config.seed, shuffle=True, repeat=True))
        try:
            slots, rows = measure_tables(records, self._maker, sequences, slots, rows)
        finally:
            records.close()
        masked = sequences * self._maker.masking.most(cfg.max_length - 2)
        self.shape = CharacterShape(shards, sequences, cfg.max_length, slots, rows, masked)

    def _sequence_maker(self, seed: int, hiding: bool) -> SequenceMaker:
        """Returns what makes sequences; `hiding`: every character of a chosen subword is hidden, none is shown."""
        cfg, data = self.config.data, self.data
        shares = (1.0, 0.0) if hiding else (cfg.mask_share, cfg.random_share)
        masking = CharacterMasking(cfg.mask_rate, *shares, data.chars.size, cfg.mask_whole)
        return SequenceMaker(data.tokenizer, WordPieces(data.tokenizer), self._pieces, masking, cfg.max_length, seed)

    def _records(self, **order: Any) -> grain.IterDataset:
        return record_dataset(self.data.train, tuple(self.config.data.weights), **order, read=read_text_record)

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns the loss before and after."""
        values = [line["heldout_loss"] for line in (first, last)]
        return (
            f"held-out loss: {values[0]:.3f} before (step {first['step']}), {values[1]:.3f} after (step {last['step']})"
        )

    def train_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[CharacterMaskedBatch]:
        """Returns batches without end; see `Objective.train_batches`."""
        cfg = self.config.data
        order = {"seed": self.config.seed, "shuffle": cfg.shuffle, "repeat": True}
        records = record_lanes(self.data.train, tuple(cfg.weights), **order, **self._lanes(lanes))
        sizes = {"accumulation": cfg.accumulation, "prefetch": cfg.prefetch}
        return character_batches(records, self._maker, self.shape, **sizes)

    def heldout_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[CharacterMaskedBatch]:
        """Returns held-out batches; see `Objective.heldout_batches`."""
        records = record_lanes(self.data.heldout, **self._lanes(lanes))
        # Every character of a chosen subword is hidden: those that are seen as they are would flatter the model.
        maker, prefetch = self._sequence_maker(EVAL_MASKS, hiding=True), self.config.data.prefetch
        return character_batches(records, maker, self.shape, accumulation=1, prefetch=prefetch, by_record=True)

    def _lanes(self, lanes: tuple[int, ...]) -> dict[str, Any]:
        threads = self.config.data.reader_threads
        return {"lanes": lanes, "of": self.shards, "reader_threads": threads, "read": read_text_record}

    def empty(self, shards: int) -> CharacterMaskedBatch:
        """Returns a batch [1, shards, ...] without a subword."""
        return empty_character_batch(self.shape, pad_id_of(self._maker), shards)

    def count(self, batch: CharacterMaskedBatch) -> int:
        """Returns the subwords of text in a host batch; special ones do not count."""
        mask = batch.inputs.mask_SBL
        return int(mask.sum() - 2 * mask[..., 0].sum())

    def training_flops(self, batch: CharacterMaskedBatch) -> float:
        """Returns the useful operations of a step."""
        return character_masked_training(self.model.config, batch)

    def loss_sums(
        self, params: Any, micro_batch: CharacterMaskedBatch, dropout_key: jax.Array | None
    ) -> CharacterMaskedSums:
        """Returns the sums of a micro-batch [S, ...]."""
        assert isinstance(self.model, Char2SubwordForMaskedLM)  # `prepare` refuses a start without a head
        return character_masked_sums(self.model, params, micro_batch, dropout_key)

    def summarize(self, sums: CharacterMaskedSums) -> dict[str, float]:
        """Returns loss and accuracy; see `charlm.families.char2subword.contextual_loss.summarize`."""
        return summarize(sums)

    def measured(self) -> dict[str, Any]:
        """Returns shards and length buckets."""
        shape = self.shape
        return {"data.table_shards": shape.shards, "data.bucket_slots": shape.slots, "data.bucket_rows": shape.rows}

    def start_lines(self) -> list[str]:
        """Returns the sizes of the vocabularies and the shape of a batch."""
        data, s = self.data, self.shape
        tables = ", ".join(f"{rows} of {slots}" for slots, rows in zip(s.slots, s.rows, strict=True))
        return [
            f"spells  {len(self._spelled):,} subwords of {data.start.shape.vocab_size:,} of {data.start.source}; "
            f"{int(self.unseen_N.sum()):,} never; characters {data.chars.size:,}",
            f"batch  {s.shards} shards x {s.sequences} sequences x {s.length} subwords; a shard holds {sum(s.rows):,} "
            f"distinct spellings ({tables} characters) and {s.masked:,} hidden subwords",
        ]

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss."""
        return f"loss {scalars['loss']:.4f}"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns the loss and the share of subwords that are right."""
        return f"loss {metrics['loss']:.4f}, {100 * metrics['mlm_accuracy']:.1f} % of hidden subwords right"

    def show_examples(self, params: Any) -> None:
        """Logs the likeliest subwords at `train.examples` hidden places of held-out text."""
        count, name = self.config.train.examples, self.data.tokenizer.token
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
            log.info("hidden  %s", self._context(part, int(part.position_SM[0, place]), name(int(labels_M[place]))))
            guesses = np.argsort(-logits_MV[place])[:BEST].tolist()
            log.info("        %s", ", ".join(map(name, guesses)))

    def _context(self, batch: CharacterMaskedBatch, at: int, right: str) -> str:
        """Returns the subwords around a place as the model reads them, and what is right there."""
        row, place = divmod(at, self.shape.length)
        length = int(batch.inputs.mask_SBL[0, row].sum())
        first, end = max(0, place - CONTEXT), min(length, place + 1 + CONTEXT)
        shown = [self._read_at(batch, row, i) for i in range(first, end)]
        shown[place - first] = f"[{shown[place - first]}, right: {right}]"
        return " ".join(shown)

    def _read_at(self, batch: CharacterMaskedBatch, row: int, place: int) -> str:
        """Returns a subword of the first shard, pieces inside a word behind `##` as WordPiece writes them."""
        index = int(batch.inputs.ids_SBL[0, row, place])
        if index >= 0:
            return self.data.tokenizer.token(index)
        at, tables = int(batch.inputs.index_SBL[0, row, place]), batch.inputs.chars
        bucket = int(np.searchsorted(np.cumsum(self.shape.rows), at, side="right"))
        ids = tables[bucket][0, at - sum(self.shape.rows[:bucket])]
        spelled = "".join(HIDDEN if i == MASK else self.data.chars.decode([i]) for i in ids[ids != 0].tolist())
        return spelled.removeprefix(WORD_MARK) if spelled.startswith(WORD_MARK) else WORD_MARK + spelled
