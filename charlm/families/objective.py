"""What a family pre-trains on: all that the training loop needs to be told.

The loop (`charlm.training.loop`) takes batches, steps, reports, evaluates, saves and resumes; an `Objective` says what
a batch is, what its loss is, and what a person should read of it. A new family is a subclass, a module of config keys,
and a `charlm.families.family.Family` that names both.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, ClassVar

import grain
import jax
import ml_collections

from charlm.core.learning import Batch, Learning


class Objective(Learning):
    """A family's pre-training, made once from config and prepared text.

    Attributes:
      parts, sums, unit: as of every `Learning`; the size of an evaluation is counted in `unit`, too.
      families: of the models that it trains, as checkpoints name them.
      use: a command that uses what was trained, with {workdir} in it.
      idle: regular expressions found in the names of the parameters that pre-training gives no gradient: they must not
        decay, since that alone would only shrink what fine-tuning starts from.
      has_files: whether the vocabularies are files that lie with every checkpoint, not part of its metadata.
      trains: beginning of the names of the parameters that alone are trained, so that `optim.freeze` must name all
        others; empty: any may be.
      watched: the parts of the parameters that `watch` reads; none: it is not called.
      of_shape: beginnings of the config keys that must not change when a run of another workdir goes on.
    """

    families: ClassVar[tuple[str, ...]]
    use: ClassVar[str] = "python -m charlm.predict fill-mask --checkpoint={workdir} 'The [MASK] of the list.'"
    idle: ClassVar[tuple[str, ...]] = (r"(^|/)pooler/",)
    of_shape: ClassVar[tuple[str, ...]]
    trains: ClassVar[str] = ""
    has_files: ClassVar[bool] = False
    watched: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: ml_collections.ConfigDict, data: Any, shards: int) -> None:
        """Makes the objective; measures what the config leaves open.

        Args:
          data: what `prepare` returned. shards: S.

        Raises:
          ValueError: when config and data do not fit each other.
        """
        self.config, self.data, self.shards = config, data, shards

    # Before a run is built

    @staticmethod
    @abc.abstractmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> Any:
        """Returns the vocabularies and the encoded corpora of a run, `train` and `heldout` (`EncodedCorpus` each).

        Args:
          run: the workdir, when it holds a run that goes on.

        Raises:
          ValueError: when the text cannot be read or encoded, or nothing is held out.
        """

    @staticmethod
    @abc.abstractmethod
    def check_vocab(checkpoint: Path, data: Any) -> None:
        """Raises ValueError, naming the way out, when a checkpoint's vocabularies are not those of `data`."""

    @staticmethod
    @abc.abstractmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns what training changed, from two lines of metrics of held-out text: "NAME: X before, Y after"."""

    # Batches

    @abc.abstractmethod
    def train_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[Batch]:
        """Returns batches [accumulation, len(lanes), ...] without end, of these shards; their position can be saved."""

    @abc.abstractmethod
    def heldout_batches(self, lanes: tuple[int, ...]) -> grain.IterDataset[Batch]:
        """Returns held-out batches [1, len(lanes), ...]: all text once, always masked alike."""

    @abc.abstractmethod
    def empty(self, shards: int) -> Batch:
        """Returns a batch [1, shards, ...] without text."""

    # Model

    @abc.abstractmethod
    def init_params(self, key: jax.Array) -> Any:
        """Returns fresh parameters; traceable."""

    @abc.abstractmethod
    def load_params(self, source: str, abstract_params: Any, fresh: Any) -> Any:
        """Returns the parameters that `init_from` gives, and logs where they are from.

        Args:
          source: what the config names. abstract_params: of this run, with their placement. fresh: those made at
            random, for what the source does not have.

        Raises:
          ValueError: when there are none, or they do not fit.
        """

    # What a person reads, and what is stored

    @abc.abstractmethod
    def measured(self) -> dict[str, Any]:
        """Returns the config keys that were measured, with their values: a resumed run takes them over."""

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Returns what a checkpoint stores beside its config, JSON-able: enough to use the model without the text."""

    @abc.abstractmethod
    def save_vocab(self, folder: Path) -> None:
        """Writes the files of the vocabularies into an existing folder: the run's, and with `has_files` each
        checkpoint's."""

    @abc.abstractmethod
    def start_lines(self) -> list[str]:
        """Returns what there is to say of vocabularies and batches when a run starts."""

    @abc.abstractmethod
    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns what a line says of held-out text."""

    def watch(self, params: Any) -> None:
        """Logs what a person wants to see of the model at every evaluation; by default nothing.

        Args:
          params: those of `watched`, on this host.
        """
        del params

    @abc.abstractmethod
    def show_examples(self, params: Any) -> None:
        """Logs what the trained model says of some held-out words, `train.examples` of each kind.

        Args:
          params: on this host.
        """
