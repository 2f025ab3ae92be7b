"""Inference with a trained HLM: word vectors of texts, words for gaps, corrections, and where it looks.

`charlm.predict` runs it. Gaps are filled by `charlm.families.hlm.filling`, and words mended by
`charlm.families.hlm.correcting`; open it to change how texts become vectors.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

import jax
import ml_collections
import numpy as np

from charlm.convert.heads import CAUSAL_LM
from charlm.core.cache import CacheStats, OncePerParams, WordCache
from charlm.core.registry import load
from charlm.core.types import JsonObject, Params
from charlm.data.batching import BatchShape, WordSequence, cache_slots, framed, inference_slots, pack_all, slots_up_to
from charlm.data.forms import word_rows
from charlm.data.word_batch import WordBatch
from charlm.families.arguments import KnownWords, checked_list, checked_texts, list_to_cache
from charlm.families.corrections import THRESHOLD, Correction, Meant, check_threshold
from charlm.families.family import UNNAMED, family
from charlm.families.gaps import Length, around_gaps
from charlm.families.hlm.candidates import Proposer
from charlm.families.hlm.config import HLMConfig, model_config
from charlm.families.hlm.correcting import Corrector
from charlm.families.hlm.filling import GapFiller, WordGap
from charlm.families.hlm.looking import attention_views, probabilities
from charlm.families.hlm.model import HLM, HLMForMaskedLM
from charlm.families.hlm.pieces import stored_pieces
from charlm.families.hlm.reading import SLOTS, Reader
from charlm.families.hlm.weighing import Weighing, weighing_in
from charlm.families.predictor import Encoding, Fill, Predictor
from charlm.families.unpadded import Call, calls
from charlm.families.views import (
    MOST_SHOWN,
    Views,
    checked_most,
    refuse_empty,
)
from charlm.families.windows import few_widths, mask_of, one_ahead, rows_a_call
from charlm.families.word_tables import with_table
from charlm.nn.apply import applied
from charlm.nn.attention import PROJECTED
from charlm.text.chars import CharVocab, WordEncoder
from charlm.text.wordlist import WordList, read_words
from charlm.text.words import get_splitter

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

WORD_PARTS = ("embed", "intra_word")  # the parameters that the vector of a word depends on
OTHER_MASK_LENGTH = 4  # characters of masks that are not being filled: about the mean length of a word


class HLMPredictor(Predictor):
    """A model with its character vocabulary and word splitter, ready for inference.

    HLM masks every character of a word, so its input shows how long the word is: `fill_mask` tries every length for a
    gap of any, and ranks words by the geometric mean of their characters' probabilities. Characters are predicted
    independently, so free spellings need not be words.

    Args:
      config: the resolved config of the run.
      vocab: its character vocabulary.
      params: parameters of `HLMForMaskedLM`; with those of a fine-tuned model, `encode` works but gaps cannot be
        filled.
      words: the words that `fill_mask` ranks by default, for example the frequent ones of the training text; None: it
        ranks any spelling.
      pieces: the pieces that the model knows beside its characters; see `charlm.families.hlm.pieces`.

    Attributes:
      weighing: how the candidates of a correction are weighed.
      words: the words of the argument that the model can write; None: there are none.
      cache: the word vectors kept between calls of `encode`; predictors of one shape may share it. None: no vectors are
        kept, and each batch runs as one program.
    """

    suited = ("encode", "fill_mask", "correct")
    spells = caches = True

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        vocab: CharVocab,
        params: Params,
        words: Iterable[str] | None = None,
        pieces: Sequence[str] = (),
    ) -> None:
        self.config, self.vocab, self.pieces = config, vocab, pieces
        self.weighing = Weighing()
        self.name = family(config.get("family", UNNAMED)).title
        self._params = params
        if "output_kernel" not in params.get("head", {}):
            reason = "this checkpoint is of a fine-tuned model: it has no head that predicts characters"
            self.missing = {"fill_mask": reason, "correct": reason}
        elif config.get("objective", "") != "spelling":
            self.missing = {"correct": "this HLM was not trained to correct (--config=configs/speller.py trains one)"}
        shape = model_config(config, vocab, pieces)
        self._slots, self._max_words = shape.char_slots, config.data.max_words
        self._buckets = inference_slots(self._slots)
        self._splitter = get_splitter(config.text.splitter, config.text.language)
        self._encoder = WordEncoder(vocab, self._slots, config.text.normalize)
        self._shapes: dict[tuple[int, int], BatchShape] = {}  # of calls that filled gaps
        hlm, model = HLM(shape), HLMForMaskedLM(shape)
        positions_of = lambda hlm: hlm.inter_word.project_positions()
        project = lambda p: hlm.apply({"params": p}, method=positions_of, mutable=PROJECTED)[1].get(PROJECTED, {})
        self._positions = OncePerParams(jax.jit(project))
        self._encode = jax.jit(lambda p, kept, batch: applied(hlm, {"params": p, PROJECTED: kept})(batch).context_NWD)
        self._contextualize = jax.jit(
            lambda p, kept, *words: hlm.apply({"params": p, PROJECTED: kept}, *words, method="contextualize")
        )
        encode_words = jax.jit(lambda p, chars_UC: hlm.apply({"params": p}, chars_UC, method="encode_words"))
        self.word_params = {part: params["hlm"][part] for part in WORD_PARTS}
        self._frequent = [] if words is None else list(words)
        self.cache: WordCache | None = WordCache(encode_words, shape.hidden, shape.dtype, cache_slots(self._slots))
        self._pools = shape.aggregation
        self._probe = jax.jit(functools.partial(probabilities, hlm))
        predict = lambda p, kept, batch: applied(model, {"params": p, PROJECTED: {"hlm": kept}})(batch)
        self._fill = jax.jit(lambda p, kept, batch: tuple(map(jax.nn.log_softmax, predict(p, kept, batch))))
        self.words = None if words is None or "fill_mask" in self.missing else self.known_words(words)
        self._complete(shape)

    def _complete(self, shape: HLMConfig) -> None:
        """Makes what a kind of its own needs beside this; the last step of `__init__`."""

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        """Returns the predictor of a loaded HLM; raises ValueError when the files beside it cannot be read."""
        words = read_words(pretrained.folder)
        kind = load("charlm.families.hlm.writing_predictor:WritingPredictor") if pretrained.head == CAUSAL_LM else cls
        pieces = stored_pieces(pretrained.metadata)
        made = kind(pretrained.run_config(), pretrained.vocab(), pretrained.params, words, pieces)
        made.weighing = weighing_in(pretrained.folder)
        return with_table(made, pretrained.folder)

    def encode(
        self, texts: Iterable[str], batch_size: int = 32, unit: Literal["words", "pieces"] = "words"
    ) -> list[Encoding]:
        """Returns words, offsets and vectors of each text; texts longer than the model's window are read in pieces.

        `sentence_D` is the mean of the word vectors.

        Raises:
          ValueError: when `texts` is one string, `batch_size` is not positive, or `unit` is not "words".
        """
        texts = checked_texts(texts, batch_size)
        if unit != "words":
            raise ValueError(f"unit={unit!r}: an HLM reads characters and has no pieces; expected 'words'")
        spans = [self._splitter.spans(text) for text in texts]
        words = [[text[a:b] for a, b in s] for text, s in zip(texts, spans, strict=True)]
        room = self._max_words - 2
        pieces = [(i, at) for i, w in enumerate(words) for at in range(0, len(w), room)]
        vectors: list[list[np.ndarray]] = [[] for _ in texts]
        lengths = [min(room, len(words[i]) - at) + 2 for i, at in pieces]
        most = lambda length: rows_a_call(batch_size, length) if self._splits else batch_size
        results: dict[int, np.ndarray] = {}

        def started() -> Iterator[tuple[Call, jax.Array]]:
            for call in calls(lengths, lambda n: few_widths(min(n, self._max_words), self._max_words), most):
                chosen = {n: pieces[n] for n in call.at}
                chars = {n: framed(self._rows(words[i][at : at + room])).chars_WC for n, (i, at) in chosen.items()}
                yield call, self._states(call, chars, mask_of(call, lengths))

        for call, states_BWD in one_ahead(started()):
            states_BWD = np.asarray(states_BWD, np.float32)
            for n, (row, start) in call.at.items():
                results[n] = states_BWD[row, start + 1 : start + lengths[n] - 1].copy()  # without [CLS] and [SEP]
        for n, (i, _) in enumerate(pieces):  # pieces are read by length; they go back to their texts in reading order
            vectors[i].append(results[n])
        none = np.zeros((0, self.config.model.hidden), np.float32)
        out = []
        for w, s, v in zip(words, spans, vectors, strict=True):
            vectors_WD = np.concatenate([none, *v])
            mean = vectors_WD.mean(axis=0) if len(vectors_WD) else np.zeros(none.shape[1], np.float32)
            out.append(Encoding(w, s, vectors_WD, mean))
        return out

    def views(self, text: str, most: int = MOST_SHOWN) -> Views:
        """Returns the attention inside words (that of [WORD_CLS] alone, if it is the word's vector) and between words.

        Raises:
          ValueError: as `Predictor.views`.
        """
        checked_most(text, most)
        spans = self._splitter.spans(text)
        refuse_empty(len(spans))
        shown = spans[: min(most, self._max_words - 2)]
        words = [text[a:b] for a, b in shown]
        sequence_WC = framed(self._rows(words)).chars_WC
        count = len(sequence_WC)
        chars_WC = np.zeros((few_widths(count, self._max_words), self._slots), np.uint16)
        chars_WC[:count] = sequence_WC
        inside, between = jax.device_get(self._probe(self._params["hlm"], chars_WC))
        characters = [self._encoder.form(word) for word in words]
        views = attention_views(words, characters, sequence_WC, inside, between, self._pools == "word_cls")
        return Views(views, text[: shown[-1][1]], "words", len(shown), len(spans) - len(shown))

    def precompute(self, words: Iterable[str]) -> CacheStats:
        """Puts the vectors of words into the cache for `encode`; returns the statistics of the cache afterwards.

        Raises:
          ValueError: when there is no cache, or `words` is one string.
        """
        words, cache = list_to_cache(words, self.cache)
        cache.warm(self.word_params, self.word_rows(words)[1])
        return cache.stats

    def word_rows(self, words: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Returns the words and their characters; see `Predictor.word_rows`. [CLS] and [SEP] come last."""
        rows_UC = self._rows(list(words))
        edges_UC = framed(rows_UC[:0]).chars_WC  # [CLS] and [SEP] are words, too, and need vectors
        return [*words, "[CLS]", "[SEP]"], np.concatenate([rows_UC, edges_UC])

    def frequent_words(self) -> list[str]:
        """Returns every known character as a word, such as punctuation marks, and the words beside the model."""
        return [*self.vocab.chars, *self._frequent] if self._frequent else []

    def known_words(self, words: KnownWords | Iterable[str]) -> WordList:
        """Returns the words that the model has slots and characters for; `fill_mask` and `fill` can rank the list."""
        self.require("fill_mask")
        return WordList((word for word in checked_list(words) if len(word) < self._slots), self.vocab)

    def _filled(self, texts: Sequence[str], length: Length, top: int, known: WordList | None) -> list[list[list[Fill]]]:
        gaps = [self._gaps_of(text, length) for text in texts]
        fills = iter(self._filler.fill(list(itertools.chain(*gaps)), top, known))
        return [[*itertools.islice(fills, len(of_text))] for of_text in gaps]

    def _gaps_of(self, text: str, length: Length) -> list[WordGap]:
        """Returns the gaps of a text, whose words are split as those of any text."""
        parts, lengths = around_gaps(text, length, check=self._filler.check_length)  # before words so long are made
        words, gaps = self._split(parts[0]), []
        for wanted, part in zip(lengths, parts[1:], strict=True):
            gaps.append((len(words), wanted))
            words += ["?" * (OTHER_MASK_LENGTH if wanted == "auto" else wanted), *self._split(part)]
        hidden = frozenset(position for position, _ in gaps)
        return [WordGap(words, position, wanted, hidden) for position, wanted in gaps]

    def correct(
        self,
        texts: Iterable[str],
        batch_size: int = 32,
        *,
        threshold: float = THRESHOLD,
        words: Mapping[str, float] | Iterable[str] | None = None,
    ) -> list[Correction]:
        """Returns the corrections of each text: misspelled words of letters that become other words, one for one.

        Words keep their case. Contractions, numbers, marks, words with capitals inside and whatever has the signs of
        an address, a path, a hashtag or a mention stay as they are, and so do words run together or cut in two.

        Args:
          batch_size: texts that are read at a time; and readings of hidden words, where a word is in doubt.
          threshold: the probability from which on a word is corrected; higher: fewer corrections, more of them right.
          words: further known words, perhaps with counts; they are added to the frequent words of the training text.

        Raises:
          ValueError: the model is no speller, `texts` is one string, the threshold is no probability, or `words` is one
            string or has a count that is not positive.
        """
        self.require("correct")
        check_threshold(threshold)
        texts = checked_texts(texts, batch_size, "correct")
        return self.corrector.correct(texts, batch_size, threshold, self.corrector.known(words))

    def fit_corrections(
        self, given: Sequence[Meant], batch_size: int = 32, *, words: Mapping[str, float] | None = None
    ) -> JsonObject:
        """Returns how candidates are best weighed for texts whose misspellings are known, as `weighing` takes it.

        Args:
          words: further known words; weights with such words are fitted only if there are some.

        Raises:
          ValueError: the model is no speller, or the texts have no word to weigh.
        """
        self.require("correct")
        return self.corrector.fitted(given, batch_size, words).settings()

    @property
    def _filler(self) -> GapFiller:
        """What fills gaps: made anew for each call, since it holds this object, which would then outlive its users."""
        return GapFiller(self._characters, self._encoder, self._buckets, self._max_words, self._shapes)

    def _characters(self, batch: WordBatch) -> Sequence[np.ndarray]:
        """Returns the log-probabilities of the masked characters of a batch, [1, M, C, V] of each bucket."""
        return jax.device_get(self._fill(self._params, self._positions(self._params["hlm"]), batch))

    @functools.cached_property
    def corrector(self) -> Corrector:
        """What corrects texts; of a model that is a speller."""
        hides = self.config.spelling.masked > 0 and self.config.data.mask_rate > 0
        return Corrector(self.reader, Proposer(self.vocab), self._frequent, self.weighing, hides)

    @functools.cached_property
    def reader(self) -> Reader:
        """What reads texts for it."""
        slots = slots_up_to(self._slots, SLOTS)
        return Reader(self._characters, self._rows, self.vocab, self._splitter, slots, self._max_words)

    def fill(
        self,
        words: list[str],
        position: int,
        *,
        length: int | Literal["auto", "same"] = "same",
        top: int = 5,
        hidden: Iterable[int] = (),
        known: KnownWords | Iterable[str] | None = None,
    ) -> list[Fill]:
        """Returns the likeliest words at one position of a sentence, best first.

        Args:
          length: characters of the word; "same": as many as the word there has; "auto": compares all lengths.
          hidden: positions whose characters are masked. If `position` is not among them, the model reads the word there
            as it stands and predicts one of the same length, for example the correction of a misspelled word.
          known: rank only these words; None: any spelling.
        """
        gap = WordGap(words, position, length, frozenset(hidden))
        return self.fill_all([gap], top=top, known=known)[0]

    def fill_all(
        self, gaps: Iterable[WordGap], *, top: int = 5, known: KnownWords | Iterable[str] | None = None
    ) -> list[list[Fill]]:
        """Returns for each gap the words that `fill` would; sentences of similar length are read together."""
        self.require("fill_mask")
        return self._filler.fill(list(gaps), top, self._listed(known))

    def _listed(self, known: KnownWords | Iterable[str] | None) -> WordList | None:
        return known if known is None or isinstance(known, WordList) else self.known_words(known)

    def _split(self, text: str) -> list[str]:
        return [text[a:b] for a, b in self._splitter.spans(text)]

    def _rows(self, words: list[str]) -> np.ndarray:
        return word_rows(self._encoder, words)

    def _states(self, call: Call, chars: Mapping[int, np.ndarray], mask_BW: np.ndarray) -> jax.Array:
        """Returns the contextual vectors [B, W, D] of the rows of a call; `chars` has the characters of each text."""
        params = self._params["hlm"]
        positions = self._positions(params)
        chars_BWC = call.filled(chars, np.zeros(self._slots, np.uint16))
        if self.cache is not None:
            words_BWD = self.cache.read(self.word_params, chars_BWC)
            return self._contextualize(params, positions, words_BWD, mask_BW)
        rows = [row_WC[mask_W != 0] for row_WC, mask_W in zip(chars_BWC, mask_BW, strict=True)]
        batch = pack_all([WordSequence(row_WC, np.zeros_like(row_WC)) for row_WC in rows], call.length, self._buckets)
        mask_SBW = np.zeros(batch.mask_SBW.shape, mask_BW.dtype)
        mask_SBW[0, : len(mask_BW)] = mask_BW
        return self._encode(params, positions, batch._replace(mask_SBW=mask_SBW))
