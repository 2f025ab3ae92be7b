"""One object for any model, `charlm.load("runs/hlm")`: its methods do what the model can, its call what it is for.

Open it to add an ability of pre-trained models; those of fine-tuned ones are in `charlm.api.fine_tuned`. It wraps the
predictors of the families and `charlm.finetune.predictor.FineTuned`.
"""

# To Python, a text is also an iterable of texts; here it is always one.
# pyright: reportOverlappingOverload=false

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np

from charlm.api.fine_tuned import Labelling
from charlm.api.loaded import rows_of
from charlm.api.results import Corrected, Edit, Encoding, Gap, Generation, Neighbor, Piece, Score, Word
from charlm.api.streams import BATCHES_AT_ONCE, PAIRED, streamed
from charlm.api.texts import checked_items
from charlm.core.stores import here
from charlm.core.types import Option
from charlm.families.corrections import THRESHOLD
from charlm.families.predictor import Fill, Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.sentences import SentenceSettings, read_settings, sentence_vectors
from charlm.families.views import MOST_SHOWN
from charlm.show.shown import Shown

GAP = r"\[MASK(?::\d+)?\]"  # as `fill_mask` reads them, beside the mask token of a vocabulary


def load(name_or_folder: str | os.PathLike[str], batch_size: int = 32, **options: Option) -> Model:
    """Loads a model of any family, pre-trained or fine-tuned; only "hf:NAME" is downloaded.

    Args:
      name_or_folder: a workdir of a run or one of its checkpoints; a folder or file of PyTorch weights, such as
        a model of Hugging Face; the name of a model that charlm carries (`charlm models` lists them) or of one in the
        cache of huggingface_hub, "hf:NAME" for one on the hub; or an address in an object store.
      batch_size: texts that are read at a time.
      options: options of `charlm.from_pretrained`, such as `dtype=jnp.bfloat16`, or `head="encoder"` for a BERT.

    Raises:
      ValueError: there is no model, it is damaged, or it does not fit the options.
    """
    if not isinstance(name_or_folder, str | os.PathLike):
        raise ValueError(f"load: expected the name or folder of a model, got {str(name_or_folder)[:80]!r}")
    _check_positive("batch_size", batch_size)
    path = os.fspath(name_or_folder)
    try:
        return Model(from_pretrained(here(path), **options), batch_size, path)
    except OSError as error:  # such as a name longer than files may have
        raise ValueError(f"load: {path[:80]!r} cannot be read: {error.strerror or error}") from error


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r}: expected a whole number from 1 on")


