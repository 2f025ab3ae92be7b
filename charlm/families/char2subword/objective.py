"""The objective of the approximation stage: Char2Subword learns to make the rows of a subword table (section 3.1).

Open it to see how data, model and losses of this stage are put together. `Char2SubwordObjective` is the part that the
contextual stage (`contextual.py`) shares.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from pathlib import Path

import grain
import jax
import ml_collections
import numpy as np
from flax import traverse_util

from charlm.convert.heads import ENCODER, MASKED_LM
from charlm.core import checkpoint as checkpoints
from charlm.core.trees import flat
from charlm.core.types import JsonObject, Params
from charlm.data.lanes import empty_batch, prefetched
from charlm.families.char2subword import shape as char2subword_model
from charlm.families.char2subword.batch import ImitationBatch
from charlm.families.char2subword.batches import (
    EvaluationBatches,
    Imitated,
    MadeLater,
    TrainingBatches,
    build_shard,
    choose_unseen,
    measure_shape,
)
from charlm.families.char2subword.flops import imitation_training
from charlm.families.char2subword.imitation import LOSSES, NEIGHBOURS, nearest
from charlm.families.char2subword.loss import ImitationSums, imitation_sums, summarize
from charlm.families.char2subword.module import GATE, Char2Subword
from charlm.families.char2subword.shape import (
    Char2SubwordData,
    make_model,
    model_config,
    near_rows,
    with_backbone,
)
from charlm.families.char2subword.spelling import spell_rows, spell_word
from charlm.families.char2subword.spelling_noise import ManyTypos, OneTypo
from charlm.families.char2subword.tensors import NAME
from charlm.families.objective import Objective, first_of
from charlm.families.spelled.model import smallest_batch
from charlm.families.stored import metadata_of
from charlm.families.subword.layout import config_to_dict
from charlm.families.text_objective import sequences_of
from charlm.nn.apply import applied
from charlm.text.chars import CHAR_VOCAB_FILE
from charlm.text.noise import Noise, Noiser

log = logging.getLogger("charlm")

SHOWN = 5  # neighbours that are logged per example


class Char2SubwordObjective(Objective):
    """The part that both stages share: the model, its first parameters, and its checkpoints."""

    families = (NAME,)
    has_files = True
    of_shape = ("model.", "data.max_length")
    trains = f"{NAME}/"
    counts_frozen = True

    def __init__(self, config: ml_collections.ConfigDict, data: Char2SubwordData, shards: int) -> None:
        """Makes the model, and chooses the entries that no stage spells; see `Objective`."""
        super().__init__(config, data, shards)
        self.model = make_model(model_config(config, data), data.start.head)
        self.unseen_N = choose_unseen(data.entries, config.data.unseen, config.seed)
        if self.unseen_N.all():
            raise ValueError(f"data.unseen={config.data.unseen} leaves no entry of the vocabulary to train on")

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> Char2SubwordData:
        """Returns the model that the run starts from, its vocabularies, and in the contextual stage encoded corpora."""
        return char2subword_model.prepare(config, run)

    @staticmethod
    def check_vocab(checkpoint: Path, data: Char2SubwordData) -> None:
        """Compares the characters and the subwords; see `Objective.check_vocab`."""
        stored = metadata_of(checkpoint, (NAME,))
        if stored["char_vocab"] != data.chars.to_dict() or stored["subwords"] != data.tokenizer.digest():
            raise ValueError(f"{checkpoint} has other characters or subwords than {data.start.source}")

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters of the module and of the backbone."""
        return self.model.init(key, smallest_batch())["params"]

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of a Char2Subword; or those of a backbone, with a fresh module in front of it."""
        start = self.data.start
        if start.checkpoint is not None:
            gate = f"{NAME}/{GATE}"  # the names of both its layers begin so
            if any(name.startswith(gate) for name in checkpoints.parameter_shapes(start.checkpoint)):
                gate = ""
            kept = {name: x for name, x in flat(fresh).items() if gate and name.startswith(gate)}
            log.info("parameters from %s%s", start.checkpoint, "; fresh: its gate" if kept else "")
            stored = {name: x for name, x in flat(abstract_params).items() if name not in kept}
            loaded = checkpoints.load_params(start.checkpoint, traverse_util.unflatten_dict(stored, sep="/"))
            return traverse_util.unflatten_dict(flat(loaded) | kept, sep="/")
        params = with_backbone(start, fresh)
        log.info("parameters from %s, a %s, which stays as it is; fresh: %s", source, start.backbone, NAME)
        return params

    def metadata(self) -> JsonObject:
        """Returns the metadata of a checkpoint, in the form that imported models have too.

        It holds the config of the model, its head, its characters and the digest of its subwords.
        """
        start = self.data.start
        return {
            "family": NAME,
            "backbone": start.backbone,
            "model": config_to_dict(self.model.config),
            "head": MASKED_LM if start.head else ENCODER,
            "char_vocab": self.data.chars.to_dict(),
            "subwords": self.data.tokenizer.digest(),
            "hf_config": start.hf_config,
        }

    def save_vocab(self, folder: Path) -> None:
        """Writes the tokenizer and the characters."""
        self.data.tokenizer.save(folder)
        self.data.chars.save(folder / CHAR_VOCAB_FILE)


def _typos(config: ml_collections.ConfigDict) -> OneTypo | ManyTypos | None:
    """Returns what misspells entries: nothing, the paper's typos, or the kinds of `data.spelling_noise`."""
    rate, kinds, keyboard = config.data.noise_rate, config.data.spelling_noise, config.data.keyboard
    if not rate:
        return None
    if not kinds:
        return OneTypo(Noiser(Noise("char2subword", rate, 5, keyboard), config.seed))
    noises = [dataclasses.replace(Noise.parse(kind), language=keyboard) for kind in kinds]
    return ManyTypos(tuple(noises), rate, config.seed)


