"""Converts folders of the authors' CharacterBERT models ("theirs") to charlm checkpoints and back.

`python -m charlm.convert` and `from_pretrained` use it; the names of tensors are in `tensors`. Open it when a folder is
not recognised, or to change which files a folder needs besides its tensors.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import flax.linen as nn

from charlm.convert.files import find_state, open_state
from charlm.convert.heads import MASKED_LM
from charlm.convert.model import Model, Target
from charlm.convert.rules import import_state
from charlm.core.durable import write_json
from charlm.core.types import Json, Params
from charlm.families.characterbert import FAMILY
from charlm.families.characterbert.cnn import CharacterBertConfig
from charlm.families.characterbert.model import CharacterBert
from charlm.families.characterbert.tensors import ALIAS, CHARACTERS, LAYOUT, MODEL_TYPE, words_in
from charlm.families.characterbert.vocab import WORD_VOCAB_FILE
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.model import smallest_batch
from charlm.families.subword.conversion import CONFIG_FILE, SubwordConverter, labels_of
from charlm.families.subword.label_heads import check_exportable
from charlm.families.subword.layout import config_to_dict
from charlm.text.subwords import SubwordTokenizer


class CharacterBertConverter(SubwordConverter):
    """Converts CharacterBERT models in their authors' format, with the words to predict in `mlm_vocab.txt` beside."""

    encoders = (CharacterBert,)
    own_options = FAMILY.option_checks()
    hides_behind = ("bert",)
    tells = f"{CONFIG_FILE} and the tensors tell it here"

    def __init__(self) -> None:
        """Uses CharacterBERT's layout."""
        super().__init__(LAYOUT, FAMILY)

    def target(self, metadata: Mapping[str, Json], where: str) -> Target:
        """Returns the model that the metadata describes; see `Converter.target`."""
        target = super().target(metadata, where)
        return target._replace(aliases=(ALIAS,) if metadata["head"] == MASKED_LM else ())

    def recognises(self, theirs: Mapping[str, Json]) -> bool:
        """Says whether a config names this family in its `model_type`."""
        return theirs.get("model_type") == MODEL_TYPE

    def recognises_tensors(self, file: Path, theirs: Mapping[str, Json] | None) -> bool:
        """Says whether a file of theirs holds ELMo's character table; older configs look like a BERT's."""
        return theirs is not None and any(name.endswith(CHARACTERS) for name in open_state(file))

    def smallest_input(self, config: CharacterBertConfig) -> SpelledBatch:
        """Returns a batch of one word."""
        return smallest_batch()

    def headless(self, config: CharacterBertConfig, params: Params) -> tuple[nn.Module, Params]:
        """Returns the encoder inside a model with a head for labels; see `Converter.headless`."""
        return CharacterBert(config), {name: params[name] for name in ("bert", "cnn")}

    def open_tokenizer(self, folder: Path, lowercase: bool | None = None) -> SubwordTokenizer | None:
        """Returns None: CharacterBERT reads words as bytes and has no tokenizer."""
        return None

    def read(self, source: str, head: str = "") -> Model:
        """Reads a folder or file of theirs. There are no options: config.json and the tensors state everything.

        Raises:
          ValueError: when something is missing or does not fit.
        """
        file = find_state(source)
        theirs = self.their_config(file)
        state, head, _, leave = self.names(file, head, mapped=False)
        config = self.layout.from_theirs(theirs | words_in(state), head, str(file.parent / CONFIG_FILE))
        metadata = {"family": self.name, "model": config_to_dict(config), "head": head, "hf_config": theirs}
        if sign := self.layout.heads[head].labels:
            metadata["labels"] = (*state[sign].shape, 0)[0]
        table = self.target(metadata, str(file)).table
        self.report_left(state.keys() - table.keys(), head)
        params = import_state(table, leave, state, f"{file} (sizes from {CONFIG_FILE})")
        return Model(params, metadata, file.parent, file)

    def write_beside(self, model: Model, folder: Path) -> None:
        """Copies the words to predict, and writes their config."""
        _copy_words(model.folder, folder)
        if theirs := model.metadata.get("hf_config"):
            write_json(folder / CONFIG_FILE, theirs)

    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes their config, and copies the words to predict.

        Raises:
          ValueError: their code has no such model: its positions are rotary, or its head for labels is charlm's.
        """
        check_exportable(model.metadata, model.source)
        config = self.target(model.metadata, str(model.source)).config
        if config.position != "absolute":
            raise ValueError(
                f"{model.source} cannot be exported: the released code has position='absolute' alone, this model "
                f"{config.position!r}"
            )
        theirs = self.layout.to_theirs(config, model.metadata["head"], model.metadata.get("hf_config") or {})
        write_json(folder / CONFIG_FILE, theirs | labels_of(model.metadata))
        _copy_words(model.folder, folder)


def _copy_words(source: Path, target: Path) -> None:
    if (source / WORD_VOCAB_FILE).is_file():
        shutil.copyfile(source / WORD_VOCAB_FILE, target / WORD_VOCAB_FILE)


CONVERTER = CharacterBertConverter()
