"""Words for gaps of sentences, spelled by an HLM character by character, best first.

HLM masks every character of a word, so its input shows how long the word is: a gap of unknown length is read once for
each length. Open it to change how spellings are ranked, or which gaps share a call.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from charlm.data.batching import BatchShape, WordSequence, framed, packed, power_of_two, shape_of
from charlm.data.forms import hidden_row, hidden_rows, word_rows
from charlm.data.word_batch import WordBatch
from charlm.families.arguments import check_top
from charlm.families.predictor import Fill
from charlm.families.windows import GAPS_AT_A_TIME, few_widths, rows_a_call, start_around, together
from charlm.text.chars import BYTES, FIRST_CHAR, MASK, WordEncoder
from charlm.text.wordlist import WordList, best_spellings

LEAST_WIDTH = 32  # words of the smallest batch of several sentences


class WordGap(NamedTuple):
    """A position of a sentence whose word is to be predicted; `HLMPredictor.fill` explains the fields."""

    words: list[str]
    position: int
    length: int | Literal["auto", "same"] = "same"
    hidden: frozenset[int] = frozenset()


class Asked(NamedTuple):
    """What a model reads in one call, for some gaps.

    Attributes:
      sequences: the sentences, each once, with the characters to predict.
      words: for each word to predict the number of its sequence, its place there without [CLS], and its length.
      lengths: for each gap the lengths of the words that may fill it; as many of `words` belong to it, in order.
    """

    sequences: list[WordSequence]
    words: list[tuple[int, int, int]]
    lengths: list[list[int]]


class GapFiller:
    """Fills gaps of sentences.

    Args:
      predict: returns the log-probabilities of a batch's masked characters on the host, [1, M, C, V] of each bucket.
      encoder: the characters of words.
      buckets: slots of the buckets of words, see `charlm.data.batching.inference_slots`.
      max_words: the most words that the model reads at a time, with [CLS] and [SEP].
      shapes: the batch shapes of calls so far, by sentences and words; it gets new ones.
    """

    def __init__(
        self,
        predict: Callable[[WordBatch], Sequence[np.ndarray]],
        encoder: WordEncoder,
        buckets: tuple[int, ...],
        max_words: int,
        shapes: dict[tuple[int, int], BatchShape],
    ) -> None:
        self._run, self._encoder, self._buckets, self._shapes = predict, encoder, buckets, shapes
        self._vocab, self._slots, self._max_words = encoder.vocab, encoder.char_slots, max_words

    def fill(self, gaps: Sequence[WordGap], top: int, known: WordList | None) -> list[list[Fill]]:
        """Returns the likeliest words for each gap, best first.

        Args:
          gaps: those of one text share its list of words.
          known: rank only these words; None: any spelling.

        Raises:
          ValueError: `top` is not positive, or a gap is not as `HLMPredictor.fill` expects it.
        """
        check_top(top)
        calls = list(self._calls(gaps))
        asked = [self._asked([gaps[n] for n in call]) for call in calls]
        shapes = self._shapes_of(asked)
        found: dict[int, list[Fill]] = {}
        for call, one, shape in zip(calls, asked, shapes, strict=True):
            log_probs = self._predict(one, shape)
            found |= {n: self._ranked(of, log_probs, top, known) for n, of in zip(call, one.lengths, strict=True)}
        return [found[n] for n in range(len(gaps))]

    def _calls(self, gaps: Sequence[WordGap]) -> Iterator[list[int]]:
        """Yields the indices of the gaps that are filled in one call.

        A gap of any length reads a sentence for each length, in a call of its own. Gaps of stated lengths in one window
        of a text read the same sentence, and `GAPS_AT_A_TIME` sentences make a call, or fewer where they are long.
        """
        yield from ([n] for n, gap in enumerate(gaps) if gap.length == "auto")
        stated = [n for n, gap in enumerate(gaps) if gap.length != "auto"]
        by_width: dict[int, list[list[int]]] = {}
        for same in together((id(gaps[n].words), gaps[n].hidden, self._start(gaps[n])) for n in stated):
            sentence = [stated[i] for i in same]
            by_width.setdefault(self._width(len(gaps[sentence[0]].words) + 2), []).append(sentence)
        for width, sentences in by_width.items():
            most = rows_a_call(GAPS_AT_A_TIME, width)
            for at in range(0, len(sentences), most):
                yield list(itertools.chain(*sentences[at : at + most]))

    def _width(self, words: int) -> int:
        """Returns the words that a sentence of so many is padded to: a power of two, or the most that are read."""
        return min(self._max_words, max(LEAST_WIDTH, power_of_two(words)))

    def _asked(self, gaps: Sequence[WordGap]) -> Asked:
        """Returns what is read for some gaps in one call."""
        sentences: dict[bytes, tuple[int, np.ndarray, np.ndarray]] = {}  # number, characters, labels; each once
        asked, lengths = [], []
        for gap in gaps:
            window, position, hidden, wanted = self._window(gap)
            for n, chars_WC in zip(wanted, self._masked(window, position, hidden, wanted), strict=True):
                new = (len(sentences), chars_WC, np.zeros_like(chars_WC))
                number, _, labels_WC = sentences.setdefault(chars_WC.tobytes(), new)
                labels_WC[position, 1 : n + 1] = MASK  # any id but 0 marks characters to predict
                asked.append((number, position, n))
            lengths.append(wanted)
        sequences = [framed(chars_WC, labels_WC) for _, chars_WC, labels_WC in sentences.values()]
        return Asked(sequences, asked, lengths)

    def _shapes_of(self, asked: Sequence[Asked]) -> list[BatchShape]:
        """Returns the batch shapes of calls: one for all of equal width and number of sentences, and for earlier ones.

        Otherwise almost every call would have a shape, and so a program, of its own, which takes longer to compile than
        to run a hundred times. So calls for several gaps also have few numbers of sentences, words and rows.
        """
        own = [self._own_shape(one) for one in asked]
        keys = [(shape.sequences, shape.words) for shape in own]
        for key, shape in zip(keys, own, strict=True):
            self._shapes[key] = shape.joined(self._shapes[key]) if key in self._shapes else shape
        return [self._shapes[key] for key in keys]

    def _ranked(
        self, lengths: list[int], log_probs: Iterator[np.ndarray], top: int, known: WordList | None
    ) -> list[Fill]:
        """Returns the best words of the given lengths; takes one array from `log_probs` for each length."""
        fills = []
        for n in lengths:
            log_probs_CV = next(log_probs)
            if known is not None:
                found = known.best(log_probs_CV, top)
            else:
                if self._vocab.by_bytes:  # which might be no UTF-8 together
                    log_probs_CV[:, FIRST_CHAR : FIRST_CHAR + BYTES] = -np.inf
                found = [(log_prob, self._vocab.decode(ids)) for log_prob, ids in best_spellings(log_probs_CV, top)]
            fills += [Fill(word, log_prob, math.exp(log_prob / n)) for log_prob, word in found]
        return sorted(fills, key=lambda fill: -fill.score)[:top]

    def _window(self, gap: WordGap) -> tuple[list[str], int, set[int], list[int]]:
        """Returns the words around a gap, the gap's and the hidden words' places there, and the lengths to compare."""
        words, position, length, hidden = gap
        if not 0 <= position < len(words):
            raise ValueError(f"position={position}: expected the number of one of {len(words)} words, from 0")
        if length != "same" and position not in hidden:
            raise ValueError(f"length={length}: a word that is not hidden has the length it has")
        if length == "auto":
            lengths = list(range(1, self._slots))
        else:
            lengths = [len(self._encoder.encode([words[position]])[1]) if length == "same" else length]
            self.check_length(lengths[0])
        start = self._start(gap)
        window = words[start : start + self._max_words - 2]
        return window, position - start, {p - start for p in hidden}, lengths

    def _start(self, gap: WordGap) -> int:
        """Returns the number of the first word of the window around a gap."""
        return start_around(gap.position, len(gap.words), self._max_words - 2)

    def check_length(self, length: int) -> None:
        """Raises ValueError if no word of the model has so many characters."""
        if not 1 <= length < self._slots:
            raise ValueError(f"length={length}: the model holds words of 1 to {self._slots - 1} characters")

    def _masked(self, words: list[str], position: int, hidden: set[int], lengths: list[int]) -> list[np.ndarray]:
        """Returns a sentence's characters [W, C] for each possible length of the word at `position`."""
        rows_WC = word_rows(self._encoder, words)
        hidden_W = [p for p in hidden if 0 <= p < len(rows_WC)]
        rows_WC[hidden_W] = hidden_rows(rows_WC[hidden_W])
        found = []
        for n in lengths:
            chars_WC = rows_WC.copy()
            if position in hidden:
                chars_WC[position] = hidden_row(n, self._slots)
            found.append(chars_WC)
        return found

    def _own_shape(self, asked: Asked) -> BatchShape:
        longest = max(len(one.chars_WC) for one in asked.sequences)
        if len(asked.lengths) == 1 or len(asked.sequences) == 1:
            return shape_of(asked.sequences, few_widths(longest, self._max_words), self._buckets)
        width = self._width(longest)
        shape = shape_of(asked.sequences, width, self._buckets)
        coarse = lambda rows: tuple(map(power_of_two, rows))
        return dataclasses.replace(
            shape,
            sequences=max(shape.sequences, rows_a_call(GAPS_AT_A_TIME, width)),
            table=coarse(shape.table),
            masked=coarse(shape.masked),
            labels=coarse(shape.labels),
        )

    def _predict(self, asked: Asked, shape: BatchShape) -> Iterator[np.ndarray]:
        """Yields the log-probabilities [length, V] of the characters of each word to predict."""
        batch = packed(asked.sequences, shape)
        found: dict[int, np.ndarray] = {}
        W = batch.mask_SBW.shape[-1]
        for bucket, log_probs in zip(batch.masked, self._run(batch), strict=True):
            for m in np.nonzero(bucket.labels_SMC[0].any(axis=-1))[0]:
                found[int(bucket.position_SM[0, m])] = log_probs[0, m]
        characters = list(self._vocab.ids.values())
        for b, position, n in asked.words:
            log_probs_CV = found[b * W + position + 1]
            allowed_V = np.full(log_probs_CV.shape[-1], -np.inf)
            allowed_V[characters] = 0
            scores = log_probs_CV[:n] + allowed_V
            yield scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
