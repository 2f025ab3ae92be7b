"""The objective of alignment: noisy text is to have the vectors that a teacher gives the clean text.

A subclass says which models student and teacher are; `aligned` draws the noise and pairs the words, `alignment_loss`
has the loss. The teacher's vectors are computed in the step, from the clean text: a forward pass without a gradient,
while the vectors of a corpus's words, kept in half precision, would take 175 times the bytes of the corpus. Open it to
change what is aligned, or what a run logs about it.
"""

from __future__ import annotations

import abc
import contextlib
import logging
from collections.abc import Generator

import jax
import ml_collections
import numpy as np

from charlm.core.types import Params
from charlm.data.pipeline import record_lanes, training_records
from charlm.data.streams import SequenceStream, sampled
from charlm.families.aligned import TextMaker, TextNoise
from charlm.families.aligned_batches import AlignedBatch, AlignedShape, AlignedShard, Reading
from charlm.families.alignment_keys import PARTS
from charlm.families.alignment_loss import AlignmentSums, AlignmentWeights, alignment_sums, pooled, summarize
from charlm.families.examples import spread
from charlm.families.text_objective import EVAL_MASKS, TextObjective
from charlm.families.units import Joined
from charlm.text.noise import Noise
from charlm.text.noise.misspellings import Misspellings

log = logging.getLogger("charlm")

SLACK = 0.1  # share of room in the tables of a batch beyond what the sample of the corpus needed


