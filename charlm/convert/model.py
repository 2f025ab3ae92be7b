"""Converts the weights of any family: PyTorch folder -> `Model` -> charlm checkpoint, and back.

Each family implements a `Converter`; `charlm.families.lookup.converter_of` returns the one of a family. Open this
module to write the converter of a new family.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from charlm.convert.changes import NotChangeable
from charlm.convert.files import Tensor, find_state, write_safetensors
from charlm.convert.rules import Entry, Leave, Rule, describe, export_state, import_state, in_parts
from charlm.convert.sentence_files import copy_sentence_files
from charlm.core import checkpoint as checkpoints
from charlm.core.memory import give_memory_back
from charlm.core.types import Json, JsonObject, ModelConfig, Option, Params, Tree
from charlm.nn.kernels import KERNELS
from charlm.text.subwords import SubwordTokenizer

STATE_FILE = "model.safetensors"
# Config fields that can be changed because the weights do not depend on them; for those of single families, see
# `Converter.own_options`.
CHANGEABLE = ("dtype", "remat", "scan_layers", "dropout", "attention_dropout", "embed_dropout", "attention_kernel",
              "compat_reference")  # fmt: skip
CONFIG_FILES = ("config_model.json", "config.json")  # their config files, looked for beside the weights in this order
DTYPES = ("float32", "bfloat16", "float16")
PART = 2**28  # bytes of parameters that an export reads at a time


def _changed(name: str, value: object) -> Json:
    """Returns the new value of a field of `CHANGEABLE` as a checkpoint stores it; ValueError if it is not allowed."""
    if name == "dtype":
        named = getattr(value, "__name__", None) or getattr(value, "name", None) or value
        if named not in DTYPES:
            raise ValueError(f"dtype={value!r}: expected {' or '.join(DTYPES)}")
        return named
    if name == "attention_kernel":
        if value not in KERNELS:
            raise ValueError(f"attention_kernel={value!r}: expected {', '.join(KERNELS)}")
        return value
    if name in ("remat", "scan_layers", "compat_reference"):
        if not isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: expected true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name}={value!r}: expected a number in [0, 1)")
    return float(value)


class Model(NamedTuple):
    """A model in memory: its parameters and description, but no module.

    Attributes:
      params: our nested parameters, float32.
      metadata: what its checkpoint stores beside the parameters; enough to build the module.
      folder: the folder it was read from, with the files of its tokenizer.
      source: the file or checkpoint it was read from, for messages.
    """

    params: Params
    metadata: JsonObject
    folder: Path
    source: Path


class Target(NamedTuple):
    """The model that a state dict is converted to: our config and module, its abstract parameters, the table of names.

    Attributes:
      aliases: second names of tensors, which their code expects in a file.
      constants: tensors that their code expects in a file, although they are no parameters.
    """

    config: ModelConfig
    module: nn.Module
    params: Params
    table: dict[str, Entry]
    aliases: Sequence[Leave]
    constants: Mapping[str, np.ndarray] = MappingProxyType({})


class Names(NamedTuple):
    """A state dict of theirs, not yet read: its tensors by their current names, its head, and the rules for it."""

    state: dict[str, Tensor]
    head: str
    rules: Sequence[Rule]
    leave: Sequence[Leave]


class Converter(abc.ABC):
    """Reads and writes the models of one family, in their folders and in our checkpoints."""

    name: str
    title: str  # the name shown to users, `Family.title`
    encoders: tuple[type[nn.Module], ...] = ()  # the classes of modules without a head
    # Further config fields that may be changed, each with a function that raises ValueError for a value not allowed.
    own_options: Mapping[str, Callable[[object], None]] = MappingProxyType({})
    replaces_table: str = ""  # path of the parameters of a module that replaces the subword embeddings; "": none
    config_elsewhere: bool = False  # whether the config may lie elsewhere than beside the weights
    hides_behind: tuple[str, ...] = ()  # other families that released configs of this family may name as their own
    tells: str = ""  # what tells, for this family, what options of an import say for others; "": nothing says it

    @property
    @abc.abstractmethod
    def heads(self) -> Sequence[str]:
        """The heads that a model of the family may have."""

    @abc.abstractmethod
    def head_of(self, metadata: Mapping[str, Json]) -> str:
        """Returns the head of a model with that metadata."""

    @abc.abstractmethod
    def target(self, metadata: Mapping[str, Json], where: str) -> Target:
        """Returns the `Target` of a model with that metadata; computes no parameters.

        Raises:
          ValueError: the metadata are wrong; names `where` and the problem.
        """

    @abc.abstractmethod
    def recognises(self, theirs: Mapping[str, Json]) -> bool:
        """Returns whether a config of theirs is of this family."""

    @abc.abstractmethod
    def read(self, source: str, head: str = "") -> Model:
        """Reads a folder or file of theirs; implementations may have further arguments.

        Args:
          head: one of `heads`; "": the head that the file holds.

        Raises:
          ValueError: anything is missing or does not fit.
        """

    @abc.abstractmethod
    def names(self, source: Path, head: str = "") -> Names:
        """Returns the names in a file of theirs; ValueError if it cannot be read, or is of another family."""

    @abc.abstractmethod
    def with_head(self, metadata: Mapping[str, Json], head: str) -> JsonObject:
        """Returns the metadata of the same model with another head."""

    def with_label_head(self, metadata: Mapping[str, Json], label_head: str) -> JsonObject:
        """Returns the metadata of a model for labels that computes them in another way (`Family.label_heads`)."""
        return {**metadata, "label_head": label_head}

    @abc.abstractmethod
    def with_changes(self, metadata: Mapping[str, Json], changes: Mapping[str, Json]) -> JsonObject:
        """Returns the metadata with config fields changed; the caller has checked names and values."""

    @abc.abstractmethod
    def write_beside(self, model: Model, folder: Path) -> None:
        """Writes the files that belong beside our parameters: a tokenizer, characters."""

    @abc.abstractmethod
    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes the files that belong beside their parameters: the config, a tokenizer, characters."""

    def recognises_tensors(self, file: Path, theirs: Mapping[str, Json] | None) -> bool:
        """Returns whether weights whose config does not tell their family belong to this one.

        Args:
          theirs: the config beside the weights; None: there is none.

        Raises:
          ValueError: the file cannot be read.
        """
        return False

    def smallest_input(self, config: ModelConfig) -> Tree:
        """Returns the smallest input of a model of the family."""
        return np.zeros((1, 1), np.int32)

    def headless(self, config: ModelConfig, params: Params) -> tuple[nn.Module, Params]:
        """Returns the encoder inside a model with a head for labels, and its parameters."""
        raise ValueError(f"a {self.title} has no encoder that is used alone")

    def scope_alone(self, module: nn.Module) -> str:
        """Returns the prefix that a module's parameter names have if the module is part of a model with a head."""
        scope = getattr(module, "scope_name", "")
        return f"{scope}/" if scope else ""

    def open_tokenizer(self, folder: Path, lowercase: bool | None = None) -> SubwordTokenizer | None:
        """Returns the tokenizer from the files beside a model; None: the family has none.

        Raises:
          ValueError: the tokenizer is missing or damaged.
        """
        return None

    def load(self, checkpoint: Path, metadata: JsonObject, head: str = "", **changes: Option) -> Model:
        """Reads a checkpoint of ours onto the first device.

        Args:
          metadata: the checkpoint's metadata.
          head: the head to keep, see `cut`; "": the whole model.
          changes: changes of its config, see `change`.

        Raises:
          ValueError: the checkpoint has no such head, or its parameters do not fit the changed config.
        """
        metadata = self.change(metadata, changes, str(checkpoint))
        target = self.target(metadata, str(checkpoint))
        params = self.load_params(checkpoint, metadata, checkpoints.on_one_device(target.params))
        model = Model(params, metadata, checkpoints.files_of(checkpoint), checkpoint)
        return self.cut(model, head) if head else model

    def load_params(
        self,
        checkpoint: Path,
        metadata: Mapping[str, Json],
        abstract: Params,
        names: Collection[str] | None = None,
    ) -> Params:
        """Returns the parameters of a checkpoint of ours, or some; see `charlm.core.checkpoint.load_params`."""
        return checkpoints.load_params(checkpoint, abstract, names)

    def change(self, metadata: JsonObject, changes: Mapping[str, Option], where: str) -> JsonObject:
        """Returns the metadata with config fields changed, which must be fields of `CHANGEABLE` or `own_options`.

        Raises:
          NotChangeable: a field cannot be changed; names it.
          ValueError: a field cannot have the value; names both.
        """
        if not changes:
            return metadata
        config = self.target(metadata, where).config
        known = [name for name in (*CHANGEABLE, *self.own_options) if hasattr(config, name)]
        if unknown := sorted(changes.keys() - set(known)):
            reason = f"{', '.join(unknown)} cannot be changed in a {type(config).__name__}: {', '.join(known)} can"
            raise NotChangeable(reason, unknown, self.name)
        return self.with_changes(metadata, {name: self._changed(name, value) for name, value in changes.items()})

    def _changed(self, name: str, value: object) -> Json:
        if name not in self.own_options:
            return _changed(name, value)
        self.own_options[name](value)
        return value

    def cut(self, model: Model, head: str) -> Model:
        """Returns the model with another head that needs no new parameters, such as the encoder without a head.

        Raises:
          ValueError: the family has no such head, or the model lacks parameters for it.
        """
        if head not in self.heads:
            raise ValueError(f"head={head} is not one of {', '.join(self.heads)}")
        if head == self.head_of(model.metadata):
            return model
        held, metadata = self.target(model.metadata, str(model.source)), self.with_head(model.metadata, head)
        wanted = self.target(metadata, str(model.source))
        state = export_state(held.table, (), model.params)
        known = {name: value for name, value in state.items() if name in wanted.table}
        return model._replace(
            params=import_state(wanted.table, (), known, f"{model.source} as {head}"), metadata=metadata
        )

    def save(self, model: Model, folder: Path) -> None:
        """Writes the model as a self-contained checkpoint to `folder`; ValueError if it cannot be written."""
        checkpoints.save_params(folder, model.params, model.metadata)
        self.write_beside(model, folder)
        copy_sentence_files(model.folder, folder)

    def export(self, model: Model, folder: Path) -> None:
        """Writes the model in the format that their code reads; ValueError if their code has no such model."""
        target = self.target(model.metadata, str(model.source))
        self.write_theirs(model, folder)
        copy_sentence_files(model.folder, folder)
        state = export_state(target.table, target.aliases, model.params)
        write_safetensors(folder / STATE_FILE, state | dict(target.constants))

    def export_checkpoint(self, checkpoint: Path, metadata: JsonObject, folder: Path, dtype: str = "float32") -> int:
        """Writes a checkpoint of ours in the format that their code reads; returns the number of tensors.

        The checkpoint is read in parts, so that a large model is never in memory twice.

        Args:
          dtype: what the tensors are rounded to, one of `charlm.core.trained.DTYPES`.

        Raises:
          ValueError: their code has no such model, or the checkpoint does not hold the parameters of its config.
        """
        target = self.target(metadata, str(checkpoint))
        files = checkpoints.files_of(checkpoint)
        self.write_theirs(Model({}, metadata, files, checkpoint), folder)
        copy_sentence_files(files, folder)
        abstract = checkpoints.on_one_device(target.params)
        state = dict(target.constants)
        for table in in_parts(target.table, PART):
            names = {ours for entry in table.values() for ours in entry.ours}
            aliases = [alias for alias in target.aliases if alias.same_as in table]
            part = export_state(table, aliases, self.load_params(checkpoint, metadata, abstract, names))
            state |= {name: value.astype(jnp.dtype(dtype), copy=False) for name, value in part.items()}
            give_memory_back()
        write_safetensors(folder / STATE_FILE, state)
        return len(state)

    def inspect(self, source: str, head: str = "") -> Iterator[str]:
        """Yields a line for each tensor of theirs: name, shape, dtype, and our parameter or why it has none.

        Raises:
          ValueError: the file cannot be read, or is of another family.
        """
        file = find_state(source)
        state, head, rules, leave = self.names(file, head)
        rows = [
            (name, str(value.shape), value.dtype.name, describe(rules, leave, name)) for name, value in state.items()
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        yield f"{file}: {self.title}, {head.replace('_', ' ')}, {len(state)} tensors"
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True))
