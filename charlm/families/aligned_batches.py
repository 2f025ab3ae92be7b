"""Packs aligned texts into batches of a fixed shape. Open it to change what a batch of alignment holds.

Student and teacher are any two models: their `Units` read the texts and lay out their inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from charlm.core.types import Array, Tree
from charlm.families.aligned import AlignedText, Side, read
from charlm.families.units import Units
from charlm.text.words import Splitter


class Reading(NamedTuple):
    """How both sides read texts.

    Attributes:
      student, teacher: their units.
      splitter: says what the words of a clean text are.
      length: most positions of a text, special tokens included.
      seed: of the draws of a student that reads a text of training in a random way.
    """

    student: Units
    teacher: Units
    splitter: Splitter
    length: int
    seed: int = 0

    def fresh(self) -> Reading:
        """Returns the same without the words that the units have kept."""
        return self._replace(student=self.student.fresh(), teacher=self.teacher.fresh())

    def read(self, text: AlignedText) -> tuple[Side, Side]:
        """Returns a text as the student and as the teacher read it."""
        training = text.part[1] == "drawn"
        student = self.student.training(self.seed, text.number[0]) if training else self.student
        return read(text, student, self.teacher, self.splitter, self.length)


class AlignedShape(NamedTuple):
    """The shape of every batch.

    Attributes:
      shards: S, shards of a micro-batch.
      sequences: B, texts of a shard.
      length: L, positions of a text.
      student, teacher: the shapes of a shard's inputs.
    """

    shards: int
    sequences: int
    length: int
    student: Any  # each family's units have a type of their own
    teacher: Any  # the same


class AlignedBatch(NamedTuple):
    """Texts as the student reads them and, clean, as the teacher does. Axes: S shards, B texts of a shard, L positions.

    Attributes:
      inputs: the student's inputs.
      teacher: the teacher's inputs.
      mask_SBL, clean_mask_SBL: bool, True at the positions, of the student and of the teacher, whose states make the
        vector of a text.
      group_SBL: int32, the group of words in [0, L) that a position of the student belongs to; -1: to none.
      clean_group_SBL: int32, the groups of the teacher's positions; -1: none.
      noisy_SB: bool, True at texts with noise.
    """

    inputs: Tree
    teacher: Tree
    mask_SBL: Array
    clean_mask_SBL: Array
    group_SBL: Array
    clean_group_SBL: Array
    noisy_SB: Array


class AlignedShard:
    """The texts of a shard; see `charlm.data.streams.Shard`."""

    def __init__(self, shape: AlignedShape, reading: Reading) -> None:
        self._shape, self._reading = shape, reading.fresh()
        self._student = self._reading.student.packing(shape.student)
        self._teacher = self._reading.teacher.packing(shape.teacher)
        self._taken: list[tuple[Side, Side, bool]] = []

    @property
    def full(self) -> bool:
        """True when the shard has all its texts."""
        return len(self._taken) == self._shape.sequences

    def __len__(self) -> int:
        return len(self._taken)

    def add(self, sequence: AlignedText) -> bool:
        """Takes the text if both sides have room for it; returns whether they had."""
        own, theirs = self._reading.read(sequence)
        if self.full or not (self._student.fits(own.row) and self._teacher.fits(theirs.row)):
            return False
        self._student.add(own.row)
        self._teacher.add(theirs.row)
        self._taken.append((own, theirs, sequence.noised is not None))
        return True

    def build(self) -> AlignedBatch:
        """Returns the arrays of the shard, without the leading axis; see `AlignedBatch`."""
        B, L = self._shape.sequences, self._shape.length
        students, teachers = [own for own, _, _ in self._taken], [theirs for _, theirs, _ in self._taken]
        noisy_B = np.zeros(B, bool)
        noisy_B[: len(self._taken)] = [noisy for _, _, noisy in self._taken]
        return AlignedBatch(
            self._student.build(),
            self._teacher.build(),
            _pooled(students, self._reading.student, B, L),
            _pooled(teachers, self._reading.teacher, B, L),
            _groups(students, B, L),
            _groups(teachers, B, L),
            noisy_B,
        )


def _pooled(sides: Sequence[Side], units: Units, B: int, L: int) -> np.ndarray:
    """Returns the positions whose states make the vectors of texts, bool [B, L].

    Those of a model that is pooled without its special positions are the units of the text; if it has none, all.
    """
    mask_BL = np.zeros((B, L), bool)
    for b, side in enumerate(sides):
        row, specials = side.row, units.specials(False)
        whole = units.pools_specials or row.length == specials
        first, count = (0, row.length) if whole else (row.first, row.length - specials)
        mask_BL[b, first : first + count] = True
    return mask_BL


def _groups(sides: Sequence[Side], B: int, L: int) -> np.ndarray:
    """Returns the groups of all positions, int32 [B, L]."""
    group_BL = np.full((B, L), -1, np.int32)
    for b, side in enumerate(sides):
        group_BL[b, : side.row.length] = side.group_L
    return group_BL
