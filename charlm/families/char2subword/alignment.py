"""The objective of the alignment stage: noisy text is to have the vectors that the transformer gives the clean text.

The teacher is the transformer itself, without the module; it is frozen. Its vectors are computed in the step, from the
clean text. That is a forward pass without a gradient, a quarter of the operations of a step of configs/align.py:minilm,
while the vectors of a corpus's words, kept in half precision, take 175 times the bytes of the corpus. Open it to change
what is aligned; `aligned` draws the noise and pairs the words, `alignment_loss` has the loss.
"""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm.core.types import JsonObject, Params
from charlm.data.pipeline import training_records
from charlm.families.char2subword.aligned import TextMaker, TextNoise
from charlm.families.char2subword.aligned_batches import AlignedBatch, AlignedShard
from charlm.families.char2subword.alignment_loss import (
    PARTS,
    AlignmentSums,
    AlignmentWeights,
    alignment_sums,
    pooled,
    summarize,
)
from charlm.families.char2subword.flops import alignment_training
from charlm.families.char2subword.model import encoder_states
from charlm.families.char2subword.objective import Char2SubwordObjective
from charlm.families.char2subword.shape import Char2SubwordData
from charlm.families.char2subword.tensors import NAME, bert_config
from charlm.families.char2subword.units import units_of_mode
from charlm.families.examples import spread
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.masked_batches import MaskedShape, measure_tables
from charlm.families.subword.bert import Bert
from charlm.families.text_objective import TextObjective, sequences_of
from charlm.nn.apply import applied
from charlm.text.noise import Noise
from charlm.text.noise.misspellings import Misspellings

log = logging.getLogger("charlm")


