"""What a word of a text may mean: known words near to it, and the spelling that a speller finds likeliest.

`charlm.families.hlm.correcting` asks for them, and `charlm.families.hlm.weighing` weighs them. Open it to add a part to
a candidate's score, or to change which known words are near.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from charlm.families.hlm.misspelled import END, is_correctable
from charlm.text.chars import UNK, CharVocab
from charlm.text.defences import cased
from charlm.text.noise.keyboards import AUTO, keyboard_for
from charlm.text.speller import Lexicon
from charlm.text.speller.channel import Costs, typing_costs

NEAR = 200  # known words whose typing costs are computed for a word
KEPT = 12  # candidates of these that the model is asked about
LEAST_CHAR = -15.0  # nats: the least log-probability of a character that is told from others
UNKNOWN = -18.0  # nats: the log-probability that a word has where no list has it
MOST_LETTERS = 16


class Candidate(NamedTuple):
    """A word that may be meant.

    Attributes:
      word: in the case of the word that stands in the text.
      features: what is weighed, see `charlm.families.hlm.weighing.Weights`; the last is that of context.
    """

    word: str
    features: tuple[float, ...]

    def in_context(self, log_prob: float) -> Candidate:
        """Returns the candidate with what context says of it: the mean log-probability of a character."""
        return Candidate(self.word, (*self.features[:-1], log_prob))


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


class Proposer:
    """Finds candidates.

    Args:
      vocab: the characters of the model.
    """

    def __init__(self, vocab: CharVocab) -> None:
        self._vocab = vocab

    def candidates(self, word: str, inside: bool, log_probs_CV: np.ndarray, known: WordsNear) -> list[Candidate]:
        """Returns what a word may mean: first the word as it stands, then others that the model can write.

        Args:
          inside: whether it stands inside a sentence, where a capital marks a name.
          log_probs_CV: what the model says of it; see `charlm.families.hlm.reading.Asked`.
        """
        typed = word.lower()
        near = {one.word: one for one in known.near(typed)}
        spelled = self._spelled(log_probs_CV)
        own = spelled.lower()
        if own != typed and own not in near and is_correctable(own):
            prior = known.prior(own)
            near[own] = Near(own, UNKNOWN if prior is None else prior, known.cost(typed, own))
        stands_C = self.log_probs(word, log_probs_CV)
        found = [Candidate(word, self._standing(word, inside, known.prior(typed), stands_C))]
        for one in near.values():
            new = spelled if one.word == own and word.islower() else cased(one.word, word)
            chance_C = self.log_probs(new, log_probs_CV)
            if new != word and chance_C is not None:
                unknown = float(known.prior(one.word) is None)
                found.append(Candidate(new, (mean_of(chance_C), one.prior, -one.cost, 0.0, unknown, *(0.0,) * 6)))
        return found

    @staticmethod
    def _standing(word: str, inside: bool, prior: float | None, stands_C: np.ndarray | None) -> tuple[float, ...]:
        """Returns the features of a word as it stands.

        Args:
          prior: its log-probability as a known word; None: it is not known.
          stands_C: what the model says of its characters; None: it cannot write it.
        """
        unknown = prior is None
        name = unknown and word[:1].isupper()
        capitals = len(word) > 1 and word.isupper()
        letters = min(len(word), MOST_LETTERS) if unknown else 0
        return (
            0.0,
            UNKNOWN if prior is None else prior,
            0.0,
            *map(float, (1, unknown, name and inside, capitals)),
            LEAST_CHAR if stands_C is None else mean_of(stands_C),
            float(letters),
            float(name and not inside),
            0.0,
        )

    def log_probs(self, word: str, log_probs_CV: np.ndarray) -> np.ndarray | None:
        """Returns the log-probabilities of the characters of a spelling and of its end, nats [characters + 1].

        Returns:
          None if the model cannot write it.
        """
        ids = [*self._vocab.encode_word(word), END]
        return None if UNK in ids or len(ids) > len(log_probs_CV) else log_probs_CV[np.arange(len(ids)), ids]

    def _spelled(self, log_probs_CV: np.ndarray) -> str:
        """Returns the likeliest spelling; "" if it is not made of characters."""
        ids = log_probs_CV.argmax(axis=-1)
        (ends,) = np.nonzero(ids == END)
        word = self._vocab.decode(ids[: ends[0] if len(ends) else len(ids)])
        return "" if "[" in word else word


def mean_of(log_probs_C: np.ndarray) -> float:
    """Returns the mean log-probability of a character, each at least `LEAST_CHAR`.

    By their means words of different lengths can be compared, and one unlikely character does not outweigh all else.
    """
    return float(np.maximum(log_probs_C, LEAST_CHAR).mean())
