"""The tasks of classification and regression: a class or a number for a text or a pair (GLUE; Wang et al., 2018).

Open it to change how labels are read, or how classes and numbers are predicted and scored. `TextTask` is the base for
tasks of your own on a text or a pair, as in `charlm.tasks.ranking`.
"""

from __future__ import annotations

import abc
import logging
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm import metrics
from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.core.types import Array, Json, JsonObject
from charlm.data.examples import TextExample
from charlm.data.text_tables import write_tsv_predictions
from charlm.families.units import Encoded, Joined, Units
from charlm.metrics.compare import Scores
from charlm.tasks.base import Asked, Prediction, Row, Task, TaskSums, label_loss, write_confusion
from charlm.tasks.columns import Columns
from charlm.text.noise import Rewriter

log = logging.getLogger("charlm")

SEPARATORS = (",", ";", "|", "/", "+", " ")  # separators that tables use between several labels in one cell
MAX_LABELS = 2000  # with more distinct labels, the column probably holds numbers or texts by mistake


class ClassPrediction(NamedTuple):
    """A class, and the probability of each in the order of the labels."""

    label: str
    probabilities: tuple[float, ...]


class TextTask(Task[TextExample, Prediction]):
    """The base class of tasks on a text or a pair: each example is one row, cut to the maximum length of the model.

    Args:
      columns: the columns of the tables.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict) -> Self:
        """Returns the task with the columns that a config names."""
        return cls(Columns.of(config.data))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        """Returns the task with the given settings; subclasses with labels take the labels from them."""
        named = {name: value for name, value in settings.items() if name != "labels"}
        if "columns" in named:
            named["columns"] = Columns.from_dict(named["columns"])
        return cls(**named)

    def settings(self) -> JsonObject:
        """Returns name, columns and labels."""
        return {"name": self.name, "columns": self.columns.to_dict(), "labels": list(self.labels)}

    def rows(self, examples: Sequence[TextExample], units: Units, training: bool) -> list[Row]:
        """Returns a row for each example."""
        firsts = units.encode([example.text for example in examples])
        pairs = [example.pair for example in examples]
        seconds = iter(units.encode([pair for pair in pairs if pair is not None]))
        joined = (
            join_cut(units, first, None if pair is None else next(seconds))
            for first, pair in zip(firsts, pairs, strict=True)
        )
        return [
            Row(row, n, self.target(example)) for n, (row, example) in enumerate(zip(joined, examples, strict=True))
        ]

    @abc.abstractmethod
    def target(self, example: TextExample) -> dict[str, Array]:
        """Returns the targets of the loss for an example."""

    def noised(self, example: TextExample, noiser: Rewriter, key: str) -> tuple[TextExample, None]:
        """Returns the example with noise in its text and in its pair."""
        text = noiser.text(example.text, f"{key}/{example.id}").text
        pair = None if example.pair is None else noiser.text(example.pair, f"{key}/{example.id}/pair").text
        return example._replace(text=text, pair=pair), None

    def restored(self, prediction: Prediction, trace: None) -> Prediction:
        """Returns the prediction unchanged, since a label does not refer to places in the text."""
        return prediction


def warn_of_joined(labels: Set[str]) -> None:
    """Logs a warning if at least half of the labels look like known labels joined by a separator, such as "3,14".

    A part is known if it is a label itself, or if it occurs in several joined labels.
    """
    for separator in SEPARATORS:
        parts = {label: set(label.split(separator)) for label in labels if separator in label}
        times = Counter(part for known in parts.values() for part in known)
        joined = [label for label in parts if all(part in labels or times[part] > 1 for part in parts[label])]
        if len(joined) > 1 and 2 * len(joined) >= len(labels):
            log.warning(
                "data.train: %d of %d classes look like several labels with %r between, such as %r: if they are, "
                "set --config.data.separator=%s and --config.data.multi_label",
                len(joined), len(labels), separator, min(joined, key=lambda label: (len(label), label)),
                shlex.quote(separator),
            )  # fmt: skip
            return


class Classification(TextTask[ClassPrediction]):
    """One of several classes for a text or pair.

    Args:
      columns: the columns of the tables.
      labels: the classes; (): the classes of the training data.
      metric: "accuracy", "macro_f1", "weighted_f1", "matthews", or "f1" of the second of two classes.
    """

    name = "classification"
    head = SEQUENCE_CLASSIFICATION
    ability = "classify"
    use = "python -m charlm.predict classify --checkpoint={workdir} 'A text with a tpyo.'"
    scored_with = "sklearn.metrics"

    def __init__(self, columns: Columns, labels: Sequence[str] = (), metric: str = "accuracy") -> None:
        super().__init__(columns)
        self.labels, self.metric = tuple(labels), metric

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict) -> Self:
        """Returns the task with the columns and the metric that a config names."""
        return cls(Columns.of(config.data), metric=config.data.metric or "accuracy")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        """Returns the task with the given settings."""
        task = super().from_settings(settings)
        task.labels = tuple(settings.get("labels", ()))
        return task

    @property
    def outputs(self) -> int:
        """The number of logits: one for each class."""
        return len(self.labels)

    def check_scores(self) -> None:
        """Checks that predictions can be scored; see `Task.check_scores`."""
        super().check_scores()
        if self.metric == "f1" and len(self.labels) != 2:
            raise ValueError(
                f"data.metric=f1 is that of the second of two classes, and there are {len(self.labels)}; "
                "macro_f1 is their mean"
            )

    def settings(self) -> JsonObject:
        """Returns name, columns, labels and metric."""
        return super().settings() | {"metric": self.metric}

    def read(self, files: Sequence[str], training: bool, labelled: bool = True) -> list[TextExample]:
        """Returns the rows of tables; if `labels` are known, any other class is an error."""
        return self.columns.read(files, labelled, labels=self.labels or None)

    def learn_labels(self, examples: Sequence[TextExample]) -> None:
        """Sets `labels` to the classes of the examples, in alphabetical order; warns of classes that look joined."""
        if not self.labels and not self.columns.separator:
            warn_of_joined({str(example.label) for example in examples})
        self.labels = learned([str(example.label) for example in examples], self.labels, "classes")

    def target(self, example: TextExample) -> dict[str, Array]:
        """Returns the index of the class; the weight is 0 if the class is unknown."""
        known = example.label in self.labels
        return {"label": np.int32(self.labels.index(example.label) if known else 0), "weight": np.float32(known)}

    def row_sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns the cross entropy."""
        return label_loss(logits, targets["label"], targets["weight"])

    def predict(
        self, examples: Sequence[TextExample], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[ClassPrediction]:
        """Returns the likeliest class of each example."""
        found: list[ClassPrediction] = [ClassPrediction("", ())] * len(examples)
        for row, scores_N in zip(rows, logits, strict=True):
            shares = np.exp(scores_N - np.logaddexp.reduce(scores_N))
            found[row.example] = ClassPrediction(self.labels[int(shares.argmax())], tuple(shares.tolist()))
        return found

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[ClassPrediction]) -> dict[str, float]:
        """Returns accuracy, F1 and Matthews correlation."""
        gold, predicted = [str(example.label) for example in examples], [p.label for p in predictions]
        second = self.labels[1] if len(self.labels) == 2 else None
        positive = second if second in {*gold, *predicted} else None
        scores = metrics.classification_scores(gold, predicted, positive=positive)
        return scores | ({"f1": 0.0} if second is not None and positive is None else {})

    def statistics(
        self, examples: Sequence[TextExample], predictions: Sequence[ClassPrediction]
    ) -> tuple[str, np.ndarray]:
        """Returns the correct and the predicted class of each example, see `charlm.metrics.per_example_classes`."""
        gold = [str(example.label) for example in examples]
        return "classification", metrics.per_example_classes(gold, [p.label for p in predictions], labels=self.labels)

    def scores_of_sums(self, kind: str, sums: np.ndarray) -> Scores:
        """Returns the scores from sums; with two classes, F1 is that of the second class."""
        positive = {"positive": 1} if len(self.labels) == 2 else {}
        return metrics.score_from_statistics(kind, sums, **positive)

    def answer(self, prediction: ClassPrediction) -> str:
        """Returns the class."""
        return prediction.label

    def asked(self, examples: Sequence[TextExample], predictions: Sequence[ClassPrediction]) -> list[Asked]:
        """Returns the right and the predicted class."""
        pairs = zip(examples, predictions, strict=True)
        return [Asked("class", str(e.label), p.label, not self.is_wrong(e, p)) for e, p in pairs]

    def is_wrong(self, example: TextExample, prediction: ClassPrediction) -> bool:
        """Says whether the class is known to be another one."""
        return example.label is not None and prediction.label != str(example.label)

    def decoded(self, value: Json) -> ClassPrediction:
        """Returns the prediction from the list that JSON holds."""
        return ClassPrediction(value[0], tuple(value[1]))

    def write(
        self, folder: Path, name: str, examples: Sequence[TextExample], predictions: Sequence[ClassPrediction]
    ) -> None:
        """Writes a table of ids, classes and the probability of each class, and `write_confusion`'s table."""
        write_tsv_predictions(
            str(folder / f"{name}.tsv"),
            examples,
            [p.label for p in predictions],
            [p.probabilities for p in predictions],
            self.labels,
        )
        if all(example.label is not None for example in examples):
            gold, found = [str(example.label) for example in examples], [p.label for p in predictions]
            write_confusion(folder / f"{name}.confusion.tsv", gold, found, self.labels)


