"""Inference with an HLM that writes: continuations of texts, and how likely texts are, in bits per character.

`charlm.predict` and `charlm.load` use it. Open it to change how prompts are read or how long texts are scored.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np

from charlm.core.sampling import check_sampling
from charlm.data.batching import WordSequence, edges
from charlm.data.forms import spaces_behind
from charlm.data.word_batch import WordBatch
from charlm.families.arguments import checked_texts
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.predictor import HLMPredictor
from charlm.families.hlm.writer import HLMForNextWord
from charlm.families.hlm.writing_loop import WritingSettings, letters_of, word_writer
from charlm.families.hlm.written import predicted
from charlm.families.predictor import Encoding, Generation, Score
from charlm.families.subword.generation import prompt_keys
from charlm.families.subword.scoring import stretches
from charlm.families.views import MOST_SHOWN, Views
from charlm.families.windows import of_like_length, one_ahead, rounded
from charlm.text.chars import JOINED, SPACED

ENDS = {SPACED: " ", JOINED: ""}
HEAD_POSITIONS = 2048  # most words whose letters are predicted at once: 160 MiB of logits with 20 slots and 1,024 ids


class _Prompt(NamedTuple):
    """A prompt: [CLS] and its whole words, their ends, and the letters of a word that it only begins (0: of none)."""

    rows_WC: np.ndarray
    ends_W: np.ndarray
    begun_C: np.ndarray


class WritingPredictor(HLMPredictor):
    """An HLM that writes, with its characters and its word splitter; the arguments are those of `HLMPredictor`."""

    suited = ("score", "generate")

    def _complete(self, shape: HLMConfig) -> None:
        self.name, self.missing, self.spells = f"{self.name} that writes", {}, False
        # Layers in a loop, or computed anew, have nothing to keep from word to word.
        model = HLMForNextWord(dataclasses.replace(shape, scan_layers=False, remat=False))
        self._model, self._write = model, word_writer(model)

        self._score = jax.jit(lambda params, *read: model.apply({"params": params}, *read, method="log_probs"))
        self._words = jax.jit(lambda params, chars_UC: model.apply({"params": params}, chars_UC, method="word"))

    def encode(
        self, texts: Iterable[str], batch_size: int = 32, unit: Literal["words", "pieces"] = "words"
    ) -> list[Encoding]:
        """Raises ValueError: words are read with the spaces behind them, and see nothing of what follows."""
        raise self._refusal("encode")

    def views(self, text: str, most: int = MOST_SHOWN) -> Views:
        """Raises ValueError, as `encode` does."""
        raise ValueError(f"a model of the kind {self.name} shows no attention")

    def score(self, texts: Iterable[str], batch_size: int = 32, *, start: bool = True) -> list[Score]:
        """Returns the log-probability of each word of each text, with its end, given all words before it.

        An end says whether a space follows; behind the last word is one. Long words are scored in pieces. `chars`
        counts letters and spaces, since that is what is predicted: of several spaces in a row, or other white space,
        the first. A text longer than the model is read in windows that begin every half window, so that a word has seen
        all words before it, or at least half a window of them.

        Args:
          start: whether the first word is scored, too; if not, it is NaN.

        Raises:
          ValueError: `texts` is one string, or `batch_size` is not positive.
        """
        texts = checked_texts(texts, batch_size, "score")
        read = [self._pieces(text) for text in texts]
        rows = [
            self._spaced_rows([text[a:b] for a, b in spans], ends)
            for text, (spans, ends) in zip(texts, read, strict=True)
        ]
        longest = self._max_words - 1  # in training [SEP] stands behind the words
        parts = [(t, s) for t, rows_WC in enumerate(rows) for s in stretches(len(rows_WC) + 1, longest)]
        log_probs = [np.full(len(rows_WC), np.nan, np.float32) for rows_WC in rows]
        lengths = [s.end - s.start for _, s in parts]
        fits = max(1, min(batch_size, HEAD_POSITIONS // rounded(max(lengths, default=1), longest)))

        def started() -> Iterator[tuple[list[int], jax.Array]]:
            for some in of_like_length(lengths, fits):
                read = [predicted(rows[t][s.start : s.end - 1]) for t, s in (parts[n] for n in some)]
                yield some, self._scored(read, rounded(max(lengths[n] for n in some), longest))

        for some, found_BW in one_ahead(started()):
            found_BW = np.asarray(found_BW)
            for b, n in enumerate(some):
                t, s = parts[n]  # [CLS] stands in the place of s.start
                log_probs[t][s.first - 1 : s.end - 1] = found_BW[b, s.first - s.start : s.end - s.start]
        scores = []
        for text, (spans, ends), found in zip(texts, read, log_probs, strict=True):
            chars = [b - a + end for (a, b), end in zip(spans, ends, strict=True)]
            if not start and len(found):
                found[0] = np.nan
                chars[0] = 0
            scores.append(Score([text[a:b] for a, b in spans], spans, found, sum(chars)))
        return scores

    def generate(
        self,
        prompts: Iterable[str],
        max_new: int = 40,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | Sequence[int] = 0,
        batch_size: int = 32,
    ) -> list[Generation]:
        """Returns a continuation of each prompt; an empty prompt starts a new text.

        A prompt that does not end in a space ends within a word, which is the first to be written: "walk" may go on as
        "walked". `Generation.ids` are those of the letters and ends.

        Args:
          max_new: words to write; the model never ends a text itself.
          temperature: 0: always takes the likeliest letter; else logits are divided by it before a letter is drawn.
          top_k: draws among this many likeliest letters; 0: all.
          top_p: draws among the likeliest letters that together have this probability.
          seed: one seed, or one for each prompt. The same prompt and seed give the same text, whatever other prompts
            there are. With one seed, a repeated prompt gets the next seed.

        Raises:
          ValueError: an argument is out of range, or a prompt leaves no room for `max_new` words.
        """
        prompts = checked_texts(prompts, batch_size, "generate")
        check_sampling(max_new, temperature, top_k, top_p)
        keys = prompt_keys(prompts, seed)
        room = self._max_words - 1  # beside [CLS]
        read = [self._prompt(prompt, room, max_new) for prompt in prompts]
        arrays = (np.int32(max_new), np.float32(temperature), np.int32(top_k), np.float32(top_p))
        settings = WritingSettings(*arrays, *letters_of(self.vocab, self.config.model.vocab_size))
        ways = {"places": rounded(max_new, room), "greedy": temperature == 0, "cut": top_k > 0 or top_p < 1}
        found: dict[int, Generation] = {}
        for some in of_like_length([len(one.rows_WC) for one in read], batch_size):
            filled = np.resize(some, 1 << (len(some) - 1).bit_length())  # few sizes to compile for
            chars_BWC = left_padded([read[n].rows_WC for n in filled], self._max_words)
            ends_BW = left_padded([read[n].ends_W for n in filled], self._max_words)
            begun_BC = np.stack([read[n].begun_C for n in filled]).astype(np.int32)
            before = self._vectors(chars_BWC), ends_BW, chars_BWC[..., 0] != 0
            written = self._write(self._params, *before, begun_BC, keys[filled], settings, **ways)
            letters_BTC, log_probs_BTC = jax.device_get(written)
            for b, n in enumerate(some):
                found[n] = self._generation(letters_BTC[b, :max_new], log_probs_BTC[b, :max_new], read[n].begun_C)
        return [found[n] for n in range(len(read))]

    def _prompt(self, prompt: str, room: int, max_new: int) -> _Prompt:
        """Returns a prompt as it is read; raises ValueError if it leaves no room for `max_new` words."""
        spans, ends = self._pieces(prompt)
        pieces_WC = self._rows([prompt[a:b] for a, b in spans])
        ends_inside = bool(spans) and spans[-1][1] == len(prompt)
        before = len(spans) - ends_inside
        if before + max_new > room:
            raise ValueError(
                f"max_new={max_new}: the model has room for {room} words, of which the prompt {prompt[:40]!r} "
                f"takes {before}"
            )
        return _Prompt(
            np.concatenate([edges(self._slots)[0], pieces_WC[:before]]),
            np.array([0, *np.where(ends[:before], SPACED, JOINED)], np.int32),
            pieces_WC[-1] if ends_inside else np.zeros(self._slots, np.uint16),
        )

    def texts_of(self, batch: WordBatch) -> list[str]:
        """Returns the texts of a host batch [1, ...] in which all words are predicted."""
        W = batch.mask_SBW.shape[-1]
        words: dict[int, str] = {}
        for bucket in batch.masked:
            for m in np.flatnonzero(np.asarray(bucket.labels_SMC)[0].any(axis=-1)).tolist():
                words[int(bucket.position_SM[0, m])] = self._text(np.asarray(bucket.labels_SMC)[0, m, 1:])
        places = sorted(words)
        return ["".join(words[at] for at in places if at // W == row) for row in range(batch.mask_SBW.shape[1])]

    def parted(self, text: str, words: int) -> tuple[str, str]:
        """Returns the first words of a text, with what stands behind them up to the next, and the rest."""
        spans, _ = self._pieces(text)
        at = spans[words][0] if words < len(spans) else len(text)
        return text[:at], text[at:]

    def _pieces(self, text: str) -> tuple[list[tuple[int, int]], list[bool]]:
        """Returns the spans of the words of a text, long ones in pieces, and for each whether a space follows."""
        spans = self._splitter.spans(text)
        spaces = [a[1] < b[0] for a, b in itertools.pairwise(spans)]
        pieces = [self.vocab.cut(text[a:b], self._slots - 2, self._encoder.normalize) for a, b in spans]
        found = []
        for (at, _), of_word in zip(spans, pieces, strict=True):
            stops = itertools.accumulate(map(len, of_word), initial=at)
            found += itertools.pairwise(stops)
        return found, spaces_behind(pieces, [True, *spaces][: len(spans)])

    def _spaced_rows(self, words: list[str], ends: list[bool]) -> np.ndarray:
        """Returns words with their ends, uint16 [W, C]; see `predicted`."""
        rows_WC = self._rows(words)
        count_W = np.minimum(np.count_nonzero(rows_WC, axis=1), self._slots - 1)
        rows_WC[np.arange(len(rows_WC)), count_W] = np.where(ends, SPACED, JOINED)
        return rows_WC

    def _scored(self, sequences: Sequence[WordSequence], width: int) -> jax.Array:
        """Returns the log-probabilities [B, width] of words; [SEP] and rows that fill the batch up say nothing."""
        rows = 1 << (len(sequences) - 1).bit_length()  # few sizes to compile for
        chars_BWC, labels_BWC = np.zeros((2, rows, width, self._slots), np.uint16)
        for b, (chars_WC, labels_WC) in enumerate(sequences):
            chars_BWC[b, : len(chars_WC) - 1], labels_BWC[b, : len(labels_WC) - 1] = chars_WC[:-1], labels_WC[:-1]
        last_BW1 = np.count_nonzero(labels_BWC, axis=-1, keepdims=True)  # slot 0 has no label
        ends_BW = np.take_along_axis(labels_BWC, last_BW1, axis=-1)[..., 0]
        return self._score(self._params, self._vectors(chars_BWC), ends_BW, chars_BWC[..., 0] != 0, labels_BWC)

    def _vectors(self, chars_BWC: np.ndarray) -> jax.Array:
        if self.cache is not None:
            return self.cache.read(self.word_params, chars_BWC)
        B, W, C = chars_BWC.shape
        return self._words(self._params, chars_BWC.reshape(B * W, C)).reshape(B, W, -1)

    def _generation(self, letters_TC: np.ndarray, log_probs_TC: np.ndarray, begun_C: np.ndarray) -> Generation:
        new_TC = letters_TC != 0
        new_TC[0, : np.count_nonzero(begun_C)] = False  # slot 0 has no letter, so these are the letters that were given
        return Generation(self._text(letters_TC[new_TC]), letters_TC[new_TC].tolist(), log_probs_TC[new_TC], False)

    def _text(self, ids: np.ndarray) -> str:
        runs = itertools.groupby(ids[ids != 0].tolist(), ENDS.get)  # a character may be several bytes
        return "".join(self.vocab.decode(run) if end is None else end for end, run in runs)


def left_padded(rows: Sequence[np.ndarray], limit: int) -> np.ndarray:
    """Returns rows [W, ...] of different lengths as one array [B, W, ...] padded on the left; W is at most `limit`."""
    length = rounded(max(map(len, rows)), limit)
    padded = np.zeros((len(rows), length, *rows[0].shape[1:]), rows[0].dtype)
    for n, row in enumerate(rows):
        padded[n, length - len(row) :] = row
    return padded
