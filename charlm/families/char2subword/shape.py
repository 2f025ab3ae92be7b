"""Prepares a training run of Char2Subword: reads the model that it starts from, and makes model and vocabularies.

The objectives call it at the start of a run; open it to see what a run takes over from that model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from flax import traverse_util

from charlm.convert.heads import ENCODER, MASKED_LM
from charlm.core import checkpoint as checkpoints
from charlm.core.durable import replacing
from charlm.core.files import cache_dir, clear_write_errors
from charlm.core.trees import flat
from charlm.core.types import JsonObject, Params
from charlm.data.corpus import EncodedCorpus, prepare_texts
from charlm.families.char2subword.imitation import neighbours
from charlm.families.char2subword.keys import ALIGNMENT, CONTEXTUAL, OF_TEXT, of_stage
from charlm.families.char2subword.model import (
    GATED,
    Char2SubwordBert,
    Char2SubwordBertConfig,
    Char2SubwordForMaskedLM,
)
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.char2subword.spelling_vocab import Entries, characters_of
from charlm.families.char2subword.tensors import NAME, TABLE_PARAMETER, bert_config
from charlm.families.elsewhere import KEY
from charlm.families.pretrained import from_pretrained
from charlm.families.stored import checkpoint_of, metadata_of
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.kinds import BERT_KINDS
from charlm.families.subword.layout import config_from_dict
from charlm.families.units import check_ids
from charlm.text.chars import CharVocab
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.subwords import SubwordTokenizer

log = logging.getLogger("charlm")

OF_MODULE = ("hidden", "layers", "heads", "char_slots", "attention_scale", "residual", "dropout", "attention_dropout",
          "epsilon", "initializer", "remat", "attention_kernel", "scan_layers")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Char2SubwordStart:
    """The model that a run starts from or resumes.

    Attributes:
      source: the model as the config names it.
      backbone: one of `BERT_KINDS`.
      shape: shape of the backbone.
      files: folder of the tokenizer.
      head: whether the model has a prediction head.
      hf_config: the config of the backbone, as it was imported.
      checkpoint: checkpoint of a Char2Subword; None: the source is a backbone without a module.
      read_as: the head to read the backbone with, see `from_pretrained`.
      chars: characters of the module; None without a module.
    """

    source: str
    backbone: str
    shape: BertConfig
    files: Path
    head: bool
    hf_config: JsonObject
    checkpoint: Path | None = None
    read_as: str = ""
    chars: CharVocab | None = None

    def tokenizer(self) -> SubwordTokenizer:
        """Returns the tokenizer of subwords; ValueError when there is none."""
        return SubwordTokenizer.load(self.files)

    def backbone_params(self) -> Params:
        """Returns the parameters of the backbone; reads them each time, since keeping them would need memory twice."""
        params = from_pretrained(self.source, head=self.read_as).params
        return params if "bert" in params else {"bert": params}  # the parameters of an encoder alone lie at the top

    def table(self) -> np.ndarray:
        """Returns the table of subwords, float32 [V, D]."""
        if self.checkpoint is None:
            return np.asarray(self.backbone_params()["bert"]["embed"]["token"]["embedding"], np.float32)
        stored = checkpoints.stored_params(self.checkpoint)
        found = checkpoints.load_params(self.checkpoint, checkpoints.on_one_device(stored), [TABLE_PARAMETER])
        return np.asarray(flat(found)[TABLE_PARAMETER], np.float32)

    def layers(self, count: int) -> Params:
        """Returns the parameters of the lowest layers of the backbone by name, such as "layer_0", on the host."""
        names = [f"layer_{n}" for n in range(count)]
        if self.checkpoint is None:
            encoder = self.backbone_params()["bert"]["encoder"]
        else:
            stored = checkpoints.on_one_device(checkpoints.stored_params(self.checkpoint))
            wanted = tuple(f"bert/encoder/{name}/" for name in names)
            chosen = [name for name in flat(stored) if name.startswith(wanted)]
            encoder = checkpoints.load_params(self.checkpoint, stored, chosen)["bert"]["encoder"]
        return jax.device_get({name: encoder[name] for name in names})


class Char2SubwordData(NamedTuple):
    """Everything that batches are made from; `train` and `heldout` are empty in the approximation stage.

    Attributes:
      teacher: in the alignment stage the layers that are trained, as the teacher has them.
    """

    start: Char2SubwordStart
    tokenizer: SubwordTokenizer
    entries: Entries
    chars: CharVocab
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]
    teacher: Params = MappingProxyType({})


def read_start(source: str, key: str = "init_from") -> Char2SubwordStart:
    """Returns the model that a source holds.

    Args:
      source: a checkpoint of Char2Subword, or any BERT, RoBERTa or RoFormer.
      key: the config key that names it, for messages.

    Raises:
      ValueError: there is no model, it is of another family, or it is a Char2Subword without its table.
    """
    if not source:
        raise ValueError(
            f"{key} is empty: Char2Subword imitates the table of a model; name a BERT, mBERT, RoBERTa or RoFormer"
        )
    if (checkpoint := checkpoint_of(source, NAME, key)) is not None:
        return _of_checkpoint(source, checkpoint)
    found = from_pretrained(source)
    if found.family not in BERT_KINDS:
        raise ValueError(f"{key}: {source} is a {found.family}; Char2Subword starts from {', '.join(BERT_KINDS)}")
    read_as = "" if found.head in (ENCODER, "pooled_encoder", MASKED_LM, "pretraining") else ENCODER
    if read_as:
        found = from_pretrained(source, head=read_as)
    head = found.head in (MASKED_LM, "pretraining")
    theirs = dict(found.metadata.get("hf_config") or {})
    return Char2SubwordStart(source, found.family, found.config, found.folder, head, theirs, read_as=read_as)


def _of_checkpoint(source: str, checkpoint: Path) -> Char2SubwordStart:
    stored = metadata_of(checkpoint, (NAME,))
    if about := stored.get(KEY):
        raise ValueError(
            f"init_from: {source} leaves its transformer in the package {about['package']}: it can be used, but no run "
            "goes on from it; start from the run that it was packed from"
        )
    if "rows" in stored:
        raise ValueError(f"init_from: {source} was made without its table; there is nothing to imitate")
    shape = bert_config(config_from_dict(Char2SubwordBertConfig, stored["model"], str(checkpoint)))
    return Char2SubwordStart(
        source,
        stored["backbone"],
        shape,
        checkpoints.files_of(checkpoint),
        stored["head"] == MASKED_LM,
        dict(stored.get("hf_config") or {}),
        checkpoint,
        chars=CharVocab.from_dict(stored["char_vocab"], str(checkpoint)),
    )


def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> Char2SubwordData:
    """Returns all data that a stage reads; see `charlm.families.objective.Objective.prepare`."""
    if run is not None or config.resume:
        start = read_start(str(run or config.resume), "resume")
    else:
        start = read_start(config.init_from)
    if config.stage == CONTEXTUAL and not start.head:
        raise ValueError(
            f"init_from: {start.source} has no prediction head, which the contextual stage learns from; set "
            "stage=approximation, or start from a model for masked language modelling"
        )
    if config.stage in OF_TEXT and config.data.max_length > start.shape.longest:
        raise ValueError(
            f"data.max_length={config.data.max_length}, but {start.source} has {start.shape.longest} positions"
        )
    tokenizer = start.tokenizer()
    check_ids(start.files, "the tokenizer has", tokenizer.size, start.shape.vocab_size)
    entries = Entries.of(tokenizer)
    chars = start.chars or characters_of(entries, keyboard_for(config.data.keyboard))
    train, heldout = prepare_texts(config, "Char2Subword reads text") if config.stage in OF_TEXT else ((), ())
    teacher = _teacher_layers(config) if config.stage == ALIGNMENT else {}
    return Char2SubwordData(start, tokenizer, entries, chars, train, heldout, teacher)


def _teacher_layers(config: ml_collections.ConfigDict) -> Params:
    """Returns the layers that a run trains as the teacher has them; a resumed run reads them from its source, too."""
    count = config.alignment.free_layers
    if not count:
        return {}
    if not config.init_from:
        raise ValueError(f"alignment.free_layers={count} needs init_from also to resume: the teacher has these layers")
    start = read_start(config.init_from)
    if count > start.shape.layers:
        raise ValueError(f"alignment.free_layers={count}, but {start.source} has {start.shape.layers} layers")
    return start.layers(count)


def model_config(config: ml_collections.ConfigDict, data: Char2SubwordData) -> Char2SubwordBertConfig:
    """Returns the shape of the module and the backbone; the backbone has no dropout because it is frozen."""
    model, dtype = config.model, jnp.dtype(config.model.dtype)
    fields = {name: model[name] for name in OF_MODULE}
    characters = Char2SubwordConfig(
        char_vocab_size=data.chars.size,
        output=data.start.shape.hidden,
        dtype=dtype,
        gate=model.mode == GATED,
        **fields,
    )
    shape = {field.name: getattr(data.start.shape, field.name) for field in dataclasses.fields(BertConfig)}
    shape |= {"dropout": 0.0, "attention_dropout": 0.0, "dtype": dtype, "remat": model.remat}
    shape |= {"attention_kernel": model.attention_kernel, "scan_layers": model.scan_layers}
    text = {"splitter": config.text.splitter, "language": config.text.language}
    return Char2SubwordBertConfig(**shape, **text, characters=characters, mode=model.mode)


def make_model(shape: Char2SubwordBertConfig, head: bool) -> Char2SubwordForMaskedLM | Char2SubwordBert:
    """Returns the model of that shape, with the backbone's head if it has one."""
    return Char2SubwordForMaskedLM(shape) if head else Char2SubwordBert(shape)


