"""The task of question answering: finds the answer as a span of a context.

Source: SQuAD 1.1 and 2.0 (Rajpurkar et al., 2016, 2018). Long contexts are read in overlapping windows; a unit may
begin an answer only in the window where it has the most context (released code of BERT). A model that reads words can
only answer with whole words; the log states how many answers of the training data begin or end inside a unit. Open it
to change how answers are chosen; `contexts` cuts the windows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm import metrics
from charlm.convert import heads
from charlm.core.types import Json, JsonObject
from charlm.data.examples import Answer, QuestionExample, Skipped
from charlm.data.squad import (
    Candidate,
    read_squad,
    write_squad_nbest,
    write_squad_null_odds,
    write_squad_predictions,
)
from charlm.families.units import Encoded, Units
from charlm.tasks.base import Asked, Row, Task, TaskSums
from charlm.tasks.contexts import ContextPlaces, answer_units, context_windows, most_context, trimmed_offsets
from charlm.text.noise import Rewriter
from charlm.text.noise.edits import NoisedText
from charlm.text.words import Span

log = logging.getLogger("charlm")

NEVER = 1e9  # odds of "no answer" if the context is empty
_NO_ANSWER = "(no answer)"
FAR = -1e30  # logit of a position that cannot begin or end an answer


class AnswerPrediction(NamedTuple):
    """Candidates, best first, and the log odds (nats) of "no answer" against the best candidate."""

    candidates: tuple[Candidate, ...]
    null_odds: float

    @property
    def text(self) -> str:
        """The text of the best candidate; "" if there is no candidate."""
        return self.candidates[0].text if self.candidates else ""


class QuestionAnswering(Task[QuestionExample, AnswerPrediction]):
    """A span of the context, or none.

    Args:
      stride: distance between the starts of windows, in units.
      max_question: maximum length of a question in units; the end of a longer one is cut off.
      max_answer: maximum length of an answer in units.
      n_best: number of candidates that are kept.
      impossible: whether questions without an answer occur; None: `learn_labels` finds out from the training data.
      threshold: log odds of "no answer" above which no answer is given; see `tune`.
      noise_context: whether noise also changes the context; at least a part of each answer in it survives.
    """

    name = "question_answering"
    head = heads.QUESTION_ANSWERING
    ability = "answer"
    use = "python -m charlm.predict answer --checkpoint={workdir} --context=FILE 'A question?'"
    metric = "f1"
    fields = ("question",)
    hundredths = ("exact", "f1")

    @property
    def outputs(self) -> int:
        """The number of logits of a position: 2, as the first and as the last position of the answer."""
        return 2

    def __init__(
        self,
        stride: int = 128,
        max_question: int = 64,
        max_answer: int = 30,
        n_best: int = 20,
        impossible: bool | None = None,
        threshold: float = 0.0,
        noise_context: bool = False,
    ) -> None:
        self.stride, self.max_question, self.max_answer, self.n_best = stride, max_question, max_answer, n_best
        self.impossible, self.threshold, self.noise_context = impossible, threshold, noise_context

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict) -> Self:
        """Returns the task with the settings that a config names."""
        names = ("stride", "max_question", "max_answer", "n_best", "noise_context")
        return cls(**{name: config.data[name] for name in names})

    def settings(self) -> JsonObject:
        """Returns the name, and the arguments of the task."""
        names = ("stride", "max_question", "max_answer", "n_best", "impossible", "threshold", "noise_context")
        return {"name": self.name} | {name: getattr(self, name) for name in names}

    def read(self, files: Sequence[str], training: bool, labelled: bool = True) -> list[QuestionExample]:
        """Returns the questions of SQuAD files; for training, only those whose answer is in the context."""
        skipped, found = Skipped(), []
        for file in files:
            found += read_squad(file, training=training, skipped=skipped)
        skipped.log()
        return found

    def check_labels(self, examples: Sequence[QuestionExample], key: str) -> None:
        """Checks that each question has an answer, or is marked as impossible."""
        for example in examples:
            if not example.answers and not example.impossible:
                raise ValueError(f"{key}: {example.place}: no answer is known; data.test_labels=False predicts alone")

    def learn_labels(self, examples: Sequence[QuestionExample]) -> None:
        """Sets `impossible`, unless it is set: whether some questions have no answer."""
        if not any(example.answers for example in examples):
            raise ValueError(f"data.train: none of {len(examples)} questions has an answer")
        if self.impossible is None:
            self.impossible = any(example.impossible for example in examples)

    def rows(self, examples: Sequence[QuestionExample], units: Units, training: bool) -> list[Row]:
        """Returns a row for each window of each context, each with the question before it."""
        questions = units.encode([example.question for example in examples])
        contexts = list(dict.fromkeys(example.context for example in examples))
        encoded = dict(zip(contexts, units.encode(contexts), strict=True))
        found, inside, answered = [], 0, 0
        for n, (example, question) in enumerate(zip(examples, questions, strict=True)):
            context = encoded[example.context]
            offsets_U2 = trimmed_offsets(example.context, context.offsets)
            span, cut = answer_units(example, offsets_U2)
            inside, answered = inside + cut, answered + (span is not None)
            found += self._rows(n, question.part(0, self.max_question), context, offsets_U2, span, units)
        if training and answered:
            log.info(
                "%d of %d answers (%.2f %%) begin or end inside a unit that the model reads",
                inside, answered, 100 * inside / answered,
            )  # fmt: skip
        return found

    def _rows(
        self,
        example: int,
        question: Encoded,
        context: Encoded,
        offsets_U2: np.ndarray,
        span: tuple[int, int] | None,
        units: Units,
    ) -> Iterator[Row]:
        room = units.room(True) - len(question)
        if room < 1:
            question, room = question.part(0, units.room(True) // 2), units.room(True) - units.room(True) // 2
        parts = context_windows(len(context), room, self.stride)
        most = most_context(parts, len(context))
        for number, part in enumerate(parts):
            joined = units.join(question, context.part(part.start, part.stop))
            start = end = joined.whole
            if span is not None and part.start <= span[0] and span[1] < part.stop:
                start, end = (joined.second + unit - part.start for unit in span)
            allowed_L = np.zeros(joined.length, bool)
            allowed_L[joined.second : joined.second + len(part)] = True
            allowed_L[joined.whole] = True
            targets = {
                "start": np.int32(start), "end": np.int32(end), "allowed": allowed_L, "weight": np.float32(1.0)
            }  # fmt: skip
            offsets = offsets_U2[part.start : part.stop]
            yield Row(
                joined,
                example,
                targets,
                ContextPlaces(offsets, joined.second, most[part.start : part.stop] == number, joined.whole),
            )

    def row_sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns the mean of the cross entropies of start and end; a row is right if both are."""
        allowed_NL, weight_N = targets["allowed"], targets["weight"]
        nats_N, right_N = 0.0, weight_N
        for side, name in enumerate(("start", "end")):
            scores_NL = jnp.where(allowed_NL, logits[..., side], FAR)
            label_N1 = targets[name][:, None]
            log_probs_NL = jax.nn.log_softmax(scores_NL, axis=-1)
            nats_N -= jnp.take_along_axis(log_probs_NL, label_N1, axis=-1)[:, 0] / 2
            right_N *= scores_NL.argmax(axis=-1) == label_N1[:, 0]
        return TaskSums(nats_N * weight_N, weight_N, right_N)

    def predict(
        self, examples: Sequence[QuestionExample], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[AnswerPrediction]:
        """Returns the best candidates of each question over all windows of its context."""
        found: list[dict[Span, float]] = [{} for _ in examples]
        null = np.full(len(examples), np.inf)
        for row, scores_L2 in zip(rows, logits, strict=True):
            places: ContextPlaces = row.places
            null[row.example] = min(null[row.example], float(scores_L2[places.whole].sum()))
            for start, end, score in self._spans(scores_L2[places.first : places.first + len(places.offsets)], places):
                spans = found[row.example]
                spans[start, end] = max(score, spans.get((start, end), -np.inf))
        return [
            self._prediction(example, spans, float(score))
            for example, spans, score in zip(examples, found, null, strict=True)
        ]

    def _spans(self, scores_U2: np.ndarray, places: ContextPlaces) -> Iterator[tuple[int, int, float]]:
        """Yields the best spans of a window: first character, one past the last, and the sum of both logits."""
        starts = [int(u) for u in np.argsort(-scores_U2[:, 0], kind="stable") if places.most[u]][: self.n_best]
        ends = np.argsort(-scores_U2[:, 1], kind="stable")
        for start in starts:
            fitting = ends[(ends >= start) & (ends < start + self.max_answer)][: self.n_best]
            for end in fitting.tolist():
                yield (
                    int(places.offsets[start, 0]),
                    int(places.offsets[end, 1]),
                    float(scores_U2[start, 0] + scores_U2[end, 1]),
                )

    def _prediction(self, example: QuestionExample, spans: dict[Span, float], null: float) -> AnswerPrediction:
        best = sorted(spans.items(), key=lambda item: (-item[1], item[0]))
        texts: dict[str, tuple[Span, float]] = {}
        for (start, end), score in best:
            text = example.context[start:end]
            if text and text not in texts:
                texts[text] = (start, end), score
            if len(texts) == self.n_best:
                break
        if not texts:
            return AnswerPrediction((), NEVER)
        scores = np.array([score for _, score in texts.values()] + ([null] if self.impossible else []))
        shares = np.exp(scores - np.logaddexp.reduce(scores)).tolist()
        kept = tuple(
            Candidate(text, share, *span) for (text, (span, _)), share in zip(texts.items(), shares, strict=False)
        )
        return AnswerPrediction(kept, null - float(scores[0]))

    def answer(self, prediction: AnswerPrediction) -> str:
        """Returns the text of the answer; "" for "no answer"."""
        return "" if self.impossible and prediction.null_odds > self.threshold else prediction.text

    def asked(self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]) -> list[Asked]:
        """Returns the right answers and the given one, which is right if it is one of them (exact match)."""
        found = []
        for example, prediction in zip(examples, predictions, strict=True):
            gold = " / ".join(dict.fromkeys(answer.text for answer in example.answers)) or _NO_ANSWER
            exact = metrics.squad_scores([example], self._answers([example], [prediction]))["exact"]
            found.append(Asked("answer", gold, self.answer(prediction) or _NO_ANSWER, exact > 0))
        return found

    def tune(self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]) -> None:
        """Sets the threshold for "no answer" to the one with the best F1."""
        if self.impossible:
            texts, odds = self._by_id(examples, predictions)
            self.threshold = metrics.squad_scores(examples, texts, null_odds=odds)["best_f1_thresh"]

    def is_labelled(self, example: QuestionExample) -> bool:
        """Says whether an answer is known, or the question is marked as impossible."""
        return bool(example.answers) or example.impossible

    def context(self, example: QuestionExample) -> str:
        """Returns the context, in which the answer is searched."""
        return example.context

    def decoded(self, value: Json) -> AnswerPrediction:
        """Returns the prediction from the lists that JSON holds."""
        return AnswerPrediction(tuple(Candidate(*candidate) for candidate in value[0]), value[1])

    def _by_id(
        self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]
    ) -> tuple[dict[str, str], dict[str, float]]:
        pairs = list(zip(examples, predictions, strict=True))
        return {e.id: p.text for e, p in pairs}, {e.id: p.null_odds for e, p in pairs}

    def scores(self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]) -> dict[str, float]:
        """Returns exact match and F1 as the published evaluation computes them, 0 to 100."""
        return metrics.squad_scores(examples, self._answers(examples, predictions))

    def statistics(
        self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]
    ) -> tuple[str, np.ndarray]:
        """Returns exact match and F1 of each question."""
        return "squad", metrics.per_example_answers(examples, self._answers(examples, predictions))

    def _answers(self, examples: Sequence[QuestionExample], predictions: Sequence[AnswerPrediction]) -> dict[str, str]:
        return {e.id: self.answer(p) for e, p in zip(examples, predictions, strict=True)}

    def write(
        self,
        folder: Path,
        name: str,
        examples: Sequence[QuestionExample],
        predictions: Sequence[AnswerPrediction],
    ) -> None:
        """Writes the files of the published evaluation: answers, candidates, and the odds of "no answer"."""
        pairs = list(zip(examples, predictions, strict=True))
        write_squad_predictions(str(folder / f"{name}.json"), self._answers(examples, predictions))
        write_squad_nbest(str(folder / f"{name}_nbest.json"), {e.id: p.candidates for e, p in pairs})
        if self.impossible:
            write_squad_null_odds(str(folder / f"{name}_null_odds.json"), {e.id: p.null_odds for e, p in pairs})

    def noised(self, example: QuestionExample, noiser: Rewriter, key: str) -> tuple[QuestionExample, NoisedText | None]:
        """Returns the question with noise; if `noise_context`, also the context with noise and its answers moved.

        By default the context stays clean, since answers copied from a noised context would be misspelled (HLM,
        section 4.2).
        """
        question = noiser.text(example.question, f"{key}/{example.id}").text
        if not self.noise_context:
            return example._replace(question=question), None
        spans = [(a.start, a.start + len(a.text)) for a in example.answers if a.start >= 0]
        noised = noiser.text(example.context, f"{key}/{example.id}/context", protected=spans)
        moved = (noised.move(start, end) for start, end in spans)
        found = lambda start, end: Answer(noised.text[start:end], start)
        answers = tuple(a if a.start < 0 else found(*next(moved)) for a in example.answers)  # < 0: to be scored only
        return example._replace(question=question, context=noised.text, answers=answers), noised

    def restored(self, prediction: AnswerPrediction, trace: NoisedText | None) -> AnswerPrediction:
        """Returns the candidates as spans of the original context."""
        if trace is None:
            return prediction
        moved = []
        for candidate in prediction.candidates:
            start, end = trace.back(candidate.start, candidate.end)
            moved.append(candidate._replace(text=trace.original[start:end], start=start, end=end))
        return prediction._replace(candidates=tuple(moved))
