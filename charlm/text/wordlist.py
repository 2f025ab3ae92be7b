"""Ranks words by the probabilities of their characters, over all spellings or over a list of known words.

The predictor of HLM uses it to fill masked words; the list of known words is stored beside a model. Open it to change
how spellings are searched.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from charlm.core.durable import write_text
from charlm.core.reading import read_text
from charlm.text.chars import UNK, CharVocab

WORDS_FILE = "known_words.txt"  # beside a model: the frequent words of its training text, one per line


def read_words(folder: Path) -> list[str] | None:
    """Returns the words stored beside a model, most frequent first; None if there are none.

    Raises:
      ValueError: the file cannot be read.
    """
    path = folder / WORDS_FILE
    if not path.is_file():
        return None
    try:
        return read_text(path).split() or None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def write_words(folder: Path, words: Iterable[str]) -> None:
    """Writes the file that `read_words` reads."""
    write_text(folder / WORDS_FILE, "".join(f"{word}\n" for word in words))


class WordList:
    """Known words by length; words with a character that the vocabulary lacks are left out.

    Args:
      words: the words; repeated words count once.
      vocab: the characters of the model that will rank the words.
    """

    def __init__(self, words: Iterable[str], vocab: CharVocab) -> None:
        encoded = {word: vocab.encode_word(word) for word in words if word}
        self._by_length: dict[int, tuple[list[str], np.ndarray]] = {}
        for length in {len(ids) for ids in encoded.values()}:
            fitting = {word: ids for word, ids in encoded.items() if len(ids) == length and UNK not in ids}
            if fitting:
                self._by_length[length] = (list(fitting), np.array(list(fitting.values()), np.int64))

    @property
    def words(self) -> list[str]:
        """The words that are ranked, the shortest first."""
        return [word for length in sorted(self._by_length) for word in self._by_length[length][0]]

    def __len__(self) -> int:
        return sum(len(words) for words, _ in self._by_length.values())

    def best(self, log_probs_CV: np.ndarray, top: int) -> list[tuple[float, str]]:
        """Returns the `top` likeliest words of C characters, best first, each with the sum of its log-probabilities.

        Args:
          log_probs_CV: log-probability of every character id at each of C positions.
          top: the number of words to return, at most.
        """
        C = len(log_probs_CV)
        words, ids_NC = self._by_length.get(C, ([], np.zeros((0, C), np.int64)))
        scores_N = log_probs_CV[np.arange(C), ids_NC].sum(axis=1)
        return [(float(scores_N[n]), words[n]) for n in np.argsort(-scores_N, kind="stable")[:top]]


def best_spellings(log_probs_CV: np.ndarray, top: int) -> Iterator[tuple[float, list[int]]]:
    """Yields the `top` likeliest words of C characters, best first: (sum of log-probabilities, character ids).

    The ranking is exact, since the characters are independent given the context.
    """
    order_CV = np.argsort(-log_probs_CV, axis=-1)[:, :top]
    sorted_CV = np.take_along_axis(log_probs_CV, order_CV, axis=-1)
    C = len(order_CV)
    queue = [(-float(sorted_CV[:, 0].sum()), (0,) * C)]
    seen = {queue[0][1]}
    for _ in range(top):
        if not queue:
            return
        cost, ranks = heapq.heappop(queue)
        yield -cost, [int(order_CV[c, rank]) for c, rank in enumerate(ranks)]
        for c in range(C):
            if ranks[c] + 1 < order_CV.shape[1]:
                following = (*ranks[:c], ranks[c] + 1, *ranks[c + 1 :])
                step = float(sorted_CV[c, ranks[c]] - sorted_CV[c, ranks[c] + 1])
                if following not in seen and step < np.inf:  # a character with probability 0 makes no spelling
                    seen.add(following)
                    heapq.heappush(queue, (cost + step, following))
