"""Trains an HLM to write: every word is predicted, letter by letter, from the words before it.

The run is that of masked words but for what is read and predicted. Open it to change what such a run reads or reports.
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import jax
import ml_collections

from charlm.core import checkpoint as checkpoints
from charlm.core.types import Params
from charlm.data.corpus import PreparedData, prepare
from charlm.data.pipeline import SentenceMaker
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import WRITES, model_config
from charlm.families.hlm.flops import writing_training
from charlm.families.hlm.objective import MaskedCharacters, characters_of_start
from charlm.families.hlm.pieces import pieces_of_start
from charlm.families.hlm.shape import batch_shape, masking_of
from charlm.families.hlm.writer import HLMForNextWord
from charlm.families.hlm.writing_loss import WritingSums, summarize, writing_sums
from charlm.families.hlm.writing_predictor import WritingPredictor
from charlm.families.hlm.written import ROOM, SpacedWords
from charlm.families.stored import metadata_of
from charlm.families.text_objective import TextObjective

log = logging.getLogger("charlm")

BEGINNING = 8  # words of held-out text, marks among them, that an example goes on from
WRITTEN = 24  # words that it writes


class NextWords(MaskedCharacters):
    """Predicts each word from those before it; `shape` is the shape of every batch."""

    sums = WritingSums
    masked = ""
    use = "python -m charlm.predict generate --checkpoint={workdir} 'Once upon a '"

    def __init__(self, config: ml_collections.ConfigDict, data: PreparedData, shards: int) -> None:
        """Measures the batch budgets that the config leaves open; see `Objective`."""
        TextObjective.__init__(self, config, data, shards)
        self.shape = batch_shape(config, data, shards, self.maker(config.seed, hiding=False), ROOM)
        self.model = HLMForNextWord(model_config(config, data.vocab, data.pieces))

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> PreparedData:
        """Returns the character vocabulary and the encoded corpora; see `Objective.prepare`."""
        known, pieces = characters_of_start(config, run), pieces_of_start(config, run)
        return prepare(config, known=known, needs_spaces="objective=next_word writes spaces")._replace(pieces=pieces)

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns a line with the held-out bits per character before and after training."""
        before, after = (line["heldout_bits_per_char"] for line in (first, last))
        return f"held-out bits a character: {before:.3f} before (step {first['step']}), {after:.3f} after"

    def maker(self, seed: int, hiding: bool) -> SentenceMaker:
        """Returns the maker of sequences, which are the same in training and evaluation."""
        config = self.config
        masking = masking_of(config, self.data.vocab.size)
        return SpacedWords(config.data.max_words, config.model.char_slots, masking, seed)

    def training_flops(self, batch: WordBatch) -> float:
        """Returns the useful floating-point operations of a step."""
        return writing_training(self.model.config, batch)

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of another HLM that writes, which must have the same characters."""
        checkpoint = checkpoints.find(source, key="init_from")
        learned = metadata_of(checkpoint, self.families)["config"].get("objective", "")
        if learned != WRITES:
            raise ValueError(
                f"init_from: {source} is an HLM of objective={learned!r}; expected one that writes, {WRITES!r}"
            )
        return super().load_params(source, abstract_params, fresh)

    def loss_sums(self, params: Params, micro_batch: WordBatch, dropout_key: jax.Array | None) -> WritingSums:
        """Returns the sums of losses and right letters of a micro-batch [S, ...]."""
        return writing_sums(self.model, params, micro_batch, dropout_key, self.data.vocab.by_bytes)

    def summarize(self, sums: WritingSums) -> dict[str, float]:
        """Returns loss, bits per character and accuracies."""
        return summarize(sums)

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns a line with loss, bits per character and the share of words predicted right."""
        return (
            f"loss {metrics['loss']:.4f}, {metrics['bits_per_char']:.3f} bits a character, "
            f"{100 * metrics['word_accuracy']:.1f} % of words exactly right"
        )

    def show_examples(self, params: Params) -> None:
        """Logs how some held-out texts go on: as they stand, and as the model writes them, drawn and likeliest."""
        count = self.config.train.examples
        if not count or (batch := self.first_heldout()) is None:
            return
        one: WordBatch = jax.tree.map(lambda x: x[0, :1], batch)
        model = WritingPredictor(self.config, self.data.vocab, params, pieces=self.data.pieces)
        new = min(WRITTEN, self.config.data.max_words - 1 - BEGINNING)
        known = (text for text in model.texts_of(one) if "[UNK]" not in text)  # what stood there is not in the batch
        for text in itertools.islice((text for text in known if new > 0), count):
            begun, rest = model.parted(text, BEGINNING)
            likeliest, drawn = (model.generate([begun], new, temperature=t, seed=self.config.seed) for t in (0.0, 0.8))
            log.info("text       %s| %s", begun, model.parted(rest, new)[0])
            log.info("likeliest  | %s", likeliest[0].text)
            log.info("drawn      | %s", drawn[0].text)
