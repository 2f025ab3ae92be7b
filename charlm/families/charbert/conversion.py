"""Converts folders of CharBERT's released PyTorch code (wtma/CharBERT, "theirs") to charlm checkpoints and back.

`python -m charlm.convert` and `from_pretrained` use it; the names of tensors are in `tensors`. Open it when a folder is
not recognised, or to change which files a folder needs besides its tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import flax.linen as nn

from charlm.convert.files import find_state, open_state
from charlm.convert.model import Model, Names, Target
from charlm.convert.rules import import_state
from charlm.core.durable import write_json
from charlm.core.reading import read_json
from charlm.core.types import Json, Params
from charlm.families.charbert import FAMILY
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.model import CharBert, CharBertConfig
from charlm.families.charbert.tensors import (
    CHAR_TABLE,
    COMPAT_KEY,
    ON_BERT,
    ON_ROBERTA,
    CharBertLayout,
    smallest_batch,
)
from charlm.families.subword.conversion import CONFIG_FILE, SubwordConverter, has_bare_vocab
from charlm.families.subword.kinds import kind_of as kind_of_bert
from charlm.families.subword.label_heads import check_exportable
from charlm.families.subword.layout import config_to_dict
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

log = logging.getLogger("charlm")

SYMBOLS_FILE = "char_vocab.txt"
_RELEASED_SYMBOLS = {ON_BERT.prefix: "bert_char_vocab", ON_ROBERTA.prefix: "roberta_char_vocab"}


class CharBertConverter(SubwordConverter):
    """Converts both kinds of CharBERT, on BERT and on RoBERTa, which are told apart by the names of tensors."""

    encoders = (CharBert,)
    tells = f"{CONFIG_FILE} and the tensors tell it here"

    def __init__(self) -> None:
        """Starts with the layout of CharBERT on BERT; the heads of both kinds have the same names."""
        super().__init__(ON_BERT, FAMILY)

    def target(self, metadata: Mapping[str, Json], where: str) -> Target:
        """Returns the model that the metadata describes; see `Converter.target`."""
        family = kind_of(metadata["model"])
        target = SubwordConverter(family, FAMILY).target(metadata, where)
        return target._replace(aliases=family.aliases(target.config, metadata["head"]))

    def recognises(self, theirs: Mapping[str, Json]) -> bool:
        """Says whether a config names this family, as charlm's exports do; the authors' configs are those of a BERT."""
        return theirs.get("model_type") == self.name

    def recognises_tensors(self, file: Path, theirs: Mapping[str, Json] | None) -> bool:
        """Says whether the tensors are a released CharBERT's, whose config is an old BERT's without a model_type."""
        return theirs is not None and theirs.get("model_type") is None and has_characters(file)

    def smallest_input(self, config: CharBertConfig) -> CharBertBatch:
        """Returns a batch of one subword."""
        return smallest_batch()

    def headless(self, config: CharBertConfig, params: Params) -> tuple[nn.Module, Params]:
        """Returns the encoder inside a model with a head for labels; see `Converter.headless`."""
        return CharBert(config), params["charbert"]

    def open_tokenizer(self, folder: Path, lowercase: bool | None = None) -> SubwordTokenizer:
        """Returns the tokenizer of a model; see `SubwordConverter.open_tokenizer`.

        The released CharBERT on BERT (wtma/CharBERT) comes with only a `vocab.txt`, that of bert-base-cased. So a bare
        `vocab.txt` is read as cased here. For a BERT it stays an error, since both cased and uncased ones are common.
        """
        if lowercase is None and has_bare_vocab(folder):
            lowercase = False
        return SubwordTokenizer.load(folder, lowercase=lowercase)

    def names(self, source: Path, head: str = "", mapped: bool = True) -> Names:
        """Returns the contents of a file of theirs; see `Converter.names`."""
        return SubwordConverter(kind_of_state(source, mapped), FAMILY).names(source, head, mapped)

    def read(self, source: str, head: str = "", *, char_vocab: str = "") -> Model:
        """Reads a folder or file of theirs.

        Args:
          source: folder or file with their config beside the tensors.
          head: the head to read; "": the one it holds.
          char_vocab: file of the characters, one per line; "": `SYMBOLS_FILE` beside the tensors, else the file that
            the released code has for this kind. Without a character file the model can read only arrays, not text.

        Raises:
          ValueError: when something is missing or does not fit.
        """
        file = find_state(source)
        family = kind_of_state(file, mapped=False)
        reader = SubwordConverter(family, FAMILY)
        theirs = reader.their_config(file)
        state, head, _, leave = reader.names(file, head, mapped=False)
        config = family.from_theirs(theirs, head, str(file.parent / CONFIG_FILE), **family.sizes(state))
        # Do not store our own key: exporting writes it again where the model needs it, even if the model has changed.
        kept = {key: value for key, value in theirs.items() if key != COMPAT_KEY}
        metadata = {"family": self.name, "model": config_to_dict(config), "head": head, "hf_config": kept}
        if sign := family.heads[head].labels:
            metadata["labels"] = (*state[sign].shape, 0)[0]
        if symbols := _symbols(char_vocab, file.parent, family, config.char_vocab_size):
            metadata["symbols"] = symbols.to_dict()
        table = self.target(metadata, str(file)).table
        reader.report_left(state.keys() - table.keys(), head)
        params = import_state(table, leave, state, f"{file} (sizes from {CONFIG_FILE})")
        if has_bare_vocab(file.parent):
            log.info("%s/vocab.txt: nothing states its case; read as cased, as the released models are", file.parent)
        self.check_tokenizer(file.parent, config.vocab_size)
        return Model(params, metadata, file.parent, file)

    def write_beside(self, model: Model, folder: Path) -> None:
        """Writes tokenizer, config and characters."""
        super().write_beside(model, folder)
        _state_case(folder)
        if "symbols" in model.metadata:
            SymbolVocab.from_dict(model.metadata["symbols"]).save(folder / SYMBOLS_FILE)

    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes the config that the released code reads, the tokenizer, and the characters."""
        check_exportable(model.metadata, model.source)
        config, family = self.target(model.metadata, str(model.source)).config, kind_of(model.metadata["model"])
        released = family.derive({}, {"activation": "gelu"})
        wanted = {"position": "absolute"} | {n: released[n] for n in ("fusion", "windows", "shared_head_norm")}
        wanted |= {"char_encoder": "gru", "nlm": True, "channels": "both"}
        for name, only in wanted.items():
            if getattr(config, name) != only:
                raise ValueError(
                    f"{model.source} cannot be exported: the released code has {name}={only!r} alone, this model "
                    f"{getattr(config, name)!r}"
                )
        SubwordConverter(family, FAMILY).write_theirs(model, folder)
        theirs = read_json(folder / CONFIG_FILE)
        theirs["model_type"] = self.name  # otherwise transformers would load it as a BERT without characters
        if not config.compat_reference:
            theirs[COMPAT_KEY] = False  # their config has no key for this, since their code always has this mode
        write_json(folder / CONFIG_FILE, theirs)
        _state_case(folder)
        if "symbols" in model.metadata:
            SymbolVocab.from_dict(model.metadata["symbols"]).save(folder / SYMBOLS_FILE)


