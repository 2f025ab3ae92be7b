"""The questions of a cloze test: sentences, each with one word left out, and the words to choose from (Taylor, 1953).

    words = candidates_in(sentences)
    questions = list(questions_of(sentences, words, seed=0))

Open it to change which words are left out, or which words models choose from. Only words of small letters count, so
that models that tell cases apart and models that do not choose from the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from charlm.core.reading import read_text
from charlm.data.sentences import SPLITTER
from charlm.data.streams import generator
from charlm.families.corrections import counted_words
from charlm.text.noise import Rewriter
from charlm.text.words import get_splitter

SHORTEST = 4  # letters: of shorter words so few have the same length that guessing is easy
COMMONEST = 5000  # words to choose from, where no list is given


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

    def read_by(self, rewriters: Sequence[Rewriter], key: str) -> str:
        """Returns the sentence with a gap, which tells how many characters the word has: "The [MASK:3] sat."

        Args:
          rewriters: noise and corrections, in this order; each reads what is before the gap, and what is behind it.
          key: identifies the draw of the noise.
        """
        before, behind = self.sentence[: self.start], self.sentence[self.end :]
        for rewriter in rewriters:
            before, behind = rewriter.text(before, f"{key}/before").text, rewriter.text(behind, f"{key}/behind").text
        return f"{before}[MASK:{self.end - self.start}]{behind}"


def is_candidate(word: str) -> bool:
    """Says whether a word may be left out: at least `SHORTEST` letters, none of them a capital."""
    return len(word) >= SHORTEST and word.isalpha() and word == word.lower()


def candidates_in(sentences: Iterable[str], most: int = COMMONEST) -> list[str]:
    """Returns the commonest candidates of sentences, most frequent first, and alphabetically among equals."""
    splitter, counts = get_splitter(SPLITTER), Counter[str]()
    for sentence in sentences:
        counts.update(filter(is_candidate, (sentence[a:b] for a, b in splitter.spans(sentence))))
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]


def read_candidates(path: str) -> list[str]:
    """Returns the candidates of a list: a word a line, perhaps with its count behind it.

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
    """Yields a question for each sentence with a candidate; of several, each is left out with the same probability.

    Args:
      seed: of the draws, which for a sentence depend on its number alone.
    """
    splitter, known = get_splitter(SPLITTER), frozenset(candidates)
    for number, sentence in enumerate(sentences):
        spans = [span for span in splitter.spans(sentence) if sentence[slice(*span)] in known]
        if spans and "[MASK" not in sentence:
            yield Question(sentence, *spans[int(generator(seed, number).random() * len(spans))])
