"""Mends misspelled words of texts with an HLM that was trained for it (`charlm.families.hlm.spelling`).

The model reads the text as it stands, and gives for each word the probability of every character of the word meant.
Candidates are the word itself, the likeliest spelling of the model, and known words near to it. They are compared by
the model's probability, by how frequent they are, and by what the typing errors between cost (`charlm.text.speller`).
Where that leaves a word in doubt, the model reads it again, hidden, and says what suits the context
(`charlm.families.hlm.reading`). Open it to change when a word is in doubt, and when it is corrected.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from charlm.families.corrections import Correction, Meant, Mend, weighted
from charlm.families.hlm.candidates import Candidate, Proposer, WordsNear
from charlm.families.hlm.reading import Doubt, Reader
from charlm.families.hlm.weighing import Choice, Weighing, Weights, best_weights, nats
from charlm.text.casing import quieted
from charlm.text.speller import mixed
from charlm.text.words import Span

log = logging.getLogger("charlm")

SURE = math.log(0.99)  # a known word of which the model is that sure stays, without a look at candidates
DOUBTFUL = 4.0  # nats: a word is in doubt if another is at most so much less likely, by the usual weights
COMMON = 5000  # words that most texts share; the frequencies of others fall faster
FEW = 100  # misspelled words to which eleven weights can hardly be fitted
SHARE = 0.8  # the most of all probability that the user's words have, against those that lie beside the model


class Judged(NamedTuple):
    """A word of a text with what it may mean: first itself, then others."""

    text: int
    span: Span
    candidates: list[Candidate]


class Corrector:
    """Corrects texts with a model.

    Args:
      reader: reads texts with the model.
      proposer: finds what words may mean.
      frequent: the frequent words of its training text, most frequent first.
      weighing: what the parts of a score count.
      hides: whether the model has learned to guess hidden words, so that doubtful ones are read again.
    """

    def __init__(
        self,
        reader: Reader,
        proposer: Proposer,
        frequent: Iterable[str],
        weighing: Weighing | None = None,
        hides: bool = False,
    ) -> None:
        self._reader, self._proposer, self._hides = reader, proposer, hides
        self._weighing = weighing or Weighing()
        # The usual weights decide what is doubtful, whatever has been fitted: so a fit sees what it will weigh.
        self._doubting = Weights().vector()
        self._frequent: dict[str, float] = {}
        for rank, word in enumerate(frequent):
            self._frequent[word.lower()] = self._frequent.get(word.lower(), 0.0) + frequency(rank)
        self._usual = WordsNear(self._frequent)
        self._with = functools.lru_cache(2)(self._joined)  # an index of many words takes seconds

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
        quiet = [quieted(text) for text in texts]
        for text, span, candidates in self.judged(quiet, batch_size, known):
            scores_K = np.array([one.features for one in candidates]) @ self._weighing.at(known.told)
            chances_K = np.exp(scores_K - np.logaddexp.reduce(scores_K))
            k = int(chances_K.argmax())
            if k and chances_K[k] >= threshold:
                word, correction = texts[text][slice(*span)], candidates[k].word
                if word != candidates[0].word:
                    correction = correction.upper()
                if word != correction:  # "ß" and "ss" are alike in capitals
                    edits[text].append(Mend(*span, word, correction, float(chances_K[k])))
        return [Correction(text, tuple(sorted(made))) for text, made in zip(texts, edits, strict=True)]

    def judged(self, texts: Sequence[str], batch_size: int, known: WordsNear) -> Iterator[Judged]:
        """Yields every word that may be another one; those in doubt come last, with what their context says."""
        doubtful: list[Judged] = []
        doubts: list[Doubt] = []
        for text, number, span, inside, log_probs_CV in self._reader.asked(texts, batch_size):
            word = texts[text][slice(*span)]
            if known.prior(word.lower()) is not None:
                stands_C = self._proposer.log_probs(word, log_probs_CV)
                if stands_C is not None and stands_C.sum() >= SURE:
                    continue
            judged = Judged(text, span, self._proposer.candidates(word, inside, log_probs_CV, known))
            if len(judged.candidates) == 1:
                continue
            if self._is_doubtful(judged.candidates):
                doubtful.append(judged)
                doubts.append(Doubt(text, number, tuple(one.word for one in judged.candidates)))
            else:
                yield judged
        for judged, said_K in zip(doubtful, self._reader.contexts(texts, doubts, batch_size), strict=True):
            found = [one.in_context(said) for one, said in zip(judged.candidates, said_K, strict=True)]
            yield judged._replace(candidates=found)

    def _is_doubtful(self, candidates: Sequence[Candidate]) -> bool:
        if not self._hides:
            return False
        scores_K = np.array([one.features for one in candidates]) @ self._doubting
        return bool(scores_K[1:].max() >= scores_K[0] - DOUBTFUL)

    def fitted(self, given: Sequence[Meant], batch_size: int, words: Mapping[str, float] | None) -> Weighing:
        """Returns the weights that fit texts best; see `HLMPredictor.fit_corrections`."""

        def fit(which: str, known: WordsNear, start: Weights) -> Weights:
            choices = list(self.choices(given, batch_size, known))
            found, wrong = best_weights(choices, start), sum(one.meant > 0 for one in choices)
            log.info(
                "candidates %s weighed by %d words, %d of them misspelled: %.4f nats a word, %.4f before",
                which, len(choices), wrong, nats(choices, found), nats(choices, start),
            )  # fmt: skip
            if wrong < FEW:
                log.warning(
                    "these weights are fitted to %d misspelled words: with fewer than %d a speller may hardly mend any",
                    wrong,
                    FEW,
                )
            return found

        usual = Weighing()
        own = fit("without further words", self._usual, usual.own)
        if not words:
            return Weighing(own, own)
        known = self.known(words)
        return Weighing(own, fit("with further words", known, usual.told), known.told)

    def choices(self, given: Sequence[Meant], batch_size: int, known: WordsNear) -> Iterator[Choice]:
        """Yields the candidates of the words of texts, as far as what is meant is one of them, and not the only one."""
        texts = [quieted(one.text) for one in given]
        meant = {
            (n, span): word if one.text[slice(*span)] == texts[n][slice(*span)] else word.lower()
            for n, one in enumerate(given)
            for span, word in zip(one.spans, one.meant, strict=True)
            if word is not None
        }
        for text, span, candidates in self.judged(texts, batch_size, known):
            word = meant.get((text, span))
            at = next((k for k, one in enumerate(candidates) if one.word == word), None)
            if at is not None:
                yield Choice(np.array([one.features for one in candidates]), at)


def frequency(rank: int) -> float:
    """Returns about how frequent the word of a rank is, beside those of other ranks.

    It falls as one over the rank, and from `COMMON` on as one over its square (Ferrer i Cancho and Solé, 2001).
    """
    return min(1.0, (COMMON + 10) / (rank + 10)) / (rank + 10)
