"""Makes the sequences that a speller learns from: text with misspelled words, and the words meant to be predicted.

`charlm.families.hlm.spelling` batches them. Open it to change which words are misspelled or predicted, or how a word of
another length than the one read is laid out: the model has `ROOM` slots behind the word that it reads, and `END` is
predicted where the word meant ends.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import ml_collections
import numpy as np

from charlm.data.batching import WordSequence, framed
from charlm.data.forms import hidden_rows, word_rows
from charlm.data.masking import rounded_at_random
from charlm.data.pipeline import SentenceMaker
from charlm.data.streams import generator
from charlm.text.chars import SEP, UNK, CharVocab, WordEncoder
from charlm.text.noise.mixture import Misspeller, Mixture, parted

ROOM = 3  # slots behind a word: the word meant may be two characters longer, and has an end
END = SEP  # the id that is predicted behind the last character


@dataclasses.dataclass(frozen=True)
class Spelling:
    """Which words are misspelled and predicted.

    Attributes:
      mixture: how they are misspelled.
      lists: files of real misspellings.
      held_out: the share of the words of these lists that are kept for evaluation.
      most: of the words of a text that are misspelled; the share of each text is drawn below it.
      clean: the share of texts without any misspelling.
      kept: the share of the words that are predicted though they are not misspelled.
      masked: the share of these whose characters are masked; the others are read as they are meant.
    """

    mixture: Mixture
    lists: tuple[str, ...]
    held_out: float
    most: float
    clean: float
    kept: float
    masked: float = 0.0

    @classmethod
    def of(cls, config: ml_collections.ConfigDict) -> Spelling:
        """Returns what a config says."""
        own = config.spelling
        mixture = Mixture(tuple(own.noise), own.listed)
        return cls(
            mixture, tuple(own.lists), own.heldout_words, own.misspelled, own.clean, config.data.mask_rate, own.masked
        )

    def misspeller(self) -> Misspeller:
        """Returns what misspells words in training; ValueError if a list cannot be read or a noise is not usable."""
        for path in self.lists:
            if not Path(path).is_file():
                what = "is no file" if Path(path).exists() else "does not exist"
                raise ValueError(f"spelling.lists: {path!r} {what}")
        return Misspeller(self.mixture, parted(self.lists, self.held_out, held_out=False) if self.lists else None)


def is_correctable(word: str) -> bool:
    """Says whether a word may be misspelled and mended: letters, perhaps with apostrophes, two of them or more."""
    letters = word.replace("'", "").replace("’", "")
    return len(letters) >= 2 and letters.isalpha()


def fits(meant: int, read: int, char_slots: int) -> bool:
    """Says whether a word can be predicted where another one is read, by the slots that their characters take.

    Args:
      meant, read: slots of the words, one for each character or, if it is spelled by bytes, for each byte.
      char_slots: slots C of the longest word, with [WORD_CLS].
    """
    return read < char_slots and meant + 1 <= min(read + ROOM, char_slots - 1)


@dataclasses.dataclass(frozen=True)
class MisspellingMaker(SentenceMaker):
    """Makes sequences with misspelled words; a `charlm.data.streams.SequenceMaker`.

    Attributes:
      vocab: the characters of the encoded records, which become words again.
      spelling: what is misspelled and predicted.
    """

    vocab: CharVocab
    spelling: Spelling

    @functools.cached_property
    def _misspeller(self) -> Misspeller:
        return self.spelling.misspeller()

    @functools.cached_property
    def _encoder(self) -> WordEncoder:
        return WordEncoder(self.vocab, self.char_slots)

    def make(self, parts: list[np.ndarray], number: tuple[int, ...]) -> WordSequence:
        """Joins sentences to a sequence, misspells some of its words, and asks for these and some others.

        Of the others some are masked, as in pre-training: what the model says of a word it cannot see is asked, too,
        when it corrects.
        """
        meant_WC = np.concatenate(parts)
        rng = generator(self.seed, *number)
        words = [self.vocab.decode(row_C[1:]) for row_C in meant_WC]
        usable = [n for n, word in enumerate(words) if is_correctable(word) and UNK not in meant_WC[n]]
        read, changed = self._misspelled(words, usable, rng)
        read_WC = word_rows(self._encoder, read)
        read_WC[[n for n in range(len(read)) if n not in changed]] = meant_WC[
            [n for n in range(len(read)) if n not in changed]
        ]
        others = [n for n in usable if n not in changed and self._fits(words[n], words[n])]
        kept = rng.permutation(np.array(others, int))[: rounded_at_random(self.spelling.kept * len(words), rng)]
        hidden = kept[: rounded_at_random(self.spelling.masked * len(kept), rng)]
        read_WC[hidden] = hidden_rows(read_WC[hidden])
        labels_WC = np.zeros_like(meant_WC)
        for n in (*changed, *kept.tolist()):
            labels_WC[n] = labels_of(meant_WC[n])
        return framed(read_WC, labels_WC)

    def _misspelled(
        self, words: list[str], usable: list[int], rng: np.random.Generator
    ) -> tuple[list[str], dict[int, str]]:
        """Returns the words as they are read, and those that are misspelled by their places."""
        share = 0.0 if rng.random() < self.spelling.clean else self.spelling.most * rng.random()
        chosen = rng.permutation(usable)[: rounded_at_random(share * len(usable), rng)].tolist()
        found = self._misspeller.words([words[n] for n in chosen], rng)
        changed = {
            n: new for n, new in zip(chosen, found, strict=True) if new != words[n] and self._fits(words[n], new)
        }
        return [changed.get(n, word) for n, word in enumerate(words)], changed

    def _fits(self, meant: str, read: str) -> bool:
        size = len if not self.vocab.by_bytes else lambda word: len(self.vocab.encode_word(word))
        return fits(size(meant), size(read), self.char_slots)


def labels_of(meant_C: np.ndarray) -> np.ndarray:
    """Returns the ids to predict for a word, uint16 [C]: its characters from slot 1 on, then `END`.

    Args:
      meant_C: the word as a model reads it, with a free slot behind it.
    """
    labels_C = meant_C.copy()
    labels_C[0] = 0
    labels_C[np.count_nonzero(meant_C)] = END
    return labels_C
