"""Loads and saves models with their weights, of any family and format: `from_pretrained` and `save_pretrained`.

These are the two functions that users of the library call first; open it to see which paths they accept.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import flax.linen as nn
import jax
import ml_collections

from charlm.config import from_dict
from charlm.convert.files import find_state, new_folder
from charlm.convert.heads import FINE_TUNED
from charlm.convert.model import Converter, Model
from charlm.core import checkpoint as checkpoints
from charlm.core.trained import suggestion
from charlm.core.types import Json, ModelConfig, Option, Params
from charlm.families.exported import model_inside
from charlm.families.family import FAMILIES
from charlm.families.lookup import converter_of, recognise
from charlm.families.stored import family_of, metadata_of
from charlm.text.chars import CharVocab
from charlm.text.subwords import SubwordTokenizer

WEIGHT_FORMATS = ("charlm", "pytorch")


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model and its parameters: `model.apply({"params": params}, ...)`; use `dataclasses.replace` to change them.

    Attributes:
      config: the model's shape, a dataclass of the family.
      family: name of the family, see `charlm.families.family`.
      head: name of the head, see `charlm.convert.heads`.
      folder: the folder it was read from.
      metadata: its description, as stored in a checkpoint.
    """

    model: nn.Module
    params: Params
    config: ModelConfig
    family: str
    head: str
    folder: Path
    metadata: Mapping[str, Json]

    @property
    def title(self) -> str:
        """The name of the family shown to users."""
        return FAMILIES[self.family].title

    def tokenizer(self) -> SubwordTokenizer:
        """Returns the tokenizer from the files beside the model.

        Raises:
          ValueError: there are no such files, or the family reads characters.
        """
        tokenizer = converter_of(self.family).open_tokenizer(self.folder)
        if tokenizer is None:
            raise ValueError(f"{self.folder}: a model of the kind {self.title} reads characters; see vocab()")
        return tokenizer

    def vocab(self) -> CharVocab:
        """Returns the character vocabulary of a model that reads characters; ValueError for other models."""
        if "char_vocab" not in self.metadata:
            raise ValueError(f"{self.folder}: a model of the family {self.family} has no characters; see tokenizer()")
        return CharVocab.from_dict(self.metadata["char_vocab"])

    def run_config(self) -> ml_collections.ConfigDict:
        """Returns the whole config of the run that trained the model; ValueError for a model without one.

        For an HLM it holds the word splitter and the window.
        """
        if "config" not in self.metadata:
            raise ValueError(f"{self.folder}: a model of the family {self.family} was imported, no run made it")
        return from_dict(self.metadata["config"])

    def save_pretrained(self, path: str | os.PathLike[str], format: Literal["charlm", "pytorch"] = "charlm") -> None:
        """Writes the current model, with all that `from_pretrained` needs, into a new folder.

        Args:
          format: "charlm": a checkpoint; "pytorch": the format of transformers, or of the authors' code for HLM.

        Raises:
          ValueError: the parameters do not fit the config; `path` is not empty or cannot be written; the folder that
            the model was read from is gone; or the code that reads the format has no such model.
        """
        if format not in WEIGHT_FORMATS:
            raise ValueError(f"format={format!r} is not one of {', '.join(WEIGHT_FORMATS)}")
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder}, where the model was read and its tokenizer lay, is gone")
        converter = converter_of(self.family)
        model = Model(self.params, dict(self.metadata), self.folder, self.folder)
        checkpoints.check_fits("the model", self.params, converter.target(model.metadata, str(self.folder)).params)
        with new_folder(path, key="") as folder:
            if format == "charlm":
                converter.save(model, folder)
            else:
                converter.export(model, folder)


def encoder_alone(pretrained: Pretrained) -> Pretrained:
    """Returns a subword model without its head for labels; unchanged if it has none."""
    if pretrained.head not in FINE_TUNED:
        return pretrained
    model, params = converter_of(pretrained.family).headless(pretrained.config, pretrained.params)
    return dataclasses.replace(pretrained, model=model, params=params)


