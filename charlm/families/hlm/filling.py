"""Words for gaps of sentences, spelled by an HLM character by character, best first.

HLM masks every character of a word, so its input shows how long the word is: a gap of unknown length is read once for
each length. Open it to change how spellings are ranked, or which gaps share a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from charlm.data.batching import WordSequence, framed, pack_all
from charlm.data.forms import hidden_row, hidden_rows, word_rows
from charlm.data.word_batch import WordBatch
from charlm.families.predictor import Fill, check_top
from charlm.families.windows import GAPS_AT_A_TIME, few_widths, rows_a_call, start_around, together
from charlm.text.chars import BYTES, FIRST_CHAR, MASK, WordEncoder
from charlm.text.wordlist import WordList, best_spellings


class WordGap(NamedTuple):
    """A position of a sentence whose word is to be predicted; `HLMPredictor.fill` explains the fields."""

    words: list[str]
    position: int
    length: int | Literal["auto", "same"] = "same"
    hidden: frozenset[int] = frozenset()


class GapFiller:
    """Fills gaps of sentences.

    Args:
      predict: returns the log-probabilities of a batch's masked characters on the host, [1, M, C, V] of each bucket.
      encoder: the characters of words.
      buckets: slots of the buckets of words, see `charlm.data.batching.inference_slots`.
      max_words: the most words that the model reads at a time, with [CLS] and [SEP].
    """

    def __init__(
        self,
        predict: Callable[[WordBatch], Sequence[np.ndarray]],
        encoder: WordEncoder,
        buckets: tuple[int, ...],
        max_words: int,
    ) -> None:
        self._run, self._encoder, self._buckets = predict, encoder, buckets
        self._vocab, self._slots, self._max_words = encoder.vocab, encoder.char_slots, max_words

    def calls(self, gaps: list[WordGap]) -> Iterator[list[int]]:
        """Yields the indices of the gaps of one text that are filled in one call.

        A gap of any length reads a sentence for each length, in a call of its own. Gaps of stated lengths in one window
        read the same sentence, and `GAPS_AT_A_TIME` sentences make a call, or fewer where they are long.
        """
        yield from ([n] for n, gap in enumerate(gaps) if gap.length == "auto")
        stated = [n for n, gap in enumerate(gaps) if gap.length != "auto"]
        sentences = together(self._start(gaps[n]) for n in stated)
        most = rows_a_call(GAPS_AT_A_TIME, few_widths(min(len(gaps[0].words) + 2, self._max_words), self._max_words))
        for at in range(0, len(sentences), most):
            yield [stated[i] for sentence in sentences[at : at + most] for i in sentence]

    def fill(self, gaps: Iterable[WordGap], top: int, known: WordList | None) -> list[list[Fill]]:
        """Returns the likeliest words for each gap, best first; computes all gaps in one batch.

        Args:
          known: rank only these words; None: any spelling.

        Raises:
          ValueError: `top` is not positive, or a gap is not as `HLMPredictor.fill` expects it.
        """
        check_top(top)
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
        log_probs = self._predict([framed(chars_WC, labels_WC) for _, chars_WC, labels_WC in sentences.values()], asked)
        return [self._ranked(wanted, log_probs, top, known) for wanted in lengths]

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

    def _predict(self, sequences: list[WordSequence], asked: list[tuple[int, int, int]]) -> Iterator[np.ndarray]:
        """Yields the log-probabilities [length, V] of the characters of each word to predict.

        Args:
          asked: for each word the number of its sequence, its place there without [CLS], and its length.
        """
        width = few_widths(max(len(one.chars_WC) for one in sequences), self._max_words)
        batch = pack_all(sequences, width, self._buckets)
        found: dict[int, np.ndarray] = {}
        W = batch.mask_SBW.shape[-1]
        for bucket, log_probs in zip(batch.masked, self._run(batch), strict=True):
            for m in np.nonzero(bucket.labels_SMC[0].any(axis=-1))[0]:
                found[int(bucket.position_SM[0, m])] = log_probs[0, m]
        characters = list(self._vocab.ids.values())
        for b, position, n in asked:
            log_probs_CV = found[b * W + position + 1]
            allowed_V = np.full(log_probs_CV.shape[-1], -np.inf)
            allowed_V[characters] = 0
            scores = log_probs_CV[:n] + allowed_V
            yield scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
