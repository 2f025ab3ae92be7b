"""CharBERT's pre-training objective: predict masked subwords, and the words behind misspelled ones (section 3.5).

Open it to see how data, model and losses of CharBERT's pre-training are put together.
"""

from __future__ import annotations

import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm.convert.heads import MASKED_LM
from charlm.core import checkpoint as checkpoints
from charlm.core.types import JsonObject, Params
from charlm.data.pipeline import training_records
from charlm.families.charbert.batch import NoisyBatch
from charlm.families.charbert.batches import NoisyShape, NoisyShard, measure_noised
from charlm.families.charbert.blocks import BlockMaker
from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.examples import show_examples
from charlm.families.charbert.flops import charbert_training
from charlm.families.charbert.loss import NoisySums, label_weights, noisy_sums, summarize
from charlm.families.charbert.masking import SubwordMasking
from charlm.families.charbert.model import CharBert, CharBertConfig
from charlm.families.charbert.noise import REFERENCE_LETTERS, WordNoise
from charlm.families.charbert.shape import (
    check_fusion,
    make_model,
    model_config,
    read_backbone,
    resolve,
    stored_shape,
    vocab_of,
)
from charlm.families.charbert.text import SubwordData, prepare_subwords
from charlm.families.stored import metadata_of
from charlm.families.subword.bert import Bert
from charlm.families.subword.kinds import BERT_KINDS
from charlm.families.subword.layout import config_to_dict
from charlm.families.subword.start import is_measured, merge_backbone
from charlm.families.text_objective import TextObjective, sequences_of
from charlm.text.subwords.word_pieces import WordPieces

log = logging.getLogger("charlm")