def kind_of(fields: Mapping[str, Json]) -> CharBertLayout:
    """Returns the kind of a model from the fields of our config; on RoFormer it has the names of one on BERT."""
    return ON_ROBERTA if kind_of_bert(fields) == "roberta" else ON_BERT


def kind_of_state(file: Path, mapped: bool = True) -> CharBertLayout:
    """Returns the kind of CharBERT that a file of theirs holds.

    Raises:
      ValueError: when the file cannot be read, or holds no character table.
    """
    names = list(open_state(file, mapped))
    if not any(name.endswith(CHAR_TABLE) for name in names):
        raise ValueError(
            f"{file} holds no {CHAR_TABLE}: expected the tensors of a charbert model, got "
            f"{', '.join(names[:3]) or 'none'}; see --family"
        )
    on_roberta = any(
        name.removeprefix("module.").startswith(("roberta.", "lm_head.")) or "encoder.fusion_layer." in name
        for name in names
    )
    return ON_ROBERTA if on_roberta else ON_BERT


CONVERTER = CharBertConverter()


def symbols_of(pretrained: Pretrained) -> SymbolVocab:
    """Returns the character vocabulary of a CharBERT.

    Raises:
      ValueError: when the model was imported without characters, or is of another family.
    """
    if pretrained.family != CONVERTER.name:
        raise ValueError(
            f"{pretrained.folder}: a model of the family {pretrained.family} reads no characters under subwords"
        )
    if "symbols" not in pretrained.metadata:
        raise ValueError(
            f"{pretrained.folder}: the characters of this model are not known; import it with --char-vocab=FILE, or "
            "put the file beside its tensors as char_vocab.txt"
        )
    return SymbolVocab.from_dict(pretrained.metadata["symbols"], str(pretrained.folder))


def has_characters(file: Path) -> bool:
    """Says whether a file of theirs holds CharBERT's table of characters."""
    return any(name.endswith(CHAR_TABLE) for name in open_state(file))


def _state_case(folder: Path) -> None:
    """Writes beside a bare `vocab.txt` that it is cased, as it was read, so that the folder stands alone."""
    if has_bare_vocab(folder):
        write_json(folder / "tokenizer_config.json", {"do_lower_case": False})


def _symbols(path: str, beside: Path, family: CharBertLayout, rows: int) -> SymbolVocab | None:
    """Returns the characters of the given file or of the one beside the tensors; None, with a warning, without any."""
    names = (SYMBOLS_FILE, _RELEASED_SYMBOLS[family.prefix])
    found = [path] if path else [str(beside / name) for name in names if (beside / name).is_file()]
    if not found:
        log.warning(
            "%s: no characters beside the tensors (%s): the model can read no text; --char-vocab=FILE names them",
            beside, ", ".join(names),
        )  # fmt: skip
        return None
    try:
        vocab = SymbolVocab.load(found[0])
    except OSError as error:
        named = f"--char-vocab={path}" if path else found[0]
        raise ValueError(f"{named} cannot be read: {error.strerror or error}") from error
    if vocab.size != rows:  # in another list the same ids mean other characters
        raise ValueError(
            f"{found[0]} has {vocab.size} characters, the model rows for {rows}: they do not belong together"
        )
    log.info("characters from %s", found[0])
    return vocab
