"""Misspells words as people do: by a list of real misspellings where it has the word, or else by kinds of noise.

    misspeller = Misspeller(Mixture(("charbert:1:3", "phonetic:1")), lists=["wikipedia.dat"])
    misspeller.words(["because"], rng)   # ["becuase"]

The training of a speller draws from it. Open it to change how often a list decides, or how words of lists are parted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from charlm.text.noise import KINDS, Noise, Noiser
from charlm.text.noise.misspellings import Misspellings, entries_of

_PARTS = 10_000  # how finely words are parted
_REAL = 0.1  # how often a misspelling that is another word of the list is used, against one that is none


def is_held_out(word: str, share: float) -> bool:
    """Says whether the misspellings of a word are kept from training, for evaluation; its case does not count.

    The SHA-256 of the word decides, so that every list, machine and run agrees.

    Args:
      share: of the words that are held out, from 0 to 1.
    """
    digest = hashlib.sha256(word.lower().encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % _PARTS < share * _PARTS


def parted(paths: Iterable[str], share: float, held_out: bool, without: float = 0.0) -> Misspellings:
    """Returns one part of lists of misspellings, parted by the correct word.

    Args:
      paths: lists as `Misspellings.read` reads them.
      share: of the words that are held out.
      held_out: whether to return those that are held out, or the others.
      without: the words of this smaller share that is held out are left out.

    Raises:
      ValueError: a list cannot be read.
    """
    return Misspellings(
        one
        for path in paths
        for one in entries_of(path)
        if is_held_out(one[0], share) == held_out and not is_held_out(one[0], without)
    )


@dataclass(frozen=True)
class Mixture:
    """How words are misspelled.

    Attributes:
      noise: specs of kinds of noise (`charlm.text.noise.Noise.parse`), each as likely.
      listed: the share of words with listed misspellings that get one of these.
    """

    noise: tuple[str, ...]
    listed: float = 0.5

    def parsed(self) -> tuple[Noise, ...]:
        """Returns the kinds of noise.

        Raises:
          ValueError: there is none, or one is not valid, needs a list, or may join or cut words.
        """
        if not self.noise:
            raise ValueError("spelling.noise is empty: expected at least one kind of noise, such as charbert:1")
        try:
            found = tuple(map(Noise.parse, self.noise))
        except ValueError as error:
            raise ValueError(f"spelling.noise: {error}") from None
        for noise in found:
            kind = KINDS[noise.kind]
            if kind.resizes or kind.listed:
                why = "may join or cut words" if kind.resizes else "takes its list from spelling.lists"
                raise ValueError(f"spelling.noise={noise}: it {why}; expected a kind that changes single words")
        return found


class Misspeller:
    """Misspells words, each by itself.

    Args:
      mixture: the kinds of noise, and how often lists decide.
      listed: real misspellings; None: there are none.
    """

    def __init__(self, mixture: Mixture, listed: Misspellings | None = None) -> None:
        """Prepares the kinds of noise; ValueError if one is not usable, see `Mixture.parsed`."""
        self._noisers = tuple(Noiser(noise, seed=0) for noise in mixture.parsed())
        self._share, self._listed = mixture.listed, listed

    def words(self, words: Sequence[str], rng: np.random.Generator) -> list[str]:
        """Returns a misspelling of each word; some stay, where nothing can be done to them."""
        found = [self._of_lists(word, rng) for word in words]
        kinds = rng.integers(len(self._noisers), size=len(words))
        for kind, noiser in enumerate(self._noisers):
            places = [n for n, one in enumerate(found) if not one and kinds[n] == kind]
            noised = noiser.words([words[n] for n in places], int(rng.integers(2**62))).words
            for n, one in zip(places, noised, strict=True):
                found[n] = one
        return found

    def _of_lists(self, word: str, rng: np.random.Generator) -> str:
        """Returns a listed misspelling; "" if there is none that is to be used."""
        if self._listed is None or rng.random() >= self._share:
            return ""
        forms: Sequence[str] = self._listed.of(word)
        if rng.random() >= _REAL:
            forms = [form for form in forms if form not in self._listed]
        return forms[int(rng.integers(len(forms)))] if forms else ""