class NoisyLanguageModelling(TextObjective):
    """Masked and noisy language modelling; `shape` is the shape of every batch, `model` the model in training."""

    families = ("charbert", *BERT_KINDS)
    parts = 2
    sums = NoisySums
    unit = "subwords"
    masked = "subwords"
    of_shape = ("model.", "data.max_length", "data.chars_per_piece")
    has_files = True

    def __init__(self, config: ml_collections.ConfigDict, data: SubwordData, shards: int) -> None:
        """Reads the backbone, and measures the budgets that the config leaves open; see `Objective`."""
        super().__init__(config, data, shards)
        self._backbone, stored = None, None
        if config.init_from and not is_measured(config):
            self._backbone = read_backbone(config.init_from)
            if self._backbone is None:
                stored = stored_shape(config.init_from)
                if config.model.char_channel and not config.resume:
                    check_fusion(config)
        self._resolved = resolve(config, data, self._backbone, stored)
        self.model = make_model(model_config(config, data, self._resolved))
        self._predicts_words = config.model.char_channel and config.model.nlm
        self.shape = self._shape()

    def maker(self, seed: int, hiding: bool) -> BlockMaker:
        """Returns the maker of blocks; `hiding`: every chosen subword is masked, never kept or replaced at random."""
        data, cfg = self.data, self.config.data
        ordinary = [i for i in range(data.tokenizer.size) if self._is_ordinary(i)]
        shares = (1.0, 0.0) if hiding else (cfg.mask_share, cfg.random_share)
        mask_id = data.tokenizer.special.mask
        letters = [symbol for symbol in data.chars.symbols[:REFERENCE_LETTERS] if len(symbol) == 1]
        return BlockMaker(
            tokenizer=data.tokenizer,
            pieces=WordPieces(data.tokenizer),
            chars=PieceChars(data.tokenizer, data.chars, self.config.model.compat_reference),
            terms=data.terms,
            noise=WordNoise(cfg.noise, cfg.noise_rate, seed, letters, cfg.noise_of),
            masking=SubwordMasking(cfg.mask_rate, *shares, mask_id, np.array(ordinary, np.int32), cfg.masking),
            length=cfg.max_length,
            slots=cfg.chars_per_piece * cfg.max_length,
            seed=seed,
            predicts_words=self._predicts_words,
        )

    def _is_ordinary(self, index: int) -> bool:
        """Says whether a subword may replace another at random; in the released code any may."""
        if self.config.data.masking == "reference":
            return True
        try:
            return self.data.tokenizer.surface(index) is not None
        except ValueError:  # ids may have gaps
            return False

    def _shape(self) -> NoisyShape:
        cfg, maker, sequences = self.config.data, self.training_maker, sequences_of(self.config, self.shards)
        noised = cfg.noised_budget
        if not noised:
            with training_records(self.config, self.data.train, self.read) as records:
                noised = measure_noised(records, maker, sequences)
        if self._predicts_words and noised < cfg.max_length - 2:
            raise ValueError(f"data.noised_budget={noised} must be at least {cfg.max_length - 2}, for any one sequence")
        return NoisyShape(self.shards, sequences, cfg.max_length, maker.slots, sequences * maker.most, noised)

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> SubwordData:
        """Returns the encoded corpora and the vocabularies, which a resumed run or `init_from` may provide."""
        text = config.text
        if run is not None or config.resume:
            return prepare_subwords(config, checkpoints.files_of(checkpoints.find(run or config.resume, key="resume")))
        if not config.init_from or (text.tokenizer and text.char_vocab and text.term_vocab):
            return prepare_subwords(config)
        return prepare_subwords(config, *vocab_of(config.init_from))

    @staticmethod
    def check_vocab(checkpoint: Path, data: SubwordData) -> None:
        """Compares the vocabularies by their digests; see `Objective.check_vocab`."""
        stored = metadata_of(checkpoint, NoisyLanguageModelling.families).get("vocabularies", {})
        differing = [name for name, digest in data.digests().items() if stored.get(name) != digest]
        if differing:
            folder = checkpoints.files_of(checkpoint)
            raise ValueError(
                f"{checkpoint} has another vocabulary of {' and of '.join(differing)}; set text.tokenizer={folder}, "
                f"text.char_vocab={folder}/char_vocab.txt and text.term_vocab={folder}/term_vocab.txt"
            )

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns a line with both held-out losses before and after training."""
        losses = [name for name in ("mlm_loss", "nlm_loss") if f"heldout_{name}" in last]
        values = lambda line: " and ".join(f"{line[f'heldout_{name}']:.3f}" for name in losses)
        return (
            f"held-out {' and '.join(losses).replace('_', ' ')}: {values(first)} before (step {first['step']}), "
            f"{values(last)} after (step {last['step']})"
        )

    def shard(self) -> NoisyShard:
        """Returns an empty shard."""
        return NoisyShard(self.shape, self.training_maker.pad)

    def count(self, batch: NoisyBatch) -> int:
        """Returns the number of subwords of text in a host batch, without special ones."""
        mask = batch.inputs.real_BL
        return int(mask.sum() - 2 * mask[..., 0].sum())

    def training_flops(self, batch: NoisyBatch) -> float:
        """Returns the useful floating-point operations of a step."""
        return charbert_training(self.model.config, batch)

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters."""
        batch = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), self.empty(shards=1))
        inputs = jax.tree.map(lambda x: x[0], batch.inputs)
        positions = (batch.mlm_position_SM, batch.nlm_position_SP) if self._predicts_words else (batch.mlm_position_SM,)
        return self.model.init(key, inputs, *positions)["params"]

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of a CharBERT, or those of its backbone with fresh ones for what they lack."""
        backbone = self._backbone or read_backbone(source)
        if backbone is None:
            return self._load_charbert(source, abstract_params)
        scope = CharBert.scope_name if self.config.model.char_channel else Bert.scope_name
        params, own = merge_backbone(backbone, fresh, scope)
        parts = sorted({"/".join(name.split("/")[:2]) for name in own})
        log.info(
            "parameters from %s, a %s; not there, so fresh: %s", source, backbone.family, ", ".join(parts) or "none"
        )
        self._backbone = None  # frees memory: it is not needed again
        return params

    def _load_charbert(self, source: str, abstract_params: Params) -> Params:
        checkpoint = checkpoints.find(source, key="init_from")
        if "vocabularies" in metadata_of(checkpoint, self.families):
            self.check_vocab(checkpoint, self.data)
        log.info("parameters from %s", checkpoint)
        return checkpoints.load_params(checkpoint, abstract_params)

    def loss_sums(self, params: Params, micro_batch: NoisyBatch, dropout_key: jax.Array | None) -> NoisySums:
        """Returns the sums of losses and correct predictions of a micro-batch [S, ...]."""
        return noisy_sums(self.model, params, micro_batch, dropout_key, nlm=self._predicts_words)

    @staticmethod
    def weights(batch: NoisyBatch) -> tuple[jax.Array, jax.Array]:
        """Returns the numbers of labels of both losses, which have equal weight (released code)."""
        return label_weights(batch)

    def summarize(self, sums: NoisySums) -> dict[str, float]:
        """Returns losses and accuracies; see `charlm.families.charbert.loss.summarize`."""
        return summarize(sums)

    def measured(self) -> JsonObject:
        """Returns the config keys of shards, budget and resolved model shape with their values."""
        found = {f"model.{name}": value for name, value in self._resolved.items()}
        return found | {"data.table_shards": self.shards, "data.noised_budget": self.shape.noised}

    def metadata(self) -> JsonObject:
        """Returns the description of the model, as imported models have it, its characters and vocabulary digests."""
        family = "charbert" if isinstance(self.model.config, CharBertConfig) else self._resolved["backbone"]
        return {
            "family": family,
            "model": config_to_dict(self.model.config),
            "head": MASKED_LM,
            "symbols": self.data.chars.to_dict(),
            "vocabularies": self.data.digests(),
        }

    def save_vocab(self, folder: Path) -> None:
        """Writes the tokenizer, the characters and the words."""
        self.data.save(folder)

    def start_lines(self) -> list[str]:
        """Returns the sizes of the vocabularies and the shape of a batch."""
        s, data = self.shape, self.data
        return [
            f"subwords known  {data.tokenizer.size:,}; characters {data.chars.size:,}; words {data.terms.size:,}",
            f"batch  {s.shards} shards x {s.sequences} sequences x {s.length} subwords with {s.slots:,} character "
            f"slots; a shard holds {s.masked:,} masked subwords and {s.noised:,} of misspelled words",
        ]

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns a line with the losses."""
        noisy = f" + NLM {scalars['nlm_loss']:.4f}" if "nlm_loss" in scalars else ""
        return f"loss {scalars['loss']:.4f} (MLM {scalars['mlm_loss']:.4f}{noisy})"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns a line with the losses, and the shares of subwords and words predicted right."""
        line = f"{self.progress_line(metrics)}, {100 * metrics['mlm_accuracy']:.1f} % of masked subwords right"
        if "nlm_accuracy" in metrics:
            line += f", {100 * metrics['nlm_accuracy']:.1f} % of misspelled words"
        return line

    def show_examples(self, params: Params) -> None:
        """Logs the five likeliest subwords and words for masked and misspelled held-out words."""
        show_examples(self, params)
