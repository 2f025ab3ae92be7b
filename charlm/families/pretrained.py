"""Models with their weights, of every family and from everywhere: `charlm.from_pretrained` and `save_pretrained`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import ml_collections

from charlm.config import from_dict
from charlm.convert.files import find_state, new_folder
from charlm.convert.model import Converter, Model
from charlm.core import checkpoint as checkpoints
from charlm.families.char2subword.model import Char2SubwordBert
from charlm.families.charbert.model import CharBert
from charlm.families.converters import CONVERTERS, recognise
from charlm.families.subword.bert import Bert
from charlm.families.subword.conversion import open_tokenizer
from charlm.families.subword.gpt2 import GPT2
from charlm.families.subword.labels import FINE_TUNED
from charlm.families.xrayemb.chars import XRayChars
from charlm.families.xrayemb.model import XRayEmbBert, XRayEmbGPT2, XRayEmbGPT2Config
from charlm.text.chars import CharVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab

FORMATS = ("charlm", "pytorch")
# Modules without a head, of families that read subwords.
ENCODERS = (Bert, GPT2, CharBert, Char2SubwordBert, XRayEmbBert, XRayEmbGPT2)


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model and its parameters: `model.apply({"params": params}, ...)`; `dataclasses.replace` puts others in.

    Attributes:
      config: the shape: HLMConfig, BertConfig, GPT2Config, CharBertConfig, Char2SubwordBertConfig, XRayEmbBertConfig or
        XRayEmbGPT2Config.
      family: "hlm", "bert", "roberta", "gpt2", "charbert", "char2subword" or "xrayemb". head: which model of it; see
        `charlm.convert`.
      folder: where it was read. metadata: what describes it in a checkpoint.
    """

    model: nn.Module
    params: Any
    config: Any
    family: str
    head: str
    folder: Path
    metadata: Mapping[str, Any]

    def tokenizer(self) -> SubwordTokenizer:
        """Returns the tokenizer whose files lie with the model.

        Raises:
          ValueError: when there are none, or the family reads characters.
        """
        if self.family == "hlm":
            raise ValueError(f"{self.folder}: an HLM reads characters; see vocab()")
        return open_tokenizer(self.folder, self.family)

    def vocab(self) -> CharVocab:
        """Returns the characters of a model that reads them; ValueError for others."""
        if "char_vocab" not in self.metadata:
            raise ValueError(f"{self.folder}: a model of the family {self.family} has no characters; see tokenizer()")
        return CharVocab.from_dict(self.metadata["char_vocab"])

    def symbols(self) -> SymbolVocab:
        """Returns the characters under the subwords of a CharBERT.

        Raises:
          ValueError: when the model was imported without, or is of another family.
        """
        if self.family != "charbert":
            raise ValueError(f"{self.folder}: a model of the family {self.family} reads no characters under subwords")
        if "symbols" not in self.metadata:
            raise ValueError(
                f"{self.folder}: the characters of this model are not known; import it with --char-vocab=FILE, or put "
                "the file beside its tensors as char_vocab.txt"
            )
        return SymbolVocab.from_dict(self.metadata["symbols"], str(self.folder))

    def xray_chars(self) -> XRayChars:
        """Returns the characters of an XRayEmb; ValueError for other families."""
        if "xray_chars" not in self.metadata:
            raise ValueError(f"{self.folder}: a model of the family {self.family} has no characters of XRayEmb")
        return XRayChars.from_dict(self.metadata["xray_chars"], str(self.folder))

    def run_config(self) -> ml_collections.ConfigDict:
        """Returns the whole config of the run that made an HLM: word splitter, window; ValueError for others."""
        if "config" not in self.metadata:
            raise ValueError(f"{self.folder}: a model of the family {self.family} was imported, no run made it")
        return from_dict(self.metadata["config"])

    def save_pretrained(self, path: str | os.PathLike[str], format: Literal["charlm", "pytorch"] = "charlm") -> None:
        """Writes the model as it is now, with all that `from_pretrained` needs, into a new folder.

        Args:
          format: "charlm": a checkpoint; "pytorch": what transformers reads, or the authors' code of HLM.

        Raises:
          ValueError: when the parameters are not those of the config, `path` holds something already or cannot be
            written, the folder that the model came from is gone, or that code has no such model.
        """
        if format not in FORMATS:
            raise ValueError(f"format={format!r} is not one of {', '.join(FORMATS)}")
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder}, where the model was read and its tokenizer lay, is gone")
        converter = CONVERTERS[self.family]
        model = Model(self.params, dict(self.metadata), self.folder, self.folder)
        checkpoints.check_fits("the model", self.params, converter.target(model.metadata, str(self.folder)).params)
        with new_folder(path, key="") as folder:
            if format == "charlm":
                converter.save(model, folder)
            else:
                converter.export(model, folder)


