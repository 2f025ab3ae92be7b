"""Turns words into subwords with a cache: a corpus has a hundred times as many words as distinct words.

The families that fill sequences word by word use it while they make batches. Open it when tokenising slows down the
making of batches, or when the cache takes too much memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from charlm.text.subwords import SubwordTokenizer

_MAX_CACHED = 2**19
_MAX_LENGTH = 64  # characters; a few huge "words" must not fill the memory


class WordPieces:
    """Cuts words into subwords with a tokenizer, and caches the results."""

    def __init__(self, tokenizer: SubwordTokenizer) -> None:
        """Wraps a tokenizer of BERT's, RoBERTa's or GPT-2's family."""
        self._tokenizer = tokenizer
        self._spaces_count = tokenizer.family in ("roberta", "gpt2")
        self._apart: dict[str, tuple[int, ...]] = {}  # words with a space before them
        self._joined: dict[str, tuple[int, ...]] = {}

    def of(self, words: Sequence[str], spaces: Sequence[bool]) -> list[tuple[int, ...]]:
        """Returns the ids of the subwords of each word, at least one per word, without special tokens.

        Args:
          words: the words; none may be empty.
          spaces: for each word, whether a space comes before it. A byte-level vocabulary writes the space into the
            first subword; WordPiece ignores it.
        """
        if not self._spaces_count:
            return self._look_up(self._apart, words)
        apart = iter(self._look_up(self._apart, [word for word, space in zip(words, spaces, strict=True) if space]))
        joined = [word for word, space in zip(words, spaces, strict=True) if not space]
        close = iter(self._look_up(self._joined, joined))
        return [next(apart) if space else next(close) for space in spaces]

    def _look_up(self, known: dict[str, tuple[int, ...]], words: Sequence[str]) -> list[tuple[int, ...]]:
        with contextlib.suppress(KeyError):
            return [known[word] for word in words]
        found = [known.get(word) for word in words]
        new = list(dict.fromkeys(word for word, pieces in zip(words, found, strict=True) if pieces is None))
        cut = dict(zip(new, self._cut(new) if known is self._apart else self._cut_joined(new), strict=True))
        if len(known) + len(cut) > _MAX_CACHED:
            known.clear()
        known.update((word, pieces) for word, pieces in cut.items() if len(word) <= _MAX_LENGTH)
        return [pieces or cut[word] for word, pieces in zip(words, found, strict=True)]

    def _cut(self, words: list[str]) -> list[tuple[int, ...]]:
        """Encodes all words in one call, which is several times faster than one call per word."""
        item = self._tokenizer.encode_words(words)
        pieces: list[list[int]] = [[] for _ in words]
        for index, word in zip(item.ids, item.words, strict=True):
            if word is not None:
                pieces[word].append(index)
        return [tuple(ids) for ids in pieces]

    def _cut_joined(self, words: list[str]) -> list[tuple[int, ...]]:
        items = self._tokenizer.encode_joined(words)
        return [
            tuple(index for index, special in zip(item.ids, item.special, strict=True) if not special) for item in items
        ]