class Regression(TextTask[float]):
    """A number for a text or pair, such as how alike two sentences are.

    The model predicts the standardised number: (number - mean) / sd, with mean and sd of the training data.
    """

    name = "regression"
    head = SEQUENCE_CLASSIFICATION
    ability = "measure"
    use = "python -m charlm.predict measure --checkpoint={workdir} 'A text with a tpyo.'"
    metric = "pearson"
    scored_with = "scipy.stats"

    def __init__(self, columns: Columns, mean: float = 0.0, sd: float = 1.0) -> None:
        super().__init__(columns)
        self.mean, self.sd = mean, sd

    @property
    def outputs(self) -> int:
        """The number of logits: 1."""
        return 1

    def settings(self) -> JsonObject:
        """Returns name, columns, mean and standard deviation."""
        return super().settings() | {"mean": self.mean, "sd": self.sd}

    def read(self, files: Sequence[str], training: bool, labelled: bool = True) -> list[TextExample]:
        """Returns the rows of tables."""
        return self.columns.read(files, labelled, labels_are_numbers=True)

    def learn_labels(self, examples: Sequence[TextExample]) -> None:
        """Sets mean and standard deviation from the numbers of the examples."""
        numbers = np.array([example.label for example in examples], np.float64)
        self.mean, self.sd = float(numbers.mean()), float(numbers.std())
        if self.sd == 0:
            raise ValueError(f"data.train: all {len(numbers)} numbers are {self.mean}: nothing can be learned")

    def target(self, example: TextExample) -> dict[str, Array]:
        """Returns the standardised number; the weight is 0 if the number is unknown."""
        label = example.label
        known, scaled = (True, (label - self.mean) / self.sd) if isinstance(label, float) else (False, 0.0)
        return {"number": np.float32(scaled), "weight": np.float32(known)}

    def row_sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns the squared error, in units of the training data's variance."""
        errors = jnp.square(logits[:, 0] - targets["number"]) * targets["weight"]
        return TaskSums(errors, targets["weight"], jnp.zeros_like(errors))

    def predict(
        self, examples: Sequence[TextExample], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[float]:
        """Returns the numbers."""
        found = [0.0] * len(examples)
        for row, scores_N in zip(rows, logits, strict=True):
            found[row.example] = float(scores_N[0]) * self.sd + self.mean
        return found

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> dict[str, float]:
        """Returns Pearson and Spearman correlation and mean squared error."""
        return metrics.regression_scores([_number(example) for example in examples], predictions)

    def statistics(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> tuple[str, np.ndarray]:
        """Returns the sums of both numbers for each example, see `charlm.metrics.per_example_numbers`."""
        gold = [_number(example) for example in examples]
        return "regression", metrics.per_example_numbers(gold, predictions)

    def fold(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> JsonObject:
        """Returns all numbers: correlations of all folds are no sums over folds, which differ in means and ranks."""
        return {"gold": [_number(example) for example in examples], "predicted": [float(one) for one in predictions]}

    def scores_of_folds(self, folds: Sequence[JsonObject]) -> Scores:
        """Returns the scores of the numbers of all folds; none of folds that another version of charlm finished."""
        if not all("gold" in fold for fold in folds):
            log.warning("%s: folds finished before numbers were kept have no scores together", self.name)
            return {}
        gold, predicted = ([number for fold in folds for number in fold[key]] for key in ("gold", "predicted"))
        return metrics.regression_scores(gold, predicted)

    def asked(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> list[Asked]:
        """Returns the right and the predicted number."""
        pairs = zip(examples, predictions, strict=True)
        return [Asked("number", f"{_number(e):.4g}", f"{p:.4g}", None) for e, p in pairs]

    def decoded(self, value: Json) -> float:
        """Returns the number."""
        return float(value)

    def write(self, folder: Path, name: str, examples: Sequence[TextExample], predictions: Sequence[float]) -> None:
        """Writes a table with id and number."""
        write_tsv_predictions(str(folder / f"{name}.tsv"), examples, predictions)


def _number(example: TextExample) -> float:
    """Returns the number of an example of regression; raises ValueError if it is unknown."""
    if example.label is None:
        raise ValueError(f"{example.place}: expected a number, found none: there is nothing to score")
    return float(example.label)


def join_cut(units: Units, first: Encoded, second: Encoded | None) -> Joined:
    """Returns a row of one text or two; if they are too long, the end of the longer text is cut off first."""
    if second is None:
        return units.join(first.part(0, units.room(False)))
    room = units.room(True)
    a, b = len(first), len(second)
    if a + b > room:
        a, b = (room - b, b) if b <= room // 2 else (a, room - a) if a <= room // 2 else (room - room // 2, room // 2)
    return units.join(first.part(0, a), second.part(0, b))


def learned(found: Sequence[str], given: Sequence[str], what: str) -> tuple[str, ...]:
    """Returns the given labels, or else the sorted labels of the training examples.

    Args:
      found: the labels of the training examples.
      given: the labels of the task; (): none.
      what: what the labels are called in the message.

    Raises:
      ValueError: the examples have fewer than 2 or more than `MAX_LABELS` distinct labels.
    """
    counts = Counter(found)
    if len(counts) < 2 or len(counts) > MAX_LABELS:
        shown = ", ".join(repr(label) for label in list(counts)[:3])
        raise ValueError(
            f"data.train: {len(counts)} {what} ({shown}); expected 2 to {MAX_LABELS}: is data.label the right column?"
        )
    return tuple(given) or tuple(sorted(counts))
