"""Applies a fine-tuned model to texts: tags of words, classes, numbers, answers or ranking scores.

`charlm.predict` and the robustness report use it; open it to add another kind of answer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from jax.sharding import Mesh

from charlm.core.sharding import one_device
from charlm.core.types import Json, Option
from charlm.data.examples import QuestionExample, TaggedExample, TextExample
from charlm.families.family import family
from charlm.families.lookup import units_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.finetune.evaluate import Evaluator
from charlm.tasks.base import AnyExample, AnyPrediction, AnyTask
from charlm.tasks.classification import ClassPrediction
from charlm.tasks.create import task_of_model
from charlm.tasks.question_answering import AnswerPrediction
from charlm.tasks.table import TASKS
from charlm.text.words import Span, get_splitter

T = TypeVar("T")


class TaggedText(NamedTuple):
    """The words of a text, their character offsets (start, end) in it, their tags, and how probable each tag is.

    A probability is NaN if the model cannot read the word, or if its task does not tell.
    """

    words: list[str]
    offsets: list[Span]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]


class FineTuned:
    """A fine-tuned model with its task and text side.

    A word that was read before, or that is in the table beside the model, is not encoded again, if the family keeps
    vectors of words.

    Args:
      pretrained: a model with a head for labels, from a run or imported.
      batch_size: rows per batch.
      words: the predictor of the same model whose cache keeps the vectors of words; None: one of its own.

    Attributes:
      task: the task it was fine-tuned for.
      evaluator, params: for predicting examples of the task directly.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        batch_size: int = 32,
        mesh: Mesh | None = None,
        words: Predictor | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: expected at least 1")
        self.pretrained = pretrained
        self.task: AnyTask = task_of_model(pretrained)
        fine_tuning = pretrained.metadata.get("fine_tuning", {})
        units = units_of(pretrained, fine_tuning.get("data", {}).get("max_length", 0))
        self.evaluator = Evaluator(pretrained, self.task, units, mesh or one_device(), batch_size)
        self.params = self.evaluator.place(pretrained.params)
        kind = family(pretrained.family).get_predictor()
        reader = words or (kind.from_pretrained(pretrained) if kind.caches else None)
        if reader is not None and (cache := reader.cache) is not None:
            self.evaluator.take_words(lambda chars: np.asarray(cache.read(reader.word_params, chars)))

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], batch_size: int = 32, **options: Option) -> FineTuned:
        """Loads a fine-tuned model from the workdir of a run, a checkpoint, or a folder in Hugging Face's format.

        Args:
          options: options of `charlm.families.pretrained.from_pretrained`.

        Raises:
          ValueError: there is no model, or it has no head for labels.
        """
        return cls(from_pretrained(path, **options), batch_size)

    @property
    def ability(self) -> str:
        """The name of the method that the model supports, such as "tag"."""
        return self.task.ability

    @property
    def reads_pairs(self) -> bool:
        """Whether a second text may be given: not if charlm fine-tuned the model on single texts."""
        columns = getattr(self.task, "columns", None)
        return "task" not in self.pretrained.metadata or columns is None or columns.pair != ""

    def _texts(self, texts: Iterable[str], pairs: Iterable[str | None] | None) -> list[TextExample]:
        examples = _text_examples(texts, pairs)
        if not self.reads_pairs and any(example.pair is not None for example in examples):
            raise ValueError("pairs: the model was fine-tuned on single texts (data.pair was empty)")
        return examples

    def require(self, ability: str) -> None:
        """Raises ValueError, naming the model's task, unless the model has this ability."""
        if ability != self.ability:
            raise ValueError(f"this model was fine-tuned for {self.task.name}: it can {self.ability}, not {ability}")

    def _predict(self, ability: str, examples: list[AnyExample]) -> list[AnyPrediction]:
        self.require(ability)
        return self.predict(examples)

    def predict(self, examples: Sequence[AnyExample]) -> list[AnyPrediction]:
        """Returns the predictions for examples of the model's task."""
        return self.evaluator.predict(self.params, self.evaluator.prepare(examples)) if examples else []

    def predict_files(self, files: Sequence[str]) -> list[tuple[str, Json]]:
        """Returns the id and the prediction of each example of files that the model's task reads.

        Labels in the files are not used. A prediction is what the task's `encoded` makes of it for JSON.

        Raises:
          ValueError: a file cannot be read; the message names the file and the line.
        """
        labelled = not TASKS[self.task.name].unlabelled  # such a task finds no examples without their labels
        examples = self.task.read(files, training=False, labelled=labelled)
        predictions = self.predict(examples)
        return [(one.id, self.task.encoded(found)) for one, found in zip(examples, predictions, strict=True)]

    def tag(
        self, texts: Iterable[str | Sequence[str]], language: str = "en", splitter: str = "rules"
    ) -> list[TaggedText]:
        """Returns a tag for every word.

        Args:
          texts: texts, or sequences of words that are split already (offsets then refer to the words joined by
            spaces).
          language, splitter: how texts are split into words; see `charlm.text.words.get_splitter`.

        Raises:
          ValueError: the model was fine-tuned for another kind of task.
        """
        cut = get_splitter(splitter, language)
        words, offsets = [], []
        for text in _several(texts):
            if isinstance(text, str):
                offsets.append(cut.spans(text))
                words.append([text[start:end] for start, end in offsets[-1]])
            else:
                words.append(list(text))
                ends, at = [], 0
                for word in text:
                    ends.append((at, at + len(word)))
                    at += len(word) + 1
                offsets.append(ends)
        self.require("tag")
        if not words:
            return []
        prepared = self.evaluator.prepare([TaggedExample(str(n), "", tuple(w)) for n, w in enumerate(words)])
        logits = self.evaluator.logits(self.params, prepared)
        predicted = self.task.predict(prepared.examples, prepared.rows, logits)
        probable = self.task.word_probabilities(prepared.examples, prepared.rows, logits)
        if probable is None:
            probable = [(math.nan,) * len(tags) for tags in predicted]
        return [TaggedText(*found) for found in zip(words, offsets, predicted, probable, strict=True)]

    def classify(self, texts: Iterable[str], pairs: Iterable[str | None] | None = None) -> list[ClassPrediction]:
        """Returns the likeliest class and the probabilities of all classes for each text (with its pair, if any).

        Raises:
          ValueError: the model was fine-tuned for another kind of task, or on single texts and there are pairs.
        """
        self.require("classify")
        return self._predict("classify", self._texts(texts, pairs))

    def measure(self, texts: Iterable[str], pairs: Iterable[str | None] | None = None) -> list[float]:
        """Returns the number for each text (with its pair, if it has one); raises ValueError as `classify` does."""
        self.require("measure")
        return self._predict("measure", self._texts(texts, pairs))

    def rank(self, query: str, passages: Iterable[str]) -> list[float]:
        """Returns a score for each passage: the higher, the likelier the passage answers the query."""
        passages = _several(passages)
        if odd := [number for number, one in enumerate(passages) if not isinstance(one, str)]:
            raise ValueError(f"passage {odd[0]}: expected a text, got {type(passages[odd[0]]).__name__}")
        return self._predict("rank", _text_examples([query] * len(passages), passages))

    def answer(self, questions: Iterable[str], contexts: Iterable[str]) -> list[AnswerPrediction]:
        """Returns the best answers to each question in its context; `task.answer` picks the final one, if any."""
        questions, contexts = _several(questions), _several(contexts)
        if len(questions) != len(contexts):
            raise ValueError(f"{len(questions)} questions, but {len(contexts)} contexts: one for each")
        pairs = zip(questions, contexts, strict=True)
        return self._predict("answer", [QuestionExample(str(n), "", q, c) for n, (q, c) in enumerate(pairs)])


def _several(texts: Iterable[T]) -> list[T]:
    if isinstance(texts, str):
        raise ValueError("expected a list of texts; for one text write [text]")
    return list(texts)


def _text_examples(texts: Iterable[str], pairs: Iterable[str | None] | None) -> list[TextExample]:
    texts = _several(texts)
    seconds = [None] * len(texts) if pairs is None else _several(pairs)
    if len(texts) != len(seconds):
        raise ValueError(f"{len(texts)} texts, but {len(seconds)} in pairs: one for each")
    for number, one in enumerate((*texts, *(second for second in seconds if second is not None))):
        if not isinstance(one, str):
            where = f"text {number}" if number < len(texts) else "pairs"
            raise ValueError(f"{where}: expected a text, got {type(one).__name__} {str(one)[:60]!r}")
    return [TextExample(str(n), "", a, b) for n, (a, b) in enumerate(zip(texts, seconds, strict=True))]
