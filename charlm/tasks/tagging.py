"""The task of tagging: predicts a tag for every word, such as entities, parts of speech or languages.

Every word has exactly one tag, however many units the family cuts it into, and no word is left out: long sentences are
read in overlapping windows, and the tag of a word comes from the window where the word has the most context. Open it to
change which unit represents a word, or how tags are scored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import jax
import ml_collections
import numpy as np

from charlm import metrics
from charlm.convert.heads import TOKEN_CLASSIFICATION
from charlm.core.types import Json, JsonObject
from charlm.data.conll import read_tagged, write_conll
from charlm.data.examples import Skipped, TaggedExample
from charlm.data.passages import OUTSIDE, in_passages
from charlm.data.tag_schemes import is_iob
from charlm.families.units import Encoded, Units
from charlm.tasks.base import Asked, Row, Task, TaskSums, WordScores, label_loss, write_confusion
from charlm.tasks.classification import learned
from charlm.tasks.columns import Columns, column
from charlm.text.noise import Rewriter
from charlm.text.noise.edits import NoisedWords, collect, move_tags

ENTITY_METRICS = ("f1", "accuracy", "macro_f1")  # values of `metric`
TAG_METRICS = ("accuracy", "macro_f1", "weighted_f1")
CONTEXT_SHARE = 4  # on each side, a window gives up to 1 / CONTEXT of its room to context


class WordPlaces(NamedTuple):
    """Words [W] of an example, and for each the position [W] in the row whose logits give its tag."""

    words: np.ndarray
    positions: np.ndarray


class Tagging(Task[TaggedExample, tuple[str, ...]]):
    """A tag for every word.

    Args:
      word, tag: columns of the files, see `charlm.data.conll.read_tagged`; "" for the usual columns.
      scheme: "auto", "iob1", "iob2", "iobes", or "none" if tags mark no entities. Entities are learned as IOB2.
      labels: the tags; (): the tags of the training data.
      entities: whether tags mark entities; None: `learn_labels` finds out from the training data.
      skip_labels: tags of words that are neither learned nor scored, and only read, such as the words around a new one;
        not beside tags that mark entities.
      metric: the main score, one of those that `scores` returns; "": F1 of entities, else the share of correct tags.
      columns: those of tables of passages with one word to tag each, the word as `pair`; None: files are columns of
        words (`charlm.data.passages`).
    """

    name = "tagging"
    head = TOKEN_CLASSIFICATION
    ability = "tag"
    use = "python -m charlm.predict tag --checkpoint={workdir} 'A text with a tpyo.'"
    fields = ("words",)
    by_word = True

    def __init__(
        self,
        word: str = "",
        tag: str = "auto",
        scheme: str = "auto",
        labels: Sequence[str] = (),
        entities: bool | None = None,
        metric: str = "",
        skip_labels: Sequence[str] = (),
        columns: Columns | None = None,
    ) -> None:
        self.word, self.tag, self.scheme, self._metric, self.columns = word, tag, scheme, metric, columns
        self.skip_labels = tuple(dict.fromkeys([*skip_labels, *([OUTSIDE] if columns else [])]))
        self.labels, self.entities = tuple(labels), entities

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict) -> Self:
        """Returns the task with the columns and the scheme that a config names."""
        data = config.data
        columns = dataclasses.replace(Columns.of(data), pair=data.target) if data.target else None
        return cls(data.word, data.tag, data.scheme, metric=data.metric, skip_labels=data.skip_labels, columns=columns)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Json]) -> Self:
        """Returns the task with the given settings."""
        lists = {name: tuple(settings.get(name, ())) for name in ("labels", "skip_labels")}
        columns = Columns.from_dict(settings["columns"]) if "columns" in settings else None
        return cls(**{**settings, **lists, "columns": columns})

    @property
    def metric(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # it is found out, and never set
        """The main score: the one asked for; else entity F1 if tags mark entities, or the share of correct tags."""
        return self._metric or ("f1" if self.entities else "accuracy")

    @property
    def outputs(self) -> int:
        """The number of logits: one for each tag."""
        return len(self.labels)

    def settings(self) -> JsonObject:
        """Returns name, columns, scheme, tags, whether they mark entities, and what was asked for beyond that."""
        columns = self.columns.to_dict() if self.columns else None
        optional = {"metric": self._metric, "skip_labels": list(self.skip_labels), "columns": columns}
        return {
            "name": self.name,
            "word": self.word,
            "tag": self.tag,
            "scheme": self.scheme,
            "labels": list(self.labels),
            "entities": self.entities,
        } | {name: value for name, value in optional.items() if value}

    def read(self, files: Sequence[str], training: bool, labelled: bool = True) -> list[TaggedExample]:
        """Returns the sentences of files; tags of entities are converted to IOB2."""
        skipped, found = Skipped(), []
        if self.columns is not None:
            found = list(in_passages(self.columns.read(files, labelled), skipped))
            skipped.log()
            return found
        word = column(self.word)
        if isinstance(word, str):
            raise ValueError(f"data.word={self.word!r}: expected the number of a column, from 0; CoNLL has no header")
        for file in files:
            found += read_tagged(
                file,
                word=word,
                tag=None if not labelled else "auto" if self.tag == "auto" else column(self.tag),
                scheme=self.scheme,
                broken="repair",
                as_iob2=self.entities is not False and self.scheme != "none",
                skipped=skipped,
            )
        skipped.log()
        if labelled and self.scheme == "auto" and self.entities is not False:
            _check_entities(found, entities=bool(self.entities))
        return found

    @property
    def scored_with(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # as `metric`
        """The package for the scores: scikit-learn if tags mark no entities, since they are scored as classes."""
        return "" if self.entities else "sklearn.metrics"

    def learn_labels(self, examples: Sequence[TaggedExample]) -> None:
        """Sets `labels` to the tags of the examples, "O" first; for entities, both B- and I- of every type."""
        tags = {tag for example in examples for tag in example.tags or ()} - {*self.skip_labels}
        if self.entities is None:
            self.entities = self.scheme != "none" and not self.skip_labels and is_iob(tags)
        if self.entities:
            types = sorted({tag[2:] for tag in tags if tag != "O"})
            tags = {"O", *(f"{part}-{kind}" if kind else part for kind in types for part in "BI")}
        self.labels = learned(sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag)), self.labels, "tags")
        if self.entities:
            self.labels = tuple(sorted(self.labels, key=lambda tag: (tag != "O", tag[2:], tag)))

    def rows(self, examples: Sequence[TaggedExample], units: Units, training: bool) -> list[Row]:
        """Returns a row for each window of each sentence."""
        number = {tag: n for n, tag in enumerate(self.labels)}
        found = []
        for n, encoded in enumerate(units.encode_words([example.words for example in examples])):
            tags = examples[n].tags
            labels_W = None if tags is None else [number.get(tag, -1) for tag in tags]
            found += [self._row(n, encoded, part, owned, labels_W, units) for part, owned in _windows(encoded, units)]
        return found

    def _row(
        self,
        example: int,
        encoded: Encoded,
        part: range,
        owned: range,
        labels_W: list[int] | None,
        units: Units,
    ) -> Row:
        joined = units.join(encoded.part(part.start, part.stop))
        places = [
            (word, joined.first + unit - part.start) for word, unit in _speakers(encoded, part, owned, units.labelled)
        ]
        words, positions = (np.array(x, np.int64) for x in zip(*places, strict=True)) if places else _NOTHING
        label_L, weight_L = np.zeros(joined.length, np.int32), np.zeros(joined.length, np.float32)
        if labels_W is not None:
            known = np.array(labels_W)[words]
            label_L[positions], weight_L[positions] = np.maximum(known, 0), known >= 0
        return Row(joined, example, {"label": label_L, "weight": weight_L}, WordPlaces(words, positions))

    def row_sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns the cross entropy of the words' tags."""
        return label_loss(logits, targets["label"], targets["weight"])

    def predict(
        self, examples: Sequence[TaggedExample], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[tuple[str, ...]]:
        """Returns the likeliest tag of every word."""
        best = [np.zeros(len(example.words), np.int64) for example in examples]
        for row, scores_LN in zip(rows, logits, strict=True):
            best[row.example][row.places.words] = scores_LN[row.places.positions].argmax(axis=-1)
        return [tuple(self.labels[n] for n in numbers) for numbers in best]

    def word_probabilities(
        self, examples: Sequence[TaggedExample], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[tuple[float, ...]]:
        """Returns the probability of the likeliest tag of every word, the softmax over its tags.

        NaN for a word that the model cannot read.
        """
        found = [np.full(len(example.words), np.nan) for example in examples]
        for row, scores_LN in zip(rows, logits, strict=True):
            scores_WN = scores_LN[row.places.positions].astype(np.float64)
            totals_W = np.logaddexp.reduce(scores_WN, axis=-1)
            found[row.example][row.places.words] = np.exp(scores_WN.max(axis=-1) - totals_W)
        return [tuple(probabilities.tolist()) for probabilities in found]

    def scores(self, examples: Sequence[TaggedExample], predictions: Sequence[tuple[str, ...]]) -> dict[str, float]:
        """Returns the accuracy of tags; precision, recall and F1 of entities, or else macro and weighted F1 of tags."""
        gold, found = self._counting(examples, predictions)
        return (metrics.entity_scores if self.entities else metrics.tag_scores)(gold, found)

    def _counted(self, example: TaggedExample) -> list[int]:
        """Returns the numbers of the words that are scored."""
        tags = example.tags or ()
        return [n for n in range(len(example.words)) if not (tags and tags[n] in self.skip_labels)]

    def _counting(
        self, examples: Sequence[TaggedExample], predictions: Sequence[tuple[str, ...]]
    ) -> tuple[list[list[str]], list[tuple[str, ...]]]:
        """Returns the correct and the predicted tags of the words that are scored, for each sentence."""
        if not self.skip_labels:
            return [list(example.tags or ()) for example in examples], list(predictions)
        places = [self._counted(example) for example in examples]
        gold = [[(e.tags or ())[n] for n in at] if e.tags else [] for e, at in zip(examples, places, strict=True)]
        return gold, [tuple(tags[n] for n in at) for tags, at in zip(predictions, places, strict=True)]

    def statistics(
        self, examples: Sequence[TaggedExample], predictions: Sequence[tuple[str, ...]]
    ) -> tuple[str, np.ndarray]:
        """Returns the counts of entities, or of tags, for each sentence."""
        gold, predictions = self._counting(examples, predictions)
        if self.entities:
            types = {label.partition("-")[2] for label in self.labels if label != "O"}  # "": of B and I alone
            return "entities", metrics.per_example_entities(gold, predictions, types=types)
        beyond = {tag for tags in gold for tag in tags} - set(self.labels)  # tags that do not occur in training
        return "tags", metrics.per_example_tags(gold, predictions, labels=[*self.labels, *sorted(beyond)])

    def check_scores(self) -> None:
        """Checks that predictions can be scored; see `Task.check_scores`."""
        super().check_scores()
        known = ENTITY_METRICS if self.entities else TAG_METRICS
        if self.metric not in known:
            what = "mark entities" if self.entities else "mark no entities"
            raise ValueError(f"data.metric={self.metric}, but the tags {what}; expected one of {', '.join(known)}")

    def is_labelled(self, example: TaggedExample) -> bool:
        """Says whether the tags are known."""
        return example.tags is not None

    def scored(self, examples: Sequence[TaggedExample]) -> list[dict[str, str | tuple[str, ...]]]:
        """Returns every word that is scored as a text of its own."""
        words = [[example.words[n] for n in self._counted(example)] for example in examples]
        return [{"words": (word,)} for listed in words for word in listed]

    def word_scores(self, examples: Sequence[TaggedExample], predictions: Sequence[tuple[str, ...]]) -> WordScores:
        """Returns which words have the correct tag."""
        gold, predictions = self._counting(examples, predictions)
        pairs = zip(gold, predictions, strict=True)
        right = np.array([a == b for tags, found in pairs for a, b in zip(tags, found, strict=True)], bool)
        counted = None
        if self.skip_labels:
            counted = np.array([tag not in self.skip_labels for e in examples for tag in e.tags or e.words], bool)
        return WordScores(right, metrics.entity_spans(gold, predictions) if self.entities else None, counted)

    def answer(self, prediction: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the tags."""
        return prediction

    def scored_answer(self, example: TaggedExample, prediction: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the tags of the words that are scored."""
        return tuple(prediction[n] for n in self._counted(example))

    def asked(self, examples: Sequence[TaggedExample], predictions: Sequence[tuple[str, ...]]) -> list[Asked]:
        """Returns the right and the predicted tag of every word that is scored."""
        found = []
        for example, tags in zip(examples, predictions, strict=True):
            gold = example.tags or ()
            found += [Asked(example.words[n], gold[n], tags[n], tags[n] == gold[n]) for n in self._counted(example)]
        return found

    def decoded(self, value: Json) -> tuple[str, ...]:
        """Returns the tags from the list that JSON holds."""
        return tuple(value)

    def write(
        self, folder: Path, name: str, examples: Sequence[TaggedExample], predictions: Sequence[tuple[str, ...]]
    ) -> None:
        """Writes columns: word, correct tag, predicted tag, and the character offsets of the word in the sentence.

        If tags are known and mark no entities, a table says how often each was predicted for each (`write_confusion`).
        """
        write_conll(str(folder / f"{name}.conll"), examples, predictions, offsets=True)
        if not self.entities and all(example.tags is not None for example in examples):
            gold, found = ([tag for tags in part for tag in tags] for part in self._counting(examples, predictions))
            write_confusion(folder / f"{name}.confusion.tsv", gold, found, self.labels)

    def noised(self, example: TaggedExample, noiser: Rewriter, key: str) -> tuple[TaggedExample, NoisedWords]:
        """Returns the sentence with noise; if noise cuts a word into several, each of them has a tag."""
        spaces = True if example.spaces is None else example.spaces
        noised = noiser.words(example.words, f"{key}/{example.id}", spaces)
        tags = None if example.tags is None else tuple(move_tags(example.tags, noised))
        return example._replace(words=noised.words, tags=tags, spaces=None), noised

    def restored(self, prediction: tuple[str, ...], trace: NoisedWords) -> tuple[str, ...]:
        """Returns a tag for every word of the original sentence."""
        return tuple(collect(prediction, trace))


def word_rows(sentences: Sequence[Sequence[str]], units: Units) -> list[Row]:
    """Returns rows for sentences of words; `Row.places` gives the position that represents each word."""
    examples = [TaggedExample("", "", tuple(words)) for words in sentences]
    return Tagging(labels=("O",)).rows(examples, units, training=False) if examples else []


_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _check_entities(examples: Sequence[TaggedExample], entities: bool) -> None:
    """Checks that either all tags mark entities or none does.

    Args:
      entities: whether the tags are known to mark entities.

    Raises:
      ValueError: some tag marks no entity although others do; the message names its place.
    """
    tags = {tag for example in examples for tag in example.tags or ()}
    marked = sorted(tag for tag in tags if tag.startswith(("B-", "I-")))
    if is_iob(tags) or not (entities or ("O" in tags and marked)):
        return
    example, tag = next((e, tag) for e in examples for tag in e.tags or () if not is_iob([tag]))
    raise ValueError(
        f"{example.place}: the tag {tag!r} in this sentence marks no entity, though others do "
        f"({', '.join(marked[:3])}); if no tags are entities: data.scheme=none"
    )


def _windows(encoded: Encoded, units: Units) -> list[tuple[range, range]]:
    """Returns windows of units, cut between words, each with the range of words whose tags it predicts.

    A word longer than a window is cut off at the end of the window.
    """
    room, words = units.room(False), encoded.words or ()
    count = words[-1] + 1 if words else 0
    if len(words) <= room:
        return [(range(len(words)), range(count))]
    starts = np.searchsorted(np.array(words), np.arange(count + 1))
    margin = room // CONTEXT_SHARE
    found, owned = [], 0
    while owned < count:
        first = owned
        while first > 0 and starts[owned] - starts[first - 1] <= margin:
            first -= 1
        last = owned + 1  # one past the last word that fits
        while last < count and starts[last + 1] - starts[first] <= room:
            last += 1
        if starts[last] - starts[first] > room:  # the word does not fit together with the context before it
            first = owned
        end = last
        if last < count:  # leave the last words to the next window, where they have more context
            while end - 1 > owned and starts[last] - starts[end - 1] <= margin:
                end -= 1
        found.append((range(int(starts[first]), min(int(starts[last]), int(starts[first]) + room)), range(owned, end)))
        owned = end
    return found


def _speakers(encoded: Encoded, part: range, owned: range, which: str) -> list[tuple[int, int]]:
    """Returns (word, unit) for each word owned by a window: the unit that represents it, its first or its last one."""
    found: dict[int, int] = {}
    words = encoded.given_words
    for unit in part:
        word = words[unit]
        if word in owned and (which == "last" or word not in found):
            found[word] = unit
    return list(found.items())
