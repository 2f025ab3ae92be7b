"""The shared predictor of families whose units are rows of a table or spellings (`charlm.families.spelled.units`).

A family whose units are words subclasses `WordPredictor` and adds which entries its head predicts. Open it to change
how gaps are filled or how word vectors are cached.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

import flax.linen as nn
import jax
import numpy as np

from charlm.core.cache import CacheStats, WordCache
from charlm.core.types import Params, Tree
from charlm.families.arguments import KnownWords, checked_list, checked_texts, list_to_cache, prepared
from charlm.families.gaps import Length, around_gaps
from charlm.families.predictor import Encoding, Fill, Predictor
from charlm.families.pretrained import Pretrained, encoder_alone
from charlm.families.spelled.model import SpelledLM
from charlm.families.spelled.units import SpelledUnits, WordUnits
from charlm.families.subword.gaps import Gap
from charlm.families.units import Encoded, Joined
from charlm.families.views import MOST_SHOWN, AttentionMap, AttentionView, Views, checked_most, layers_of, refuse_empty
from charlm.families.windows import (
    Text,
    Window,
    batches,
    beginning,
    packed,
    read_gaps,
    read_windows,
    window_around,
    windows,
)
from charlm.nn.apply import applied
from charlm.nn.probes import probed


def read_codes(
    units: SpelledUnits, cache: WordCache | None, module_params: Params, codes_BL: np.ndarray, mask_BL: np.ndarray
) -> tuple[tuple[Tree, ...], str | None]:
    """Returns the inputs of the model, and the name of its method that reads them (None: `__call__`).

    Args:
      units: the units that know the spellings.
      cache: their vectors; None: the whole batch runs as one program.
      module_params: parameters of the module that makes the vectors.
      codes_BL: units of B rows.
      mask_BL: the mask of the rows, see `charlm.nn.masks`; padding is on the right.
    """
    if cache is None:
        lengths = (mask_BL != 0).sum(axis=1).tolist()
        rows = [
            Joined(np.stack([row[:n], np.zeros(n, np.int32)], axis=1), n, 0, 0, 0)
            for row, n in zip(codes_BL, lengths, strict=True)
        ]
        batch = units.pack(rows, units.measure([rows], *codes_BL.shape))
        assert batch is not None, "it was measured on these rows"
        return (jax.tree.map(lambda x: x[None], batch._replace(mask_SBL=mask_BL)),), None
    chars_BLC = units.spellings.rows(np.where(mask_BL != 0, codes_BL, 0))
    spelled_BLD = cache.read(module_params, chars_BLC)
    return (spelled_BLD, units.spellings.ids(codes_BL), np.zeros_like(codes_BL), mask_BL), "contextualize"


def put_in(cache: WordCache, module_params: Params, units: SpelledUnits, codes: np.ndarray) -> CacheStats:
    """Puts the vectors of spellings into a cache; returns the cache's counts. Units that are rows are skipped."""
    if (codes < 0).any():
        cache.warm(module_params, units.spellings.rows(codes[codes < 0]))
    return cache.stats


def spelled_programs(model: nn.Module) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    """Returns compiled functions for states and log-probabilities, which take a method of the model and its inputs.

    They are `SubwordPredictor._programs` of models whose inputs are those of `read_codes`.
    """

    def states(p: Params, method: str | None, *inputs: Tree) -> jax.Array:
        output = applied(model, {"params": p}, method=method)(*inputs)
        return getattr(output, "transformer", output).states_BLD.astype(np.float32)

    def fill(p: Params, method: str | None, *inputs: Tree) -> jax.Array:
        return jax.nn.log_softmax(applied(model, {"params": p}, method=method)(*inputs).logits)

    return jax.jit(states, static_argnums=1), jax.jit(fill, static_argnums=1)


def spelled_probing(model: nn.Module) -> Callable[..., dict[str, list[jax.Array]]]:
    """Returns a compiled function for the attention, which takes what those of `spelled_programs` take."""
    run = lambda p, method, *inputs: probed(model, p, *inputs, method=method)[1]
    return jax.jit(run, static_argnums=1)


class Fills(Protocol):
    """The candidates for a gap."""

    def best(self, log_probs_V: np.ndarray, gap: Gap, top: int) -> list[Fill]:
        """Returns the likeliest candidates, best first."""
        ...


class EntryWords:
    """Known words that are single entries of the vocabulary; other words have no probability of their own.

    Args:
      words: the known words.
      units: units of the model that ranks them.
      entry: returns the entry of a word, or None if the word is no entry.

    Attributes:
      units: as above.
      words: those that are entries.
    """

    def __init__(self, words: KnownWords | Iterable[str], units: WordUnits, entry: Callable[[str], int | None]) -> None:
        self.units = units
        found = {word: entry(word) for word in checked_list(words)}
        self.words = [word for word, index in found.items() if index is not None]
        self._ids_N = np.array([index for index in found.values() if index is not None], np.int64)
        self._chars_N = np.array([len(word) for word in self.words], np.int64)

    def __len__(self) -> int:
        return len(self.words)

    def best(self, log_probs_V: np.ndarray, gap: Gap, top: int) -> list[Fill]:
        """Returns the likeliest words, best first."""
        scores_N = log_probs_V[self._ids_N].astype(np.float64)
        fits_N = np.ones(len(scores_N), bool) if gap.length == "auto" else self._chars_N == gap.length
        order = np.argsort(np.where(fits_N, -scores_N, np.inf), kind="stable")[: min(top, int(fits_N.sum()))]
        return [Fill(self.words[n], float(scores_N[n]), math.exp(scores_N[n])) for n in order]