def with_backbone(start: Char2SubwordStart, fresh: Params) -> Params:
    """Returns the parameters `fresh` with all but the module's replaced by those of the backbone.

    Raises:
      ValueError: parameters of the backbone are missing or have another shape; the message names them.
    """
    ours = flat(fresh)
    named = flat(start.backbone_params())
    frozen = {name: value for name, value in ours.items() if not name.startswith(f"{NAME}/")}
    lacking = [name for name, value in frozen.items() if name not in named or named[name].shape != value.shape]
    if lacking:
        raise ValueError(f"init_from: {start.source} lacks {', '.join(lacking)}, or has another shape there")
    placed = {name: jax.device_put(np.asarray(named[name]), value.sharding) for name, value in frozen.items()}
    return traverse_util.unflatten_dict(ours | placed, sep="/")


def near_rows(config: ml_collections.ConfigDict, table_VD: np.ndarray, count: int) -> np.ndarray:
    """Returns the rows nearest to every row of a table, int32 [V, count]; computed once and kept in the cache."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file, save_file

    digest = hashlib.sha256(np.ascontiguousarray(table_VD).data).hexdigest()[:24]
    root = cache_dir(config)
    path = os.path.join(root, f"neighbours-{digest}-{count}.safetensors")
    if os.path.exists(path):
        with contextlib.suppress(SafetensorError, KeyError, OSError):  # an unreadable file is computed again
            ids_VK = load_file(path)["ids"]
            if ids_VK.shape == (len(table_VD), count) and ids_VK.dtype == np.int32:
                return ids_VK
        log.warning("%s is damaged: it is made again", path)
    log.info("computing the %d nearest rows of each of %s rows, once", count, f"{len(table_VD):,}")
    found = neighbours(table_VD, count).ids
    with clear_write_errors(root):
        os.makedirs(root, exist_ok=True)
        with replacing(path) as temporary:
            save_file({"ids": found}, temporary)
    return found


def corpora_of(config: ml_collections.ConfigDict) -> list[EncodedCorpus]:
    """Encodes the texts that the stages read, the same for all, and returns them.

    Raises:
      ValueError: no stage of the config reads text; or as `prepare_texts` raises it.
    """
    reading = [stage for stage in OF_TEXT if stage in (config.stage or config.stages)]
    if not reading:
        stages = ",".join(dict.fromkeys([config.stage] if config.stage else config.stages))
        raise ValueError(f"stage {stages} of Char2Subword reads no text; there is nothing to encode")
    train, heldout = prepare_texts(of_stage(config, reading[0]), "Char2Subword reads text")
    return [*train, *heldout]