def is_encoder(pretrained: Pretrained) -> bool:
    """Returns whether a model has no head at all."""
    return isinstance(pretrained.model, converter_of(pretrained.family).encoders)


def from_pretrained(path: str | os.PathLike[str], *, family: str = "", head: str = "", **changes: Option) -> Pretrained:
    """Loads a model onto the first device; only what is named by "hf:" is ever downloaded.

    Args:
      path: a workdir or one of its checkpoints; a checkpoint made by an import or `save_pretrained`; a folder or file
        of PyTorch weights with the config beside it, of Hugging Face's transformers or of the released code of HLM or
        CharBERT; a folder that `charlm export` wrote for sentence-transformers; or, if there is no such file or folder,
        the name of a model that charlm carries (`charlm models` lists them) or of one in the cache of huggingface_hub;
        "hf:NAME" downloads one from the hub.
      family: name of the family, see `charlm.families.family`. Needed only if an old config does not name it; an error
        if the model is of another family.
      head: keep only this head, such as "encoder"; "": the whole model.
      changes: config fields that do not depend on the weights. For all families: dtype, remat, scan_layers (False if
        it is not given, whatever the training run had), dropout, attention_dropout, embed_dropout, attention_kernel,
        compat_reference, as far as the config has them. For Char2Subword: mode ("full" or "hybrid": what text is turned
        into), and splitter and language (how text is split into words, see `charlm.text.words.get_splitter`). For
        XRayEmb: policy and eval_policy (which words are read as characters).

    Raises:
      ValueError: there is no model, it is damaged or of another family, or it does not fit the changed config.
    """
    if family and family not in FAMILIES:
        raise ValueError(f"family={family!r} is not one of {', '.join(FAMILIES)}")
    try:
        converter, model = _read(model_inside(path), family, head, changes)
        target = converter.target(model.metadata, str(model.source))
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        if changes:  # it may be one of these
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path}: its description is damaged: {reason}") from error
    if getattr(target.config, "scan_layers", False) and "scan_layers" not in changes:
        # The training run chose it for large batches; with one sentence, to stack the parameters takes too long.
        model = model._replace(metadata=converter.with_changes(model.metadata, {"scan_layers": False}))
        target = converter.target(model.metadata, str(model.source))
    params = jax.device_put(model.params, jax.local_devices()[0])
    head = converter.head_of(model.metadata)
    folder = model.folder.absolute()  # its files are read later, too, wherever the program is then
    return Pretrained(target.module, params, target.config, converter.name, head, folder, model.metadata)


def changed(pretrained: Pretrained, **changes: Option) -> Pretrained:
    """Returns a model with config fields changed, as `from_pretrained` changes them; the parameters are shared."""
    converter, where = converter_of(pretrained.family), str(pretrained.folder)
    metadata = converter.change({**pretrained.metadata}, changes, where)
    target = converter.target(metadata, where)
    return dataclasses.replace(pretrained, model=target.module, config=target.config, metadata=metadata)


def _read(path: str | os.PathLike[str], family: str, head: str, changes: dict[str, Option]) -> tuple[Converter, Model]:
    try:
        checkpoint = checkpoints.find(path)
    except ValueError as no_checkpoint:
        try:
            find_state(path)
        except ValueError as no_state:
            if not Path(path).exists():
                raise ValueError(f"{no_state}{suggestion(path)}") from None
            raise ValueError(f"{no_checkpoint}, or a folder of PyTorch weights ({no_state})") from None
        converter = converter_of(family) if family else recognise(str(path))
        model = converter.read(str(path), head)
        return converter, model._replace(metadata=converter.change(model.metadata, changes, str(model.source)))
    metadata = metadata_of(checkpoint, (family,) if family else tuple(FAMILIES))
    converter = converter_of(family_of(metadata))
    return converter, converter.load(checkpoint, metadata, head, **changes)