class Alignment(TextObjective, Char2SubwordObjective):
    """Aligns the vectors of noisy texts with the teacher's of the clean ones; `shape` is the shape of every batch."""

    sums = AlignmentSums
    unit = "texts"
    use = "python -m charlm.predict encode --checkpoint={workdir} --sentence-only 'A sentence with a tpyo.'"
    shape: MaskedShape

    def __init__(self, config: ml_collections.ConfigDict, data: Char2SubwordData, shards: int) -> None:
        """Measures how many distinct spellings a batch needs to hold; see `Objective`."""
        super().__init__(config, data, shards)
        own, cfg = config.alignment, config.data
        self._weights = AlignmentWeights(
            **{name: float(own[name]) for name in PARTS}, temperature=float(own.temperature), pooling=own.pooling
        )
        self._teacher = Bert(bert_config(self.model.config))
        self.trains = (f"{NAME}/", *(f"bert/encoder/layer_{n}/" for n in range(own.free_layers)))
        read = Pretrained(self.model, {}, self.model.config, NAME, "", data.start.files, self.metadata())
        self._units = units_of_mode(read, cfg.max_length)
        sequences = sequences_of(config, shards, "alignment")
        given = (tuple(cfg.bucket_slots), tuple(cfg.bucket_rows))
        with training_records(config, data.train, self.read) as records:
            slots, rows = measure_tables(records, self.training_maker, sequences, *given, "alignment")
        # A bucket that the sample left empty still gets a row, so that no table is empty.
        self.shape = MaskedShape(shards, sequences, cfg.max_length, slots, tuple(max(n, 1) for n in rows), 0)

    def maker(self, seed: int, hiding: bool) -> TextMaker:
        """Returns the maker of texts; with `hiding`, which is for held-out text, each comes clean and noisy."""
        own = self.config.alignment
        kinds, words = tuple(map(Noise.parse, own.noise)), _read_misspellings(own.misspellings)
        noise = TextNoise(kinds, own.noise_share, seed, words)
        slots = self.model.config.characters.char_slots
        return TextMaker(self._units, self.data.tokenizer, noise, self.config.data.max_length, slots, both=hiding)

    def shard(self) -> AlignedShard:
        """Returns an empty shard."""
        return AlignedShard(self.shape, self._units.pad)

    def count(self, batch: AlignedBatch) -> int:
        """Returns the number of texts in a host batch."""
        return int(batch.inputs.mask_SBL.any(axis=-1).sum())

    def training_flops(self, batch: AlignedBatch) -> float:
        """Returns the useful operations of a step."""
        free = self.config.alignment.free_layers
        return alignment_training(self.model.config, batch.inputs, batch.clean_SBL >= 0, free)

    def loss_sums(self, params: Params, micro_batch: AlignedBatch, dropout_key: jax.Array | None) -> AlignmentSums:
        """Returns the sums of a micro-batch [S, ...]; dropout is that of the module."""
        student, teacher = self._states(params, micro_batch, dropout_key)
        inputs = micro_batch.inputs
        return alignment_sums(
            student,
            teacher,
            inputs.mask_SBL,
            micro_batch.group_SBL,
            micro_batch.clean_SBL >= 0,
            micro_batch.clean_group_SBL,
            micro_batch.noisy_SB,
            self._weights,
        )

    def _states(
        self, params: Params, batch: AlignedBatch, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the last states of the student and of the teacher, [S * B, L, D]."""
        clean_NL = batch.clean_SBL.reshape(-1, batch.clean_SBL.shape[-1])
        teacher = jax.lax.stop_gradient(self._of_teacher(params))
        apply = applied(self._teacher, {"params": teacher})
        states_NLD = apply(jnp.maximum(clean_NL, 0), clean_NL >= 0).states_BLD
        return encoder_states(self.model.config, params, batch.inputs, dropout_key), states_NLD

    def _of_teacher(self, params: Params) -> Params:
        """Returns the teacher's parameters: the transformer's, and of layers that are trained, what they were."""
        kept = self.data.teacher
        if not kept:
            return params["bert"]
        encoder = params["bert"]["encoder"] | {name: jax.tree.map(jnp.asarray, kept[name]) for name in kept}
        return params["bert"] | {"encoder": encoder}

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

    def measured(self) -> JsonObject:
        """Returns the number of shards and the length buckets, for the config that is saved."""
        shape = self.shape
        return {"data.table_shards": shape.shards, "data.bucket_slots": shape.slots, "data.bucket_rows": shape.rows}

    def start_lines(self) -> list[str]:
        """Returns what is trained, and the shape of a batch."""
        s, own = self.shape, self.config.alignment
        tables = ", ".join(f"{rows} of {slots}" for slots, rows in zip(s.slots, s.rows, strict=True))
        lower = f" and the {own.free_layers} lowest layers" if own.free_layers else ""
        return [
            f"aligns  {self.data.start.source} in {self.model.config.mode} mode with itself; trains the module{lower}",
            f"noise  {100 * own.noise_share:.0f} % of the texts, at most {', '.join(own.noise)}",
            f"batch  {s.shards} shards x {s.sequences} texts x {s.length} positions; a shard holds {sum(s.rows):,} "
            f"distinct spellings ({tables} characters)",
        ]

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
        """Logs the cosine of some noisy held-out texts with the teacher's vector of the clean ones."""
        count = self.config.train.examples
        if not count or (batch := self.first_heldout()) is None:
            return
        part = jax.tree.map(lambda x: x[0], batch)

        def cosines(params: Params, batch: AlignedBatch) -> jax.Array:
            masks = [mask.reshape(-1, mask.shape[-1]) for mask in (batch.inputs.mask_SBL, batch.clean_SBL >= 0)]
            states = self._states(params, batch)
            one, other = (pooled(x, mask, self._weights.pooling) for x, mask in zip(states, masks, strict=True))
            return (one * other).sum(axis=-1)

        found_N = np.asarray(jax.jit(cosines)(params, part))
        (noisy,) = np.nonzero(part.noisy_SB[0])
        log.info("held-out texts, and the cosine of the vector with noise with the teacher's of the clean text:")
        for place in spread(noisy, count):
            clean_L = part.clean_SBL[0, place]
            log.info("%.3f  %s", found_N[place], self.data.tokenizer.decode(clean_L[clean_L >= 0].tolist()))


def _read_misspellings(path: str) -> Misspellings | None:
    """Returns the list at `path`; None for an empty path; ValueError if it cannot be read."""
    try:
        return Misspellings.read(path) if path else None
    except OSError as error:
        raise ValueError(f"alignment.misspellings={path} cannot be read: {error.strerror}") from error
