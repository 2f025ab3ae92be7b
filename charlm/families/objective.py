"""The interface of pre-training: each family implements it as a subclass of `Objective`.

Open it to see what pre-training asks of a family. The loop (`charlm.training.loop`) takes batches, steps, reports,
evaluates, saves and resumes; the `Objective` defines the batches, their loss, and the log lines about them.
Pre-training of a new family needs a subclass, a module of config keys, and a `charlm.families.family.Family` that names
both.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import grain
import jax
import ml_collections

from charlm.core.learning import Batch, Learning
from charlm.core.types import JsonObject, Params

# The text of a run: its vocabularies and the encoded corpora `train` and `heldout`. Each family has a NamedTuple of its
# own for it, which only the family's objective and data look into.
RunData: TypeAlias = Any


def first_of(batches: grain.IterDataset[Batch]) -> Batch:
    """Returns the first of endless batches, and ends the thread that prepares others, if there is one."""
    iterator = iter(batches)
    try:
        return next(iterator)
    finally:
        getattr(iterator, "close", lambda: None)()


class Objective(Learning):
    """A family's pre-training, created once per run from config and prepared text.

    Attributes:
      parts, sums, unit: as in every `Learning`; the size of an evaluation is also counted in `unit`.
      families: the families of the models that it trains, as named in checkpoints.
      use: a command that uses the trained model, with {workdir} in it.
      idle: regular expressions for the names of parameters that get no gradient in pre-training. They have no weight
        decay, which would only shrink the values that fine-tuning starts from.
      has_files: whether the vocabularies are files stored with every checkpoint, rather than part of its metadata.
      trains: prefix of the names of the only parameters to be trained, or several; `optim.freeze` must match others.
        "": any parameter may be trained.
      watched: the top-level parts of the parameters that `watch` reads; (): it is not called.
      of_shape: prefixes of the config keys that must not change if the run resumes from another workdir (`resume`).
    """

    families: ClassVar[tuple[str, ...]]
    use: ClassVar[str] = "python -m charlm.predict fill-mask --checkpoint={workdir} 'The [MASK] of the list.'"
    idle: ClassVar[tuple[str, ...]] = (r"(^|/)pooler/",)
    of_shape: ClassVar[tuple[str, ...]]
    trains: str | tuple[str, ...] = ""
    has_files: ClassVar[bool] = False
    watched: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: ml_collections.ConfigDict, data: RunData, shards: int) -> None:
        """Creates the objective; measures on the data what the config leaves open.

        Args:
          data: the result of `prepare`.
          shards: S, the table shards of a micro-batch.

        Raises:
          ValueError: config and data do not fit each other.
        """
        self.config, self.data, self.shards = config, data, shards

    # Before a run is built

    @staticmethod
    @abc.abstractmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> RunData:
        """Returns the vocabularies and the encoded corpora of a run, `train` and `heldout` (`EncodedCorpus` each).

        Args:
          run: the workdir, if it holds a run that is resumed.

        Raises:
          ValueError: the text cannot be read or encoded, or nothing is held out.
        """

    @staticmethod
    @abc.abstractmethod
    def check_vocab(checkpoint: Path, data: RunData) -> None:
        """Raises ValueError, with what to do, if a checkpoint's vocabularies differ from those of `data`."""

    @staticmethod
    @abc.abstractmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns the effect of training, from two lines of held-out metrics: "NAME: X before, Y after"."""

    # Batches

    @abc.abstractmethod
    def train_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[Batch]:
        """Returns endless batches [accumulation, len(lanes), ...] of the shards `lanes`; the position can be saved."""

    @abc.abstractmethod
    def heldout_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[Batch]:
        """Returns held-out batches [1, len(lanes), ...]: all text once, always with the same masks."""

    @abc.abstractmethod
    def empty(self, shards: int) -> Batch:
        """Returns a batch [1, shards, ...] without text."""

    def sample(self) -> Batch:
        """Returns a training batch [accumulation, 1, ...] of the first shard, for counts of what a step does."""
        return first_of(self.train_batches((0,)))

    # Model

    @abc.abstractmethod
    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters; traceable."""

    @abc.abstractmethod
    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the initial parameters from the source `init_from`, and logs where they are from.

        Args:
          source: the config's `init_from`.
          abstract_params: shapes and placement of this run's parameters.
          fresh: random parameters, for those that the source does not have.

        Raises:
          ValueError: the source has no parameters, or they do not fit.
        """

    # What a person reads, and what is stored

    @abc.abstractmethod
    def measured(self) -> JsonObject:
        """Returns the config keys that were measured, with their values; a resumed run reuses them."""

    @abc.abstractmethod
    def metadata(self) -> JsonObject:
        """Returns a checkpoint's metadata beside its config, JSON-able: enough to use the model without the text."""

    @abc.abstractmethod
    def save_vocab(self, folder: Path) -> None:
        """Writes the vocabulary files into an existing folder: the run's and, with `has_files`, each checkpoint's."""

    @abc.abstractmethod
    def start_lines(self) -> list[str]:
        """Returns the log lines about vocabularies and batches for the start of a run."""

    @abc.abstractmethod
    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns the text about held-out metrics for a log line."""

    def watch(self, params: Params) -> None:
        """Logs details of the model at every evaluation; the default logs nothing.

        Args:
          params: the parts named by `watched`, on this host.
        """
        del params

    @abc.abstractmethod
    def show_examples(self, params: Params) -> None:
        """Logs predictions of the trained model for some held-out words, `train.examples` of each kind.

        Args:
          params: all parameters, on this host.
        """
