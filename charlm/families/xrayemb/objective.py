"""The objective of XRayEmb's second pre-training, which adds an encoder and a generator of words to a language model.

Open it to see how data, model and losses are put together. See Pinter et al. (2021), section 2.
"""

from __future__ import annotations

import logging
from pathlib import Path

import jax
import ml_collections
import numpy as np

from charlm.core import checkpoint as checkpoints
from charlm.core.types import JsonObject, Params
from charlm.data.lanes import Lane, empty_batch
from charlm.data.masking import Hiding
from charlm.data.pipeline import training_records
from charlm.families.spelled.model import smallest_batch
from charlm.families.stored import metadata_of
from charlm.families.subword.layout import config_to_dict
from charlm.families.subword.start import is_measured, merge_backbone
from charlm.families.text_objective import TextObjective, sequences_of
from charlm.families.xrayemb.batch import XRayBatch
from charlm.families.xrayemb.batches import XRayLane, XRayShape, XRayShard, with_cycle
from charlm.families.xrayemb.budgets import Budgets, measure_budgets
from charlm.families.xrayemb.chars import word_rows
from charlm.families.xrayemb.cycle_words import CycleWords, measure_cycle
from charlm.families.xrayemb.examples import show_examples, show_samples
from charlm.families.xrayemb.flops import xray_training
from charlm.families.xrayemb.keys import LOSSES, check_generate
from charlm.families.xrayemb.loss import XRayLosses, XRaySums, summarize
from charlm.families.xrayemb.policies import get_policy
from charlm.families.xrayemb.sequences import CharacterRows, XRaySequenceMaker
from charlm.families.xrayemb.shape import (
    NAME,
    head_of,
    make_model,
    model_config,
    read_start,
    resolve,
    scope_of,
    stored_chars,
)
from charlm.families.xrayemb.text import XRayData, prepare_xray
from charlm.families.xrayemb.words import XRayWords
from charlm.text.subwords.word_pieces import WordPieces

log = logging.getLogger("charlm")

BUDGETS = ("bucket_slots", "bucket_rows", "learned_words", "written_slots", "written_rows")
GENERATOR = "xr_dec"


