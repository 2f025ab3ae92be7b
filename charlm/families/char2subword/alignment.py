"""The objective of the alignment stage: noisy text is to have the vectors that the transformer gives the clean text.

The teacher is the transformer itself, without the module; it is frozen. The student reads text as the model's mode
says. Open it to change what the stage trains; `charlm.families.alignment` has the rest.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import ml_collections

from charlm.core.types import JsonObject, Params
from charlm.data.budgets import check_rows, check_slots
from charlm.families.aligned_batches import AlignedBatch, AlignedShape, Reading
from charlm.families.alignment import AlignmentObjective
from charlm.families.char2subword.flops import alignment_training
from charlm.families.char2subword.model import encoder_states
from charlm.families.char2subword.objective import Char2SubwordObjective
from charlm.families.char2subword.shape import Char2SubwordData
from charlm.families.char2subword.tensors import NAME, bert_config
from charlm.families.char2subword.units import units_of_mode
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.units import SpelledShape, SpelledUnits
from charlm.families.subword.bert import Bert
from charlm.families.subword.units import SubwordUnits
from charlm.families.text_objective import sequences_of
from charlm.text.words import get_splitter


class Alignment(AlignmentObjective, Char2SubwordObjective):
    """Aligns the vectors of noisy texts with those that the frozen transformer alone gives the clean ones."""

    def __init__(self, config: ml_collections.ConfigDict, data: Char2SubwordData, shards: int) -> None:
        """Measures how many distinct spellings a batch needs to hold; see `Objective`."""
        super().__init__(config, data, shards)
        own, cfg = config.alignment, config.data
        self._weights = self.weights_of(config)
        self.trains = (f"{NAME}/", *(f"bert/encoder/layer_{n}/" for n in range(own.free_layers)))
        read = Pretrained(self.model, {}, self.model.config, NAME, "", data.start.files, self.metadata())
        student = units_of_mode(read, cfg.max_length)
        self._teacher_config = bert_config(self.model.config)
        alone = dataclasses.replace(read, model=Bert(self._teacher_config), config=self._teacher_config)
        teacher = SubwordUnits(alone, cfg.max_length)
        splitter = get_splitter(config.text.splitter, config.text.language)
        self._reading = Reading(_with_slots(student, tuple(cfg.bucket_slots)), teacher, splitter, cfg.max_length)
        self.shape = self._measured(shards, sequences_of(config, shards, "alignment"), tuple(cfg.bucket_rows))
        self._teacher = teacher

    def _measured(self, shards: int, sequences: int, rows: tuple[int, ...]) -> AlignedShape:
        """Returns the shape of batches, with the given rows of the buckets; (): measured."""
        found = self.measured_shape(shards, sequences)
        if not rows:
            return found
        check_rows("alignment.bucket_rows", rows, found.student.slots)
        return found._replace(student=dataclasses.replace(found.student, table=rows))

    def training_flops(self, batch: AlignedBatch) -> float:
        """Returns the useful operations of a step."""
        free = self.config.alignment.free_layers
        return alignment_training(self.model.config, batch.inputs, batch.teacher.mask_BL, free)

    def states(
        self, params: Params, batch: AlignedBatch, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the last states of both; dropout is that of the module."""
        teacher = jax.lax.stop_gradient({"bert": self._of_teacher(params)})
        wanted = self._teacher.states(self._teacher_config, teacher, batch.teacher)
        return encoder_states(self.model.config, params, batch.inputs, dropout_key), wanted

    def _of_teacher(self, params: Params) -> Params:
        """Returns the teacher's parameters: the transformer's, and of layers that are trained, what they were."""
        kept = self.data.teacher
        if not kept:
            return params["bert"]
        encoder = params["bert"]["encoder"] | {name: jax.tree.map(jnp.asarray, kept[name]) for name in kept}
        return params["bert"] | {"encoder": encoder}

    def measured(self) -> JsonObject:
        """Returns the number of shards and the length buckets, for the config that is saved."""
        tables: SpelledShape = self.shape.student
        found = {"data.bucket_slots": tables.slots, "data.bucket_rows": tables.table}
        return {"data.table_shards": self.shape.shards, **found}

    def start_lines(self) -> list[str]:
        """Returns what is trained, and the shape of a batch."""
        s, own = self.shape, self.config.alignment
        tables = ", ".join(f"{rows} of {slots}" for slots, rows in zip(s.student.slots, s.student.table, strict=True))
        lower = f" and the {own.free_layers} lowest layers" if own.free_layers else ""
        return [
            f"aligns  {self.data.start.source} in {self.model.config.mode} mode with itself; trains the module{lower}",
            self.noise_line(),
            f"batch  {s.shards} shards x {s.sequences} texts x {s.length} positions; a shard holds "
            f"{sum(s.student.table):,} distinct spellings ({tables} characters)",
        ]


def _with_slots(units: SpelledUnits, slots: Sequence[int]) -> SpelledUnits:
    """Returns units whose spellings lie in the given length buckets; (): in their own."""
    if not slots:
        return units
    longest = units.buckets[-1]
    check_slots("alignment.bucket_slots", tuple(slots), longest, f"{longest}, the longest spelling")
    other = copy.copy(units)
    other.buckets = tuple(slots)
    return other
