"""Configuration keys that only Char2Subword has; `charlm.config.pretraining` has the keys of every family.

Open it to add a key or to see which values are allowed. Sections, tables and footnotes refer to Aguilar et al.,
Findings of EMNLP 2021, arXiv 2010.12730. The paper gives no hyper-parameters, so values without a section are ours.

A run goes through stages, one after another (`charlm.training.stages`). `data.batch_size`, `optim`, `train` and the
dropout keys of `model` hold the values of the approximation stage. The sections `contextual` and `alignment` hold the
values that replace them in the stages of these names; `SET_BY` says which key replaces which. The alignment stage is
ours, not the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_collections

from charlm.config.shared import (
    ACCUMULATION,
    ATTENTION_DROPOUT,
    BATCH_SIZE,
    CHECKPOINT_EVERY,
    DROPOUT,
    EVAL_EVERY,
    LEARNING_RATE,
    LOG_EVERY,
    WARMUP_STEPS,
)
from charlm.core.keys import Key, amount, count, natural, share
from charlm.core.types import JsonObject
from charlm.families.alignment_keys import ALIGNMENT_KEYS, check_alignment
from charlm.families.shared_keys import (
    BUCKET_ROWS,
    BUCKET_SLOTS,
    CHAR_SLOTS,
    EPSILON,
    LAYERS,
    MASK_RATE,
    MAX_LENGTH,
    NOISE_RATE,
)
from charlm.text.noise import KINDS, Noise

APPROXIMATION, CONTEXTUAL, ALIGNMENT = "approximation", "contextual", "alignment"
STAGES = (APPROXIMATION, CONTEXTUAL, ALIGNMENT)
OF_TEXT = (CONTEXTUAL, ALIGNMENT)  # the stages that read text

MEASURED = ("data.bucket_slots", "data.bucket_rows")
LOSS_KEYS = ("loss.cosine", "loss.distance", "loss.neighbours", "loss.cross_entropy")

_OF_OTHERS = (
    "data.batch_size", "data.accumulation", "data.bucket_slots", "data.bucket_rows", "optim.learning_rate",
    "optim.warmup_steps", "model.dropout", "model.attention_dropout", "train.steps", "train.log_every",
    "train.eval_every", "train.eval_words", "train.checkpoint_every",
)  # fmt: skip
SET_BY = {stage: {key: f"{stage}.{key.split('.')[1]}" for key in _OF_OTHERS} for stage in OF_TEXT}
# These keys may change on resuming: their stage copies them into other keys, which are compared, and the other stages
# do not read them.
RESUMABLE = tuple(key for keys in SET_BY.values() for key in keys.values())

KEYS: dict[str, Key] = {
    "stages": Key((APPROXIMATION, CONTEXTUAL, APPROXIMATION), "what a run does, in this order (section 4, Figure 4)"),
    "stage": Key("",
        'one stage alone, in the workdir itself: "approximation", "contextual" or "alignment"; empty: all of `stages`',
        ("", *STAGES)),
    "loss.cosine": amount(1.0, "weight of 1 - cos (section 3.1, unweighted); 0: left out"),
    "loss.distance": amount(1.0, "weight of the Euclidean distance"),
    "loss.neighbours": amount(1.0, "weight of the differences of distances to the neighbours"),
    "loss.cross_entropy": amount(1.0, "weight of the softmax over the table"),
    "loss.distance_of": Key("norm",
        '"norm" as the paper writes it, or "mean_square", which learns faster', ("norm", "mean_square")),
    "loss.neighbour_count": count(15,
        "neighbours k of a row in the loss, itself among them (precision is measured on 15)"),
    "data.noise_rate": NOISE_RATE.but(
        meaning="share of the spellings of five characters or more that get one typo (section 3.1, Table 1)"),
    "data.spelling_noise": Key((),
        "approximation: kinds of noise, one of which is drawn for a spelling, its rate from 0 to the one given, for a "
        "share of `data.noise_rate`; empty: the typos of Table 1"),
    "data.keyboard": Key("auto", 'language of the keyboard of mistyped letters; "auto": by the script of each'),
    "data.unseen": share(0.0,
        "share of the subwords that no stage spells, to measure how words are composed; chosen by `seed`"),
    "data.bucket_slots": BUCKET_SLOTS.but(meaning="approximation: {}"),
    "data.bucket_rows": BUCKET_ROWS.but(
        meaning="approximation: spellings per bucket, of a part of a micro-batch in all; empty: measured"),
    "data.max_length": MAX_LENGTH.but(meaning="contextual, alignment: {} (section 3.2)"),
    "data.mask_rate": MASK_RATE.but(meaning="contextual: share of the subwords to predict (section 3.2)"),
    "data.mask_whole": Key(False,
        "contextual: True: one draw for all characters of a subword, as in BERT; False: one each"),
    "contextual.steps": count(1500, 'three passes of 500 updates ("a few", section 3.2)'),
    "contextual.batch_size": BATCH_SIZE.but(2000, "sequences of an update (section 3.2)"),
    "contextual.accumulation": ACCUMULATION.but(125, "micro-batches of an update"),
    "contextual.bucket_slots": BUCKET_SLOTS,
    "contextual.bucket_rows": BUCKET_ROWS.but(
        meaning="distinct spellings per bucket of a part of a micro-batch; empty: measured"),
    "contextual.learning_rate": LEARNING_RATE.but(1e-4),
    "contextual.warmup_steps": WARMUP_STEPS.but(75),
    "contextual.dropout": DROPOUT.but(meaning="of the module; the frozen transformer has none"),
    "contextual.attention_dropout": ATTENTION_DROPOUT.but(meaning="of the module"),
    "contextual.log_every": LOG_EVERY.but(10),
    "contextual.eval_every": EVAL_EVERY.but(100),
    "contextual.eval_words": natural(0, "held-out subwords of an evaluation; 0: all"),
    "contextual.checkpoint_every": CHECKPOINT_EVERY.but(100),
    **ALIGNMENT_KEYS,
    "alignment.free_layers": natural(0, "lowest layers of the transformer that are trained, too; not the teacher's"),
    "alignment.steps": count(20_000, "optimizer steps"),
    "alignment.batch_size": BATCH_SIZE.but(64, "texts of an update"),
    "alignment.accumulation": ACCUMULATION,
    "alignment.bucket_slots": BUCKET_SLOTS,
    "alignment.bucket_rows": BUCKET_ROWS.but(
        meaning="distinct spellings per bucket of a part of a micro-batch; empty: measured"),
    "alignment.learning_rate": LEARNING_RATE.but(5e-4),
    "alignment.warmup_steps": WARMUP_STEPS.but(200),
    "alignment.dropout": DROPOUT.but(0.0, "of the module; the transformer has none"),
    "alignment.attention_dropout": ATTENTION_DROPOUT.but(0.0, "of the module"),
    "alignment.log_every": LOG_EVERY.but(50),
    "alignment.eval_every": EVAL_EVERY.but(500),
    "alignment.eval_words": natural(2000, "held-out texts of an evaluation, half of them with noise; 0: all"),
    "alignment.checkpoint_every": CHECKPOINT_EVERY.but(500),
    "model.layers": LAYERS.but(6, "of the module: gives the 50 M parameters of section 5"),
    "model.char_slots": CHAR_SLOTS.but(64, "characters of the longest word, its mark included; longer ones are cut"),
    "model.attention_scale": Key("model",
        'divide scores by the root of the "model" width (appendix A) or of a "head"\'s', ("model", "head")),
    "model.residual": Key("normalised",
        'add to a layer\'s output its "normalised" input (appendix A), or its "plain" one', ("normalised", "plain")),
    "model.epsilon": EPSILON.but(1e-5, "of the module's LayerNorms"),
    "model.mode": Key("hybrid",
        'what text becomes when the model is used (section 3.3): "hybrid" or "full"; "gated": pieces, see alignment',
        ("full", "hybrid", "gated")),
}  # fmt: skip
VALUES: JsonObject = {  # default values of keys that all families share
    "text.splitter": "rules",
    "data.batch_size": 512,  # spellings of an update
    "model.dropout": 0.0,  # the table is to be remembered
    "model.attention_dropout": 0.0,
    "model.initializer": "lecun",
    "optim.learning_rate": 3e-4,
    "optim.warmup_steps": 1000,
    "optim.schedule": "cosine",
    "optim.b2": 0.98,
    "optim.weight_decay": 0.0,
    "optim.freeze": ("^(bert|head)/",),  # everything but the module: the transformer and its table (section 3.2)
    "train.steps": 20_000,
    "train.log_every": 100,
    "train.eval_every": 1000,
    "train.eval_words": 2000,  # entries of an evaluation
    "train.checkpoint_every": 1000,
}
CHOICES = {"data.masking": ("paper",)}  # the choices of a shared key that this family allows


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of Char2Subword's keys; ValueError naming the key, its value and the values expected."""
    stages = config.stages
    if not stages or not all(stage in STAGES for stage in stages):
        raise ValueError(f"stages={tuple(stages)} must name one or more of {', '.join(STAGES)}")
    weights = {key: config.loss[key.removeprefix("loss.")] for key in LOSS_KEYS}
    if not any(weights.values()):
        raise ValueError(f"{', '.join(weights)} are all 0; expected one of them to be more")
    if config.model.hidden % 2:
        raise ValueError(f"model.hidden={config.model.hidden} must be even, for sine and cosine")
    if not 4 <= config.model.char_slots <= 1024:
        raise ValueError(f"model.char_slots={config.model.char_slots} must lie in [4, 1024]")
    _check_spelling_noise(config)
    check_alignment(config)
    if not config.optim.freeze:
        raise ValueError("optim.freeze is empty: the transformer and its table stay as they are (section 3.2)")


