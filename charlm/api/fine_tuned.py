"""What a fine-tuned model does: it tags, classifies, measures, answers or ranks, as its task is.

`charlm.api.model.Model` has these methods. Open it to add one for a new kind of task.
"""

# To Python, a text is also an iterable of texts; here it is always one.
# pyright: reportOverlappingOverload=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

from charlm.api.loaded import Loaded, rows_of
from charlm.api.results import Answer, Class, Ranked, Tag
from charlm.finetune.predictor import FineTuned


class Labelling(Loaded):
    """The methods of fine-tuned models; each raises ValueError if the model was not fine-tuned for it."""

    def _need(self, ability: str) -> FineTuned:
        """Returns the fine-tuned model; ValueError if the model is none, or one for another task."""
        if self._fine_tuned is None:
            raise ValueError(
                f"{self.path} was fine-tuned for no task: it can {', '.join(self.abilities)}, not {ability}; "
                "charlm.finetune(...) makes a model that can"
            )
        self._fine_tuned.require(ability)
        return self._fine_tuned

    @overload
    def tag(self, texts: str, splitter: str = "rules", language: str = "en") -> list[Tag]: ...

    @overload
    def tag(
        self, texts: Iterable[str | Sequence[str]], splitter: str = "rules", language: str = "en"
    ) -> list[list[Tag]]: ...

    def tag(
        self, texts: str | Iterable[str | Sequence[str]], splitter: str = "rules", language: str = "en"
    ) -> list[Tag] | list[list[Tag]]:
        """Returns every word of a text with its tag, or a list of such lists.

        Args:
          texts: one text, or several; each of several may also be a list of words that are split already.
          splitter, language: how texts are split into words; see `charlm.text.words.get_splitter`.

        Raises:
          ValueError: the model was not fine-tuned to tag.
        """
        model = self._need("tag")

        def tagged(several: list[str | Sequence[str]]) -> list[list[Tag]]:
            return [
                [Tag(*row) for row in rows_of(t.words, t.offsets, t.tags, t.probabilities)]
                for t in model.tag(several, language, splitter)
            ]

        return self._each(texts, tagged, words=True)

    @overload
    def classify(self, texts: str, pairs: str | None = None) -> Class: ...

    @overload
    def classify(self, texts: Iterable[str], pairs: Iterable[str | None] | None = None) -> list[Class]: ...

    def classify(
        self, texts: str | Iterable[str], pairs: str | Iterable[str | None] | None = None
    ) -> Class | list[Class]:
        """Returns the class of a text, or a list of classes.

        Args:
          pairs: the second text of each, if the model reads pairs.

        Raises:
          ValueError: the model was not fine-tuned to classify, or `pairs` are not as many as texts.
        """
        model = self._need("classify")

        def classified(several: list[str]) -> list[Class]:
            return [
                Class(p.label, max(p.probabilities), dict(zip(self.labels, p.probabilities, strict=True)))
                for p in model.classify(several, _as_list(pairs))
            ]

        return self._each(texts, classified)

    @overload
    def measure(self, texts: str, pairs: str | None = None) -> float: ...

    @overload
    def measure(self, texts: Iterable[str], pairs: Iterable[str | None] | None = None) -> list[float]: ...

    def measure(
        self, texts: str | Iterable[str], pairs: str | Iterable[str | None] | None = None
    ) -> float | list[float]:
        """Returns the number that a model of regression predicts for a text (with its pair), or a list of numbers.

        Raises:
          ValueError: the model was not fine-tuned on numbers, or `pairs` are not as many as texts.
        """
        model = self._need("measure")
        return self._each(texts, lambda several: model.measure(several, _as_list(pairs)))

    @overload
    def answer(self, questions: str, contexts: str) -> Answer: ...

    @overload
    def answer(self, questions: Iterable[str], contexts: str | Iterable[str]) -> list[Answer]: ...

    def answer(self, questions: str | Iterable[str], contexts: str | Iterable[str]) -> Answer | list[Answer]:
        """Returns the answer to a question in a context, or a list of answers.

        Args:
          contexts: the context of each question, or one for all.

        Raises:
          ValueError: the model was not fine-tuned to answer, or `contexts` are not as many as questions.
        """
        model = self._need("answer")
        task: Any = model.task  # a question-answering task, as `_need` has checked

        def answered(several: list[str]) -> list[Answer]:
            of_each = [contexts] * len(several) if isinstance(contexts, str) else list(contexts)
            found = []
            for prediction in model.answer(several, of_each):
                candidates = tuple(Answer(c.text, c.start, c.end, c.probability) for c in prediction.candidates)
                left = max(0.0, 1.0 - sum(c.probability for c in candidates))
                best = candidates[0] if candidates and task.answer(prediction) else Answer("", 0, 0, left)
                found.append(Answer(best.text, best.start, best.end, best.probability, candidates))
            return found

        return self._each(questions, answered)

    def rank(self, query: str, passages: Iterable[str]) -> list[Ranked]:
        """Returns the passages, those first that answer the query best.

        Raises:
          ValueError: the model was not fine-tuned to rank, or `passages` is one string.
        """
        texts = passages if isinstance(passages, str) else list(passages)
        scores = self._need("rank").rank(query, texts)
        found = [Ranked(text, score, n) for n, (text, score) in enumerate(zip(texts, scores, strict=True))]
        return sorted(found, key=lambda one: -one.score)

    def predict(self, files: str | Iterable[str]) -> list[tuple[str, Any]]:  # as JSON has it, of each task its own
        """Returns id and prediction of every example of files in the format of the model's task.

        Raises:
          ValueError: the model was fine-tuned for no task, or a file cannot be read.
        """
        if self._fine_tuned is None:
            self._need("predict")
        assert self._fine_tuned is not None  # or that has raised
        try:
            return self._fine_tuned.predict_files([files] if isinstance(files, str) else list(files))
        except ValueError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # perhaps a text
                raise ValueError(f"{error}; predict reads files, {self._fine_tuned.ability} texts") from error
            raise


def _as_list(pairs: str | Iterable[str | None] | None) -> list[str | None] | None:
    return [pairs] if isinstance(pairs, str) else None if pairs is None else list(pairs)
