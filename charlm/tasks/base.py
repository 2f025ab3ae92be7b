"""What every task is: how its examples become rows with targets, what the loss is, and what logits say.

A task reads and cuts text through `charlm.families.units` alone, so each works with every family of models.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm import metrics
from charlm.core import extras
from charlm.families.units import Joined, Units
from charlm.text.noise import Noiser

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")


class Row(NamedTuple):
    """A row of units and what the loss is to make of it.

    Attributes:
      joined: the units. example: index of the example it is of.
      targets: by name, a number for the whole row or an array over its positions [L]; "weight" is 0 where nothing is
        to be learned.
      places: what the task needs to read predictions off the logits; the model never sees it.
    """

    joined: Joined
    example: int
    targets: dict[str, Any]
    places: Any = None


class TaskSums(NamedTuple):
    """Sums over what a batch teaches, float32 scalars that add up exactly over batches of any size; or of its rows."""

    loss: jax.Array  # nats, or squared errors
    weight: jax.Array  # labels, answers or numbers that it is summed over
    right: jax.Array  # of those, predicted exactly; 0 for numbers


class WordScores(NamedTuple):
    """Which words of examples are predicted rightly.

    Attributes:
      right: bool [W], every word of every example in order.
      entities: of tags that mark entities, as `charlm.metrics.entity_spans` gives them; None: they mark none.
    """

    right: np.ndarray
    entities: np.ndarray | None = None


class Task(abc.ABC, Generic[Example, Prediction]):
    """A task.

    Attributes:
      name: of the task. head: of the model that does it, one of `charlm.convert.heads.FINE_TUNED`.
      ability: the method of `charlm.finetune.predictor.FineTuned` that asks a model of the task.
      metric: the score that says which of two models is better; larger is better.
      labels: what there is to predict, in the order of the logits; () where it is a number or a place.
      scored_with: module of an optional package that the scores need; "": none. It is known with the labels.
      fields: of an example that hold the texts that noise may change: each a text, None, or a tuple of words.
      by_word: whether there is a prediction for every word of an example, so that words are counted, not examples.
      noise_context: whether `noised` changes what `context` returns, too.
      hundredths: scores from 0 to 100; the others are from 0 to 1, or of a unit of their own.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    ability: ClassVar[str] = "predict"
    metric: str
    labels: tuple[str, ...] = ()
    scored_with: str = ""
    fields: ClassVar[tuple[str, ...]] = ("text", "pair")
    by_word: ClassVar[bool] = False
    noise_context: bool = False
    hundredths: ClassVar[tuple[str, ...]] = ()

    # How it is made

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict) -> Task[Any, Any]:
        """Returns the task of a fine-tuning config, which has seen no data yet."""
        return cls()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Task[Any, Any]:
        """Returns the task that `settings` described; `settings` without the name. TypeError when they do not fit."""
        return cls(**settings)

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Logits of a row or position."""

    def check_scores(self) -> None:
        """Checks that predictions can be scored; ValueError when a package is missing, or there is no such `metric`."""
        if self.scored_with:
            extras.load(f"scores of {self.name.replace('_', ' ')}", self.scored_with)

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Returns name and what makes the task anew from JSON, by `from_settings`."""

    # Examples, rows and loss

    @abc.abstractmethod
    def read(self, files: Sequence[str], training: bool, labelled: bool = True) -> list[Example]:
        """Returns the examples of files.

        Args:
          training: True: what cannot be learned from is left out, counted and logged.
          labelled: False: what there is to predict is not in the files.

        Raises:
          ValueError: naming file and line of what cannot be read.
        """

    def check_labels(self, examples: Sequence[Example], key: str) -> None:
        """Checks that predictions of these examples can be scored.

        Raises:
          ValueError: naming `key`, the config's, and what is missing.
        """

    @abc.abstractmethod
    def learn_labels(self, examples: Sequence[Example]) -> None:
        """Sets `labels` to those of the training examples; ValueError when nothing can be learned from them."""

    @abc.abstractmethod
    def rows(self, examples: Sequence[Example], units: Units, training: bool) -> list[Row]:
        """Returns the rows of examples; each has at least one.

        Args:
          training: False: there are targets only where examples have labels that are known.
        """

    def sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns loss and hits of a batch; see `row_sums`."""
        return jax.tree.map(jnp.sum, self.row_sums(logits, targets))

    @abc.abstractmethod
    def row_sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns loss and hits of each row, [N].

        Args:
          logits: float32 [N, outputs], or [N, L, outputs]. targets: of its rows by name, [N] or [N, L].
        """

    # Predictions and scores

    @abc.abstractmethod
    def predict(
        self, examples: Sequence[Example], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """Returns what the model says of each example.

        Args:
          logits: of each row, float32 [outputs] or [L, outputs], padding cut off.
        """

    @abc.abstractmethod
    def scores(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Returns the scores of predictions, `metric` among them."""

    @abc.abstractmethod
    def statistics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> tuple[str, np.ndarray]:
        """Returns what the scores are sums of, for comparisons: the kind of the sums, and a row for each example.

        The kind is one of `charlm.metrics.score_from_statistics`, unless `scores_of_sums` knows more. Where examples
        are scored together, there is a row for each `group`.
        """

    def scores_of_sums(self, kind: str, sums: np.ndarray) -> dict[str, Any]:
        """Returns the scores that sums of rows of `statistics` come to, `metric` among them.

        Args:
          sums: [S], or [R, S] of R resamples: then every score is an array of R.
        """
        return metrics.score_from_statistics(kind, sums)

    @abc.abstractmethod
    def write(self, folder: Path, name: str, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Writes predictions as files of the task's usual formats, named after `name`."""

    def tune(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Sets what is chosen on development data, such as the threshold of no answer."""

    # Under noise and attack (`charlm.robustness`)

    @abc.abstractmethod
    def noised(self, example: Example, noiser: Noiser, key: str) -> tuple[Example, Any]:
        """Returns the example with noise in its text and its labels where they now belong, and a trace of the noise.

        Args:
          key: which draw of the noise; the same key gives the same noise.
        """

    @abc.abstractmethod
    def restored(self, prediction: Prediction, trace: Any) -> Prediction:
        """Returns what a prediction for a noised example says of the example before."""

    def is_labelled(self, example: Example) -> bool:
        """Says whether it is known what there is to predict of an example."""
        return getattr(example, "label", None) is not None

    def texts(self, example: Example) -> dict[str, str | tuple[str, ...]]:
        """Returns the texts of an example that noise may change, by field: a text, or words that are given as such."""
        found = {name: getattr(example, name) for name in self.fields}
        return {name: text for name, text in found.items() if text is not None}

    def attacked(self, example: Example) -> dict[str, str | tuple[str, ...]]:
        """Returns those of `texts` that an adversary may edit."""
        return self.texts(example)

    def context(self, example: Example) -> str:
        """Returns a text that several examples share, beside `texts`; "": none. They are set aside together."""
        return ""

    def group(self, example: Example) -> Hashable | None:
        """Returns what tells the examples apart that are scored together, as the passages of a query; None: each is
        scored on its own."""
        return None

    def scored(self, examples: Sequence[Example]) -> list[dict[str, str | tuple[str, ...]]]:
        """Returns for each row of `statistics` the texts, as `texts`, whose words say which groups it is in."""
        return [self.texts(example) for example in examples]

    def word_scores(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> WordScores | None:
        """Returns which words are right; None unless `by_word`."""
        return None

    def answer(self, prediction: Prediction) -> Any:
        """Returns what a prediction comes to: a class, tags, a text; None of a number, which moves with every edit."""
        return None

    def encoded(self, prediction: Prediction) -> Any:
        """Returns a prediction as JSON holds it."""
        return prediction

    def decoded(self, value: Any) -> Prediction:
        """Returns the prediction that JSON makes of `encoded`: a list where there was a tuple."""
        return value


def label_loss(logits: jax.Array, labels: jax.Array, weight: jax.Array) -> TaskSums:
    """Returns for each row the cross entropy of labels [N, ...] under logits [N, ..., labels], times weight."""
    weight = weight.astype(jnp.float32)
    nats = -jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), labels[..., None], axis=-1)[..., 0]
    right = (logits.argmax(axis=-1) == labels).astype(jnp.float32)
    of_row = lambda x: x.reshape(len(x), -1).sum(axis=1)
    return TaskSums(of_row(nats * weight), of_row(weight), of_row(right * weight))
