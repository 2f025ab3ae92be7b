"""HLM's pre-training objective: predict every character of whole masked words (HLM, section 3.4).

Open it to see how data, model and loss of HLM's pre-training are put together.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
from flax import traverse_util

from charlm.core import checkpoint as checkpoints
from charlm.core import trees
from charlm.core.types import JsonObject, Params
from charlm.data.batching import ShardPacker
from charlm.data.corpus import PreparedData, prepare
from charlm.data.pipeline import SentenceMaker
from charlm.data.records import EncodedRecord, read_record
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import model_config
from charlm.families.hlm.examples import show_examples
from charlm.families.hlm.flops import hlm_training
from charlm.families.hlm.frequent import frequent_words
from charlm.families.hlm.loss import MaskedCharSums, masked_char_sums, summarize
from charlm.families.hlm.model import HLMForMaskedLM
from charlm.families.hlm.pieces import KEY as PIECES
from charlm.families.hlm.pieces import pieces_of_start, stored_pieces
from charlm.families.hlm.shape import batch_shape, masking_of
from charlm.families.stored import checkpoint_of, metadata_of
from charlm.families.text_objective import TextObjective
from charlm.text.chars import CHAR_VOCAB_FILE, CharVocab
from charlm.text.wordlist import write_words

NGRAMS = "hlm/embed/ngrams/embedding"  # the table of character n-grams, of a model that has one

log = logging.getLogger("charlm")


class MaskedCharacters(TextObjective):
    """Masked character modelling; `shape` is the shape of every batch."""

    families = ("hlm",)
    has_files = True
    sums = MaskedCharSums
    unit = "words"
    masked = "characters"
    of_shape = ("model.", "data.max_words")

    def __init__(self, config: ml_collections.ConfigDict, data: PreparedData, shards: int) -> None:
        """Measures the batch budgets that the config leaves open; see `Objective`."""
        super().__init__(config, data, shards)
        self.shape = batch_shape(config, data, shards)
        self.model = HLMForMaskedLM(model_config(config, data.vocab, data.pieces))

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> PreparedData:
        """Returns the character vocabulary, known pieces and the encoded corpora; see `Objective.prepare`."""
        pieces = pieces_of_start(config, run)
        return prepare(config, known=characters_of_start(config, run))._replace(pieces=pieces)

    @staticmethod
    def check_vocab(checkpoint: Path, data: PreparedData) -> None:
        """Compares the character vocabularies and the known pieces; see `Objective.check_vocab`."""
        check_characters(checkpoint, data.vocab.to_dict())
        check_pieces(checkpoint, data.pieces)

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns a line with the held-out bits per masked character before and after training."""
        return (
            f"held-out bits a masked character: {first['heldout_bits_per_char']:.3f} before (step {first['step']}), "
            f"{last['heldout_bits_per_char']:.3f} after (step {last['step']})"
        )

    @staticmethod
    def read(data: bytes) -> EncodedRecord:
        """Parses a record of encoded words."""
        return read_record(data)

    def maker(self, seed: int, hiding: bool) -> SentenceMaker:
        """Returns the maker of sequences; `hiding`: every chosen word is masked, never kept or replaced at random."""
        masking = masking_of(self.config, self.data.vocab.size)
        if hiding:
            masking = dataclasses.replace(masking, mask_share=1.0, random_share=0.0)
        return SentenceMaker(self.shape.words, self.shape.slots[-1], masking, seed)

    def shard(self) -> ShardPacker:
        """Returns an empty packer for the tables of one shard."""
        return ShardPacker(self.shape)

    @functools.cached_property
    def _known_words(self) -> list[str]:
        return frequent_words(self.config, self.data)

    def count(self, batch: WordBatch) -> int:
        """Returns the words of text in a host batch [..., B, W]; [CLS] and [SEP] do not count."""
        return int(batch.mask_SBW.sum() - 2 * batch.mask_SBW[..., 0].sum())

    def training_flops(self, batch: WordBatch) -> float:
        """Returns the useful floating-point operations of a step."""
        return hlm_training(self.model.config, batch)

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters."""
        batch = self.empty(shards=1)
        batch = batch._replace(chars=batch.chars[:1], masked=batch.masked[:1])  # one bucket shows all parameters
        batch = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), batch)
        return self.model.init(key, batch)["params"]

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of a checkpoint, which must have the same characters.

        Where it knows no n-grams and this model does, their rows are fresh: zeros, so that it computes what it did.
        """
        checkpoint = checkpoints.find(source, key="init_from")
        self.check_vocab(checkpoint, self.data)
        wanted = trees.flat(abstract_params)
        added = NGRAMS in wanted and NGRAMS not in checkpoints.parameter_shapes(checkpoint)
        log.info("parameters from %s%s", checkpoint, "; fresh: the rows of n-grams, zeros" * added)
        if not added:
            return checkpoints.load_params(checkpoint, abstract_params)
        del wanted[NGRAMS]
        loaded = checkpoints.load_params(checkpoint, traverse_util.unflatten_dict(wanted, sep="/"))
        rows = {NGRAMS: trees.flat(fresh)[NGRAMS]}
        return traverse_util.unflatten_dict(trees.flat(loaded) | rows, sep="/")

    def loss_sums(
        self, params: Params, micro_batch: WordBatch, dropout_key: jax.Array | None
    ) -> Any:  # of the class `sums`, which a subclass may change
        """Returns the sums of losses and hits of a micro-batch [S, ...]."""
        return masked_char_sums(self.model, params, micro_batch, dropout_key, self.data.vocab.by_bytes)

    def summarize(self, sums: Any) -> dict[str, float]:  # as `loss_sums` returns them
        """Returns loss, bits per character and accuracies; see `charlm.families.hlm.loss.summarize`."""
        return summarize(sums)

    def measured(self) -> JsonObject:
        """Returns the config keys of shards, buckets and budgets with their measured values."""
        shape = self.shape
        return {
            "data.table_shards": shape.shards, "data.bucket_slots": shape.slots, "data.bucket_words": shape.table,
            "data.bucket_masked": shape.masked, "data.bucket_labels": shape.labels,
        }  # fmt: skip

    def metadata(self) -> JsonObject:
        """Returns the character vocabulary and the known pieces, which checkpoints store."""
        pieces = {PIECES: list(self.data.pieces)} if self.data.pieces else {}
        return {"char_vocab": self.data.vocab.to_dict()} | pieces

    def save_vocab(self, folder: Path) -> None:
        """Writes the character vocabulary, and the known words of the training text."""
        self.data.vocab.save(folder / CHAR_VOCAB_FILE)
        write_words(folder, self._known_words)

    def start_lines(self) -> list[str]:
        """Returns the number of characters and the shape of a batch."""
        s = self.shape
        return [
            f"characters known  {len(self.data.vocab.chars)}" + ", others by bytes" * self.data.vocab.by_bytes,
            *([f"pieces known  {known.size:,}"] if (known := self.model.config.pieces) else []),
            f"batch  {s.shards} shards x {s.sequences} sequences x {s.words} words; buckets of {s.slots} slots hold "
            f"{s.table} distinct words, {s.masked} masked ones, {s.labels} masked positions",
        ]

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns a line with loss and bits per character."""
        return f"loss {scalars['loss']:.4f} ({scalars['bits_per_char']:.3f} bits/char)"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns a line with loss, bits per character and the share of words predicted right."""
        return (
            f"loss {metrics['loss']:.4f}, {metrics['bits_per_char']:.3f} bits a masked character, "
            f"{100 * metrics['word_accuracy']:.1f} % of masked words exactly right"
        )

    def show_examples(self, params: Params) -> None:
        """Logs the five likeliest known words for masked and misspelled held-out words."""
        show_examples(self.config, self.data, params, self._known_words)


