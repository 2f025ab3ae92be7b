"""The questions of a cloze test: sentences, each with one word left out, and the words to choose from (Taylor, 1953).

    words = candidates_in(sentences)
    questions = list(questions_of(sentences, words, seed=0))

Open it to change which words are left out, or which words models choose from. Only words of small letters count, so
that models that tell cases apart and models that do not choose from the same words.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from charlm.core.reading import read_text
from charlm.data.sentences import SPLITTER
from charlm.data.streams import generator
from charlm.families.corrections import counted_words
from charlm.text.noise import Rewriter
from charlm.text.words import Span, get_splitter

SHORTEST = 4  # characters: of shorter words so few have the same length that guessing is easy
COMMONEST = 5000  # words to choose from, where no list is given
_JOINS = "'’-‐‑_/\\@#&<>[]"  # beside a word, these make it a part of one, or of markup


class Question(NamedTuple):
    """A sentence with one word left out.

    Attributes:
      sentence: all of it.
      start, end: the characters of the word.
    """

    sentence: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word that is left out."""
        return self.sentence[self.start : self.end]

    def read_by(self, rewriters: Sequence[Rewriter], key: str) -> Asked:
        """Returns the sentence with a gap, which tells how many characters the word has: "The [MASK:3] sat."

        Args:
          rewriters: noise and corrections, in this order; each reads what is before the gap, and what is behind it.
          key: identifies the draw of the noise.
        """
        before, behind = self.sentence[: self.start], self.sentence[self.end :]
        for rewriter in rewriters:
            before, behind = rewriter.text(before, f"{key}/before").text, rewriter.text(behind, f"{key}/behind").text
        return Asked(f"{before}[MASK:{self.end - self.start}]{behind}", len(before))


class Asked(NamedTuple):
    """A question as a model reads it.

    Attributes:
      text: with a gap.
      gap: the place of the gap's first character; noise and correctors may have made what looks like a further gap.
    """

    text: str
    gap: int


def is_candidate(word: str) -> bool:
    """Says whether a word may be left out: at least `SHORTEST` characters, letters with their marks, no capital."""
    return (
        len(word) >= SHORTEST
        and word[0].isalpha()
        and all(char.isalpha() or unicodedata.category(char)[0] == "M" for char in word)
        and word == word.lower()
    )


def candidates_in(sentences: Iterable[str], most: int = COMMONEST) -> list[str]:
    """Returns the commonest candidates of sentences, most frequent first, and alphabetically among equals."""
    splitter, counts = get_splitter(SPLITTER), Counter[str]()
    for sentence in sentences:
        counts.update(filter(is_candidate, (sentence[a:b] for a, b in splitter.spans(sentence))))
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]


def read_candidates(path: str) -> list[str]:
    """Returns the candidates of a list: a word a line, perhaps with its count behind it, in the order of the file.

    Raises:
      ValueError: the file cannot be read, is no such list or has no candidate.
    """
    try:
        words = counted_words(read_text(path).splitlines(), f"--words={path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--words={path} cannot be read: {error}") from error
    if not (found := [*filter(is_candidate, words)]):
        raise ValueError(f"--words={path}: expected words of at least {SHORTEST} letters, none a capital; got none")
    return found


def questions_of(sentences: Iterable[str], candidates: Collection[str], seed: int) -> Iterator[Question]:
    """Yields a question for each sentence in which a candidate stands alone; of several, any is as likely.

    A word that stands there twice, in whatever case, is not left out, since it could be read; nor is a part of a longer
    word, such as "would" in "wouldn't", since tokenizers cut these in different ways.

    Args:
      seed: of the draws, which for a sentence depend on its number and its candidates.
    """
    splitter, known = get_splitter(SPLITTER), frozenset(candidates)
    for number, sentence in enumerate(sentences):
        spans = splitter.spans(sentence)
        counts = Counter(sentence[a:b].lower() for a, b in spans)
        fitting = [
            (a, b) for a, b in spans
            if (word := sentence[a:b]) in known and counts[word] == 1 and _stands_alone(sentence, (a, b))
        ]  # fmt: skip
        if fitting:
            yield Question(sentence, *fitting[int(generator(seed, number).random() * len(fitting))])


def _stands_alone(sentence: str, span: Span) -> bool:
    beside = sentence[max(0, span[0] - 1) : span[0]] + sentence[span[1] : span[1] + 1]
    return not any(char.isalnum() or char in _JOINS or unicodedata.category(char)[0] == "M" for char in beside)
