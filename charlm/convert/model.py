"""The road that weights of every family take: a folder of theirs -> a `Model` -> a checkpoint of ours, and back.

What differs between families is a `Converter`; `charlm.families.converters` lists them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import flax.linen as nn
import numpy as np

from charlm.convert.changes import NotChangeable
from charlm.convert.files import Tensor, find_state, write_safetensors
from charlm.convert.rules import Entry, Leave, Rule, describe, export_state, import_state, in_parts
from charlm.core import checkpoint as checkpoints
from charlm.core.memory import give_memory_back
from charlm.nn.kernels import KERNELS
from charlm.text.subwords import SubwordTokenizer

STATE_FILE = "model.safetensors"
# Fields of a config that weights do not know; a family may have more of its own, see `Converter.own_options`.
CHANGEABLE = ("dtype", "remat", "dropout", "attention_dropout", "embed_dropout", "attention_kernel", "compat_reference")
CONFIG_FILES = ("config_model.json", "config.json")  # of theirs, looked for beside the weights in this order
DTYPES = ("float32", "bfloat16", "float16")
PART = 2**28  # bytes of parameters that an export reads at a time


def _changed(name: str, value: Any) -> Any:
    """Returns a changed value as a checkpoint stores it."""
    if name == "dtype":
        named = getattr(value, "__name__", None) or getattr(value, "name", None) or value
        if named not in DTYPES:
            raise ValueError(f"dtype={value!r}: expected {' or '.join(DTYPES)}")
        return named
    if name == "attention_kernel":
        if value not in KERNELS:
            raise ValueError(f"attention_kernel={value!r}: expected {', '.join(KERNELS)}")
        return value
    if name in ("remat", "compat_reference"):
        if not isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: expected true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name}={value!r}: expected a number in [0, 1)")
    return float(value)


class Model(NamedTuple):
    """A model at rest.

    Attributes:
      params: our nested parameters, float32.
      metadata: what its checkpoint stores beside them; enough to build the module.
      folder: where it was read; a tokenizer's files lie there.
      source: what it was read from, for messages.
    """

    params: Any
    metadata: dict[str, Any]
    folder: Path
    source: Path


class Target(NamedTuple):
    """Where a state dict goes: our config and module, its abstract parameters, the table of names.

    Attributes:
      aliases: second names of tensors, which their code wants to find in a file.
    """

    config: Any
    module: nn.Module
    params: Any
    table: dict[str, Entry]
    aliases: Sequence[Leave]


class Names(NamedTuple):
    """A state dict of theirs, not yet read: its tensors by today's names, the head they make, and what is known."""

    state: dict[str, Tensor]
    head: str
    rules: Sequence[Rule]
    leave: Sequence[Leave]