class TableImitation(Char2SubwordObjective):
    """The four losses over spellings of entries, some with a typo; `shape` is the shape of every batch."""

    sums = ImitationSums
    unit = "spellings"
    use = "python -m charlm.predict neighbors --checkpoint={workdir} business BUSINESS bssinesssses"

    def __init__(self, config: ml_collections.ConfigDict, data: Char2SubwordData, shards: int) -> None:
        """Measures the length buckets; see `Objective`."""
        super().__init__(config, data, shards)
        cfg, entries, rows = config.data, data.entries, data.start.shape.vocab_size
        if (count := config.loss.neighbour_count) >= rows:
            raise ValueError(f"loss.neighbour_count={count} must be less than {rows}, the rows of {data.start.source}")
        self._measured_on = min(NEIGHBOURS, rows)  # the largest k of precision at k
        self._imitated = Imitated(
            entries=entries,
            vocab=data.chars,
            typos=_typos(config),
            slots=config.model.char_slots,
            near_NK=np.zeros((len(entries), max(count, self._measured_on)), np.int32),
            unseen_N=self.unseen_N,
        )
        size = sequences_of(config, shards)
        self.shape = measure_shape(self._imitated, size, shards, tuple(cfg.bucket_slots), tuple(cfg.bucket_rows))
        self._module = Char2Subword(self.model.config.characters)
        self._weights = {name: float(config.loss[name]) for name in LOSSES}

    @functools.cached_property
    def _with_neighbours(self) -> Imitated:
        """The entries to imitate with their nearest rows, which are computed when batches are first made."""
        near = near_rows(self.config, self.data.start.table(), self._imitated.near_NK.shape[1])
        return dataclasses.replace(self._imitated, near_NK=near[self.data.entries.ids_N])

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns accuracy and average precision before and after."""
        shown = ("accuracy", "average_precision")
        values = lambda line: " and ".join(f"{100 * line[f'heldout_{name}']:.1f} %" for name in shown)
        return (
            f"accuracy and average precision of the table: {values(first)} before (step {first['step']}), "
            f"{values(last)} after (step {last['step']})"
        )

    def train_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[ImitationBatch]:
        """Returns batches without end; see `Objective.train_batches`."""
        return MadeLater(lambda: prefetched(self._training(self._with_neighbours, lanes), self.config.data.prefetch))

    def _training(self, imitated: Imitated, lanes: tuple[int, ...]) -> TrainingBatches:
        cfg = self.config.data
        options = {"accumulation": cfg.accumulation, "seed": self.config.seed, "shuffle": cfg.shuffle}
        near_NK = imitated.near_NK[:, : self.config.loss.neighbour_count]
        return TrainingBatches(dataclasses.replace(imitated, near_NK=near_NK), self.shape, lanes, **options)

    def sample(self) -> ImitationBatch:
        """Returns a training batch of the first shard; its neighbours, which take minutes to find, are all row 0."""
        return first_of(self._training(self._imitated, (0,)))

    def heldout_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[ImitationBatch]:
        """Returns batches of a sample of the entries, spelled without typos; it includes entries never trained on."""
        most = self.config.train.eval_words
        return MadeLater(lambda: EvaluationBatches(self._with_neighbours, self.shape, lanes, most))

    def empty(self, shards: int) -> ImitationBatch:
        """Returns a batch [1, shards, ...] of padding only."""
        shard = build_shard(self._imitated, self.shape, [[] for _ in self.shape.rows], None)
        return empty_batch(shard, shards)

    def count(self, batch: ImitationBatch) -> int:
        """Returns the number of spellings in a host batch."""
        return int(sum((ids >= 0).sum() for ids in batch.ids))

    def training_flops(self, batch: ImitationBatch) -> float:
        """Returns the useful operations of a step."""
        rows = self.model.config.vocab_size if self._weights["cross_entropy"] else 0
        return imitation_training(self.model.config.characters, batch, rows)

    def loss_sums(self, params: Params, micro_batch: ImitationBatch, dropout_key: jax.Array | None) -> ImitationSums:
        """Returns the sums of a micro-batch [S, ...]."""
        table_VD = params["bert"]["embed"]["token"]["embedding"]
        loss = self.config.loss
        options = {"weights": self._weights, "distance": loss.distance_of, "neighbour_count": loss.neighbour_count}
        return imitation_sums(self._module, params[NAME], table_VD, micro_batch, dropout_key, **options)

    def summarize(self, sums: ImitationSums) -> dict[str, float]:
        """Returns the means of the losses and, in evaluation, precision; see `loss.summarize`."""
        return summarize(sums)

    def measured(self) -> JsonObject:
        """Returns the number of shards and the length buckets, for the config that is saved."""
        shape = self.shape
        return {"data.table_shards": shape.shards, "data.bucket_slots": shape.slots, "data.bucket_rows": shape.rows}

    def start_lines(self) -> list[str]:
        """Returns the sizes of the vocabularies and the shape of a batch."""
        data, s = self.data, self.shape
        unseen = int(self.unseen_N.sum())
        tables = ", ".join(f"{rows} of {slots}" for slots, rows in zip(s.slots, s.rows, strict=True))
        return [
            f"imitates  {len(data.entries) - unseen:,} rows of {data.start.shape.vocab_size:,} of {data.start.source}; "
            f"{unseen:,} are never shown; characters {data.chars.size:,}",
            f"batch  {s.shards} shards x {sum(s.rows):,} spellings: {tables} characters",
        ]

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss and its parts."""
        parts = " ".join(f"{name} {scalars[name]:.3f}" for name in LOSSES if self._weights[name])
        return f"loss {scalars['loss']:.4f} ({parts}; length {scalars['norm']:.2f})"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns accuracy and precision of entries that are trained on, and of entries that are not."""
        line = (
            f"accuracy {100 * metrics['accuracy']:.1f} %, precision@1 {100 * metrics['precision_at_1']:.1f} %, "
            f"@{self._measured_on} {100 * metrics['precision_at_k']:.1f} %, average "
            f"{100 * metrics['average_precision']:.1f} %"
        )
        if "unseen_accuracy" in metrics:
            at_k = metrics["unseen_precision_at_k"]
            line += f"; never shown: {100 * metrics['unseen_accuracy']:.1f} %, {100 * at_k:.1f} %"
        return line

    def show_examples(self, params: Params) -> None:
        """Logs the entries nearest to some words of the vocabulary, and those nearest to each word with one typo."""
        entries, rng = self.data.entries, np.random.default_rng(0)
        long = [s.chars for s in entries.surfaces if s.starts_word and s.chars.isalpha() and len(s.chars) > 4]
        count = min(self.config.train.examples, len(long))
        words = [long[i] for i in rng.choice(len(long), count, replace=False)]
        typos = Noiser(Noise("char2subword", 1.0, 5, self.config.data.keyboard), self.config.seed)
        asked = [form for word in words for form in (word, typos.word(word, rng))]
        if not asked:
            return
        rows_UC = spell_rows(list(map(spell_word, asked)), self.data.chars, self.shape.slots[-1])
        table_ND = np.asarray(params["bert"]["embed"]["token"]["embedding"])[entries.ids_N]
        find = jax.jit(lambda p, chars, table: nearest(applied(self._module, {"params": p})(chars), table, SHOWN))
        cosines, found = jax.device_get(find(params[NAME], rows_UC, table_ND))
        for word, near_K, at_K in zip(asked, cosines, found, strict=True):
            names = [
                f"{self.data.tokenizer.token(int(entries.ids_N[at]))} {x:.2f}"
                for at, x in zip(at_K, near_K, strict=True)
            ]
            log.info("nearest to %s: %s", word, ", ".join(names))