class WordPredictor(Predictor):
    """Predictor of a model whose units are whole words, each a row of a table or read from its characters.

    `fill_mask` ranks the entries of the vocabulary, which are all that the head predicts; no other known words can be
    filled in. Of a text longer than the model's positions, the window around the gap is read.

    Args:
      pretrained: the model.
      units: its units, which turn text into words.
      module: makes the vectors of spellings.
      part: name of the module's parameters in those of the model.

    Attributes:
      cache: the vectors of spellings kept between calls; predictors of models of one shape may share it. None: no
        vectors are kept, and a whole batch runs as one program.
    """

    suited = ("encode", "fill_mask")
    unknown_words = "are no single entries of the vocabulary"
    caches = True

    def __init__(self, pretrained: Pretrained, units: WordUnits, module: nn.Module, part: str) -> None:
        self.pretrained, self.config = pretrained, pretrained.config
        self.name = pretrained.title
        self._units = units
        if not isinstance(pretrained.model, SpelledLM):
            self.missing = {"fill_mask": f"this {self.name} has no head that predicts words"}
            pretrained = encoder_alone(pretrained)
        self._longest = self.config.longest
        model, self._params = pretrained.model, pretrained.params

        def states(p: Params, *inputs: Tree, method: str | None) -> jax.Array:
            output = applied(model, {"params": p}, method=method)(*inputs)
            return getattr(output, "transformer", output).states_BLD.astype(np.float32)

        def fill(p: Params, positions_BM: jax.Array, *inputs: Tree, method: str | None) -> jax.Array:
            return jax.nn.log_softmax(applied(model, {"params": p}, method=method)(*inputs, positions_BM).logits)

        def probe(p: Params, *inputs: Tree, method: str | None) -> dict[str, list[jax.Array]]:
            return probed(model, p, *inputs, method=method)[1]

        self._probe = jax.jit(probe, static_argnames="method")
        self._states = jax.jit(states, static_argnames="method")
        self._fill = jax.jit(fill, static_argnames="method")
        self._spell = jax.jit(lambda p, chars_UC: module.apply({"params": p}, chars_UC))
        self.word_params = self._params[part]
        self.cache: WordCache | None = WordCache(self._spell, self.config.hidden, np.float32, units.buckets)

    @abc.abstractmethod
    def entry(self, word: str) -> int | None:
        """Returns the entry of the vocabulary that the head predicts for a word; None if the word is no entry."""

    @functools.cached_property
    @abc.abstractmethod
    def anything(self) -> Fills:
        """All candidates that the head predicts."""

    def encode(
        self, texts: Iterable[str], batch_size: int = 32, unit: Literal["words", "pieces"] = "words"
    ) -> list[Encoding]:
        """Returns words, offsets and vectors of each text; the vectors are the states of the last layer.

        `sentence_D` is the mean over all positions, special tokens included. A text longer than the model's positions
        is read in windows, each with its own special tokens.

        Raises:
          ValueError: `texts` is one string, `batch_size` is not positive, or `unit` is not "words".
        """
        texts = checked_texts(texts, batch_size)
        if unit != "words":
            raise ValueError(f"unit={unit!r}: a {self.name} never splits a word into pieces; expected 'words'")
        units = self._units.fresh()
        read = [self._text(encoded, units) for encoded in units.encode(texts)]
        states = self._read(read, units, batch_size)
        return [
            Encoding([text[a:b] for a, b in found.offsets], found.offsets, inner_WD, whole_LD.mean(axis=0))
            for text, found, (inner_WD, whole_LD) in zip(texts, read, states, strict=True)
        ]

    def positions(self, texts: Iterable[str], batch_size: int = 32, longest: int | None = None) -> list[np.ndarray]:
        """Returns the states of all positions of each text, special tokens included; see `Predictor.positions`."""
        units, most = self._units.fresh(), None if longest is None else min(longest, self._longest)
        encoded = units.encode(checked_texts(texts, batch_size))
        read = [beginning(self._text(one, units), most) for one in encoded]
        return [whole_LD for _, whole_LD in self._read(read, units, batch_size)]

    def _read(self, read: Sequence[Text], units: WordUnits, batch_size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the states of texts, see `read_windows`; `units` knows their spellings."""

        def run(parts: list[tuple[int, Window]]) -> Iterator[tuple[dict[int, tuple[int, int]], jax.Array]]:
            ids = [window.ids for _, window in parts]
            for call, codes_BL, mask_BL in packed(ids, batch_size, self._longest, units.pad, splits=self._splits):
                inputs, method = self._inputs(units, codes_BL, mask_BL)
                yield call.at, self._states(self._params, *inputs, method=method)

        return read_windows(read, self._longest, self.config.hidden, run)

    def views(self, text: str, most: int = MOST_SHOWN) -> Views:
        """Returns the attention between the words of a text, and before it that inside words, if the family has any.

        Raises:
          ValueError: as `Predictor.views`.
        """
        checked_most(text, most)
        units = self._units.fresh()
        read = self._text(units.encode([text])[0], units)
        refuse_empty(len(read.ids))
        around = len(read.prefix) + len(read.suffix)
        end = windows(read, min(self._longest, most + around))[0].end
        ids = [*read.prefix, *read.ids[:end], *read.suffix]
        ((_, codes_BL, mask_BL),) = batches([ids], 1, self._longest, units.pad)
        inputs, method = self._inputs(units, codes_BL, mask_BL)
        stacks = jax.device_get(self._probe(self._params, *inputs, method=method))
        before, after = units.around_shown
        words = [text[a:b] for a, b in read.offsets[:end]]
        names, used = (*before, *words, *after), slice(len(ids))
        whole = AttentionMap(names, names, layers_of(stacks["bert/encoder"], 0, used, used))
        about = "How much each word reads from each other."
        views = (*self._inside(units, words), AttentionView("Between words", about, (whole,)))
        return Views(views, text[: read.offsets[end - 1][1]], "words", end, len(read.ids) - end)

    def _inside(self, units: WordUnits, words: Sequence[str]) -> list[AttentionView]:
        """Returns the views of what reads the characters of words; none, unless that is attention."""
        return []

    def _text(self, encoded: Encoded, units: WordUnits) -> Text:
        return Text(encoded.content.tolist(), list(encoded.offsets), list(range(len(encoded))), *units.around)

    def _inputs(
        self, units: WordUnits, codes_BL: np.ndarray, mask_BL: np.ndarray
    ) -> tuple[tuple[Tree, ...], str | None]:
        """Returns the inputs of the model, and the name of its method that reads them."""
        return read_codes(units, self.cache, self.word_params, codes_BL, mask_BL)

    def precompute(self, words: Iterable[str]) -> CacheStats:
        """Puts the vectors of words into the cache for later calls of `encode`; returns the cache's counts.

        Words that are read as rows of a table are skipped.

        Raises:
          ValueError: there is no cache, or `words` is one string.
        """
        words, cache = list_to_cache(words, self.cache)
        units = self._units.fresh()
        return put_in(cache, self.word_params, units, units.codes(words))

    def word_rows(self, words: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Returns the spellings of words and their characters; see `Predictor.word_rows`."""
        units = self._units.fresh()
        units.codes(words)
        return units.spellings.known()

    def known_words(self, words: KnownWords | Iterable[str]) -> EntryWords:
        """Returns the words that are single entries of the vocabulary, to rank by `fill_mask`.

        Other words are left out: the head predicts one entry per position, and a word is one position.
        """
        self.require("fill_mask")
        return EntryWords(words, self._units, self.entry)

    def _listed(self, known: KnownWords | Iterable[str] | None) -> EntryWords | None:
        ours = lambda words: words.units is self._units
        return None if known is None else prepared(known, EntryWords, ours, self.known_words)

    def _filled(
        self, texts: Sequence[str], length: Length, top: int, known: EntryWords | None
    ) -> list[list[list[Fill]]]:
        fills, units = self.anything if known is None else known, self._units.fresh()
        read = [self._gaps(text, length, units) for text in texts]
        predicted = iter(self._predict([(codes, gap) for codes, gaps in read for gap in gaps], units))
        return [[fills.best(next(predicted), gap, top) for gap in gaps] for _, gaps in read]

    def _gaps(self, text: str, length: Length, units: WordUnits) -> tuple[Text, list[Gap]]:
        """Returns the words of a text with the mask token at each gap, and the gaps."""
        mask, code = units.mask
        parts, lengths = around_gaps(text, length, mask)
        encoded = units.encode(parts)
        codes, gaps = encoded[0].content.tolist(), []
        for wanted, part in zip(lengths, encoded[1:], strict=True):
            gaps.append(Gap(len(codes), wanted, True, False))
            codes += [code, *part.content.tolist()]
        return Text(codes, [], list(range(len(codes))), *units.around), gaps

    def _predict(self, asked: Sequence[tuple[Text, Gap]], units: WordUnits) -> list[np.ndarray]:
        """Returns for each gap of a text the log-probabilities [V] of the entries."""
        windows = [window_around(read, gap.place, 1, self._longest) for read, gap in asked]
        at = [np.array([w.before + gap.place - w.start]) for (_, gap), w in zip(asked, windows, strict=True)]
        rows = [window.ids for window in windows]
        keys = [tuple(row) for row in rows]

        def run(first: list[int], codes_BL: np.ndarray, mask_BL: np.ndarray, positions_BM: np.ndarray) -> jax.Array:
            inputs, method = self._inputs(units, codes_BL, mask_BL)
            return self._fill(self._params, positions_BM, *inputs, method=method)

        return [found_1V[0] for found_1V in read_gaps(keys, rows, at, self._longest, units.pad, run)]
