"""Converts folders of Char2Subword models to charlm checkpoints and back.

`python -m charlm.convert` and `from_pretrained` use it. Open it to change which files a folder needs besides its
tensors.

The folders name the transformer's tensors as the package transformers does, and the module's as the paper's equations
do; `tensors.py` has the table of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import flax.linen as nn

from charlm.convert.files import find_state, open_state
from charlm.convert.heads import MASKED_LM
from charlm.convert.model import Model, Names, Target
from charlm.convert.rules import import_state
from charlm.core.durable import write_json
from charlm.core.reading import read_json
from charlm.core.types import Json, JsonObject, Params
from charlm.families.char2subword import FAMILY
from charlm.families.char2subword.model import Char2SubwordBert, Char2SubwordBertConfig
from charlm.families.char2subword.tensors import (
    KINDS,
    MODULE_PREFIX,
    NAME,
    Char2SubwordLayout,
    backbone_config,
    own_keys,
)
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.model import smallest_batch
from charlm.families.subword.conversion import CONFIG_FILE, SubwordConverter
from charlm.families.subword.kinds import kind_of as kind_of_bert
from charlm.families.subword.layout import config_to_dict
from charlm.text.chars import CHAR_VOCAB_FILE, CharVocab

# A change of these holds for the module, too.
SHARED = ("dtype", "remat", "attention_kernel", "scan_layers", "dropout", "attention_dropout")


class Char2SubwordConverter(SubwordConverter):
    """Converts both kinds of Char2Subword: on BERT and on RoBERTa.

    A plain BERT cannot be imported as a Char2Subword; training makes a Char2Subword from a BERT.
    """

    encoders = (Char2SubwordBert,)
    replaces_table = NAME
    tells = f"{CONFIG_FILE} and {CHAR_VOCAB_FILE} tell it here"
    own_options = FAMILY.option_checks()

    def __init__(self) -> None:
        """Starts from the table of BERT; the heads of both kinds have the same names."""
        super().__init__(KINDS["bert"], FAMILY)

    def target(self, metadata: Mapping[str, Json], where: str) -> Target:
        """Returns the target of a model with that metadata; see `Converter.target`."""
        target = SubwordConverter(kind_of(metadata["model"]), FAMILY).target(metadata, where)
        config, rows = target.config, metadata.get("rows", ())
        if rows and metadata["head"] == MASKED_LM:
            raise ValueError(f"{where}: the table of subwords was left out, and the head {MASKED_LM} predicts its rows")
        if rows and config.mode != "full":
            raise ValueError(f"{where}: the table of subwords was left out: mode='full' is all it can, not 'hybrid'")
        if rows and len(rows) != config.vocab_size:
            raise ValueError(f"{where}: a table of {config.vocab_size} rows for {len(rows)} subwords")
        return target

    def smallest_input(self, config: Char2SubwordBertConfig) -> SpelledBatch:
        """Returns a batch with a text of one word."""
        return smallest_batch()

    def headless(self, config: Char2SubwordBertConfig, params: Params) -> tuple[nn.Module, Params]:
        """Returns the encoder inside a model with a head for labels; see `Converter.headless`."""
        return Char2SubwordBert(config), {name: params[name] for name in ("bert", "char2subword")}

    def names(self, source: Path, head: str = "", mapped: bool = True) -> Names:
        """Returns the contents of one of their files; see `Converter.names`."""
        return SubwordConverter(kind_of_state(source, mapped), FAMILY).names(source, head, mapped)

    def read(self, source: str, head: str = "") -> Model:
        """Reads a folder: config, tensors, characters, and the tokenizer of the transformer.

        Args:
          head: the head to read; "": the head that the folder holds.

        Raises:
          ValueError: something in the folder is missing or does not fit.
        """
        file = find_state(source)
        where = str(file.parent / CONFIG_FILE)
        family = kind_of_state(file, mapped=False)
        reader = SubwordConverter(family, FAMILY)
        theirs = reader.their_config(file)
        state, head, _, leave = reader.names(file, head, mapped=False)
        config = family.from_theirs(theirs, head, where)
        vocab = _characters(file.parent, config.characters.char_vocab_size)
        metadata = {"family": self.name, "backbone": family.backbone.name, "model": config_to_dict(config)}
        metadata |= {"head": head, "hf_config": backbone_config(theirs, where), "char_vocab": vocab.to_dict()}
        if rows := own_keys(theirs, where)["rows"]:
            metadata["rows"] = rows
        if sign := family.heads[head].labels:
            metadata["labels"] = (*state[sign].shape, 0)[0]
        table = self.target(metadata, str(file)).table
        reader.report_left(state.keys() - table.keys(), head)
        params = import_state(table, leave, state, f"{file} (sizes from {CONFIG_FILE})")
        if not rows:
            reader.check_tokenizer(file.parent, config.vocab_size)
        return Model(params, metadata, file.parent, file)

    def with_head(self, metadata: Mapping[str, Json], head: str) -> JsonObject:
        """Returns the metadata of the same model with another head."""
        return SubwordConverter(kind_of(metadata["model"]), FAMILY).with_head(metadata, head)

    def with_changes(self, metadata: Mapping[str, Json], changes: Mapping[str, Json]) -> JsonObject:
        """Returns the metadata with fields of the config changed; those in `SHARED` change in the module's as well."""
        fields = metadata["model"]
        shared = {name: value for name, value in changes.items() if name in SHARED}
        return {**metadata, "model": {**fields, **changes, "characters": fields["characters"] | shared}}

    def write_beside(self, model: Model, folder: Path) -> None:
        """Writes tokenizer, config of the transformer, and characters."""
        super().write_beside(model, folder)
        CharVocab.from_dict(model.metadata["char_vocab"]).save(folder / CHAR_VOCAB_FILE)

    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes config, tokenizer and characters."""
        family = kind_of(model.metadata["model"])
        SubwordConverter(family, FAMILY).write_theirs(model, folder)
        if rows := model.metadata.get("rows"):
            path = folder / CONFIG_FILE
            theirs = read_json(path)
            theirs[NAME]["rows"] = list(rows)
            write_json(path, theirs)
        CharVocab.from_dict(model.metadata["char_vocab"]).save(folder / CHAR_VOCAB_FILE)


def kind_of(fields: Mapping[str, Json]) -> Char2SubwordLayout:
    """Returns the kind of a model from the fields of our config, by the transformer that it is built on."""
    return KINDS[kind_of_bert(fields)]


def kind_of_state(file: Path, mapped: bool = True) -> Char2SubwordLayout:
    """Returns the kind of Char2Subword that one of their files holds.

    Raises:
      ValueError: the file cannot be read, or holds no tensors of the module.
    """
    names = list(open_state(file, mapped))
    if not any(name.startswith(MODULE_PREFIX) for name in names):
        raise ValueError(
            f"{file} holds no {MODULE_PREFIX}char_embs.weight: expected the tensors of a {NAME} model, got "
            f"{', '.join(names[:3]) or 'none'}; a BERT becomes one by training"
        )
    return next((kind for kind in KINDS.values() if any(n.startswith(kind.prefix) for n in names)), KINDS["bert"])


def _characters(folder: Path, rows: int) -> CharVocab:
    """Returns the characters of a folder; ValueError when their file is missing or has more ids than there are rows."""
    path = folder / CHAR_VOCAB_FILE
    if not path.is_file():
        raise ValueError(
            f"{folder} has no {CHAR_VOCAB_FILE}: without it nobody knows which characters the ids stand for"
        )
    vocab = CharVocab.load(path)
    if vocab.size > rows:
        raise ValueError(
            f"{path} has ids up to {vocab.size - 1}, the model rows for {rows}: they do not belong together"
        )
    return vocab


CONVERTER = Char2SubwordConverter()