def characters_of_start(config: ml_collections.ConfigDict, run: Path | None) -> CharVocab | None:
    """Returns the characters of the model that a run starts or has started from, which are the run's own.

    Returns:
      None if there is no such model. Then the run's characters are collected, and `check_vocab` compares them.
    """
    if run is not None:
        stored = metadata_of(checkpoints.find(run), MaskedCharacters.families)
        took = bool((stored.get("started_from") or {}).get("init_from"))
        return CharVocab.from_dict(stored["char_vocab"]) if took else None
    if not config.init_from or config.resume:
        return None
    source = checkpoint_of(config.init_from, *MaskedCharacters.families)
    return None if source is None else CharVocab.from_dict(checkpoints.read_metadata(source)["char_vocab"])


def check_characters(checkpoint: Path, char_vocab: dict[str, int]) -> None:
    """Checks that a checkpoint has the same character vocabulary as this run.

    Raises:
      ValueError: the vocabularies differ; names the first character that differs and what to set.
    """
    metadata = metadata_of(checkpoint, MaskedCharacters.families)
    stored = metadata["char_vocab"]
    if stored == char_vocab:
        return
    named = metadata["config"].get("text", {}).get("char_vocab")
    way_out = "released" if named == "released" else "the char_vocab.json of its workdir"
    differing = sorted(c for c in stored.keys() | char_vocab.keys() if stored.get(c) != char_vocab.get(c))
    raise ValueError(
        f"{checkpoint} has another character vocabulary ({len(differing)} characters differ, first {differing[0]!r}: "
        f"id {stored.get(differing[0])} there, {char_vocab.get(differing[0])} here); set text.char_vocab to "
        f"{way_out}"
    )


def check_pieces(checkpoint: Path, pieces: Sequence[str]) -> None:
    """Checks that a checkpoint knows the same pieces as this run; raises ValueError with what to do if not."""
    stored = stored_pieces(metadata_of(checkpoint, MaskedCharacters.families))
    if pieces and not stored:
        raise ValueError(
            f"{checkpoint} knows no pieces of a subword tokenizer, and a trained model learns none: leave out "
            "text.tokenizer"
        )
    if stored != tuple(pieces):
        raise ValueError(
            f"{checkpoint} knows {len(stored):,} pieces of a subword tokenizer, this run {len(pieces):,}"
            f"{', and they differ' if len(stored) == len(pieces) else ''}; leave out text.tokenizer to keep those there"
        )