def _check_spelling_noise(config: ml_collections.ConfigDict) -> None:
    kinds = _kinds("data.spelling_noise", config.data.spelling_noise)
    if needy := [kind for kind in kinds if KINDS[kind].listed]:
        raise ValueError(f"data.spelling_noise: {needy[0]} needs a list, which spellings do not have")
    if kinds and not config.data.noise_rate:
        raise ValueError("data.spelling_noise is of no use with data.noise_rate=0: no spelling gets noise")


def _kinds(key: str, specs: Sequence[str]) -> list[str]:
    """Returns the kinds of noises; ValueError naming the key if one is written wrongly."""
    try:
        return [Noise.parse(spec).kind for spec in specs]
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def of_stage(config: ml_collections.ConfigDict, stage: str) -> ml_collections.ConfigDict:
    """Returns the config of one stage: `stage` is set, and in stages that read text `SET_BY` replaces values.

    With `alignment.free_layers`, the alignment stage leaves these layers out of `optim.freeze`.

    Raises:
      ValueError: there is no such stage.
    """
    if stage not in STAGES:
        raise ValueError(f"stage={stage!r} is not one of {', '.join(STAGES)}")
    own = config.copy_and_resolve_references()
    own.stage = stage
    values = {key: own[by.split(".")[0]][by.split(".")[1]] for key, by in SET_BY.get(stage, {}).items()}
    own.update_from_flattened_dict(values)
    if stage == ALIGNMENT and (count := own.alignment.free_layers):
        free = "|".join(map(str, range(count)))
        own.optim.freeze = (rf"^(head|bert/(?!encoder/layer_({free})/))",)
    return own
