"""How a speller reads texts: every word that may be mended as it stands, and doubtful ones hidden.

`charlm.families.hlm.correcting` decides by what it says. Open it to change which words are asked about, how much of the
context is read, or how calls are laid out.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.types import Array
from charlm.data.batching import BatchShape, WordSequence, framed, packed, power_of_two, shape_of
from charlm.data.forms import hidden_row
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.candidates import LEAST_CHAR, mean_of
from charlm.families.hlm.misspelled import ROOM, is_correctable
from charlm.families.windows import start_around
from charlm.text.chars import MASK, UNK, CharVocab
from charlm.text.words import Span, Splitter

SLOTS = (8, 12)  # length buckets of words, beside that of the longest
LEAST_WIDTH = 32  # words of the smallest batch
LEAST_HIDDEN = 16  # texts of the smallest batch with hidden words, so that few programs are compiled
DOUBTS_AT_A_TIME = 1024  # doubtful words whose readings are in memory at a time
OPENERS = "\"'“‘([.!?:;*-–—"  # behind these a capital says nothing
# What has one of these is an address, a path, a mention, a hashtag or a name of a program, up to the next space.
NO_WORDS = re.compile(r"[@#$/\\_=~<>]|\w[.:&]\w|^-{1,2}\w")
RUN = 100  # characters on each side of a word that are looked at for that


def is_mendable(text: str, start: int, end: int) -> bool:
    """Says whether a word of a text may be mended: `is_correctable`, whole, and no part of an address, path or name.

    Halves of a contraction ("do" and "n't") are not whole, and capitals inside a word mark a name.
    """
    word = text[start:end]
    if not (is_correctable(word) and word.isalpha()) or (word != word.upper() and any(map(str.isupper, word[1:]))):
        return False
    before, after = text[max(start - RUN, 0) : start], text[end : end + RUN]
    if before[-1:].isalnum() or after[:1].isalnum():
        return False
    run = re.split(r"\s", before)[-1] + word + re.split(r"\s", after)[0]
    return NO_WORDS.search(run) is None


class Asked(NamedTuple):
    """A word of a text about which the model was asked.

    Attributes:
      text: the number of its text.
      number: its number among the words of that text.
      span: its characters there.
      inside: whether it stands inside a sentence, where a capital marks a name.
      log_probs_CV: float32, of each character id at each slot of the word meant; `END` is behind its last character.
    """

    text: int
    number: int
    span: Span
    inside: bool
    log_probs_CV: np.ndarray


class Doubt(NamedTuple):
    """A word about whose context the model is asked.

    Attributes:
      text: the number of its text.
      number: its number among the words of that text.
      words: the words that it may be.
    """

    text: int
    number: int
    words: tuple[str, ...]


class Reader:
    """Asks a model about words of texts.

    Args:
      predict: returns of a batch, for each bucket, the log-probabilities [1, M, C - 1, V] of its masked words.
      rows: returns the characters of words as the model reads them, uint16 [W, C].
      vocab: its characters.
      splitter: how it splits texts.
      slots: its length buckets.
      max_words: words of its window.
    """

    def __init__(
        self,
        predict: Callable[[WordBatch], Sequence[Array]],
        rows: Callable[[list[str]], np.ndarray],
        vocab: CharVocab,
        splitter: Splitter,
        slots: tuple[int, ...],
        max_words: int,
    ) -> None:
        self._predict, self._rows, self._vocab, self._splitter = predict, rows, vocab, splitter
        self._slots, self._room = slots, max_words - 2
        self._around = min(self._room, LEAST_WIDTH - 2)  # words of the window around a hidden one
        self._shapes: dict[tuple[int, int, bool], BatchShape] = {}

    def asked(self, texts: Sequence[str], batch_size: int) -> Iterator[Asked]:
        """Yields every word that may be mended, with what the model says of it; texts are read by length."""
        spans = [self._splitter.spans(text) for text in texts]
        by_width: dict[int, list[tuple[int, int]]] = {}
        for n, found in enumerate(spans):
            for at in range(0, len(found), self._room):
                width = self._width(min(len(found) - at, self._room) + 2)
                by_width.setdefault(width, []).append((n, at))
        for width, windows in by_width.items():
            calls = [windows[at : at + batch_size] for at in range(0, len(windows), batch_size)]
            sequences = [[self._sequence(texts[n], spans[n][at : at + self._room]) for n, at in call] for call in calls]
            shape = self._shape(sequences, width)
            for call, made in zip(calls, sequences, strict=True):
                yield from self._of_windows(texts, spans, call, packed(made, shape))

    def _width(self, longest: int) -> int:
        """Returns the words that a batch is padded to: a power of two, so that few programs are compiled."""
        return max(min(self._room + 2, max(LEAST_WIDTH, power_of_two(longest))), longest)

    def _sequence(self, text: str, window: Sequence[Span]) -> WordSequence:
        rows_WC = self._rows([text[a:b] for a, b in window])
        labels_WC = np.zeros_like(rows_WC)
        size = lambda a, b: len(self._vocab.encode_word(text[a:b]))
        written = ~(rows_WC == UNK).any(axis=1)  # a ligature or a letter that the model lacks is no typo
        fits = lambda a, b: is_mendable(text, a, b) and size(a, b) + 1 < self._slots[-1]
        usable = [w for w, (a, b) in enumerate(window) if written[w] and fits(a, b)]
        labels_WC[usable, 1] = MASK  # any id but 0 marks a word to predict
        return framed(rows_WC, labels_WC)

    def _of_windows(
        self,
        texts: Sequence[str],
        spans: Sequence[Sequence[Span]],
        windows: Sequence[tuple[int, int]],
        batch: WordBatch,
    ) -> Iterator[Asked]:
        for b, place, log_probs_CV in self._predicted(batch):
            n, at = windows[b]
            w = at + place
            before = texts[n][slice(*spans[n][w - 1])] if w else "."
            yield Asked(n, w, spans[n][w], before not in OPENERS, log_probs_CV)

    def _predicted(self, batch: WordBatch) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields the words to predict: the number of their sequence, their own there, and log-probabilities [C, V]."""
        W = batch.mask_SBW.shape[-1]
        for bucket, found in zip(batch.masked, self._predict(batch), strict=True):
            log_probs_MCV = np.asarray(found)[0]
            (rows_M,) = np.nonzero(np.asarray(bucket.labels_SMC)[0].any(axis=-1))
            for m in rows_M.tolist():
                b, place = divmod(int(bucket.position_SM[0, m]), W)
                yield b, place - 1, log_probs_MCV[m]

    def _shape(self, calls: Sequence[list[WordSequence]], width: int, hidden: bool = False) -> BatchShape:
        """Returns a shape for any of the calls: one that grows with what it has to hold, so that few are compiled."""
        shapes = [shape_of(sequences, width, self._slots, ROOM) for sequences in calls]
        most = max(shape.sequences for shape in shapes)
        key = max(most, LEAST_HIDDEN) if hidden else most, width, hidden
        shapes += [self._shapes[key]] if key in self._shapes else []
        shape = dataclasses.replace(functools.reduce(BatchShape.joined, shapes), sequences=key[0])
        self._shapes[key] = shape
        return shape

    def contexts(self, texts: Sequence[str], doubts: Sequence[Doubt], batch_size: int) -> Iterator[list[float]]:
        """Yields for each doubtful word how well each of the words that it may be suits the context.

        The model reads the words around it, and in its place as many masked characters as a word has; it is asked once
        for each length. Returned is the mean log-probability of a character, since words of more characters are less
        likely than others only because there are more of them.
        """
        for at in range(0, len(doubts), DOUBTS_AT_A_TIME):
            yield from self._contexts(texts, doubts[at : at + DOUBTS_AT_A_TIME], batch_size)

    def _contexts(self, texts: Sequence[str], doubts: Sequence[Doubt], batch_size: int) -> list[list[float]]:
        spans = {n: self._splitter.spans(texts[n]) for n in {doubt.text for doubt in doubts}}
        ids = [[np.array(self._vocab.encode_word(word)) for word in doubt.words] for doubt in doubts]
        asked = [(n, length) for n in range(len(doubts)) for length in sorted({len(one) for one in ids[n]})]
        around = [self._around_word(texts[doubt.text], spans[doubt.text], doubt.number) for doubt in doubts]
        sequences = [_hidden(*around[n], length) for n, length in asked]
        calls = [sequences[at : at + batch_size] for at in range(0, len(sequences), batch_size)]
        shape = self._shape(calls, self._width(max(len(one.chars_WC) for one in sequences)), hidden=True)
        suits = [[LEAST_CHAR] * len(doubt.words) for doubt in doubts]
        for first, call in zip(range(0, len(sequences), batch_size), calls, strict=True):
            for b, _, log_probs_CV in self._predicted(packed(call, shape)):
                n, length = asked[first + b]
                for k, ids_C in enumerate(ids[n]):
                    if len(ids_C) == length:
                        said_C = log_probs_CV[np.arange(length), ids_C]
                        suits[n][k] = mean_of(np.where(ids_C == UNK, LEAST_CHAR, said_C))
        return suits

    def _around_word(self, text: str, spans: Sequence[Span], number: int) -> tuple[np.ndarray, int]:
        """Returns the words around one, as the model reads them, and its number among them."""
        start = start_around(number, len(spans), self._around)
        return self._rows([text[a:b] for a, b in spans[start : start + self._around]]), number - start


def _hidden(rows_WC: np.ndarray, place: int, length: int) -> WordSequence:
    """Returns words with so many masked characters in the place of one."""
    rows_WC = rows_WC.copy()
    rows_WC[place] = hidden_row(length, rows_WC.shape[1])
    labels_WC = np.zeros_like(rows_WC)
    labels_WC[place, 1] = MASK
    return framed(rows_WC, labels_WC)
