"""The interface of predictors, which apply a trained model to texts, and the types of their results.

Open it to write the predictor of a new family, or to see what `encode`, `fill_mask` and the other methods return. The
module needs no JAX, so that `charlm.predict --help` starts fast.
"""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from charlm.core.registry import load
from charlm.core.types import JsonObject, Option
from charlm.families.arguments import KnownWords, check_top, checked_texts
from charlm.families.corrections import THRESHOLD, Correction, Meant
from charlm.families.family import family
from charlm.families.gaps import Length
from charlm.families.views import MOST_SHOWN, Views

if TYPE_CHECKING:
    from charlm.core.cache import WordCache
    from charlm.core.types import Params
    from charlm.core.word_table import WordTable
    from charlm.families.pretrained import Pretrained
    from charlm.text.speller.files import StoredSpeller

CANNOT = {  # for each ability, the message about a model without it
    "encode": "makes no vectors of texts",
    "fill_mask": "fills no gaps",
    "score": "scores no texts",
    "generate": "generates no text",
    "neighbors": "makes no rows of a table from strings",
    "correct": "mends no misspelled words",
}


class Encoding(NamedTuple):
    """The vectors of one text.

    Attributes:
      words: the words, or the pieces as the vocabulary spells them.
      offsets: their character positions (start, end) in the text.
      vectors_WD: float32, one contextual vector per word.
      sentence_D: float32, the mean over all positions that the model read; zeros if there was none.
    """

    words: list[str]
    offsets: list[tuple[int, int]]
    vectors_WD: np.ndarray
    sentence_D: np.ndarray


class Fill(NamedTuple):
    """A word for a gap, its log-probability (nats), and `score`: the geometric mean probability of its parts.

    The parts are characters for a model that predicts characters, and pieces for one that predicts pieces.
    """

    word: str
    log_prob: float
    score: float


class Neighbor(NamedTuple):
    """An entry of a vocabulary ("##" marks pieces inside words), and its cosine with the string that was asked for."""

    subword: str
    cosine: float


class Score(NamedTuple):
    """How likely a text is, piece by piece.

    Attributes:
      pieces: as the vocabulary spells them.
      offsets: their character positions (start, end) in the text.
      log_probs_P: float32, nats, of each piece given all before it; NaN for a first piece that was not scored.
      chars: number of characters of the text that were scored.
    """

    pieces: list[str]
    offsets: list[tuple[int, int]]
    log_probs_P: np.ndarray
    chars: int

    @property
    def log_prob(self) -> float:
        """The log-probability (nats) of all pieces that were scored."""
        return float(np.nansum(self.log_probs_P, dtype=np.float64))

    @property
    def bits_per_char(self) -> float:
        """The model's bits per character of the text; 0.0 if no character was scored."""
        return -self.log_prob / math.log(2) / self.chars if self.chars else 0.0


class Generation(NamedTuple):
    """The continuation of a prompt.

    Attributes:
      text: the generated text, without the prompt and special tokens.
      ids: ids of the generated tokens, including the end-of-text token.
      log_probs_T: float32, nats, the model's log-probability of each of them, before temperature, top-k or top-p.
      finished: whether the model ended the text itself.
    """

    text: str
    ids: list[int]
    log_probs_T: np.ndarray
    finished: bool


