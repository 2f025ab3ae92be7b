"""Known words with how frequent they are, and an index of their letters that finds those near to a typed word.

Open it to change which words count as near before edits are weighed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

MOST_LONGER = 4  # letters between a typed word and what it may mean
LONGEST = 32  # letters of the longest word that others are corrected to
SHORTEST_STEM, LONGEST_ENDING = 3, 5  # letters of words and of the endings that make other words of them
_MANY = 20  # a letter is common if one in so many words has it
_LEAST_ENDINGS = 10  # known words that an ending has to make to be a common one


class Lexicon:
    """Words and their probabilities.

    Nearness is the share of letters, pairs of letters and pairs with one letter between that two words have in common,
    so that one edit, or an exchange, leaves most of them.

    Args:
      counts: how often each word is seen, or any other positive weight; words are compared as they are.

    Raises:
      ValueError: there are no words, or a count is not positive.
    """

    def __init__(self, counts: Mapping[str, float]) -> None:
        if not counts or not all(count > 0 and math.isfinite(count) for count in counts.values()):
            raise ValueError(f"a lexicon of {len(counts)} words: expected words with positive counts")
        total = math.fsum(counts.values())
        self.log_prior = {word: math.log(count / total) for word, count in counts.items()}
        self._words = [word for word in counts if word.isalpha() and 2 <= len(word) <= LONGEST]
        self._prior_V = np.array([self.log_prior[word] for word in self._words])
        self._length_V = np.array([len(word) for word in self._words], np.int32)
        self._codes_VC = np.zeros((len(self._words), max(map(len, self._words), default=1)), np.int32)
        for row, word in enumerate(self._words):
            self._codes_VC[row, : len(word)] = [ord(char) for char in word]
        self._postings, self._common = self._posted()
        self.endings = self._common_endings()

    def __len__(self) -> int:
        return len(self.log_prior)

    def __contains__(self, word: str) -> bool:
        return word in self.log_prior

    def _common_endings(self) -> dict[str, float]:
        """Returns endings that make known words of other known words, and the negative logarithms of their shares."""
        found = Counter(
            word[place:]
            for word in self._words
            for place in range(max(SHORTEST_STEM, len(word) - LONGEST_ENDING), len(word))
            if word[:place] in self.log_prior
        )
        total = found.total()
        return {ending: -math.log(count / total) for ending, count in found.items() if count >= _LEAST_ENDINGS}

    def derived(self, word: str) -> float | None:
        """Returns the least cost of a word as a known one with a common ending, the sum of both; None if it is none.

        A name or a plural that a lexicon lacks is often of this kind, a slip seldom.
        """
        places = range(max(SHORTEST_STEM, len(word) - LONGEST_ENDING), len(word))
        ways = [
            self.endings[word[place:]] - self.log_prior[word[:place]]
            for place in places
            if word[place:] in self.endings and word[:place] in self.log_prior
        ]
        return min(ways, default=None)

    def _posted(self) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, np.ndarray]]:
        """Returns for each feature the words that have it, int32, and its shares in them, float32.

        Those that many words have, as most letters, come apart with their shares in all words, float32 [V], which is
        faster to add. The squares of a word's shares add up to 1.
        """
        rows: defaultdict[str, list[int]] = defaultdict(list)
        shares: defaultdict[str, list[float]] = defaultdict(list)
        for row, word in enumerate(self._words):
            found = _features(word)
            length = math.sqrt(sum(count * count for count in found.values()))
            for name, count in found.items():
                rows[name].append(row)
                shares[name].append(count / length)
        few, many = {}, {}
        for name in rows:
            if len(name) > 1 or len(rows[name]) * _MANY < len(self._words):
                few[name] = np.array(rows[name], np.int32), np.array(shares[name], np.float32)
            else:
                many[name] = np.zeros(len(self._words), np.float32)
                many[name][rows[name]] = shares[name]
        return few, many

    def nearest(self, typed: str, most: int) -> np.ndarray:
        """Returns the rows of at most `most` words that have the most letters in common with a word, unordered.

        Words that are more than `MOST_LONGER` letters longer or shorter are not near.
        """
        shared_V = np.zeros(len(self._words), np.float32)
        for name, count in _features(typed).items():
            if name in self._common:
                shared_V += np.float32(count) * self._common[name]
            elif name in self._postings:
                rows, shares = self._postings[name]
                shared_V[rows] += count * shares
        shared_V[np.abs(self._length_V - len(typed)) > MOST_LONGER] = 0
        (found,) = np.nonzero(shared_V > 0)
        if len(found) <= most:
            return found
        # Few words share half of what the nearest one does, so that few are left to be sorted.
        (close,) = np.nonzero(shared_V > shared_V.max() / 2)
        found = close if len(close) >= most else found
        return found[np.argpartition(-shared_V[found], most - 1)[:most]]

    def of_rows(self, rows: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Returns words, their code points int32 [K, C] (0 behind their ends), and their log-probabilities [K]."""
        codes_KC = self._codes_VC[rows]
        used = int((codes_KC != 0).any(axis=0).sum())
        return [self._words[row] for row in rows], codes_KC[:, :used], self._prior_V[rows]


def mixed(one: Mapping[str, float], other: Mapping[str, float], share: float = 0.5) -> dict[str, float]:
    """Returns the words of both with their probabilities, of which `other` has a share."""
    totals = math.fsum(one.values()), math.fsum(other.values())
    found = {word: (1 - share) * count / totals[0] for word, count in one.items()}
    for word, count in other.items():
        found[word] = found.get(word, 0.0) + share * count / totals[1]
    return found


def _features(word: str) -> Counter[str]:
    """Returns letters, pairs of neighbours (also with the ends of the word) and pairs with a letter between."""
    ended = f"^{word}$"
    return Counter(
        [*word, *map("".join, itertools.pairwise(ended))] + [f"{a}_{b}" for a, b in zip(ended, ended[2:], strict=False)]
    )
