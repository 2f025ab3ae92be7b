"""The base class of fine-tuning tasks: a task turns examples into rows with targets, and logits into predictions.

Open it to write a task. A task reads and cuts text only through `charlm.families.units`, so every task works with every
family of models.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm import metrics
from charlm.core import extras
from charlm.core.types import Array, Json, JsonObject
from charlm.data.text_tables import write_table
from charlm.families.units import Joined, Units
from charlm.metrics.compare import Scores
from charlm.text.noise import Rewriter

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")
# What a task remembers of the noise in an example. Only the task that made it reads it, and its type is the task's own.
Trace: TypeAlias = Any


class Row(NamedTuple):
    """One input row of a model, with the targets of the loss.

    Attributes:
      joined: the units of the row.
      example: index of the example that the row belongs to.
      targets: the targets by name, each a number for the whole row or an array over its positions [L]; "weight" is 0
        for positions or rows that do not count in the loss.
      places: what the task needs to turn logits into predictions; the model never sees it.
    """

    joined: Joined
    example: int
    targets: dict[str, Array]
    places: Any = None  # each task has a type of its own


class TaskSums(NamedTuple):
    """Sums of a batch (float32 scalars) or of each of its rows (float32 [N]); they add up exactly over batches."""

    loss: jax.Array  # nats, or squared errors
    weight: jax.Array  # the number of labels, answers or numbers that the loss is summed over
    right: jax.Array  # how many of them are predicted exactly; 0 for numbers


class Asked(NamedTuple):
    """Something that an example asks for, and the answer of a model, as people read them.

    Attributes:
      what: a word of the text, or what is asked of the whole text, such as "class".
      gold: the right answer.
      answer: the given answer.
      right: whether it is right; None for numbers, which are only near or far.
    """

    what: str
    gold: str
    answer: str
    right: bool | None


class WordScores(NamedTuple):
    """Which words of some examples are predicted correctly.

    Attributes:
      right: bool [W], for every word that is scored, of every example in order.
      entities: the entities, as returned by `charlm.metrics.entity_spans`; None if the tags mark no entities.
      counted: bool, for every word of every example in order, whether it is scored; None: all are.
    """

    right: np.ndarray
    entities: np.ndarray | None = None
    counted: np.ndarray | None = None


class Task(abc.ABC, Generic[Example, Prediction]):
    """A task.

    Attributes:
      name: the name of the task.
      head: the head that a model of this task has, one of `charlm.convert.heads.FINE_TUNED`.
      ability: the method of `charlm.finetune.predictor.FineTuned` that predicts with a model of this task, and the
        command of `charlm.predict`; "predict" reads files, for tasks without a method of their own.
      use: a command that uses the trained model, with {workdir} in it.
      metric: the score that decides which of two models is better; larger is better.
      labels: the possible labels, in the order of the logits; () if the task predicts a number or a place.
      scored_with: the module of an optional package that the scores need, "" for none; final once labels are known.
      fields: the fields of an example whose texts noise may change: each holds a text, None, or a tuple of words.
      by_word: whether the task predicts something for every word, so that words are counted instead of examples.
      noise_context: whether `noised` also changes the text that `context` returns.
      hundredths: the names of the scores that range from 0 to 100; other scores range from 0 to 1, or have a unit.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    ability: ClassVar[str] = "predict"
    use: ClassVar[str] = "python -m charlm.predict predict --checkpoint={workdir} FILE"
    metric: str
    labels: tuple[str, ...] = ()
    scored_with: str = ""
    fields: ClassVar[tuple[str, ...]] = ("text", "pair")
    by_word: ClassVar[bool] = False
    noise_context: bool = False
    hundredths: ClassVar[tuple[str, ...]] = ()

    # Creation and settings

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict) -> Self:
        """Returns the task of a fine-tuning config, before it has seen any data."""
        return cls()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        """Returns the task with the given settings: the result of `settings()` without the name.

        Raises:
          TypeError: the task does not have these settings.
        """
        return cls(**settings)

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """The number of logits per row or position."""

    def check_scores(self) -> None:
        """Checks that predictions can be scored.

        Raises:
          ValueError: a package is missing, or `metric` does not exist for these labels.
        """
        if self.scored_with:
            extras.load(f"scores of {self.name.replace('_', ' ')}", self.scored_with)

    @abc.abstractmethod
    def settings(self) -> JsonObject:
        """Returns the name, and the JSON-able settings from which `from_settings` makes the task again."""

    # Examples, rows and loss

    @abc.abstractmethod
    def read(self, files: Sequence[str], training: bool, labelled: bool = True) -> list[Example]:
        """Returns the examples of files.

        Args:
          training: if true, examples that cannot be used for training are left out, counted and logged.
          labelled: whether the files hold the labels.

        Raises:
          ValueError: a file cannot be read; the message names the file and the line.
        """

    def check_labels(self, examples: Sequence[Example], key: str) -> None:
        """Checks that predictions of these examples can be scored.

        Args:
          key: the config key that names the files, for the message.

        Raises:
          ValueError: labels are missing; the message names `key` and what is missing.
        """

    @abc.abstractmethod
    def learn_labels(self, examples: Sequence[Example]) -> None:
        """Sets `labels` from the training examples; raises ValueError if nothing can be learned from them."""

    @abc.abstractmethod
    def rows(self, examples: Sequence[Example], units: Units, training: bool) -> list[Row]:
        """Returns the rows of examples; every example has at least one row.

        Args:
          training: if false, examples may have no label, or labels unknown to the task; these have no targets.
        """

    def sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns the sums of a batch: loss, weight and correct predictions; see `row_sums`."""
        return jax.tree.map(jnp.sum, self.row_sums(logits, targets))

    @abc.abstractmethod
    def row_sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns the sums of each row, [N]: loss, weight and correct predictions.

        Args:
          logits: float32 [N, outputs] or [N, L, outputs].
          targets: the targets of the rows by name, [N] or [N, L].
        """

    # Predictions and scores

    def word_probabilities(
        self, examples: Sequence[Example], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[tuple[float, ...]] | None:
        """Returns how probable the prediction for each word is, for each example; None: the task cannot tell.

        Args:
          examples, rows, logits: as in `predict`.
        """
        del examples, rows, logits
        return None

    @abc.abstractmethod
    def predict(
        self, examples: Sequence[Example], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """Returns the prediction for each example.

        Args:
          logits: for each row, float32 [outputs] or [L, outputs], without padding.
        """

    @abc.abstractmethod
    def scores(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Returns the scores of predictions by name, including `metric`."""

    @abc.abstractmethod
    def statistics(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> tuple[str, np.ndarray]:
        """Returns the statistics whose sums give the scores, for comparisons: their kind, and a row for each example.

        The kind is one that `charlm.metrics.score_from_statistics` knows, unless the task overrides `scores_of_sums`.
        If examples are scored in groups, there is a row for each `group` instead.
        """

    def scores_of_sums(self, kind: str, sums: np.ndarray) -> Scores:
        """Returns the scores, including `metric`, from sums over the rows of `statistics`.

        Args:
          sums: [S], or [R, S] for R resamples; then every score is an array [R].
        """
        return metrics.score_from_statistics(kind, sums)

    def fold(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> JsonObject:
        """Returns what `scores_of_folds` needs of one fold of a cross-validation."""
        kind, rows = self.statistics(examples, predictions)
        return {"kind": kind, "sums": rows.sum(axis=0).tolist()}

    def scores_of_folds(self, folds: Sequence[JsonObject]) -> Scores:
        """Returns the scores of the predictions of all folds together, from what `fold` returned of each."""
        return self.scores_of_sums(folds[0]["kind"], np.sum([fold["sums"] for fold in folds], axis=0))

    @abc.abstractmethod
    def write(self, folder: Path, name: str, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Writes predictions to files in the usual formats of the task; `name` is the beginning of their names."""

    def tune(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
        """Sets values that are chosen on development data, such as the threshold for "no answer"."""

    # Under noise and attack (`charlm.robustness`)

    @abc.abstractmethod
    def noised(self, example: Example, noiser: Rewriter, key: str) -> tuple[Example, Trace]:
        """Returns the example with noise in its text and with its labels moved accordingly, and a trace of the noise.

        Args:
          noiser: what makes the noise, or a defence, which corrects text in the same way.
          key: identifies the draw of the noise; the same key gives the same noise.
        """

    @abc.abstractmethod
    def restored(self, prediction: Prediction, trace: Trace) -> Prediction:
        """Maps a prediction for a noised example to the original example; `trace` is that of `noised`."""

    def is_labelled(self, example: Example) -> bool:
        """Says whether the label of an example is known."""
        return getattr(example, "label", None) is not None

    def texts(self, example: Example) -> dict[str, str | tuple[str, ...]]:
        """Returns the texts of an example that noise may change, by field: each a text or a tuple of words."""
        found = {name: getattr(example, name) for name in self.fields}
        return {name: text for name, text in found.items() if text is not None}

    def attacked(self, example: Example) -> dict[str, str | tuple[str, ...]]:
        """Returns the subset of `texts` that an adversary may edit."""
        return self.texts(example)

    def context(self, example: Example) -> str:
        """Returns a text beside `texts` that several examples share, "" for none.

        Examples with the same context are put into the same split.
        """
        return ""

    def group(self, example: Example) -> Hashable | None:
        """Returns the key of the group in which an example is scored, such as the query of a passage.

        None: each example is scored on its own.
        """
        return None

    def scored(self, examples: Sequence[Example]) -> list[dict[str, str | tuple[str, ...]]]:
        """Returns, for each row of `statistics`, its texts by field; their words decide which word groups it is in."""
        return [self.texts(example) for example in examples]

    def word_scores(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> WordScores | None:
        """Returns which words are predicted correctly; None unless `by_word`."""
        return None

    def answer(self, prediction: Prediction) -> str | tuple[str, ...] | None:
        """Returns the answer in a prediction: a class, tags or a text; None for numbers, which any edit changes."""
        return None

    def scored_answer(self, example: Example, prediction: Prediction) -> str | tuple[str, ...] | None:
        """Returns the part of the answer that is scored: an edit that changes nothing of it misleads nobody."""
        return self.answer(prediction)

    def asked(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> list[Asked]:
        """Returns what examples that are scored together (see `group`) ask for; [] if people cannot read answers.

        Args:
          examples: one example, or all of a group; their labels are known.
        """
        return []

    def is_wrong(self, example: Example, prediction: Prediction) -> bool:
        """Says whether a prediction is wrong as a whole, so that there is nothing to attack; only classes can be."""
        return False

    def encoded(self, prediction: Prediction) -> Json:
        """Returns a prediction as a value that JSON can hold."""
        return prediction

    def decoded(self, value: Json) -> Prediction:
        """Returns the prediction from the value of `encoded` after it went through JSON, which makes tuples lists."""
        return value


# An example of a task that the code does not know. Such code passes examples on to the task, and reads only fields that
# the examples of all tasks have, such as `id` and `place`.
AnyExample: TypeAlias = Any
# A prediction of a task that the code does not know; only the task looks into it.
AnyPrediction: TypeAlias = Any
AnyTask: TypeAlias = Task[AnyExample, AnyPrediction]


def write_confusion(path: Path, gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> None:
    """Writes a table of how often each label was predicted (rows) for each (columns); see `metrics.confusion`."""
    names = metrics.with_others(labels, gold, predicted)
    counts = metrics.confusion(gold, predicted, labels)
    rows = ([name, *row] for name, row in zip(names, counts.tolist(), strict=True))
    write_table(str(path), ["predicted", *names], rows)


def label_loss(logits: jax.Array, labels: jax.Array, weight: jax.Array) -> TaskSums:
    """Returns the sums of each row for the weighted cross entropy of labels.

    Args:
      logits: [N, ..., labels].
      labels, weight: [N, ...].
    """
    weight = weight.astype(jnp.float32)
    nats = -jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), labels[..., None], axis=-1)[..., 0]
    right = (logits.argmax(axis=-1) == labels).astype(jnp.float32)
    of_row = lambda x: x.reshape(len(x), -1).sum(axis=1)
    return TaskSums(of_row(nats * weight), of_row(weight), of_row(right * weight))