class AlignmentObjective(TextObjective):
    """Aligns the vectors of noisy texts with the teacher's of the clean ones; `shape` is the shape of every batch.

    Attributes:
      lowercase: whether both sides read texts in lower case.
    """

    sums = AlignmentSums
    unit = "texts"
    use = "python -m charlm.predict encode --checkpoint={workdir} --sentence-only 'A sentence with a tpyo.'"
    shape: AlignedShape
    lowercase = False
    _reading: Reading
    _weights: AlignmentWeights

    @abc.abstractmethod
    def states(
        self, params: Params, batch: AlignedBatch, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the last states of the student and, without a gradient, of the teacher, both [S * B, L, D]."""

    def weights_of(self, config: ml_collections.ConfigDict) -> AlignmentWeights:
        """Returns how a config weighs the parts of the loss."""
        own = config.alignment
        weights = {name: float(own[name]) for name in PARTS}
        return AlignmentWeights(**weights, temperature=float(own.temperature), pooling=own.pooling)

    def maker(self, seed: int, hiding: bool) -> TextMaker:
        """Returns the maker of texts; with `hiding`, which is for held-out text, each comes clean and noisy."""
        own = self.config.alignment
        kinds, words = tuple(map(Noise.parse, own.noise)), _read_misspellings(own.misspellings)
        noise = TextNoise(kinds, own.noise_share, seed, words)
        return TextMaker(noise, self.config.data.max_length, both=hiding, lowercase=self.lowercase)

    def sampled_rows(self, sequences: int) -> tuple[list[list[Joined]], list[list[Joined]]]:
        """Returns the rows of a sample of the corpus by shards, the student's and the teacher's.

        Raises:
          ValueError: there is no text.
        """
        with training_records(self.config, self.data.train, self.read) as records:
            shards = sampled(records, self.training_maker, sequences)
        sides = [[self._reading.read(text) for text in shard] for shard in shards]
        student, teacher = ([[pair[side].row for pair in shard] for shard in sides] for side in (0, 1))
        return student, teacher

    def measured_shape(self, shards: int, sequences: int) -> AlignedShape:
        """Returns the shape of batches with room for what a sample of the corpus needs; ValueError without text."""
        length = self.config.data.max_length
        units = (self._reading.student, self._reading.teacher)
        # A length of words that the sample lacks has some room, too, or a text with such a word would fit nowhere.
        student, teacher = (
            one.measure(rows, sequences, length, SLACK, least=1)
            for one, rows in zip(units, self.sampled_rows(sequences), strict=True)
        )
        return AlignedShape(shards, sequences, length, student, teacher)

    def shard(self) -> AlignedShard:
        """Returns an empty shard."""
        return AlignedShard(self.shape, self._reading)

    def count(self, batch: AlignedBatch) -> int:
        """Returns the number of texts in a host batch."""
        return int(batch.mask_SBL.any(axis=-1).sum())

    def loss_sums(self, params: Params, micro_batch: AlignedBatch, dropout_key: jax.Array | None) -> AlignmentSums:
        """Returns the sums of a micro-batch [S, ...]."""
        student, teacher = self.states(params, micro_batch, dropout_key)
        return alignment_sums(
            student,
            teacher,
            micro_batch.mask_SBL,
            micro_batch.group_SBL,
            micro_batch.clean_mask_SBL,
            micro_batch.clean_group_SBL,
            micro_batch.noisy_SB,
            self._weights,
        )

    def summarize(self, sums: AlignmentSums) -> dict[str, float]:
        """Returns the loss, its parts and the cosines; see `alignment_loss.summarize`."""
        return summarize(sums)

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns the cosines of noisy and of clean texts before and after."""
        values = lambda line: " and ".join(f"{line[f'heldout_{kind}_cosine']:.4f}" for kind in ("noisy", "clean"))
        return (
            f"cosine of noisy and of clean texts with the teacher's: {values(first)} before (step {first['step']}), "
            f"{values(last)} after (step {last['step']})"
        )

    def noise_line(self) -> str:
        """Returns the log line about noise."""
        own = self.config.alignment
        return f"noise  {100 * own.noise_share:.0f} % of the texts, at most {', '.join(own.noise)}"

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss and its parts."""
        return f"loss {scalars['loss']:.4f} ({' '.join(f'{name} {scalars[name]:.4f}' for name in PARTS)})"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns the loss and the cosines with the teacher's vectors."""
        shown = [
            f"{kind} texts {metrics[f'{kind}_cosine']:.4f}, their words {metrics[f'{kind}_word_cosine']:.4f}"
            for kind in ("noisy", "clean")
            if f"{kind}_cosine" in metrics
        ]
        return f"loss {metrics['loss']:.4f}, cosine of {'; of '.join(shown)}"

    def show_examples(self, params: Params) -> None:
        """Logs some noisy held-out texts, and the cosines of their vectors with the teacher's of the clean ones."""

        def cosines(params: Params, batch: AlignedBatch) -> jax.Array:
            masks = [mask.reshape(-1, mask.shape[-1]) for mask in (batch.mask_SBL, batch.clean_mask_SBL)]
            states = self.states(params, batch)
            one, other = (pooled(x, mask, self._weights.pooling) for x, mask in zip(states, masks, strict=True))
            return (one * other).sum(axis=-1)

        find, found = jax.jit(cosines), []
        with contextlib.closing(self._noisy_heldout()) as shards:
            for texts, batch in shards:
                found += zip(np.asarray(find(params, batch)).tolist(), texts, strict=False)  # a shard may not be full
                if len(found) >= self.config.train.examples:
                    break
        if found:
            log.info("held-out texts with noise, the cosines of their vectors with the teacher's of the clean ones:")
        for place in spread(np.arange(len(found)), self.config.train.examples):
            log.info("%.3f  %s", *found[place])

    def _noisy_heldout(self) -> Generator[tuple[list[str], AlignedBatch]]:
        """Yields held-out texts as the student reads them, with noise, and the batch [1, B, ...] that has them."""
        (records,) = record_lanes(self.data.heldout, **self._lanes((0,))).values()
        with contextlib.closing(iter(records)) as found:
            stream = SequenceStream(found, self.maker(EVAL_MASKS, hiding=True), 0, self.shards, by_record=True)
            ended = self.config.train.examples < 1
            while not ended:
                shard, texts = self.shard(), []
                while not shard.full and not (ended := (text := stream.next()) is None):
                    if text is not None and text.noised is not None and shard.add(text):
                        texts.append(text.noised.text)
                if texts:
                    yield texts, jax.tree.map(lambda x: x[None], shard.build())


def _read_misspellings(path: str) -> Misspellings | None:
    """Returns the list at `path`; None for an empty path; ValueError if it cannot be read."""
    try:
        return Misspellings.read(path) if path else None
    except OSError as error:
        raise ValueError(f"alignment.misspellings={path} cannot be read: {error.strerror}") from error
