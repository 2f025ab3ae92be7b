"""Inference with BERT, RoBERTa, RoFormer and GPT-2: vectors, words for gaps, log-probabilities, continuations.

`charlm.predict` runs it; CharBERT's and XRayEmb's predictors inherit from it. Open it to change what `encode`,
`fill_mask`, `score` or `generate` return for these models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Self

import flax.linen as nn
import jax
import numpy as np

from charlm.convert.heads import FINE_TUNED
from charlm.core.sampling import check_sampling
from charlm.core.types import Params, Tree
from charlm.families.arguments import KnownWords, checked_texts, prepared
from charlm.families.gaps import Length
from charlm.families.predictor import Encoding, Fill, Generation, Predictor, Score
from charlm.families.pretrained import Pretrained, encoder_alone, is_encoder
from charlm.families.subword.gaps import Gap, Pieces, PieceWords, find_gaps, masked
from charlm.families.subword.generation import GenerationSettings, prompt_keys, writer
from charlm.families.subword.gpt2 import GPT2Config
from charlm.families.subword.scoring import scorer, stretches
from charlm.families.units import check_ids
from charlm.families.views import (
    MOST_SHOWN,
    SPACE,
    AttentionMap,
    AttentionView,
    Views,
    checked_most,
    layers_of,
    refuse_empty,
)
from charlm.families.windows import (
    Text,
    Window,
    batches,
    beginning,
    one_ahead,
    packed,
    read_gaps,
    read_windows,
    rounded,
    text_of,
    unknown_by_row,
    window_around,
    windows,
    words_of,
)
from charlm.nn.apply import applied
from charlm.nn.probes import probed
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import get_splitter

HEAD_POSITIONS = 2048  # most positions whose logits are in memory at once: 400 MiB with GPT-2's vocabulary


class SubwordPredictor(Predictor):
    """A BERT, RoBERTa, RoFormer or GPT-2 with its tokenizer, ready for inference.

    `fill_mask` ranks the pieces of the vocabulary by the softmax over all of it; a piece that continues a word is
    written "##ing" in every family. "[MASK:5]" allows only words of five characters. For a known word, the gap gets as
    many masks as the word has pieces there; `log_prob` is the sum of their log-probabilities, `score` the geometric
    mean of their probabilities. Of a text longer than the model, the window around the gap is read.

    Args:
      pretrained: the model.
      tokenizer: the model's tokenizer; None: read from the files beside the model.

    Raises:
      ValueError: when there is no tokenizer, or some of its ids have no row in the model.
    """

    no_word_rows = "it reads pieces, whose vectors are rows of its table already"
    shares_rows = True  # whether `encode` may lay several texts end to end in a row (`charlm.families.unpadded`)

    def __init__(self, pretrained: Pretrained, tokenizer: SubwordTokenizer | None = None) -> None:
        self.pretrained, self.config = pretrained, pretrained.config
        self.tokenizer = pretrained.tokenizer() if tokenizer is None else tokenizer
        check_ids(pretrained.folder, "the tokenizer has", self.tokenizer.size, self.config.vocab_size)
        causal, self.name = isinstance(self.config, GPT2Config), pretrained.title
        self.suited = ("encode", "score", "generate") if causal else ("encode", "fill_mask")
        if is_encoder(pretrained) or pretrained.head in FINE_TUNED:
            self.missing = dict.fromkeys(self.suited[1:], f"this {self.name} has no head that predicts words")
            pretrained = encoder_alone(pretrained)
        self._longest = self.config.max_positions if causal else self.config.longest
        if self._longest <= self.tokenizer.special_count():
            raise ValueError(f"{pretrained.folder}: {self._longest} positions leave no room beside the special tokens")
        self._pad = getattr(self.config, "pad_id", 0)
        self._splitter = get_splitter("rules", "en")
        self._width = self.config.hidden
        model, self._params = pretrained.model, pretrained.params
        self._states, self._fill = self._programs(model)
        self._probe = self._probing(model)
        self._score, self._write = scorer(model), writer(model)
        self._pieces: Pieces | None = None

    def _programs(self, model: nn.Module) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
        """Returns two compiled functions: for the last states [B, L, D], and for log-probabilities [B, M, V].

        Both take the parameters and the result of `_inputs`; the second also takes the positions [B, M] to predict.
        """

        def states(p: Params, ids_BL: jax.Array, mask_BL: jax.Array) -> jax.Array:
            output = applied(model, {"params": p})(ids_BL, mask_BL)
            return getattr(output, "transformer", output).states_BLD.astype(np.float32)

        def fill(p: Params, ids_BL: jax.Array, mask_BL: jax.Array, positions_BM: jax.Array) -> jax.Array:
            return jax.nn.log_softmax(applied(model, {"params": p})(ids_BL, mask_BL, positions_BM=positions_BM).logits)

        return jax.jit(states), jax.jit(fill)

    def _probing(self, model: nn.Module) -> Callable[..., dict[str, list[jax.Array]]]:
        """Returns a compiled function for the model's attention; it takes what `_programs`' first function takes."""
        return jax.jit(lambda p, *inputs: probed(model, p, *inputs)[1])

    def _inputs(self, ids_BL: np.ndarray, mask_BL: np.ndarray, unknown: Sequence[dict[int, str]]) -> tuple[Tree, ...]:
        """Returns the model's input arrays; `unknown`: for each row, the texts of unknown pieces by place."""
        return ids_BL, mask_BL

    def _fresh(self) -> Self:
        """Returns what reads the texts of one call: the predictor, or a copy where a call must leave no words in it."""
        return self

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        """Returns the predictor of a loaded model with the tokenizer whose files lie beside it."""
        return cls(pretrained)

    def encode(
        self, texts: Iterable[str], batch_size: int = 32, unit: Literal["words", "pieces"] = "words"
    ) -> list[Encoding]:
        """Returns words or pieces, offsets and vectors of each text; vectors are last states, or means of them.

        Words are cut by the rules of `charlm.text.words` in every family. A word's vector is the mean of the pieces
        that overlap it; a word that the tokenizer omits (control characters) is omitted here. `sentence_D` is the mean
        over all positions, including the template's special tokens (mean pooling; Reimers and Gurevych, EMNLP 2019,
        section 3). A text longer than the model is read in windows, each with its special tokens.

        Raises:
          ValueError: when `texts` is one string, `batch_size` is not positive, or `unit` is neither of the two.
        """
        texts = checked_texts(texts, batch_size)
        if unit not in ("words", "pieces"):
            raise ValueError(f"unit={unit!r}: expected 'words' or 'pieces'")
        reader = self._fresh()
        pieces = reader._texts(texts)
        read = reader._read(pieces, batch_size)
        return [
            reader._encoding(text, found, unit, *states)
            for text, found, states in zip(texts, pieces, read, strict=True)
        ]

    def positions(self, texts: Iterable[str], batch_size: int = 32, longest: int | None = None) -> list[np.ndarray]:
        """Returns the states of all positions of each text, special tokens included; see `Predictor.positions`."""
        reader, most = self._fresh(), None if longest is None else min(longest, self._longest)
        pieces = [beginning(text, most) for text in reader._texts(checked_texts(texts, batch_size))]
        return [whole_LD for _, whole_LD in reader._read(pieces, batch_size)]

    def _read(self, pieces: Sequence[Text], batch_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the states of texts, see `read_windows`; what reads them is `_fresh`."""
        unknown = self.tokenizer.special.unk

        def run(parts: list[tuple[int, Window]]) -> Iterator[tuple[dict[int, tuple[int, int]], jax.Array]]:
            ids = [window.ids for _, window in parts]
            under = [pieces[t].under(window, unknown) for t, window in parts]
            options = {"splits": self._splits, "shares": self.shares_rows}
            for call, ids_BL, mask_BL in packed(ids, batch_size, self._longest, self._pad, **options):
                inputs = self._inputs(ids_BL, mask_BL, unknown_by_row(call, under))
                yield call.at, self._states(self._params, *inputs)

        return read_windows(pieces, self._longest, self._width, run)

    def _texts(self, texts: Sequence[str]) -> list[Text]:
        """Returns the pieces of texts."""
        return [text_of(*pair) for pair in zip(self.tokenizer.encode_batch(texts), texts, strict=True)]

    def _shown(self, pieces: Text) -> list[str]:
        return [self.tokenizer.token(index) for index in pieces.ids]

    def _encoding(self, text: str, pieces: Text, unit: str, inner_PD: np.ndarray, whole_LD: np.ndarray) -> Encoding:
        sentence_D = whole_LD.sum(axis=0) / np.float32(max(1, len(whole_LD)))
        if unit == "pieces":
            return Encoding(self._shown(pieces), pieces.offsets, inner_PD, sentence_D)
        spans, vectors_WD = words_of(self._splitter.spans(text), pieces.offsets, inner_PD)
        return Encoding([text[a:b] for a, b in spans], spans, vectors_WD, sentence_D)

    def views(self, text: str, most: int = MOST_SHOWN) -> Views:
        """Returns the attention between the pieces of a text, its special tokens included.

        Raises:
          ValueError: as `Predictor.views`.
        """
        checked_most(text, most)
        reader = self._fresh()
        (pieces,) = reader._texts([text])
        refuse_empty(len(pieces.ids))
        around = len(pieces.prefix) + len(pieces.suffix)
        window = windows(pieces, min(self._longest, most + around))[0]
        ((_, ids_BL, mask_BL),) = batches([window.ids], 1, self._longest, self._pad)
        inputs = reader._inputs(ids_BL, mask_BL, [pieces.under(window, self.tokenizer.special.unk)])
        stacks = jax.device_get(self._probe(self._params, *inputs))
        token, names = self.tokenizer.token, reader._named(pieces, window)
        names = [*map(token, pieces.prefix), *names, *map(token, pieces.suffix)]
        views = reader._views_of(stacks, names, pieces, window)
        read = text[: max(end for _, end in pieces.offsets[: window.end])]
        return Views(tuple(views), read, "pieces", window.end, len(pieces.ids) - window.end)

    def _named(self, pieces: Text, window: Window) -> list[str]:
        """Returns how pieces of a window are shown: as the text has them, with "##" if they continue a word."""
        names = []
        for n in range(window.start, window.end):
            start, end = pieces.offsets[n]
            follows = n > window.start and pieces.words[n] is not None and pieces.words[n] == pieces.words[n - 1]
            unknown = pieces.ids[n] == self.tokenizer.special.unk
            shown = self.tokenizer.token(pieces.ids[n]) if unknown else pieces.text[start:end].strip() or SPACE
            names.append(f"##{shown}" if follows and not unknown else shown)
        return names

    def _views_of(
        self, stacks: dict[str, list[np.ndarray]], names: Sequence[str], pieces: Text, window: Window
    ) -> list[AttentionView]:
        """Returns the views of one window.

        Args:
          stacks: what `_probe` returned.
          names: of all positions, special tokens included.
        """
        ((_, stack),) = stacks.items()
        return [AttentionView("Between pieces", self._about_pieces, (self._map(stack, names),))]

    def _map(self, stack: list[np.ndarray], names: Sequence[str], row: int = 0) -> AttentionMap:
        used = slice(len(names))
        return AttentionMap(tuple(names), tuple(names), layers_of(stack, row, used, used))

    @property
    def _about_pieces(self) -> str:
        seen = "itself and those before it" if isinstance(self.config, GPT2Config) else "each other"
        return f"How much each piece reads from {seen}; ## marks a piece that continues a word."

    def known_words(self, words: KnownWords | Iterable[str]) -> PieceWords:
        """Returns the words that the vocabulary can write, for `fill_mask` to rank; repeated words count once."""
        self.require("fill_mask")
        return PieceWords(words, self.tokenizer, self._longest - self.tokenizer.special_count())

    def _listed(self, known: KnownWords | Iterable[str] | None) -> PieceWords | None:
        ours = lambda words: words.tokenizer is self.tokenizer
        return None if known is None else prepared(known, PieceWords, ours, self.known_words)

    def _filled(
        self, texts: Sequence[str], length: Length, top: int, known: PieceWords | None
    ) -> list[list[list[Fill]]]:
        reader = self._fresh()
        read = [reader._find_gaps(text, length) for text in texts]
        asked = [
            (t, gap, count)
            for t, (_, gaps) in enumerate(read)
            for gap in gaps
            for count in ([1] if known is None else known.counts(gap))
        ]
        predicted = reader._predict([(read[t][0], gap, count) for t, gap, count in asked])
        fills: dict[tuple[int, Gap], list[Fill]] = {(t, gap): [] for t, (_, gaps) in enumerate(read) for gap in gaps}
        for (t, gap, _), log_probs_KV in zip(asked, predicted, strict=True):
            if known is None:
                self._pieces = self._pieces or Pieces(self.tokenizer, self.config.vocab_size)
                fills[t, gap] += self._pieces.best(log_probs_KV[0], gap, top)
            else:
                fills[t, gap] += known.best(log_probs_KV, gap, top)
        best = lambda t, gap: sorted(fills[t, gap], key=lambda fill: -fill.score)[:top]
        return [[best(t, gap) for gap in gaps] for t, (_, gaps) in enumerate(read)]

    def _find_gaps(self, text: str, length: Length) -> tuple[Text, list[Gap]]:
        return find_gaps(text, self.tokenizer, length)

    def _predict(self, asked: Sequence[tuple[Text, Gap, int]]) -> list[np.ndarray]:
        """Returns the log-probabilities [masks, V] at the masks, for each gap of a text with its number of masks."""
        places, unknown, keys, mask = [], [], [], self.tokenizer.special.needed("mask")
        for pieces, gap, count in asked:
            text = masked(pieces, gap, count, mask)
            window = window_around(text, gap.place, count, self._longest)
            places.append(window.before + gap.place - window.start + np.arange(count))
            unknown.append(text.under(window, self.tokenizer.special.unk))
            keys.append((tuple(window.ids), tuple(unknown[-1].items())))

        def run(first: list[int], ids_BL: np.ndarray, mask_BL: np.ndarray, positions_BM: np.ndarray) -> jax.Array:
            return self._fill(self._params, *self._inputs(ids_BL, mask_BL, [unknown[n] for n in first]), positions_BM)

        return read_gaps(keys, [ids for ids, _ in keys], places, self._longest, self._pad, run)

    def score(self, texts: Iterable[str], batch_size: int = 32, *, start: bool = True) -> list[Score]:
        """Returns the log-probability of each piece of each text, given all pieces before it.

        A text longer than the model is read in windows that begin every half window, so that a piece has seen all
        pieces before it, or at least half a window of them.

        Args:
          start: True: the text follows the end-of-text token, as in training, so that the first piece is scored, too.
            False: the first piece is not scored (NaN), as in the usual loss.

        Raises:
          ValueError: when the model predicts no text from left to right, `texts` is one string, or `batch_size` is not
            positive.
        """
        self.require("score")
        texts = checked_texts(texts, batch_size, "score")
        pieces = [text_of(item) for item in self.tokenizer.encode_batch(texts)]
        before = [self._start_token()] if start else []
        rows = [before + text.ids for text in pieces]
        parts = [(t, s) for t, row in enumerate(rows) for s in stretches(len(row), self._longest)]
        log_probs = [np.full(len(row), np.nan, np.float32) for row in rows]
        ids = [rows[t][s.start : s.end] for t, s in parts]
        longest = rounded(max(map(len, ids), default=1), self._longest)
        fits = max(1, min(batch_size, HEAD_POSITIONS // longest))
        made = batches(ids, fits, self._longest, self._pad)
        started = ((chosen, self._score(self._params, ids_BL, mask_BL)) for chosen, ids_BL, mask_BL in made)
        for chosen, found_BL in one_ahead(started):
            found_BL = np.asarray(found_BL)
            for b, n in enumerate(chosen):
                t, s = parts[n]
                log_probs[t][s.first : s.end] = found_BL[b, s.first - s.start - 1 : s.end - s.start - 1]
        scores = []
        for text, of, found in zip(texts, pieces, log_probs, strict=True):
            unscored = of.offsets[0][1] if of.ids and not start else 0
            tokens = [self.tokenizer.token(index) for index in of.ids]
            scores.append(Score(tokens, of.offsets, found[len(before) :], len(text) - unscored))
        return scores

    def _start_token(self) -> int:
        special = self.tokenizer.special
        start = special.eos if special.bos is None else special.bos
        if start is None:
            raise ValueError(f"{self.pretrained.folder}: the vocabulary has no token that begins or ends a text")
        return start

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
        """Returns a continuation of each prompt, up to the end-of-text token; an empty prompt starts a new text.

        Args:
          max_new: the most tokens to add.
          temperature: 0: always takes the likeliest token; else logits are divided by it before a token is drawn.
          top_k: draws among this many likeliest tokens; 0: all.
          top_p: draws among the likeliest tokens that together have this probability.
          seed: one seed, or one for each prompt. The same prompt and seed give the same text, whatever other prompts
            there are. With one seed, a repeated prompt gets the next seed.

        Raises:
          ValueError: when the model generates no text, an argument is out of range, or a prompt leaves no room for
            `max_new` tokens.
        """
        self.require("generate")
        prompts = checked_texts(prompts, batch_size, "generate")
        check_sampling(max_new, temperature, top_k, top_p)
        keys = prompt_keys(prompts, seed)
        if max_new >= self._longest:
            raise ValueError(f"max_new={max_new}: the model has {self._longest} positions, prompt included")
        rows = [text_of(item).ids or [self._start_token()] for item in self.tokenizer.encode_batch(prompts)]
        for prompt, row in zip(prompts, rows, strict=True):
            if len(row) + max_new > self._longest:
                raise ValueError(
                    f"max_new={max_new}: the model has room for {self._longest} tokens, of which the prompt "
                    f"{prompt[:40]!r} takes {len(row)}"
                )
        eos = self.tokenizer.special.eos
        allowed_V = np.zeros(self.config.vocab_size, bool)
        allowed_V[self.tokenizer.ids()] = True
        arrays = (np.int32(max_new), np.float32(temperature), np.int32(top_k), np.float32(top_p))
        settings = GenerationSettings(*arrays, np.int32(-1 if eos is None else eos), allowed_V)
        ways = {"places": rounded(max_new, self._longest), "greedy": temperature == 0, "cut": top_k > 0 or top_p < 1}
        found: dict[int, Generation] = {}
        for chosen, ids_BP, mask_BP in batches(rows, batch_size, self._longest, self._pad, left=True):
            row_keys = keys[np.resize(chosen, len(ids_BP))]
            written = jax.device_get(self._write(self._params, ids_BP, mask_BP, row_keys, settings, **ways))
            for b, n in enumerate(chosen):
                ids = written.tokens_BT[b, : written.count_B[b]].tolist()
                text = self.tokenizer.decode(ids)
                found[n] = Generation(text, ids, written.log_probs_BT[b, : len(ids)], bool(written.ended_B[b]))
        return [found[n] for n in range(len(rows))]
