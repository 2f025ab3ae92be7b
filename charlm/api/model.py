"""One object for any model, `charlm.load("runs/hlm")`: its methods do what the model can, its call what it is for.

Open it to add an ability. It wraps the predictors of the families and `charlm.finetune.predictor.FineTuned`.
"""

# To Python, a text is also an iterable of texts; here it is always one.
# pyright: reportOverlappingOverload=false

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np

from charlm.api.results import Answer, Class, Encoding, Gap, Generation, Neighbor, Piece, Ranked, Score, Tag, Word
from charlm.convert.heads import FINE_TUNED
from charlm.core.stores import here
from charlm.core.types import Option
from charlm.families.family import family
from charlm.families.predictor import Fill, Predictor
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.sentences import SentenceSettings, read_settings, sentence_vectors
from charlm.families.views import MOST_SHOWN
from charlm.finetune.predictor import FineTuned
from charlm.show.shown import Shown

Found = TypeVar("Found")

GAP = r"\[MASK(?::\d+)?\]"  # as `fill_mask` reads them, beside the mask token of a vocabulary


def load(name_or_folder: str | os.PathLike[str], batch_size: int = 32, **options: Option) -> Model:
    """Loads a model of any family, pre-trained or fine-tuned; nothing is downloaded.

    Args:
      name_or_folder: a workdir of a run or one of its checkpoints; a folder or file of PyTorch weights, such as
        a model of Hugging Face; the name of a model that charlm carries (`charlm models` lists them) or of one in the
        cache of huggingface_hub; or an address in an object store.
      batch_size: texts that are read at a time.
      options: options of `charlm.from_pretrained`, such as `head="encoder"` or `dtype=jnp.bfloat16`.

    Raises:
      ValueError: there is no model, it is damaged, or it does not fit the options.
    """
    path = os.fspath(name_or_folder)
    return Model(from_pretrained(here(path), **options), batch_size, path)


