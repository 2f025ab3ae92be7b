"""Measures how many words of misspelled text defences bring back, word by word, beside no defence at all.

    accuracies = measure(sentences, Noise.parse("charbert:1"), {"symspell": defence_of("symspell")})

`python -m charlm.wordrec measure` prints it. Open it to change which words count. A word is right
if it is the one meant, as in the word error rate of Pruthi et al. (ACL 2019); its case does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from charlm.data.sources import open_source
from charlm.text.defences import Defence
from charlm.text.noise import Noise, Noiser
from charlm.text.sentences import sentence_ends
from charlm.text.words import get_splitter


class Counts(NamedTuple):
    """The words of a text behind a defence: how many there are and are right, all of them and the misspelled ones."""

    words: int = 0
    right: int = 0
    misspelled: int = 0
    misspelled_right: int = 0

    @property
    def accuracy(self) -> float:
        """The share of all words that are right."""
        return self.right / max(self.words, 1)

    @property
    def of_misspelled(self) -> float:
        """The share of the misspelled words that are right."""
        return self.misspelled_right / max(self.misspelled, 1)

    @property
    def of_others(self) -> float:
        """The share of the other words that are right."""
        return (self.right - self.misspelled_right) / max(self.words - self.misspelled, 1)


def sentences_of(spec: str, heldout: float, most: int, splitter: str = "rules") -> Iterator[tuple[str, ...]]:
    """Yields the words of each sentence of a corpus.

    Args:
      spec: a corpus as `charlm.data.sources.open_source` reads it.
      heldout: the share of its documents that training held out (`data.heldout_fraction`) and that are read; 0: all.
      most: stop once this many words are read; 0: read all.
      splitter: cuts the text into words.

    Raises:
      ValueError: the corpus cannot be read.
    """
    split = "heldout" if heldout else "all"
    source = open_source(spec, split=split, heldout_fraction=heldout, key="--data")
    words_of, read = get_splitter(splitter), 0
    for part in source.parts:
        for text in source.documents(part):
            words = [text[start:end] for start, end in words_of.spans(text)]
            start = 0
            for end in sentence_ends(words):
                if most and read >= most:
                    return
                yield tuple(words[start:end])
                read, start = read + end - start, end


def measure(
    sentences: Sequence[Sequence[str]], noise: Noise, defences: Mapping[str, Sequence[Defence]], seed: int = 0
) -> dict[str, Counts]:
    """Returns the counts of each chain of defences by its name, all on the same noise; only words with letters count.

    Args:
      sentences: words as they are meant, none empty.
      noise: of a kind that keeps the number of words.
      defences: the chain of each name, which corrects the words of a sentence one defence after another; (): none.
      seed: of the noise.

    Raises:
      ValueError: the noise joins or cuts words.
    """
    noiser = Noiser(noise, seed)
    read = [noiser.words(words, number).words for number, words in enumerate(sentences)]
    if any(len(one) != len(other) for one, other in zip(sentences, read, strict=True)):
        raise ValueError(f"noise {noise}: it joins or cuts words; expected a kind that changes the words themselves")
    found = {}
    for name, chain in defences.items():
        corrected = []
        for words in read:
            for defence in chain:
                words = defence.words(words, 0).words
            corrected.append(words)
        found[name] = _counts(sentences, read, corrected)
    return found


def _counts(
    meant: Sequence[Sequence[str]], read: Sequence[Sequence[str]], corrected: Sequence[Sequence[str]]
) -> Counts:
    words = right = misspelled = misspelled_right = 0
    for row in zip(meant, read, corrected, strict=True):
        for one, noisy, found in zip(*(map(str.lower, part) for part in row), strict=True):
            if not any(map(str.isalpha, one)):
                continue
            words, right = words + 1, right + (found == one)
            misspelled, misspelled_right = misspelled + (noisy != one), misspelled_right + (noisy != one == found)
    return Counts(words, right, misspelled, misspelled_right)


def table(counts: Mapping[str, Counts], noise: Noise) -> list[str]:
    """Returns the lines of a table for people, with shares in percent."""
    first = next(iter(counts.values()))
    lines = [f"noise {noise}: {first.words:,} words with letters, {first.misspelled:,} of them misspelled"]
    width = max(len("defence"), *map(len, counts))
    lines.append(f"{'defence':<{width}}  {'all words':>9}  {'misspelled':>10}  {'others':>6}")
    for name, one in counts.items():
        shares = [f"{100 * x:.1f}" for x in (one.accuracy, one.of_misspelled, one.of_others)]
        lines.append(f"{name:<{width}}  {shares[0]:>9}  {shares[1]:>10}  {shares[2]:>6}")
    return lines


NONE = "none"  # the name of no defence in tables
