"""A trained model, ready to be asked: vectors of texts, and the words that fit a gap."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import jax
import ml_collections
import numpy as np

from charlm import checkpoint as checkpoints
from charlm.batch import WordBatch, reshape_batch
from charlm.config import from_dict
from charlm.data.batching import Sequence, pack_all
from charlm.data.pipeline import rows_of
from charlm.data.records import EncodedRecord
from charlm.models.hlm import HLM, MASKED_LM, HLMForMaskedLM, hlm_with_head
from charlm.run import model_config
from charlm.text.chars import CLS, MASK, SEP, WORD_CLS, CharVocab, WordEncoder
from charlm.text.wordlist import WordList, best_spellings
from charlm.text.words import get_splitter

MASK_PATTERN = re.compile(r"\[MASK(?::(\d+))?\]")  # "[MASK]", or "[MASK:5]" for a word of five characters
OTHER_MASK_LENGTH = 4  # characters of the masks that are not being filled: about the mean length of a word
BUCKET_SLOTS = (8, 12)  # length buckets of a batch, before the longest


class Encoding(NamedTuple):
    """The vectors of one text.

    Attributes:
      words: the words. offsets: their character positions (start, end) in the text.
      vectors_WD: float32, a contextual vector a word. sentence_D: float32, the mean of them; zeros for an empty text.
    """

    words: list[str]
    offsets: list[tuple[int, int]]
    vectors_WD: np.ndarray
    sentence_D: np.ndarray


class Fill(NamedTuple):
    """A word for a gap, the log-probability of its characters (nats), and `score`: their geometric mean probability."""

    word: str
    log_prob: float
    score: float


class Predictor:
    """A model with its vocabulary and word splitter, ready to be asked.

    Args:
      config: the resolved config of the run. vocab: its characters. params: parameters of `HLMForMaskedLM`.
    """

    def __init__(self, config: ml_collections.ConfigDict, vocab: CharVocab, params: Any) -> None:
        self.config, self.vocab = config, vocab
        self._params = params
        shape = model_config(config)
        self._slots, self._max_words = shape.char_slots, config.data.max_words
        self._buckets = (*(c for c in BUCKET_SLOTS if c < self._slots), self._slots)
        self._splitter = get_splitter(config.text.splitter, config.text.language)
        self._encoder = WordEncoder(vocab, self._slots, config.text.normalize)
        self._encode = jax.jit(lambda p, batch: HLM(shape).apply({"params": p["hlm"]}, batch).context_NWD)
        model = HLMForMaskedLM(shape)
        self._fill = jax.jit(lambda p, batch: tuple(map(jax.nn.log_softmax, model.apply({"params": p}, batch))))

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str]) -> Predictor:
        """Loads a model from a workdir or one of its checkpoints; nothing else is needed.

        A fine-tuned model gives vectors and fills no gaps.

        Raises:
          ValueError: when there is no complete checkpoint, or it does not fit its config.
        """
        checkpoint = checkpoints.find(path)
        metadata = checkpoints.read_metadata(checkpoint)
        config = from_dict(metadata["config"])
        model = hlm_with_head(model_config(config), metadata.get("head", MASKED_LM), metadata.get("labels", 0))
        one_masked_word = np.ones((1, 1, config.model.char_slots), np.uint16)
        example = reshape_batch(one_masked_word, one_masked_word)
        abstract = jax.eval_shape(lambda: model.init(jax.random.key(0), example))["params"]
        params = checkpoints.load_params(checkpoint, checkpoints.on_one_device(abstract))
        return cls(config, CharVocab.from_dict(metadata["char_vocab"]), params)

    def encode(self, texts: Iterable[str], batch_size: int = 32) -> list[Encoding]:
        """Returns words, offsets and vectors of each text; a text longer than the model's window is read in pieces.

        Raises:
          ValueError: when `texts` is one string, or `batch_size` is not positive.
        """
        if isinstance(texts, str) or batch_size < 1:
            raise ValueError("encode takes a list of texts and a positive batch_size; for one text write [text]")
        texts = list(texts)
        spans = [self._splitter.spans(text) for text in texts]
        words = [[text[a:b] for a, b in s] for text, s in zip(texts, spans, strict=True)]
        room = self._max_words - 2
        pieces = [(i, at) for i, w in enumerate(words) for at in range(0, len(w), room)]
        vectors: list[list[np.ndarray]] = [[] for _ in texts]
        # Neighbours of like length share a batch; results go back to their text in reading order.
        order = sorted(range(len(pieces)), key=lambda n: min(room, len(words[pieces[n][0]]) - pieces[n][1]))
        results: dict[int, np.ndarray] = {}
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            rows = [self._rows(words[i][at : at + room]) for i, at in (pieces[n] for n in chosen)]
            states = self._run(self._encode, [_sequence(r) for r in rows])
            for n, row, state_WD in zip(chosen, rows, states, strict=False):
                results[n] = state_WD[1 : 1 + len(row)]  # without [CLS] and [SEP]
        for n, (i, _) in enumerate(pieces):
            vectors[i].append(results[n])
        none = np.zeros((0, self.config.model.hidden), np.float32)
        out = []
        for w, s, v in zip(words, spans, vectors, strict=True):
            vectors_WD = np.concatenate([none, *v])
            mean = vectors_WD.mean(axis=0) if len(vectors_WD) else np.zeros(none.shape[1], np.float32)
            out.append(Encoding(w, s, vectors_WD, mean))
        return out

    def fill_mask(
        self, text: str, *, length: int | Literal["auto"] = "auto", top: int = 5, known: WordList | None = None
    ) -> list[list[Fill]]:
        """Returns for each "[MASK]" of the text the likeliest words, best first.

        HLM hides every character of a word, so the input tells how long the word is. "[MASK:5]" or `length=5` say so;
        `length="auto"` tries every length and ranks words by the geometric mean of their characters' probabilities.
        Characters are predicted one by one, so free spellings need not be words; `known` ranks a list of words instead.

        Raises:
          ValueError: when the text has no "[MASK]", or a length that the model has no room for.
        """
        words, gaps, at = [], [], 0
        for match in MASK_PATTERN.finditer(text):
            words += self._split(text[at : match.start()])
            gaps.append((len(words), int(match[1]) if match[1] else length))
            words.append("?" * (OTHER_MASK_LENGTH if gaps[-1][1] == "auto" else gaps[-1][1]))
            at = match.end()
        words += self._split(text[at:])
        if not gaps:
            raise ValueError(f'no "[MASK]" in the text {text!r}')
        positions = [position for position, _ in gaps]
        return [
            self.fill(words, position, length=wanted, top=top, hidden=positions, known=known)
            for position, wanted in gaps
        ]

    def fill(
        self,
        words: list[str],
        position: int,
        *,
        length: int | Literal["auto", "same"] = "same",
        top: int = 5,
        hidden: Iterable[int] = (),
        known: WordList | None = None,
    ) -> list[Fill]:
        """Returns the likeliest words at one position of a sentence, best first.

        Args:
          length: characters of the word; "same" as the word there; "auto" compares all lengths.
          hidden: positions whose characters the model does not see. A `position` that is not among them is read as it
            stands, with its own length: what the model takes a misspelled word for.
          known: rank these words only; None: any spelling.
        """
        if "output_kernel" not in self._params.get("head", {}):
            raise ValueError("this checkpoint is of a fine-tuned model: it has no head that predicts characters")
        hidden = set(hidden)
        if length != "same" and position not in hidden:
            raise ValueError(f"length={length}: a word that is not hidden has the length it has")
        limit = self._slots - 1
        if length == "auto":
            lengths = list(range(1, limit + 1))
        else:
            lengths = [len(self._encoder.encode([words[position]])[1]) if length == "same" else length]
        if not all(1 <= n <= limit for n in lengths):
            raise ValueError(f"length={length}: the model holds words of 1 to {limit} characters")
        start = max(0, min(position - (self._max_words - 2) // 2, len(words) - (self._max_words - 2)))
        window = words[start : start + self._max_words - 2]
        fills = []
        for n, log_probs_CV in zip(
            lengths, self._predict(window, position - start, {p - start for p in hidden}, lengths), strict=True
        ):
            if known is not None:
                found = known.best(log_probs_CV, top)
            else:
                found = [(log_prob, self.vocab.decode(ids)) for log_prob, ids in best_spellings(log_probs_CV, top)]
            fills += [Fill(word, log_prob, math.exp(log_prob / n)) for log_prob, word in found]
        return sorted(fills, key=lambda fill: -fill.score)[:top]

    def _predict(self, words: list[str], position: int, hidden: set[int], lengths: list[int]) -> Iterator[np.ndarray]:
        """Yields for each length the log-probabilities [length, V] of the characters at `position`."""
        rows_WC = self._rows(words)
        for p in hidden:
            if 0 <= p < len(rows_WC):
                rows_WC[p, 1:] = np.where(rows_WC[p, 1:] != 0, MASK, 0)
        sequences = []
        for n in lengths:
            chars_WC, labels_WC = rows_WC.copy(), np.zeros_like(rows_WC)
            if position in hidden:
                chars_WC[position] = 0
                chars_WC[position, 0], chars_WC[position, 1 : n + 1] = WORD_CLS, MASK
            labels_WC[position, 1 : n + 1] = MASK  # any id but 0: here is something to predict
            sequences.append(_sequence(chars_WC, labels_WC))
        batch = self._pack(sequences)
        logits = jax.device_get(self._fill(self._params, batch))
        found: dict[int, np.ndarray] = {}
        W = batch.mask_SBW.shape[-1]
        for bucket, log_probs in zip(batch.masked, logits, strict=True):
            for m in np.nonzero(bucket.labels_SMC[0].any(axis=-1))[0]:
                found[bucket.position_SM[0, m] // W] = log_probs[0, m]
        for b, n in enumerate(lengths):
            allowed = np.full(found[b].shape[-1], -np.inf)
            allowed[list(self.vocab.ids.values())] = 0
            scores = found[b][:n] + allowed
            yield scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)

    def _split(self, text: str) -> list[str]:
        return [text[a:b] for a, b in self._splitter.spans(text)]

    def _rows(self, words: list[str]) -> np.ndarray:
        lengths, ids = self._encoder.encode(words)
        return rows_of(EncodedRecord(np.array([len(words)]), lengths, ids), self._slots)

    def _pack(self, sequences: list[Sequence]) -> WordBatch:
        longest = max(len(s.chars_WC) for s in sequences)
        words = min(self._max_words, -(-longest // 32) * 32)
        return pack_all(sequences, max(words, longest), self._buckets)

    def _run(self, function: Any, sequences: list[Sequence]) -> np.ndarray:
        return np.asarray(jax.device_get(function(self._params, self._pack(sequences))), np.float32)


def _sequence(rows_WC: np.ndarray, labels_WC: np.ndarray | None = None) -> Sequence:
    edges = np.zeros((2, 1, rows_WC.shape[1]), np.uint16)
    edges[:, 0, 0] = CLS, SEP
    labels_WC = np.zeros_like(rows_WC) if labels_WC is None else labels_WC
    none = np.zeros_like(edges[0])
    return Sequence(np.concatenate([edges[0], rows_WC, edges[1]]), np.concatenate([none, labels_WC, none]))