class Model:
    """A model that is applied to texts; `charlm.load` returns it.

    Every method takes one text, and returns one result, or several texts (any iterable), and returns a list. Called
    itself, a model does what it is for: a tagger tags, a classifier classifies, a model with masks fills the gaps of
    texts with a "[MASK]" and encodes the others, GPT-2 writes on.

    Args:
      pretrained: the model.
      batch_size: texts that are read at a time.
      path: what it was loaded from.

    Attributes:
      pretrained, batch_size, path: as above.
      abilities: the names of the methods that this model supports.
    """

    def __init__(self, pretrained: Pretrained, batch_size: int = 32, path: str = "") -> None:
        self.pretrained, self.batch_size, self.path = pretrained, batch_size, path or str(pretrained.folder)

    def __repr__(self) -> str:
        task = f", fine-tuned for {self.task}" if self.task else ""
        return f"<{self.pretrained.title} from {self.path}{task}: it can {', '.join(self.abilities)}>"

    @functools.cached_property
    def _fine_tuned(self) -> FineTuned | None:
        """The model with its task; None if it was fine-tuned for none."""
        made = "task" in self.pretrained.metadata or self.pretrained.head in FINE_TUNED
        return FineTuned(self.pretrained, self.batch_size) if made else None

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The predictor of the model's family, without a head for labels."""
        return family(self.pretrained.family).get_predictor().from_pretrained(self.pretrained)

    @property
    def task(self) -> str:
        """The name of the task that the model was fine-tuned for; "" for none."""
        return "" if self._fine_tuned is None else self._fine_tuned.task.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that a fine-tuned model predicts; () if it predicts none."""
        return () if self._fine_tuned is None else tuple(self._fine_tuned.task.labels)

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods that this model supports, first that which calling it stands for."""
        return (*(() if self._fine_tuned is None else (self._fine_tuned.ability,)), *self.predictor.abilities)

    def __call__(self, texts: str | Iterable[str], *args: Any, **options: Any) -> Any:  # those of the method
        """Does what the model is for; see the class. Further arguments are those of the method."""
        if self._fine_tuned is not None:
            return getattr(self, self._fine_tuned.ability)(texts, *args, **options)
        if "generate" in self.abilities:
            return self.generate(texts, *args, **options)
        return self._each(texts, lambda several: self._filled_or_encoded(several, *args, **options))

    def _filled_or_encoded(self, texts: list[str], *args: Any, **options: Any) -> list[Any]:  # lists of both results
        """Returns the gaps of texts with gaps, and the vectors of the others."""
        gaps = (
            [bool(self._gap.search(text)) for text in texts] if "fill_mask" in self.abilities else [False] * len(texts)
        )
        filled = iter(self.fill_mask([t for t, gap in zip(texts, gaps, strict=True) if gap], *args, **options))
        found = iter(self.encode([t for t, gap in zip(texts, gaps, strict=True) if not gap]) if not all(gaps) else [])
        return [next(filled if gap else found) for gap in gaps]

    def gaps(self, text: str) -> int:
        """Returns how many gaps a text has for this model, such as "[MASK]"."""
        return len(self._gap.findall(text))

    @functools.cached_property
    def _gap(self) -> re.Pattern[str]:
        """How this model's texts write a gap."""
        try:
            tokenizer = self.pretrained.tokenizer()
        except ValueError:  # it reads characters
            return re.compile(GAP)
        mask = tokenizer.special.mask
        return re.compile(GAP if mask is None else f"{GAP}|{re.escape(tokenizer.token(mask))}")

    # What fine-tuned models do

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
                [Tag(*row) for row in _rows(t.words, t.offsets, t.tags, t.probabilities)]
                for t in model.tag(several, language, splitter)
            ]

        return self._each(texts, tagged)

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
        return self._fine_tuned.predict_files([files] if isinstance(files, str) else list(files))

    # What pre-trained models do

    def _able(self, ability: str) -> Predictor:
        """Returns the predictor; ValueError, naming the abilities, if the model does not have this one."""
        self.predictor.require(ability)
        return self.predictor

    @overload
    def encode(self, texts: str, unit: Literal["words", "pieces"] = "words") -> Encoding: ...

    @overload
    def encode(self, texts: Iterable[str], unit: Literal["words", "pieces"] = "words") -> list[Encoding]: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        *,
        normalize: bool,
        prompt: str | None = None,
        prompt_name: str | None = None,
        batch_size: int | None = None,
    ) -> np.ndarray: ...

    def encode(
        self,
        texts: str | Iterable[str],
        unit: Literal["words", "pieces"] = "words",
        *,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        batch_size: int | None = None,
    ) -> Encoding | list[Encoding] | np.ndarray:
        """Returns the vectors of a text, or a list of them; texts may have any length.

        With `normalize`, it returns one vector a text, as sentence-transformers does: float32 [N, D], or [D] for one
        text. Pooling, the most positions that are read, prompts, a dense layer and normalisation are those of the
        model's own files (`modules.json` and what it names). Without such files it is the mean over all positions.

        Args:
          texts: one text, or several.
          unit: what vectors are of: words, or the pieces of the vocabulary. It has no effect with `normalize`.
          normalize: True: vectors of length 1; False: as the model's files say; None: vectors of words or pieces.
          prompt: stands in front of each text.
          prompt_name: the name of a prompt of the model's files, such as "query".
          batch_size: texts that are read at a time; None: the model's.

        Raises:
          ValueError: the model does not have this unit; there is no such prompt, or it is given without `normalize`; or
            the model's files are damaged or ask for what charlm cannot do.
        """
        size = self.batch_size if batch_size is None else batch_size
        if normalize is not None:
            return self._sentences(texts, normalize, prompt, prompt_name, size)
        if prompt is not None or prompt_name is not None:
            raise ValueError("encode: a prompt belongs to vectors of whole texts: give normalize=True or False, too")

        def encoded(several: list[str]) -> list[Encoding]:
            found = self._able("encode").encode(several, size, unit)
            return [Encoding(tuple(e.words), tuple(e.offsets), e.vectors_WD, e.sentence_D) for e in found]

        return self._each(texts, encoded)

    @functools.cached_property
    def sentence_settings(self) -> SentenceSettings:
        """How the model makes one vector of a text; ValueError if its files are damaged or ask for what cannot be."""
        return read_settings(self.pretrained.folder)

    def _sentences(
        self, texts: str | Iterable[str], normalize: bool, prompt: str | None, name: str | None, batch_size: int
    ) -> np.ndarray:
        settings = self.sentence_settings
        before = settings.prompt_of(prompt, name)
        several = [texts] if isinstance(texts, str) else texts
        found_ND = sentence_vectors(
            self._able("encode"), several, settings, normalize=normalize, prompt=before, batch_size=batch_size
        )
        return found_ND[0] if isinstance(texts, str) else found_ND

    @overload
    def fill_mask(self, texts: str, top: int = 5, words: Iterable[str] | None = None) -> list[Gap]: ...

    @overload
    def fill_mask(self, texts: Iterable[str], top: int = 5, words: Iterable[str] | None = None) -> list[list[Gap]]: ...

    def fill_mask(
        self, texts: str | Iterable[str], top: int = 5, words: Iterable[str] | None = None
    ) -> list[Gap] | list[list[Gap]]:
        """Returns the gaps of a text with the likeliest words, or a list of such lists.

        Args:
          texts: texts with "[MASK]", or "[MASK:5]" for a word of five characters.
          top: number of words for each gap.
          words: the words to choose from; None: those that lie beside the model, or all that it can write.

        Raises:
          ValueError: the model fills no gaps, or a text has none.
        """

        def filled(several: list[str]) -> list[list[Gap]]:
            predictor = self._able("fill_mask")
            known = None if words is None else predictor.known_words(words)
            return [self._gaps(text, predictor.fill_mask(text, top=top, known=known)) for text in several]

        return self._each(texts, filled)

    def _gaps(self, text: str, found: Sequence[Sequence[Fill]]) -> list[Gap]:
        places = [match.span() for match in self._gap.finditer(text)]
        return [
            Gap(start, end, tuple(Word(fill.word, fill.log_prob, fill.score) for fill in fills))
            for (start, end), fills in zip(places, found, strict=True)
        ]

    @overload
    def neighbors(self, strings: str, top: int = 5) -> list[Neighbor]: ...

    @overload
    def neighbors(self, strings: Iterable[str], top: int = 5) -> list[list[Neighbor]]: ...

    def neighbors(self, strings: str | Iterable[str], top: int = 5) -> list[Neighbor] | list[list[Neighbor]]:
        """Returns the entries of the vocabulary nearest to a string, or a list of such lists.

        Raises:
          ValueError: the model makes no vectors of strings.
        """
        find = lambda one: [Neighbor(near.subword, near.cosine) for near in self._able("neighbors").neighbors(one, top)]
        return self._each(strings, lambda several: [*map(find, several)])

    @overload
    def score(self, texts: str) -> Score: ...

    @overload
    def score(self, texts: Iterable[str]) -> list[Score]: ...

    def score(self, texts: str | Iterable[str]) -> Score | list[Score]:
        """Returns how likely a text is, or a list of such scores; ValueError if the model scores no texts."""

        def scored(several: list[str]) -> list[Score]:
            return [
                Score(
                    s.log_prob, s.bits_per_char, tuple(Piece(*row) for row in _rows(s.pieces, s.offsets, s.log_probs_P))
                )
                for s in self._able("score").score(several, self.batch_size)
            ]

        return self._each(texts, scored)

    @overload
    def generate(self, texts: str, max_new: int = 40, **options: Option) -> Generation: ...

    @overload
    def generate(self, texts: Iterable[str], max_new: int = 40, **options: Option) -> list[Generation]: ...

    def generate(
        self, texts: str | Iterable[str], max_new: int = 40, **options: Option
    ) -> Generation | list[Generation]:
        """Returns how a text goes on, or a list of that.

        Args:
          max_new: most tokens to write.
          options: `temperature`, `top_k`, `top_p` and `seed`, as in `charlm.families.predictor.Predictor.generate`.

        Raises:
          ValueError: the model writes no text, or an option is out of range.
        """

        def written(several: list[str]) -> list[Generation]:
            found = self._able("generate").generate(several, max_new, batch_size=self.batch_size, **options)
            return [Generation(g.text, float(g.log_probs_T.sum()), g.finished) for g in found]

        return self._each(texts, written)

    def show(self, text: str, most: int = MOST_SHOWN) -> Shown:
        """Returns the attention of the model that reads a text, inside words and between them.

        A notebook shows it as a page; `save` writes it, `figure` draws it with matplotlib. Of a fine-tuned model, it is
        the attention of its encoder.

        Args:
          most: words (or pieces) of the text that are read and shown; the others are left out.

        Raises:
          ValueError: the model has nothing to show, the text has no words, or `most` is not positive.
        """
        return Shown(f"{self.pretrained.title} from {self.path}", self.predictor.views(text, most))

    def _each(self, texts: Any, work: Callable[[list[Any]], list[Found]]) -> Any:  # as the method's overloads say
        """Returns the result for one text, or the list of results for several."""
        if isinstance(texts, str):
            return work([texts])[0]
        several = list(texts)
        return work(several) if several else []


def _as_list(pairs: str | Iterable[str | None] | None) -> list[str | None] | None:
    return [pairs] if isinstance(pairs, str) else None if pairs is None else list(pairs)


# The values are labels or numbers.
def _rows(words: Iterable[str], offsets: Iterable[tuple[int, int]], *values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns (word, start, end, value, ...) for each word; arrays of numbers give Python's own."""
    plain = [getattr(column, "tolist", lambda column=column: column)() for column in values]
    return [(word, start, end, *rest) for word, (start, end), *rest in zip(words, offsets, *plain, strict=True)]