def encoder_alone(pretrained: Pretrained) -> Pretrained:
    """Returns a model that reads subwords without its head for labels; as it is, if it has none."""
    if pretrained.head not in FINE_TUNED:
        return pretrained
    if pretrained.family == "char2subword":
        params = {name: pretrained.params[name] for name in ("bert", "char2subword")}
        return dataclasses.replace(pretrained, model=Char2SubwordBert(pretrained.config), params=params)
    if pretrained.family == "xrayemb":
        own = XRayEmbGPT2 if isinstance(pretrained.config, XRayEmbGPT2Config) else XRayEmbBert
        params = {name: value for name, value in pretrained.params.items() if name != "label"}
        return dataclasses.replace(pretrained, model=own(pretrained.config), params=params)
    kinds = {"gpt2": (GPT2, "gpt2"), "charbert": (CharBert, "charbert")}
    kind, name = kinds.get(pretrained.family, (Bert, "bert"))
    return dataclasses.replace(pretrained, model=kind(pretrained.config), params=pretrained.params[name])


def from_pretrained(path: str | os.PathLike[str], *, family: str = "", head: str = "", **changes: Any) -> Pretrained:
    """Returns a model on the first device; nothing is downloaded.

    Args:
      path: a workdir or one of its checkpoints; a checkpoint that an import or `save_pretrained` made; a folder or file
        of PyTorch weights with the config beside it, of Hugging Face's transformers or of the released code of HLM or
        CharBERT; or the name of a model in the cache of huggingface_hub.
      family: "hlm", "bert", "roberta", "gpt2", "charbert", "char2subword" or "xrayemb"; needed where an old config does
        not say it, an error where it differs.
      head: read this head of the model only, such as "encoder"; "": all that is there.
      changes: fields of the config that weights do not know: dtype, remat, dropout, attention_dropout, embed_dropout,
        attention_kernel, compat_reference; of a Char2Subword mode, what text becomes, "full" or "hybrid", and how it
        is cut into words, splitter and language (`charlm.text.words.get_splitter`); of an XRayEmb which words are read
        as characters, policy and eval_policy (`charlm.families.xrayemb.policies`).

    Raises:
      ValueError: when there is no model, it is damaged or of another family, or does not fit the changed config.
    """
    if family and family not in CONVERTERS:
        raise ValueError(f"family={family!r} is not one of {', '.join(CONVERTERS)}")
    converter, model = _read(path, family, head, changes)
    target = converter.target(model.metadata, str(model.source))
    params = jax.device_put(model.params, jax.devices()[0])
    head = converter.head_of(model.metadata)
    return Pretrained(target.module, params, target.config, converter.name, head, model.folder, model.metadata)


def _read(path: str | os.PathLike[str], family: str, head: str, changes: dict[str, Any]) -> tuple[Converter, Model]:
    try:
        checkpoint = checkpoints.find(path)
    except ValueError as no_checkpoint:
        try:
            find_state(path)
        except ValueError as no_state:
            if not Path(path).exists():
                raise no_state from None
            raise ValueError(f"{no_checkpoint}, or a folder of PyTorch weights ({no_state})") from None
        converter = CONVERTERS[family] if family else recognise(str(path))
        model = converter.read(str(path), head)
        return converter, model._replace(metadata=converter.change(model.metadata, changes, str(model.source)))
    metadata = checkpoints.read_metadata(checkpoint, (family,) if family else tuple(CONVERTERS))
    converter = CONVERTERS[checkpoints.family_of(metadata)]
    return converter, converter.load(checkpoint, metadata, head, **changes)
