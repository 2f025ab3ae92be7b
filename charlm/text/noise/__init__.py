"""Noise for training and evaluation: typos of many kinds, drawn reproducibly for each example.

    noiser = Noiser(Noise.parse("keyboard:0.1@de"), seed=0)
    noised = noiser.text("Guten Morgen", key=17)
    start, end = noised.move(6, 12)

Open it to change how a spec such as "keyboard:0.1@de" is read, or how noise is drawn for a text. `KINDS` lists the
kinds of noise and states for each what its rate is a share of. Words are either runs of letters and digits with
apostrophes inside, or the words that the caller gives; a given word without a letter or digit does not count as a word.
A character keeps its combining marks, see `charlm.text.noise.characters`. To add a kind of noise, go to `kinds`.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from charlm.text.noise.characters import Characters
from charlm.text.noise.edits import Edit, NoisedText, NoisedWords, Rewriter, collect, keep_protected, move_tags
from charlm.text.noise.keyboards import AUTO, keyboard_for
from charlm.text.noise.kinds import KINDS, Kind
from charlm.text.noise.misspellings import Misspellings
from charlm.text.noise.operations import How
from charlm.text.noise.words import single_edits
from charlm.text.words import Span

__all__ = [
    "KINDS",
    "Edit",
    "Kind",
    "Noise",
    "NoisedText",
    "NoisedWords",
    "Noiser",
    "Rewriter",
    "collect",
    "move_tags",
    "single_edits",
]

_GRAMMAR = "kind[:rate[:shortest word]][@language]"


@dataclass(frozen=True)
class Noise:
    """A kind of noise with its settings; `str` gives the spec that `parse` reads.

    Attributes:
      kind: a key of `KINDS`; its `share_of` says which characters or words the noise may hit.
      rate: the probability, from 0 to 1 (swap: to 0.5), with which each of those is hit, independently of the others.
      min_length: words of fewer characters stay unchanged.
      language: language of the keyboard, for kinds that mistype or insert letters; "auto" chooses it by script.
    """

    kind: str
    rate: float
    min_length: int = 1
    language: str = AUTO

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        if self.kind not in KINDS:
            raise ValueError(f"noise {KINDS.unknown(self.kind)}")
        highest = KINDS[self.kind].highest
        if not 0 <= self.rate <= highest:
            raise ValueError(f"noise {self.kind!r}: expected a rate from 0 to {highest:g}, got {self.rate}")
        if self.min_length < 1:
            raise ValueError(f"noise {self.kind!r}: expected a shortest word of 1 or more, got {self.min_length}")
        object.__setattr__(self, "rate", float(self.rate))
        keyboard_for(self.language)

    @classmethod
    def parse(cls, spec: str) -> Noise:
        """Reads "kind[:rate[:shortest word]][@language]", such as "charbert", "hlm:0.15" or "keyboard:0.1:4@de".

        Parts that the spec leaves out take the defaults of `KINDS`.

        Raises:
          ValueError: the kind (the message names the nearest one) or the language does not exist, or a rate or length
            is not a number.
        """
        head, at, language = spec.partition("@")
        kind, *numbers = (part.strip() for part in head.split(":"))
        usual = KINDS.get(kind)
        if usual is None:
            return cls(kind, 0.0)  # raises, and names the nearest kind
        if len(numbers) > 2 or (at and not language.strip()):
            raise ValueError(f"noise {spec!r}: expected {_GRAMMAR}")
        try:
            rate = float(numbers[0]) if numbers else usual.rate
            min_length = int(numbers[1]) if len(numbers) > 1 else usual.min_length
        except ValueError:
            raise ValueError(f"noise {spec!r}: expected numbers in {_GRAMMAR}") from None
        return cls(kind, rate, min_length, language.strip() if at else AUTO)

    def __str__(self) -> str:
        length = "" if self.min_length == KINDS[self.kind].min_length else f":{self.min_length}"
        language = "" if self.language == AUTO else f"@{self.language}"
        return f"{self.kind}:{self.rate!r}{length}{language}"


class Noiser:
    """Puts noise into texts and words; the seed, the kind and the key of an example determine the random draws.

    The same seed, kind and key give the same noise in any order and in any process. Two texts of one example (question
    and context) need different keys, because with equal keys their noise is correlated.
    """

    def __init__(self, noise: Noise, seed: int, misspellings: Misspellings | None = None) -> None:
        """Prepares the noise; raises ValueError if its kind needs a list of misspellings and none is given."""
        if KINDS[noise.kind].listed and misspellings is None:
            raise ValueError(f"noise {str(noise)!r} needs a list of misspellings: Noiser(..., misspellings=...)")
        self.noise = noise
        self.seed = operator.index(seed)
        self._how = How(noise.rate, noise.min_length, keyboard_for(noise.language), misspellings)

    def text(self, text: str, key: str | int, protected: Sequence[Span] = ()) -> NoisedText:
        """Returns a text with noise.

        Args:
          text: any text.
          key: identifies the example, such as its id; 1 and "1" are different keys.
          protected: spans that must not vanish, such as the answer to a question. In each span at least one character
            that is not whitespace survives (perhaps replaced), and no character changes places with one outside.

        Raises:
          ValueError: a protected span does not lie within the text.
        """
        for start, end in protected:
            if not 0 <= start <= end <= len(text):
                raise ValueError(f"protected span ({start}, {end}): expected 0 <= start <= end <= {len(text)}")
        edits = self._edits(Characters.of(text), protected, self._generator(key))
        return NoisedText.of(text, edits)

    def words(self, words: Sequence[str], key: str | int, spaces: Sequence[bool] | bool = True) -> NoisedWords:
        """Returns words with noise; at least one character of every word survives.

        "hlm_drop", "hlm", "spaces", "mobile" and "ocr" treat the words as joined by spaces and may delete a space,
        which merges two words; "spaces", "mobile" and "ocr" may also cut a word in two. All other kinds keep the number
        of words.

        Args:
          words: the words; none may be empty.
          key: identifies the example, such as its id; 1 and "1" are different keys.
          spaces: for each word, whether a space follows it (in CoNLL-U: unless SpaceAfter=No); or one value for all
            words (false for Chinese, for instance).

        Raises:
          ValueError: a word is empty, or `spaces` is not as long as `words`.
        """
        if isinstance(words, str) or not all(words):
            raise ValueError(f"words: expected a sequence of words, none empty, got {words!r}")
        spaces = [spaces] * len(words) if isinstance(spaces, bool) else spaces
        if len(spaces) != len(words):
            raise ValueError(f"spaces: expected one for each of {len(words)} words, got {len(spaces)}")
        return NoisedWords.of(words, self._of_words(words, spaces, self._generator(key)))

    def word(self, word: str, rng: np.random.Generator) -> str:
        """Returns one word with noise; at least one of its characters survives, and "spaces" may put a space inside."""
        if not word:
            return word
        return NoisedText.of(word, self._of_words([word], [True], rng)).text

    def _generator(self, key: str | int) -> np.random.Generator:
        """Returns the generator of an example; it ignores the rate, so that all rates of a noise share their draws."""
        name = f"str:{key}" if isinstance(key, str) else f"int:{operator.index(key)}"
        label = f"{self.seed}:{self.noise.kind}:{name}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(label, digest_size=16).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))

    def _of_words(self, words: Sequence[str], spaces: Sequence[bool], rng: np.random.Generator) -> list[Edit]:
        """Returns edits of `" ".join(words)`."""
        if not words:
            return []
        characters = Characters.of_words(words, spaces)
        assert characters.given_2W is not None  # `of_words` always sets it
        first, end = (characters.starts[bound].tolist() for bound in characters.given_2W)
        return self._edits(characters, list(zip(first, end, strict=True)), rng)

    def _edits(self, characters: Characters, protected: Sequence[Span], rng: np.random.Generator) -> list[Edit]:
        edits = KINDS[self.noise.kind].operation(characters, self._how, rng) if self.noise.rate else []
        return keep_protected(characters.text, edits, protected, rng) if protected else edits
