"""Mends misspelled words of texts with an HLM that was trained for it (`charlm.families.hlm.spelling`).

The model reads the text as it stands, and gives for each word the probability of every character of the word meant.
Candidates are the word itself, the likeliest spelling of the model, and known words near to it. They are compared by
the model's probability, by how frequent they are, and by what the typing errors between cost (`charlm.text.speller`).
Open it to change which words are asked about, or how candidates are weighed.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.types import Array
from charlm.data.batching import BatchShape, WordSequence, framed, packed, shape_of
from charlm.data.word_batch import WordBatch
from charlm.families.corrections import Correction, Meant, Mend, weighted
from charlm.families.hlm.misspelled import END, ROOM, is_correctable
from charlm.families.hlm.weighing import Choice, Weighing, Weights, best_weights, nats
from charlm.text.chars import MASK, UNK, CharVocab
from charlm.text.defences import cased
from charlm.text.noise.keyboards import AUTO, keyboard_for
from charlm.text.speller import Lexicon, mixed
from charlm.text.speller.channel import Costs, typing_costs
from charlm.text.words import Span, Splitter

log = logging.getLogger("charlm")

NEAR = 200  # known words whose typing costs are computed for a word
SLOTS = (8, 12)  # length buckets of words, beside that of the longest
LEAST_WIDTH = 32  # words of the smallest batch
KEPT = 12  # candidates of these that the model is asked about
SURE = math.log(0.99)  # a known word of which the model is that sure stays, without a look at candidates
WORST = -40.0  # nats: the least log-probability of a word that is told from others
UNKNOWN = -18.0  # nats: the log-probability that a word has where no list has it
MOST_LETTERS = 16
OPENERS = "\"'“‘([.!?:;*-–—"  # behind these a capital says nothing
# What has one of these is an address, a path, a mention, a hashtag or a name of a program, up to the next space.
NO_WORDS = re.compile(r"[@#$/\\_=~<>]|\w[.:&]\w|^-{1,2}\w")
RUN = 100  # characters on each side of a word that are looked at for that
SHARE = 0.5  # the most of all probability that the user's words have, against those that lie beside the model


class Candidate(NamedTuple):
    """A word that may be meant.

    Attributes:
      word: in the case of the word that stands in the text.
      features: what is weighed, see `charlm.families.hlm.weighing.Weights`.
    """

    word: str
    features: tuple[float, ...]


class Near(NamedTuple):
    """A known word near to one that was typed: its log-probability, and the cost of the typing errors, both in nats."""

    word: str
    prior: float
    cost: float


class WordsNear:
    """Known words, and those of them that a typed word may mean; words are in lower case.

    Args:
      counts: how often each word is seen; {}: no word is known.
      told: the share of them that are of the user's.
    """

    def __init__(self, counts: Mapping[str, float], told: float = 0.0) -> None:
        self.told = told
        self._lexicon = Lexicon(counts) if counts else None
        self._keyboard, self._costs = keyboard_for(AUTO), Costs()
        self.near = functools.lru_cache(1 << 16)(self._near)

    def prior(self, word: str) -> float | None:
        """Returns the log-probability of a word; None if it is not known."""
        return None if self._lexicon is None else self._lexicon.log_prior.get(word)

    def cost(self, typed: str, word: str) -> float:
        """Returns what it costs to type a word otherwise."""
        return float(typing_costs(typed, np.array([[ord(char) for char in word]]), self._keyboard, self._costs)[0])

    def _near(self, typed: str) -> tuple[Near, ...]:
        """Returns the known words that are likeliest by their frequency and the typing errors, best first."""
        if self._lexicon is None:
            return ()
        rows = self._lexicon.nearest(typed, NEAR)
        if not len(rows):
            return ()
        words, codes_KC, prior_K = self._lexicon.of_rows(rows)
        cost_K = typing_costs(typed, codes_KC, self._keyboard, self._costs)
        order = np.argsort(cost_K - 0.5 * prior_K, kind="stable")[: KEPT + 1]
        found = [Near(words[k], float(prior_K[k]), float(cost_K[k])) for k in order.tolist() if words[k] != typed]
        return tuple(found[:KEPT])


def is_mendable(text: str, start: int, end: int) -> bool:
    """Says whether a word of a text may be mended: `is_correctable`, whole, and no part of an address, path or name.

    Halves of a contraction ("do" and "n't") are not whole, and capitals inside a word mark a name.
    """
    word = text[start:end]
    if not (is_correctable(word) and word.isalpha()) or (word != word.upper() and any(map(str.isupper, word[1:]))):
        return False
    before, after = text[max(start - RUN, 0) : start], text[end : end + RUN]
    if before[-1:].isalnum() or after[:1].isalnum():
        return False
    run = re.split(r"\s", before)[-1] + word + re.split(r"\s", after)[0]
    return NO_WORDS.search(run) is None


class Asked(NamedTuple):
    """A word of a text about which the model was asked.

    Attributes:
      text: the number of its text.
      span: its characters there.
      inside: whether it stands inside a sentence, where a capital marks a name.
      log_probs_CV: float32, of each character id at each slot of the word meant; `END` is behind its last character.
    """

    text: int
    span: Span
    inside: bool
    log_probs_CV: np.ndarray


class Corrector:
    """Corrects texts with a model.

    Args:
      predict: returns of a batch, for each bucket, the log-probabilities [1, M, C - 1, V] of its masked words.
      rows: returns the characters of words as the model reads them, uint16 [W, C].
      vocab: its characters.
      splitter: how it splits texts.
      slots: its length buckets.
      max_words: words of its window.
      frequent: the frequent words of its training text, most frequent first.
      weighing: what the parts of a score count.
    """

    def __init__(
        self,
        predict: Callable[[WordBatch], Sequence[Array]],
        rows: Callable[[list[str]], np.ndarray],
        vocab: CharVocab,
        splitter: Splitter,
        slots: tuple[int, ...],
        max_words: int,
        frequent: Iterable[str],
        weighing: Weighing | None = None,
    ) -> None:
        self._predict, self._rows, self._vocab, self._splitter = predict, rows, vocab, splitter
        self._slots, self._room = slots, max_words - 2
        self._weighing = weighing or Weighing()
        # Words follow their frequency, which falls about as one over the rank (Zipf).
        self._frequent: dict[str, float] = {}
        for rank, word in enumerate(frequent):
            self._frequent[word.lower()] = self._frequent.get(word.lower(), 0.0) + 1 / (rank + 10)
        self._usual = WordsNear(self._frequent)
        self._with = functools.lru_cache(2)(self._joined)  # an index of many words takes seconds
        self._shapes: dict[tuple[int, int], BatchShape] = {}

    def _joined(self, added: frozenset[tuple[str, float]]) -> WordsNear:
        if not added:
            return self._usual
        words = dict(sorted(added))
        if not self._frequent:
            return WordsNear(words, 1.0)
        # Few words get little, or each would be likelier than any word of the language.
        told = len(words) / (len(words) + len(self._frequent))
        return WordsNear(mixed(self._frequent, words, SHARE * told), told)

    def known(self, words: Mapping[str, float] | Iterable[str] | None) -> WordsNear:
        """Returns the words that lie beside the model, together with the user's; ValueError for words of no use."""
        if words is None:
            return self._usual
        return self._with(frozenset(weighted(words).items()))

    def correct(self, texts: Sequence[str], batch_size: int, threshold: float, known: WordsNear) -> list[Correction]:
        """Returns the corrections of each text; a word is corrected if the probability reaches the threshold."""
        edits: list[list[Mend]] = [[] for _ in texts]
        for asked in self.asked(texts, batch_size):
            word = texts[asked.text][slice(*asked.span)]
            found = self.best(word, asked, known)
            if found is not None and found[1] >= threshold:
                edits[asked.text].append(Mend(*asked.span, word, *found))
        return [Correction(text, tuple(sorted(made))) for text, made in zip(texts, edits, strict=True)]

    def best(self, word: str, asked: Asked, known: WordsNear) -> tuple[str, float] | None:
        """Returns the likeliest other word with its probability; None if the word is likelier as it stands."""
        stands = self._model(word, asked.log_probs_CV)
        if known.prior(word.lower()) is not None and stands is not None and stands >= SURE:
            return None
        candidates = self.candidates(word, asked, known)
        scores_K = np.array([one.features for one in candidates]) @ self._weighing.at(known.told)
        chances_K = np.exp(scores_K - np.logaddexp.reduce(scores_K))
        k = int(chances_K.argmax())
        return (candidates[k].word, float(chances_K[k])) if k else None

    def fitted(self, given: Sequence[Meant], batch_size: int, words: Mapping[str, float] | None) -> Weighing:
        """Returns the weights that fit texts best; see `HLMPredictor.fit_corrections`."""

        def fit(which: str, known: WordsNear, start: Weights) -> Weights:
            choices = list(self.choices(given, batch_size, known))
            found = best_weights(choices, start)
            log.info(
                "candidates %s weighed by %d words, %d of them misspelled: %.4f nats a word, %.4f before",
                which, len(choices), sum(one.meant > 0 for one in choices), nats(choices, found), nats(choices, start),
            )  # fmt: skip
            return found

        usual = Weighing()
        own = fit("without further words", self._usual, usual.own)
        if not words:
            return Weighing(own, own)
        known = self.known(words)
        return Weighing(own, fit("with further words", known, usual.told), known.told)

    def choices(self, given: Sequence[Meant], batch_size: int, known: WordsNear) -> Iterator[Choice]:
        """Yields the candidates of the words of texts, as far as what is meant is one of them, and not the only one."""
        meant = {
            (n, span): word
            for n, one in enumerate(given)
            for span, word in zip(one.spans, one.meant, strict=True)
            if word is not None
        }
        for asked in self.asked([one.text for one in given], batch_size):
            if (word := meant.get((asked.text, asked.span))) is not None:
                found = self.candidates(given[asked.text].text[slice(*asked.span)], asked, known)
                at = next((k for k, one in enumerate(found) if one.word == word), None)
                if at is not None and len(found) > 1:
                    yield Choice(np.array([one.features for one in found]), at)

    def candidates(self, word: str, asked: Asked, known: WordsNear) -> list[Candidate]:
        """Returns what a word may mean: first the word as it stands, then others that the model can write."""
        typed = word.lower()
        near = {one.word: one for one in known.near(typed)}
        spelled = self._spelled(asked.log_probs_CV)
        own = spelled.lower()
        if own != typed and own not in near and is_correctable(own):
            prior = known.prior(own)
            near[own] = Near(own, UNKNOWN if prior is None else prior, known.cost(typed, own))
        prior = known.prior(typed)
        found = [Candidate(word, self._standing(word, prior, asked))]
        for one in near.values():
            new = spelled if one.word == own and word.islower() else cased(one.word, word)
            chance = self._model(new, asked.log_probs_CV)
            if new != word and chance is not None:
                unknown = float(known.prior(one.word) is None)
                found.append(Candidate(new, (chance, one.prior, -one.cost, 0.0, unknown, *(0.0,) * 5)))
        return found

    def _standing(self, word: str, prior: float | None, asked: Asked) -> tuple[float, ...]:
        """Returns the features of a word as it stands; `prior` is None if it is not known."""
        unknown = prior is None
        name = unknown and word[:1].isupper()
        capitals = len(word) > 1 and word.isupper()
        letters = min(len(word), MOST_LETTERS) if unknown else 0
        flags = map(float, (1, unknown, name and asked.inside, capitals))
        stands = self._model(word, asked.log_probs_CV)
        stands = WORST if stands is None else stands
        return (
            0.0,
            UNKNOWN if prior is None else prior,
            0.0,
            *flags,
            stands,
            float(letters),
            float(name and not asked.inside),
        )

    def _model(self, word: str, log_probs_CV: np.ndarray) -> float | None:
        """Returns the log-probability of a spelling, at least `WORST`; None for one that the model cannot write."""
        ids = [*self._vocab.encode_word(word), END]
        if UNK in ids or len(ids) > len(log_probs_CV):
            return None
        return max(float(log_probs_CV[np.arange(len(ids)), ids].sum()), WORST)

    def _spelled(self, log_probs_CV: np.ndarray) -> str:
        """Returns the likeliest spelling; "" if it is not made of characters."""
        ids = log_probs_CV.argmax(axis=-1)
        (ends,) = np.nonzero(ids == END)
        word = self._vocab.decode(ids[: ends[0] if len(ends) else len(ids)])
        return "" if "[" in word else word

    def asked(self, texts: Sequence[str], batch_size: int) -> Iterator[Asked]:
        """Yields every word that may be mended, with what the model says of it; texts are read by length."""
        spans = [self._splitter.spans(text) for text in texts]
        by_width: dict[int, list[tuple[int, int]]] = {}
        for n, found in enumerate(spans):
            for at in range(0, len(found), self._room):
                width = self._width(min(len(found) - at, self._room) + 2)
                by_width.setdefault(width, []).append((n, at))
        for width, windows in by_width.items():
            calls = [windows[at : at + batch_size] for at in range(0, len(windows), batch_size)]
            sequences = [[self._sequence(texts[n], spans[n][at : at + self._room]) for n, at in call] for call in calls]
            shape = self._shape(sequences, width)
            for call, made in zip(calls, sequences, strict=True):
                yield from self._of_windows(texts, spans, call, packed(made, shape))

    def _width(self, longest: int) -> int:
        """Returns the words that a batch is padded to: a power of two, so that few programs are compiled."""
        return max(min(self._room + 2, max(LEAST_WIDTH, 1 << (longest - 1).bit_length())), longest)

    def _sequence(self, text: str, window: Sequence[Span]) -> WordSequence:
        rows_WC = self._rows([text[a:b] for a, b in window])
        labels_WC = np.zeros_like(rows_WC)
        size = lambda a, b: len(self._vocab.encode_word(text[a:b]))
        usable = [w for w, (a, b) in enumerate(window) if is_mendable(text, a, b) and size(a, b) + 1 < self._slots[-1]]
        labels_WC[usable, 1] = MASK  # any id but 0 marks a word to predict
        return framed(rows_WC, labels_WC)

    def _of_windows(
        self,
        texts: Sequence[str],
        spans: Sequence[Sequence[Span]],
        windows: Sequence[tuple[int, int]],
        batch: WordBatch,
    ) -> Iterator[Asked]:
        W = batch.mask_SBW.shape[-1]
        for bucket, found in zip(batch.masked, self._predict(batch), strict=True):
            log_probs_MCV = np.asarray(found)[0]
            (rows_M,) = np.nonzero(np.asarray(bucket.labels_SMC)[0].any(axis=-1))
            for m in rows_M.tolist():
                b, place = divmod(int(bucket.position_SM[0, m]), W)
                n, at = windows[b]
                w = at + place - 1
                before = texts[n][slice(*spans[n][w - 1])] if w else "."
                yield Asked(n, spans[n][w], before not in OPENERS, log_probs_MCV[m])

    def _shape(self, calls: Sequence[list[WordSequence]], width: int) -> BatchShape:
        """Returns a shape for any of the calls: one that grows with what it has to hold, so that few are compiled."""
        shapes = [shape_of(sequences, width, self._slots, ROOM) for sequences in calls]
        key = shapes[0].sequences, width  # the first call has as many texts as any
        shapes += [self._shapes[key]] if key in self._shapes else []
        largest = {
            field: tuple(map(max, *(getattr(shape, field) for shape in shapes)))
            if len(shapes) > 1
            else getattr(shapes[0], field)
            for field in ("table", "masked", "labels")
        }
        self._shapes[key] = dataclasses.replace(shapes[0], **largest)
        return self._shapes[key]
