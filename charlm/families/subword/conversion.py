"""Converts BERT, RoBERTa, RoFormer and GPT-2 between folders of transformers ("theirs") and charlm checkpoints.

Open it when a folder is refused, or to change which files are read and written besides the tensors. A checkpoint made
here is self-contained: it states its family, config and head, and holds the tokenizer's files. The converters of
families built on these models use its helpers.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import flax.linen as nn

from charlm.convert.files import Tensor, find_state, open_state
from charlm.convert.heads import ENCODER
from charlm.convert.model import Converter, Model, Names, Target
from charlm.convert.rules import check_constants, describe, group, import_state, matches_any, names_any
from charlm.core.durable import write_json
from charlm.core.reading import read_object
from charlm.core.types import Json, JsonObject, ModelConfig, Params
from charlm.families import elsewhere
from charlm.families.family import Family
from charlm.families.subword import BERT, ROBERTA, ROFORMER
from charlm.families.subword import GPT2 as GPT2_FAMILY
from charlm.families.subword.bert import Bert
from charlm.families.subword.bert_tensors import BERT_LAYOUT, POOLED_ENCODER, ROBERTA_LAYOUT, ROFORMER_LAYOUT
from charlm.families.subword.gpt2 import GPT2, GPT2Config
from charlm.families.subword.gpt2_tensors import GPT2_LAYOUT as GPT2_TABLE
from charlm.families.subword.label_heads import check_exportable, varied, with_label_head
from charlm.families.subword.layout import LABELS_MAX, Layout, config_from_dict, config_to_dict
from charlm.text.speller.files import FILE as SPELLER
from charlm.text.speller.files import copy_speller
from charlm.text.subwords import SubwordTokenizer

log = logging.getLogger("charlm")

CONFIG_FILE = "config.json"
TOKENIZER_FILES = (
    "vocab.txt", "tokenizer.json", "merges.txt", "vocab.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "*.model", "generation_config.json",
)  # fmt: skip


class SubwordConverter(Converter):
    """Converts the models of one family of subword models; see `charlm.families.subword.layout`."""

    encoders = (Bert, GPT2)
    tells = f"{CONFIG_FILE} tells it here"

    def __init__(self, layout: Layout, family: Family) -> None:
        """Takes the layout of the files and the family of the models."""
        self.layout = layout
        self.name, self.title = family.name, family.title
        self.own_options = family.option_checks()

    @property
    def heads(self) -> Sequence[str]:
        """The heads that a model of the family may have."""
        return tuple(self.layout.heads)

    def head_of(self, metadata: Mapping[str, Json]) -> str:
        """Returns the head named in the metadata."""
        return metadata["head"]

    def target(self, metadata: Mapping[str, Json], where: str) -> Target:
        """Returns the model that the metadata describes; see `Converter.target`."""
        head = metadata.get("head")
        if head not in self.layout.heads:
            raise ValueError(f"{where}: head={head!r} is not one of {', '.join(self.layout.heads)}")
        config = config_from_dict(self.layout.config, metadata["model"], where)
        labels, layout = metadata.get("labels", 0), varied(self.layout, metadata, where)
        if layout.heads[head].labels and not (isinstance(labels, int) and 1 <= labels <= LABELS_MAX):
            raise ValueError(f"{where}: {labels!r} labels, expected from 1 to {LABELS_MAX}")
        constants = layout.constants(config)
        return Target(config, *layout.target(config, head, labels), (), constants)  # no aliases: weights are tied

    def recognises(self, theirs: Mapping[str, Json]) -> bool:
        """Says whether a config of theirs names this family in `model_type`, which all but the oldest configs have."""
        return isinstance(theirs.get("model_type"), str) and theirs["model_type"] in self.layout.model_types

    def headless(self, config: ModelConfig, params: Params) -> tuple[nn.Module, Params]:
        """Returns the encoder inside a model with a head for labels; see `Converter.headless`."""
        if isinstance(config, GPT2Config):
            return GPT2(config), params["gpt2"]
        return Bert(config), params["bert"]

    def open_tokenizer(self, folder: Path, lowercase: bool | None = None) -> SubwordTokenizer | None:
        """Returns the tokenizer whose files lie in a model's folder; raises ValueError without one or if it is damaged.

        Args:
          lowercase: whether a BERT's `vocab.txt` is uncased, if no file states it; see `SubwordTokenizer.load`.
        """
        return SubwordTokenizer.load(folder, lowercase=lowercase)

    def names(self, source: Path, head: str = "", mapped: bool = True) -> Names:
        """Returns the contents of a file of theirs; see `Converter.names`."""
        state = open_family(self.layout, source, mapped)
        config = source.parent / CONFIG_FILE
        said = read_object(config).get("architectures") if config.is_file() else None
        said = [name for name in said if isinstance(name, str)] if isinstance(said, list) else []
        head = self.layout.find_head(state, str(source), head, said)
        chosen = self.layout.heads[head]
        return Names(state, head, chosen.rules, chosen.leave)

    def read(self, source: str, head: str = "") -> Model:
        """Reads a folder or file of theirs. There are no options: config.json states everything."""
        file = find_state(source)
        theirs = self.their_config(file)
        state, head, _, leave = self.names(file, head, mapped=False)
        config = self.layout.from_theirs(theirs, head, str(file.parent / CONFIG_FILE))
        metadata = {"family": self.name, "model": config_to_dict(config), "head": head, "hf_config": theirs}
        if sign := self.layout.heads[head].labels:
            metadata["labels"] = (*state[sign].shape, 0)[0]
        target = self.target(metadata, str(file))
        left = state.keys() - target.table.keys()
        check_constants(target.constants, state, str(file))
        params = import_state(target.table, leave, state, f"{file} (sizes from {CONFIG_FILE})")
        self.report_left(left, head)
        self.check_tokenizer(file.parent, config.vocab_size)
        return Model(params, metadata, file.parent, file)

    def their_config(self, file: Path) -> JsonObject:
        """Returns the config beside a state dict; raises ValueError when it is missing or of another family."""
        config = file.parent / CONFIG_FILE
        if not config.is_file():
            raise ValueError(f"{file} has no {CONFIG_FILE} beside it: the config says what the tensors do not")
        theirs = read_object(config)
        self.layout.check_type(theirs, str(config))
        return theirs

    def report_left(self, names: set[str], head: str) -> None:
        """Logs the tensors that are not imported, in one line for each reason, but for constants."""
        reasons: dict[str, list[str]] = {}
        leave = self.layout.heads[head].leave
        constants = [one.theirs for one in leave if one.is_constant]
        for name in names:
            if not matches_any(constants, name):
                reasons.setdefault(describe((), leave, name), []).append(name)
        for reason, members in sorted(reasons.items()):
            log.info("%s: %s", reason, ", ".join(group(members)))

    def check_tokenizer(self, folder: Path, rows: int) -> None:
        """Warns if tokenizer files beside the weights are damaged, of an unknown kind, or of another model."""
        if not any(file for pattern in ("vocab.*", "tokenizer.json", "*.model") for file in folder.glob(pattern)):
            return
        try:
            tokenizer = self.open_tokenizer(folder)
        except ValueError as error:
            log.warning("the weights are read, but not the tokenizer beside them: %s", error)
            return
        if tokenizer is not None and tokenizer.size > rows:
            log.warning(
                "%s: the tokenizer has ids up to %d, the model rows for %d: not its own?",
                folder,
                tokenizer.size - 1,
                rows,
            )

    def with_head(self, metadata: Mapping[str, Json], head: str) -> JsonObject:
        """Returns the metadata of the same model with another head, and the config fields that the head decides."""
        kept = {key: value for key, value in metadata.items() if key != "label_head"}
        return {**kept, "head": head, "model": metadata["model"] | self.layout.heads[head].fields}

    def with_label_head(self, metadata: Mapping[str, Json], label_head: str) -> JsonObject:
        """Returns the metadata of the same model with that head for labels."""
        return with_label_head(metadata, label_head)

    def with_changes(self, metadata: Mapping[str, Json], changes: Mapping[str, Json]) -> JsonObject:
        """Returns the metadata with the given fields of the config changed."""
        return {**metadata, "model": metadata["model"] | changes}

    def load_params(
        self,
        checkpoint: Path,
        metadata: Mapping[str, Json],
        abstract: Params,
        names: Collection[str] | None = None,
    ) -> Params:
        """Returns the parameters, the transformer's from another package if the checkpoint leaves them there."""
        if about := metadata.get(elsewhere.KEY):
            return elsewhere.with_rest(checkpoint, abstract, about)  # all of them
        return super().load_params(checkpoint, metadata, abstract, names)

    def write_beside(self, model: Model, folder: Path) -> None:
        """Copies the tokenizer, a speller, and their config, which has more than ours: labels, names, dropout."""
        copy_tokenizer(model.folder, folder)
        copy_speller(model.folder, folder)
        if theirs := model.metadata.get("hf_config"):
            write_json(folder / CONFIG_FILE, theirs)

    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes the config that transformers reads, and the tokenizer; ValueError for a head that it does not have."""
        check_exportable(model.metadata, model.source)
        if (model.folder / SPELLER).is_file():
            log.warning("%s reads through a speller, which transformers has not: it is left out", model.folder)
        if model.metadata["head"] == ENCODER and POOLED_ENCODER in self.layout.heads:
            log.warning(
                "an encoder without pooler: transformers makes a random one unless it is told add_pooling_layer=False"
            )
        config = self.target(model.metadata, str(model.source)).config
        theirs = self.layout.to_theirs(config, model.metadata["head"], model.metadata.get("hf_config") or {})
        theirs |= labels_of(model.metadata)
        write_json(folder / CONFIG_FILE, theirs)
        copy_tokenizer(model.folder, folder)


TABLES = {table.name: table for table in (BERT_LAYOUT, ROBERTA_LAYOUT, ROFORMER_LAYOUT, GPT2_TABLE)}
BERT_CONVERTER, ROBERTA_CONVERTER, ROFORMER_CONVERTER, GPT2_CONVERTER = map(
    SubwordConverter, TABLES.values(), (BERT, ROBERTA, ROFORMER, GPT2_FAMILY)
)


def has_bare_vocab(folder: Path) -> bool:
    """Says whether a folder holds a `vocab.txt` and no file that could state its case."""
    stating = ("tokenizer.json", "tokenizer_config.json")
    return (folder / "vocab.txt").is_file() and not any((folder / name).is_file() for name in stating)


def open_family(family: Layout, file: Path, mapped: bool = True) -> dict[str, Tensor]:
    """Returns the tensors of a state dict by canonical name; their values are not read yet.

    Raises:
      ValueError: when the file cannot be read, or holds no tensor of the family.
    """
    stored = open_state(file, mapped)
    state = family.canonical(stored, str(file))
    rules = [rule for head in family.heads.values() for rule in head.rules]
    if not names_any(rules, state):
        raise ValueError(
            f"{file} holds no tensor of a {family.name} model: expected names such as {rules[0].theirs}, got "
            f"{', '.join(list(stored)[:3]) or 'none'}; see --family"
        )
    return state


def labels_of(metadata: Mapping[str, Json]) -> JsonObject:
    """Returns their config keys for label names: those of the fine-tuning task, else known ones, else numbered ones."""
    number = metadata.get("labels", 0)
    if not number:
        return {}
    names = metadata.get("task", {}).get("labels") or []
    known = (metadata.get("hf_config") or {}).get("id2label") or {}
    if len(names) != number:
        names = list(known.values()) if len(known) == number else [f"LABEL_{n}" for n in range(number)]
    return {
        "id2label": {str(n): name for n, name in enumerate(names)},
        "label2id": {name: n for n, name in enumerate(names)},
    }


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copies the files of a tokenizer from one folder to another."""
    for pattern in TOKENIZER_FILES:
        for file in sorted(source.glob(pattern)):
            shutil.copyfile(file, target / file.name)


def say_ids(path: Path, tokenizer: SubwordTokenizer) -> None:
    """Replaces the special token ids in a config file of theirs by those of the given tokenizer."""
    theirs = read_object(path)
    theirs = {key: value for key, value in theirs.items() if not key.endswith("_token_id") and key != "tokenizer_class"}
    special = tokenizer.special
    ids = {"pad": special.pad, "bos": special.bos, "eos": special.eos}
    theirs |= {f"{role}_token_id": index for role, index in ids.items() if index is not None}
    write_json(path, theirs)