class SecondPretraining(TextObjective):
    """Trains `model` with the five losses of `charlm.families.xrayemb.loss`; `shape` is the shape of every batch."""

    families = (NAME,)
    use = "python -m charlm.predict encode --checkpoint={workdir} 'A sentence with a neologismish word.'"
    parts = len(LOSSES)
    sums = XRaySums
    unit = "positions"
    of_shape = ("model.", "data.max_length")
    has_files = True
    watched = (GENERATOR,)

    def __init__(self, config: ml_collections.ConfigDict, data: XRayData, shards: int) -> None:
        """Reads the model that the run starts from, and measures sizes that the config leaves open; see `Objective`."""
        super().__init__(config, data, shards)
        self._start = read_start(config.init_from) if config.init_from and not is_measured(config) else None
        self._resolved = resolve(config, data, self._start)
        self.model = make_model(model_config(config, data, self._resolved))
        weights = {name: float(config.loss[name]) for name in LOSSES}
        loss = config.loss
        self._losses = XRayLosses(weights, loss.pooling, loss.detach, loss.reduction, loss.difference)
        self.weights = self._losses.label_weights
        check_generate(config, self._resolved["backbone"])
        self._found = XRayWords(data.tokenizer)
        self._rows = CharacterRows(data.tokenizer, data.chars, config.model.char_slots)
        self._cycle, self._heldout_cycle = self._cycle_words(False), self._cycle_words(True)
        self.shape = self._shape()

    @property
    def framed(self) -> bool:
        """Whether sequences have special tokens at both ends and masked subwords; not with GPT-2."""
        return self.training_maker.framed

    def maker(self, seed: int, hiding: bool) -> XRaySequenceMaker:
        """Returns the maker of sequences; with `hiding`, all chosen subwords are replaced by masks."""
        cfg, data, policy = self.config.data, self.data, self.config.policy
        weights, special = self._losses.weights, data.tokenizer.special
        masking = None
        if self._resolved["backbone"] != "gpt2":
            if None in (special.cls, special.sep, special.mask):
                raise ValueError("text.tokenizer: subwords without a mask, or without tokens that frame a sequence")
            shares = (1.0, 0.0) if hiding else (cfg.mask_share, cfg.random_share)
            ordinary = [i for i in data.tokenizer.ids() if data.tokenizer.surface(i) is not None]
            masking = Hiding(cfg.mask_rate, *shares, special.mask, np.array(ordinary, np.int32))
        return XRaySequenceMaker(
            tokenizer=data.tokenizer,
            words=WordPieces(data.tokenizer),
            found=self._found,
            rows=self._rows,
            learn=get_policy(policy.learn if weights["embedding"] else "none"),
            infer=get_policy(policy.infer),
            hiding=masking,
            writes=policy.generate if weights["generation"] else "",
            share=cfg.generate_share,
            length=cfg.max_length,
            slots=self.config.model.char_slots,
            seed=seed,
        )

    def _cycle_words(self, in_order: bool) -> CycleWords:
        cfg, weights = self.config.cycle, self._losses.weights
        parts = self.config.data.accumulation * self.shards
        return CycleWords(
            rows_NC=word_rows(self.data.frequent.words, self.data.chars, self.config.model.char_slots),
            counts_N=self.data.frequent.counts_N,
            size=-(-cfg.words // parts) if weights["cycle_words"] or weights["cycle_sphere"] else 0,
            every=cfg.every,
            micro_batches=1 if in_order else self.config.data.accumulation,
            seed=self.config.seed,
            sampling=cfg.sampling,
            in_order=in_order,
            apart=cfg.batches == "own",
        )

    def _shape(self) -> XRayShape:
        cfg, maker, sequences = self.config.data, self.training_maker, sequences_of(self.config, self.shards)
        given = Budgets(
            slots=tuple(cfg.bucket_slots),
            rows=tuple(cfg.bucket_rows),
            learned=cfg.learned_words,
            written_slots=tuple(cfg.written_slots),
            written_rows=tuple(cfg.written_rows),
        )
        with training_records(self.config, self.data.train, self.read) as records:
            found = measure_budgets(records, maker, sequences, given)
        cycle = measure_cycle(self._cycle, tuple(self.config.cycle.slots), tuple(self.config.cycle.rows))
        return XRayShape(
            self.shards, sequences, cfg.max_length, found.slots, found.rows, sequences * maker.most, found.learned,
            maker.pieces_most, found.written_slots, found.written_rows, *cycle,
        )  # fmt: skip

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> XRayData:
        """Returns the vocabularies, of the model that the run starts from if there is one, and encoded corpora."""
        if run is not None or config.resume:
            files = checkpoints.files_of(checkpoints.find(run or config.resume, key="resume"))
            return prepare_xray(config, files, stored_chars(files))
        if not config.init_from:
            return prepare_xray(config)
        start = read_start(config.init_from)
        check_generate(config, start.backbone)  # before any text is read
        return prepare_xray(config, start.files, start.chars)

    @staticmethod
    def check_vocab(checkpoint: Path, data: XRayData) -> None:
        """Compares the vocabularies by their digests; see `Objective.check_vocab`."""
        stored = metadata_of(checkpoint, (NAME,)).get("vocabularies", {})
        differing = [name for name, digest in data.digests().items() if stored.get(name) != digest]
        if differing:
            files = checkpoints.files_of(checkpoint)
            raise ValueError(f"{checkpoint} has other {' and '.join(differing)}; set text.tokenizer={files}")

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns every loss before and after."""
        names = [name for name in LOSSES if f"heldout_{name}_loss" in last]
        values = lambda line: ", ".join(
            f"{name.replace('_', ' ')} {line[f'heldout_{name}_loss']:.4f}" for name in names
        )
        return f"held-out losses: {values(first)} (step {first['step']}); {values(last)} (step {last['step']})"

    def shard(self) -> XRayShard:
        """Returns an empty shard."""
        return XRayShard(self.shape, self.training_maker.pad)

    def wrapped(self, lane: Lane, number: int, heldout: bool) -> XRayLane:
        """Returns a lane that adds words of cycles: to held-out text some of the most frequent words."""
        cycle = self._heldout_cycle if heldout else self._cycle
        return XRayLane(lane, self.shape, cycle, number, self.shard().build())

    def empty(self, shards: int) -> XRayBatch:
        """Returns a batch [1, shards, ...] of padding only."""
        return empty_batch(with_cycle(self.shard().build(), self._cycle.none(), self.shape), shards)

    def count(self, batch: XRayBatch) -> int:
        """Returns the number of subwords and spelled words of text in a host batch, without special tokens."""
        mask = batch.inputs.mask_SBL
        return int(mask.sum() - 2 * self.framed * mask[..., 0].sum())

    def training_flops(self, batch: XRayBatch) -> float:
        """Returns the useful operations of a step."""
        return xray_training(self.model.config, batch, self._losses.weights)

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters."""
        return self.model.init(key, smallest_batch())["params"]

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of an XRayEmb; or those of a backbone, with a fresh encoder and generator."""
        start, self._start = self._start or read_start(source), None  # it is not needed again
        if start.checkpoint is not None:
            if "vocabularies" in metadata_of(start.checkpoint, self.families):
                self.check_vocab(start.checkpoint, self.data)
            log.info("parameters from %s", start.checkpoint)
            return checkpoints.load_params(start.checkpoint, abstract_params)
        assert start.pretrained is not None  # a start without checkpoint has it
        params, own = merge_backbone(start.pretrained, fresh, scope_of(self.model.config))
        parts = sorted({name.split("/")[0] for name in own})
        log.info("parameters from %s, a %s; not there, so fresh: %s", source, start.pretrained.family, ", ".join(parts))
        return params

    def loss_sums(self, params: Params, micro_batch: XRayBatch, dropout_key: jax.Array | None) -> XRaySums:
        """Returns the sums of a micro-batch [S, ...]."""
        return self._losses.sums(self.model, params, micro_batch, dropout_key)

    def summarize(self, sums: XRaySums) -> dict[str, float]:
        """Returns losses and accuracies; see `charlm.families.xrayemb.loss.summarize`."""
        return summarize(sums, self._losses.weights)

    def measured(self) -> JsonObject:
        """Returns the number of shards, the budgets and the sizes taken from the backbone, for the saved config."""
        found = {f"model.{name}": value for name, value in self._resolved.items()}
        s = self.shape
        budgets = (s.slots, s.rows, s.learned, s.written_slots, s.written_rows)
        found |= {f"data.{name}": value for name, value in zip(BUDGETS, budgets, strict=True)}
        return found | {"data.table_shards": self.shards, "cycle.slots": s.cycle_slots, "cycle.rows": s.cycle_rows}

    def metadata(self) -> JsonObject:
        """Returns the metadata of a checkpoint, in the form that imported models have too.

        It holds the config of the model, its head, its characters and the digests of its vocabularies.
        """
        shape = self.model.config
        return {
            "family": NAME,
            "backbone": self._resolved["backbone"],
            "model": config_to_dict(shape),
            "head": head_of(shape),
            "xray_chars": self.data.chars.to_dict(),
            "vocabularies": self.data.digests(),
        }

    def save_vocab(self, folder: Path) -> None:
        """Writes the tokenizer and the characters."""
        self.data.save(folder)

    def start_lines(self) -> list[str]:
        """Returns the sizes of the vocabularies and the shape of a batch."""
        data, cycle = self.data, self._cycle
        words = self.shards * self.config.data.accumulation * cycle.size
        return [
            f"subwords known  {data.tokenizer.size:,}; characters {data.chars.size:,}; words of cycles "
            f"{len(data.frequent.words):,}, {words:,} every {cycle.every:,} steps",
            f"batch  {self.shape.described()}",
        ]

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss and its parts."""
        parts = (f"{name.replace('_', ' ')} {scalars[f'{name}_loss']:.4f}" for name in self._known(scalars))
        return f"loss {scalars['loss']:.4f} ({', '.join(parts)})"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns the losses, and the shares of subwords, characters and rebuilt words that are right."""
        shares = {
            "language_accuracy": "subwords",
            "generation_accuracy": "characters",
            "rebuilt_accuracy": f"characters of {metrics.get('rebuilt_words', 0):,.0f} frequent words rebuilt",
            "rebuilt_word_accuracy": "of them whole",
        }
        right = (f"{what} {100 * metrics[name]:.1f} %" for name, what in shares.items() if name in metrics)
        return f"{self.progress_line(metrics)}; right: {', '.join(right)}"

    @staticmethod
    def _known(metrics: dict[str, float]) -> list[str]:
        return [name for name in LOSSES if f"{name}_loss" in metrics]

    def watch(self, params: Params) -> None:
        """Logs words that the generator writes from `train.sample_words` fixed points of the sphere (Table 4)."""
        show_samples(self, params[GENERATOR])

    def show_examples(self, params: Params) -> None:
        """Logs what the model predicts and writes at some positions of held-out text."""
        show_examples(self, params)
