"""Trains an HLM to mend misspelled words: it reads the typo in context, and predicts the characters of the word meant.

The model is that of pre-training, and so is the run but for what is read and predicted; `configs/speller.py` starts
from a pre-trained model. Open it to change what such a run reports; `misspelled` decides what it reads.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm.core.types import Params
from charlm.data.corpus import PreparedData
from charlm.data.pipeline import SentenceMaker
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import model_config
from charlm.families.hlm.frequent import frequent_words
from charlm.families.hlm.misspelled import ROOM, MisspellingMaker, Spelling
from charlm.families.hlm.model import HLMForMaskedLM
from charlm.families.hlm.objective import MaskedCharacters
from charlm.families.hlm.shape import batch_shape, masking_of
from charlm.families.hlm.spelling_loss import SpellingSums, spelling_sums, summarize
from charlm.families.text_objective import TextObjective
from charlm.text.chars import MASK

log = logging.getLogger("charlm")

KNOWN_WORDS = 100_000  # words that misspelled ones are mended to: one that is not known looks like a name
READ_WORDS = 10_000_000  # words of text in which these are counted, in some twenty seconds


class SpelledWords(MaskedCharacters):
    """Predicts the words meant where misspelled ones are read; `shape` is the shape of every batch."""

    sums = SpellingSums
    masked = ""
    use = "python -m charlm.predict correct --checkpoint={workdir} 'A tpyo in a sentense.'"

    def __init__(self, config: ml_collections.ConfigDict, data: PreparedData, shards: int) -> None:
        """Measures the batch budgets that the config leaves open; see `Objective`."""
        TextObjective.__init__(self, config, data, shards)
        self.shape = batch_shape(config, data, shards, self.maker(config.seed, hiding=False), ROOM)
        self.model = HLMForMaskedLM(model_config(config, data.vocab, data.pieces))

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> PreparedData:
        """Returns the character vocabulary and the encoded corpora, after a look at the lists of misspellings.

        Raises:
          ValueError: a list cannot be read; or as `Objective.prepare`.
        """
        Spelling.of(config).misspeller()
        return MaskedCharacters.prepare(config, run)

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns the shares of misspelled held-out words that are mended before and after training."""
        before, after = (100 * line["heldout_mended"] for line in (first, last))
        return f"misspelled held-out words mended: {before:.1f} % before, {after:.1f} % after"

    def maker(self, seed: int, hiding: bool) -> SentenceMaker:
        """Returns the maker of sequences; held-out text is misspelled as the text of training is."""
        config, vocab = self.config, self.data.vocab
        return MisspellingMaker(
            config.data.max_words, config.model.char_slots, masking_of(config, vocab.size), seed, vocab,
            Spelling.of(config),
        )  # fmt: skip

    def loss_sums(self, params: Params, micro_batch: WordBatch, dropout_key: jax.Array | None) -> SpellingSums:
        """Returns the sums of losses and right words of a micro-batch [S, ...]."""
        return spelling_sums(self.model, params, micro_batch, dropout_key, self.data.vocab.by_bytes)

    def summarize(self, sums: SpellingSums) -> dict[str, float]:
        """Returns loss, bits per character and the shares of words mended, kept and guessed."""
        return summarize(sums)

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss and the shares of words mended, kept and guessed."""
        return self.heldout_line(scalars)

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns the loss and the shares of words mended, kept and guessed."""
        mended, kept = (100 * metrics[name] for name in ("mended", "kept"))
        line = f"loss {metrics['loss']:.4f}, {mended:.1f} % of misspelled words mended, {kept:.2f} % of others kept"
        return line + (f", {100 * metrics['guessed']:.1f} % of masked words guessed" if "guessed" in metrics else "")

    @functools.cached_property
    def _known_words(self) -> list[str]:
        words = sum(corpus.stats.words for corpus in self.data.train)
        log.info("text  known words are counted in %s words", f"{min(words, READ_WORDS):,}")
        return frequent_words(self.config, self.data, KNOWN_WORDS, READ_WORDS)

    def show_examples(self, params: Params) -> None:
        """Logs some misspelled held-out words, as they are read, meant and predicted."""
        count, vocab = self.config.train.examples, self.data.vocab
        if not count or (batch := self.first_heldout()) is None:
            return
        first: WordBatch = jax.tree.map(lambda x: x[0, :1], batch)
        predict = jax.jit(lambda params, batch: self.model.apply({"params": params}, batch))
        for logits_SMCV, bucket in zip(predict(params, first), first.masked, strict=True):
            found_MC = np.asarray(jnp.argmax(logits_SMCV, axis=-1))[0]
            shown = 0
            for m, labels_C in enumerate(np.asarray(bucket.labels_SMC)[0]):
                read_C = np.asarray(bucket.chars_SPC)[0, bucket.row_SM[0, m], 1:]
                meant = vocab.decode(labels_C[1 : np.count_nonzero(labels_C)])
                read = vocab.decode(read_C)
                if shown < count and meant and meant != read and read_C[0] != MASK:
                    found = vocab.decode(found_MC[m][: np.count_nonzero(labels_C)]).partition("[SEP]")[0]
                    log.info("read %-16s meant %-16s predicted %s", read, meant, found)
                    shown += 1