class Converter(abc.ABC):
    """A family of models: what their folders hold, what our checkpoints of it store."""

    name: str
    title: str  # for people
    encoders: tuple[type[nn.Module], ...] = ()  # modules without a head
    # Further fields of the config that may be changed, each with what raises ValueError for a value it cannot have.
    own_options: Mapping[str, Callable[[Any], None]] = MappingProxyType({})
    replaces_table: str = ""  # where the parameters lie of a module in the place of the table of subwords; "": none
    config_elsewhere: bool = False  # whether the config need not lie beside the weights
    hides_behind: tuple[str, ...] = ()  # families that released configs of this one may say they are of
    label_heads: Sequence[str] = ()  # ways to read labels, the default first; (): there is one

    @property
    @abc.abstractmethod
    def heads(self) -> Sequence[str]:
        """The heads that a model of the family may have."""

    @abc.abstractmethod
    def head_of(self, metadata: Mapping[str, Any]) -> str:
        """Returns the head of a model with that metadata."""

    @abc.abstractmethod
    def target(self, metadata: Mapping[str, Any], where: str) -> Target:
        """Returns what a model with that metadata is; computes nothing.

        Raises:
          ValueError: naming `where` and what is wrong with the metadata.
        """

    @abc.abstractmethod
    def recognises(self, theirs: Mapping[str, Any]) -> bool:
        """Says whether a config of theirs is of this family."""

    @abc.abstractmethod
    def read(self, source: str, head: str = "") -> Model:
        """Reads a folder or file of theirs; a family that needs to be told more has arguments of its own.

        Args:
          head: one of `heads`; "": what the file holds.

        Raises:
          ValueError: when anything is missing or does not fit.
        """

    @abc.abstractmethod
    def names(self, source: Path, head: str = "") -> Names:
        """Returns what is in a file of theirs; ValueError when it cannot be read, or is of another family."""

    @abc.abstractmethod
    def with_head(self, metadata: Mapping[str, Any], head: str) -> dict[str, Any]:
        """Returns the metadata of the same model with another head."""

    @abc.abstractmethod
    def with_changes(self, metadata: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the metadata with fields of the config changed; the names have been checked."""

    @abc.abstractmethod
    def write_beside(self, model: Model, folder: Path) -> None:
        """Writes the files that lie beside our parameters: a tokenizer, characters."""

    @abc.abstractmethod
    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes the files that lie beside their parameters: the config, a tokenizer, characters."""

    def recognises_tensors(self, file: Path, theirs: Mapping[str, Any] | None) -> bool:
        """Says whether weights that no config assigns to a family are of this one.

        Args:
          theirs: the config beside them; None: there is none.

        Raises:
          ValueError: when the file cannot be read.
        """
        return False

    def smallest_input(self, config: Any) -> Any:
        """Returns the smallest input of a model of the family."""
        return np.zeros((1, 1), np.int32)

    def headless(self, config: Any, params: Any) -> tuple[nn.Module, Any]:
        """Returns the encoder inside a model with a head for labels, and its parameters."""
        raise ValueError(f"a {self.title} has no encoder that is used alone")

    def scope_alone(self, module: nn.Module) -> str:
        """Returns what stands before the names of a module's parameters where it is inside a model with a head."""
        scope = getattr(module, "scope_name", "")
        return f"{scope}/" if scope else ""

    def open_tokenizer(self, folder: Path, lowercase: bool | None = None) -> SubwordTokenizer | None:
        """Returns the tokenizer whose files lie with a model; None: the family has none.

        Raises:
          ValueError: when there should be one, or it is damaged.
        """
        return None

    def load(self, checkpoint: Path, metadata: dict[str, Any], head: str = "", **changes: Any) -> Model:
        """Reads a checkpoint of ours onto the first device.

        Args:
          metadata: what it stores. head: to read less than it holds; "": all. changes: of its config; see `change`.

        Raises:
          ValueError: when it does not hold that head, or its parameters do not fit the changed config.
        """
        metadata = self.change(metadata, changes, str(checkpoint))
        target = self.target(metadata, str(checkpoint))
        params = checkpoints.load_params(checkpoint, checkpoints.on_one_device(target.params))
        model = Model(params, metadata, checkpoints.files_of(checkpoint), checkpoint)
        return self.cut(model, head) if head else model

    def change(self, metadata: dict[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Returns the metadata with fields of the config changed that weights do not know: one of `CHANGEABLE`, or of
        `own_options`.

        Raises:
          ValueError: naming a field that is none of them, or a value that it cannot have.
        """
        if not changes:
            return metadata
        config = self.target(metadata, where).config
        known = [name for name in (*CHANGEABLE, *self.own_options) if hasattr(config, name)]
        if unknown := sorted(changes.keys() - set(known)):
            reason = f"{', '.join(unknown)} cannot be changed in a {type(config).__name__}: {', '.join(known)} can"
            raise NotChangeable(reason, unknown, self.name)
        return self.with_changes(metadata, {name: self._changed(name, value) for name, value in changes.items()})

    def _changed(self, name: str, value: Any) -> Any:
        if name not in self.own_options:
            return _changed(name, value)
        self.own_options[name](value)
        return value

    def cut(self, model: Model, head: str) -> Model:
        """Returns the model with another head that needs no other parameters, such as the encoder alone.

        Raises:
          ValueError: when the family has no such head, or the model lacks parameters for it.
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
        """Writes a checkpoint that stands alone; `folder` becomes it. ValueError when it cannot be written."""
        checkpoints.save_params(folder, model.params, model.metadata)
        self.write_beside(model, folder)

    def export(self, model: Model, folder: Path) -> None:
        """Writes what their code reads; ValueError when it has no such model."""
        target = self.target(model.metadata, str(model.source))
        self.write_theirs(model, folder)
        write_safetensors(folder / STATE_FILE, export_state(target.table, target.aliases, model.params))

    def export_checkpoint(self, checkpoint: Path, metadata: dict[str, Any], folder: Path) -> int:
        """Writes a checkpoint of ours as what their code reads; returns the number of tensors.

        It is read in parts: a large model is never in memory twice.

        Raises:
          ValueError: when their code has no such model, or the checkpoint does not hold the parameters of its config.
        """
        target = self.target(metadata, str(checkpoint))
        self.write_theirs(Model(None, metadata, checkpoints.files_of(checkpoint), checkpoint), folder)
        abstract = checkpoints.on_one_device(target.params)
        state: dict[str, np.ndarray] = {}
        for table in in_parts(target.table, PART):
            names = {ours for entry in table.values() for ours in entry.ours}
            aliases = [alias for alias in target.aliases if alias.same_as in table]
            state |= export_state(table, aliases, checkpoints.load_params(checkpoint, abstract, names))
            give_memory_back()
        write_safetensors(folder / STATE_FILE, state)
        return len(state)

    def inspect(self, source: str, head: str = "") -> Iterator[str]:
        """Yields a line for each tensor of theirs: name, shape, dtype, and our parameter or why it has none.

        Raises:
          ValueError: when it cannot be read, or is of another family.
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