class Predictor(abc.ABC):
    """A model together with all that it needs to read text.

    Attributes:
      name: the name of the kind of model shown to users, the title of its family.
      suited: names of the methods that models of this kind support.
      missing: for each of these methods that this model lacks, the message about what it lacks.
      unknown_words: the message about words that `known_words` leaves out.
      spells: whether `fill_mask` can rank any spelling, words or not; it then takes `any_spelling=True`.
      words: the words that `fill_mask` ranks by default; None: all that the model can write.
      caches: whether `encode` can keep vectors of words in `cache`.
      cache: the vectors of words kept between calls; None: none are kept.
      word_params: the parameters that the vector of a word depends on; only of models with a cache.
      table: the vectors on disk that `cache` reads first; None: there are none.
      no_word_rows: why the model has no vectors of words, for messages; only of models without a cache.
    """

    name: str
    suited: tuple[str, ...]
    missing: Mapping[str, str] = MappingProxyType({})
    unknown_words: str = "are too long for the model or hold characters that it does not know"
    spells: bool = False
    words: KnownWords | None = None
    caches: bool = False
    cache: WordCache | None = None
    word_params: Params
    table: WordTable | None = None
    no_word_rows: str = "it keeps none"

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], **options: Option) -> Self:
        """Returns the predictor of a model, loaded by `charlm.families.pretrained.from_pretrained`.

        Args:
          path: a workdir, checkpoint or Hugging Face folder.
          options: options of `from_pretrained`, e.g. `head="encoder"`, `dtype=jnp.bfloat16`.

        Raises:
          ValueError: there is no model, it does not fit its config, or it is not of this class of predictors.
        """
        # Imported late, because it needs JAX.
        pretrained = load("charlm.families.pretrained:from_pretrained")(path, **options)
        kind = family(pretrained.family).get_predictor()
        if not issubclass(kind, cls):
            raise ValueError(f"{path}: expected a model for {cls.__name__}, got one of the family {pretrained.family}")
        return kind.from_pretrained(pretrained)

    @classmethod
    @abc.abstractmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        """Returns the predictor of a loaded model; ValueError if files that belong to it are missing or damaged."""

    @classmethod
    def with_speller(cls, pretrained: Pretrained, stored: StoredSpeller) -> Predictor:
        """Returns the predictor of a model that reads misspelled words as a speller does.

        Raises:
          ValueError: models of this kind cannot, or its tokenizer is none that a speller can work with.
        """
        raise ValueError(
            f"a model of the kind {pretrained.title} reads no text through a speller: expected an encoder "
            "such as all-MiniLM-L6-v2"
        )

    def table_words(self) -> tuple[list[str], np.ndarray]:
        """Returns the words that have a row of the table, and the rows, float32 [N, D]; ValueError if there is none."""
        raise ValueError("its table is not one of words: expected an encoder behind a speller")

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods that this model supports."""
        return tuple(ability for ability in self.suited if ability not in self.missing)

    def require(self, ability: str) -> None:
        """Raises ValueError, naming the model's abilities, unless the model has this ability."""
        if ability not in self.abilities:
            raise self._refusal(ability)

    def _refusal(self, ability: str) -> ValueError:
        can = ", ".join(name.replace("_", "-") for name in self.abilities)
        if ability in self.suited and ability in self.missing:
            return ValueError(f"{self.missing[ability]}; it can {can}")
        return ValueError(f"a model of the kind {self.name} {CANNOT[ability]}: it can {can}")

    @property
    def _splits(self) -> bool:
        """Whether `encode` may read a batch in several calls, see `charlm.families.windows.rows_a_call`.

        A model that encodes words but has no cache is faster with one call, because the rows of a call share words.
        """
        return not self.caches or self.cache is not None

    @abc.abstractmethod
    def encode(
        self, texts: Iterable[str], batch_size: int = 32, unit: Literal["words", "pieces"] = "words"
    ) -> list[Encoding]:
        """Returns words (or pieces), offsets and vectors of each text; texts may have any length.

        Raises:
          ValueError: `texts` is one string, `batch_size` is not positive, or the model has no such unit.
        """

    def positions(self, texts: Iterable[str], batch_size: int = 32, longest: int | None = None) -> list[np.ndarray]:
        """Returns the states of the positions that the model reads of each text, float32 [L, D], for pooling.

        Special tokens are among them where the family's models are pooled with them, as sentence-transformers does.
        Here, the positions are the words.

        Args:
          texts: any texts.
          batch_size: texts that are read at a time.
          longest: most positions of a text; the others are left out. None: all, in windows where the model is shorter.

        Raises:
          ValueError: `texts` is one string, or `batch_size` is not positive.
        """
        return [found.vectors_WD[:longest] for found in self.encode(texts, batch_size)]

    def word_rows(self, words: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Returns the words that are read from characters, and these characters, uint16 [U, C], as `cache` knows them.

        Special words that `encode` needs are among them.

        Raises:
          ValueError: the model has no vectors of words.
        """
        raise ValueError(f"a {self.name} has no table of word vectors: {self.no_word_rows}")

    def frequent_words(self) -> list[str]:
        """Returns the frequent words of the training text, as far as a list of them lies beside the model."""
        return []

    def known_words(self, words: KnownWords | Iterable[str]) -> KnownWords:
        """Returns a prepared list for `fill_mask(known=...)`, without the words that the model cannot write.

        Raises:
          ValueError: the model cannot fill gaps, or `words` is one string or the prepared list of another model.
        """
        raise self._refusal("fill_mask")

    def fill_mask(
        self,
        text: str,
        *,
        length: Length = "auto",
        top: int = 5,
        known: KnownWords | Iterable[str] | None = None,
        any_spelling: bool = False,
    ) -> list[list[Fill]]:
        """Returns the likeliest words for each "[MASK]", or mask token of the vocabulary, of a text, best first.

        The class says what is ranked, and what `log_prob` and `score` of a word are made of.

        Args:
          length: number of characters of the words, for gaps without a number ("[MASK:5]" has one).
          top: number of words per gap.
          known: rank only these words; None: `words`, or all that the model can write.
          any_spelling: rank any spelling, words or not; of a model that `spells`.

        Raises:
          ValueError: the model cannot fill gaps, the text has none, or an argument is out of range.
        """
        return self.fill_masks([text], length=length, top=top, known=known, any_spelling=any_spelling)[0]

    def fill_masks(
        self,
        texts: Iterable[str],
        batch_size: int = 32,
        *,
        length: Length = "auto",
        top: int = 5,
        known: KnownWords | Iterable[str] | None = None,
        any_spelling: bool = False,
    ) -> list[list[list[Fill]]]:
        """Returns what `fill_mask` returns of each text; gaps of texts of similar length are read together.

        Args:
          batch_size: texts whose predictions are in memory at a time.
          length, top, known, any_spelling: as in `fill_mask`.

        Raises:
          ValueError: as in `fill_mask`, or `texts` is one string.
        """
        self.require("fill_mask")
        check_top(top)
        if any_spelling and known is not None:
            raise ValueError("any_spelling=True ranks no list of words; leave known out")
        if any_spelling and not self.spells:
            raise ValueError(f"any_spelling=True: a {self.name} spells no words; it ranks all that it can write")
        texts = checked_texts(texts, batch_size, "fill_masks")
        ranked = None if any_spelling else self._listed(self.words if known is None else known)
        parts = (texts[at : at + batch_size] for at in range(0, len(texts), batch_size))
        return [gaps for part in parts for gaps in self._filled(part, length, top, ranked)]

    def _listed(self, known: KnownWords | Iterable[str] | None) -> KnownWords | None:
        """Returns known words as the list that `_filled` ranks; None: it ranks all that the model can write."""
        return None if known is None else self.known_words(known)

    def _filled(
        self,
        texts: Sequence[str],
        length: Length,
        top: int,
        known: Any,  # the list that `_listed` returned, of the family's own class
    ) -> list[list[list[Fill]]]:
        """Fills the gaps of texts that are read together; of a model that can."""
        raise self._refusal("fill_mask")

    def score(self, texts: Iterable[str], batch_size: int = 32, *, start: bool = True) -> list[Score]:
        """Returns how likely each text is; see `SubwordPredictor.score`. ValueError if the model cannot score texts."""
        raise self._refusal("score")

    def generate(
        self,
        prompts: Iterable[str],
        max_new: int = 40,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | Sequence[int] = 0,
        batch_size: int = 32,
    ) -> list[Generation]:
        """Returns a continuation of each text; see `SubwordPredictor.generate`. ValueError if the model cannot."""
        raise self._refusal("generate")

    def neighbors(self, string: str, top: int = 5) -> list[Neighbor]:
        """Returns the entries of the vocabulary nearest to a string; see `Char2SubwordPredictor.neighbors`.

        Raises:
          ValueError: the model cannot compute vectors of strings.
        """
        raise self._refusal("neighbors")

    def correct(
        self,
        texts: Iterable[str],
        batch_size: int = 32,
        *,
        threshold: float = THRESHOLD,
        words: Mapping[str, float] | Iterable[str] | None = None,
    ) -> list[Correction]:
        """Returns the corrections of each text; see `HLMPredictor.correct`. ValueError if the model is no speller."""
        raise self._refusal("correct")

    def fit_corrections(
        self, given: Sequence[Meant], batch_size: int = 32, *, words: Mapping[str, float] | None = None
    ) -> JsonObject:
        """Fits how candidates are weighed to texts whose misspellings are known; see `HLMPredictor.fit_corrections`."""
        raise self._refusal("correct")

    def views(self, text: str, most: int = MOST_SHOWN) -> Views:
        """Returns the attention of the model that reads a text, for `charlm.show`: the probabilities of a real call.

        Args:
          most: words (or pieces) of the text that are read, if the model has room for as many; the others are left out.

        Raises:
          ValueError: the model has nothing to show, the text has no words, or `most` is not positive.
        """
        raise ValueError(f"a model of the kind {self.name} has nothing to show: its predictor has no views")