class Model(Labelling):
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

    def __repr__(self) -> str:
        task = f", fine-tuned for {self.task}" if self.task else ""
        return f"<{self.pretrained.title} from {self.path}{task}: it can {', '.join(self.abilities)}>"

    def __call__(self, texts: str | Iterable[str], *args: Any, **options: Any) -> Any:  # those of the method
        """Does what the model is for; see the class. Further arguments are those of the method."""
        if self._fine_tuned is not None:
            return getattr(self, self._fine_tuned.ability)(texts, *args, **options)
        if "generate" in self.abilities:
            return self.generate(texts, *args, **options)
        return self._each(texts, lambda several: self._filled_or_encoded(several, *args, **options))

    def _filled_or_encoded(self, texts: list[str], *args: Any, **options: Any) -> list[Any]:  # lists of both results
        """Returns the gaps of texts with gaps, and the vectors of the others.

        Arguments are those of `fill_mask`, but for options by names that only `encode` has; so they mean the same for
        any texts.
        """
        gaps = (
            [bool(self._gap.search(text)) for text in texts] if "fill_mask" in self.abilities else [False] * len(texts)
        )
        of_gaps = inspect.signature(self.fill_mask).parameters
        of_vectors = {name: options.pop(name) for name in [*options] if name not in of_gaps}
        filled = iter(self.fill_mask([t for t, gap in zip(texts, gaps, strict=True) if gap], *args, **options))
        others = [t for t, gap in zip(texts, gaps, strict=True) if not gap]
        found = iter(self.encode(others, **of_vectors) if others or of_vectors else [])
        return [next(filled if gap else found) for gap in gaps]

    def stream(
        self,
        texts: Iterable[str | Sequence[Any]],  # the second part of a pair may be None
        ability: str = "",
        *,
        progress: bool = False,
        **options: Any,  # those of the method
    ) -> Iterator[Any]:  # what the method returns
        """Yields the result for each text in order, reading only some texts ahead: for files larger than memory.

        Args:
          texts: texts; or, for abilities that read two ("classify" and "measure" with pairs, "answer"), pairs of them.
          ability: the name of a method, such as "encode"; "": what the model is for, as calling it.
          progress: show on standard error how many texts are done, and how many a second.
          options: those of the method, such as `normalize=True` of "encode".

        Raises:
          ValueError: the model does not have the ability, or it does not go through texts one by one ("rank").
        """
        name = ability or (self.abilities[0] if self.task else "")
        if name == "rank" or (name and name not in self.abilities):
            able = ", ".join(one for one in self.abilities if one != "rank")
            raise ValueError(f"stream: {self.path} cannot {name} texts one by one; it can {able or 'do nothing so'}")
        if isinstance(texts, str):
            raise ValueError("stream: texts is one string; expected an iterable of texts, such as an open file")
        work = getattr(self, name) if name else self
        size = BATCHES_AT_ONCE * self.batch_size
        return streamed(work, PAIRED.get(name, ""), texts, size, progress, options)

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
          ValueError: the model does not have this unit; there is no such prompt, or it is given without `normalize`;
            the model's files are damaged or ask for what charlm cannot do; or an argument is wrong.
        """
        size = self.batch_size if batch_size is None else batch_size
        if normalize not in (None, False, True):
            raise ValueError(f"encode: normalize={normalize!r}, expected True or False")
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
        several = [texts] if isinstance(texts, str) else checked_items(texts)
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
          words: the words to choose from; None: those that lie beside the model, or all that it can write. A gap that
            none of them fits has no words.

        Raises:
          ValueError: the model fills no gaps, a text has none, or an argument is wrong.
        """
        _check_positive("top", top)

        def filled(several: list[str]) -> list[list[Gap]]:
            predictor = self._able("fill_mask")
            known = None if words is None else predictor.known_words(words)
            found = predictor.fill_masks(several, self.batch_size, top=top, known=known)
            return [self._gaps(text, fills) for text, fills in zip(several, found, strict=True)]

        return self._each(texts, filled)

    def _gaps(self, text: str, found: Sequence[Sequence[Fill]]) -> list[Gap]:
        places = [match.span() for match in self._gap.finditer(text)]
        return [
            Gap(start, end, tuple(Word(fill.word, fill.log_prob, fill.score) for fill in fills))
            for (start, end), fills in zip(places, found, strict=True)
        ]

    @overload
    def correct(
        self, texts: str, threshold: float = THRESHOLD, words: Mapping[str, float] | Iterable[str] | None = None
    ) -> Corrected: ...

    @overload
    def correct(
        self,
        texts: Iterable[str],
        threshold: float = THRESHOLD,
        words: Mapping[str, float] | Iterable[str] | None = None,
    ) -> list[Corrected]: ...

    def correct(
        self,
        texts: str | Iterable[str],
        threshold: float = THRESHOLD,
        words: Mapping[str, float] | Iterable[str] | None = None,
    ) -> Corrected | list[Corrected]:
        """Returns a text with misspelled words mended, or a list of such texts.

        Args:
          threshold: the probability from which on a word is corrected; higher: fewer corrections, more of them right.
          words: further known words, perhaps with counts.

        Raises:
          ValueError: the model is no speller, or an argument is out of range.
        """

        def mended(several: list[str]) -> list[Corrected]:
            found = self._able("correct").correct(several, self.batch_size, threshold=threshold, words=words)
            return [Corrected(one.text, one.corrected, tuple(Edit(*edit) for edit in one.edits)) for one in found]

        return self._each(texts, mended)

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
            found = []
            for one in self._able("score").score(several, self.batch_size):
                pieces = tuple(Piece(*row) for row in rows_of(one.pieces, one.offsets, one.log_probs_P))
                found.append(Score(one.log_prob, one.bits_per_char, pieces))
            return found

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
