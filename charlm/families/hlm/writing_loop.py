"""Writes words letter by letter with caches of words and letters, in one compiled loop.

`WritingPredictor.generate` uses it; open it to change how letters are chosen.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import Array, Params
from charlm.families.hlm.writer import HLMForNextWord
from charlm.families.subword.generation import cut_tail
from charlm.nn.rotary import KEPT
from charlm.nn.transformer import kept_by_layers
from charlm.text.chars import FIRST_CHAR, JOINED, SPACED, WORD_CLS, CharVocab

Variables = dict[str, Any]  # collections of flax


class ByteRules(NamedTuple):
    """Which bytes of UTF-8 follow which, so that whole characters are written; int32 [V] each.

    Attributes:
      more_V: how many bytes follow an id that begins a character.
      least_V, most_V: the ids that may stand behind an id within a character, from the least to the most.
    """

    more_V: Array
    least_V: Array
    most_V: Array


class WritingSettings(NamedTuple):
    """How letters are chosen; the values are arrays, so that changing them needs no compilation.

    Attributes:
      max_new: int32, words to write.
      temperature, top_p: float32.
      top_k: int32.
      letters_V: bool, True at ids that may begin a character.
      bytes: how a character goes on that is spelled by bytes; None: none is.
    """

    max_new: Array
    temperature: Array
    top_k: Array
    top_p: Array
    letters_V: Array
    bytes: ByteRules | None


class WrittenWords(NamedTuple):
    """What was written.

    Attributes:
      letters_BTC: int32, the letters of each word from slot 1 on, with `SPACED` or `JOINED` behind the last one.
      log_probs_BTC: float32, their log-probabilities before temperature, top-k or top-p; 0 at those that were given.
    """

    letters_BTC: jax.Array
    log_probs_BTC: jax.Array


class _Word(NamedTuple):
    slot: jax.Array
    kept: Variables
    logits_BV: jax.Array
    letters_BC: jax.Array
    log_probs_BC: jax.Array
    ended_B: jax.Array
    last_B: jax.Array  # the letter before
    more_B: jax.Array  # bytes that its character still lacks


class _Text(NamedTuple):
    step: jax.Array
    kept: Variables
    context_BD: jax.Array
    written: WrittenWords


def _is_end(ids: jax.Array) -> jax.Array:
    return (ids == SPACED) | (ids == JOINED)


def letters_of(vocab: CharVocab, size: int) -> tuple[np.ndarray, ByteRules | None]:
    """Returns what `WritingSettings` says of the ids of a vocabulary, of which the model has `size`.

    A byte that stands alone for an ASCII character may be written if that has no id of its own and is no space; the
    rules of the other bytes are table 3-7 of the Unicode standard: no overlong form, no surrogate, at most U+10FFFF;
    and none below U+00A1. That a character has an id of its own, or is a rarer space, only training tells.
    """
    letters_V = np.zeros(size, bool)
    letters_V[[vocab.ids[char] for char in vocab.chars]] = True
    if not vocab.by_bytes:
        return letters_V, None
    more_V, least_V, most_V = np.zeros((3, size), np.int32)
    alone = [byte for byte in range(0x21, 0x7F) if chr(byte) not in vocab.ids]
    letters_V[FIRST_CHAR + np.array([*alone, *range(0xC2, 0xF5)])] = True
    for more, (first, last) in enumerate([(0xC2, 0xDF), (0xE0, 0xEF), (0xF0, 0xF4)], 1):
        more_V[FIRST_CHAR + first : FIRST_CHAR + last + 1] = more
    least_V[:], most_V[:] = FIRST_CHAR + 0x80, FIRST_CHAR + 0xBF
    for byte, least in ((0xC2, 0xA1), (0xE0, 0xA0), (0xF0, 0x90)):  # behind C2, controls and a space come first
        least_V[FIRST_CHAR + byte] = FIRST_CHAR + least
    for byte, most in ((0xED, 0x9F), (0xF4, 0x8F)):
        most_V[FIRST_CHAR + byte] = FIRST_CHAR + most
    return letters_V, ByteRules(more_V, least_V, most_V)


def _allowed(state: _Word, slots: int, settings: WritingSettings) -> jax.Array:
    """Returns bool [B or 1, V]: a word has a letter at slot 1 and an end at the last slot, and either between them."""
    ids_V = jnp.arange(settings.letters_V.shape[0])
    ends_V = _is_end(ids_V) & (state.slot > 1)
    if (rules := settings.bytes) is None:
        return ((settings.letters_V & (state.slot < slots - 1)) | ends_V)[None]
    begins_V = settings.letters_V & (state.slot + rules.more_V < slots - 1)
    last_B = state.last_B
    ids_1V = ids_V[None]
    goes_on_BV = (ids_1V >= rules.least_V[last_B][:, None]) & (ids_1V <= rules.most_V[last_B][:, None])
    return jnp.where(state.more_B[:, None] > 0, goes_on_BV, (begins_V | ends_V)[None])


@dataclasses.dataclass(frozen=True)
class _Writing:
    """What stays the same while texts are written; see `_write`."""

    model: HLMForNextWord
    params: Params
    mask_BN: jax.Array
    begun_BC: jax.Array
    keys_B: jax.Array
    settings: WritingSettings
    greedy: bool
    cut: bool

    def run(self, kept: Variables, method: str, *inputs: jax.Array) -> tuple[jax.Array, Variables]:
        """Calls the model with what is kept of earlier positions; returns what it finds, and what is kept then."""
        variables = {"params": self.params, KEPT: kept}
        found, changed = self.model.apply(variables, *inputs, method=method, mutable=[KEPT])
        return found, dict(changed)[KEPT]

    def choose(self, state: _Word, keys_B: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the next letter of each word, int32 [B], and whether it was given, bool [B]."""
        slots = self.begun_BC.shape[1]
        logits_BV = jnp.where(_allowed(state, slots, self.settings), state.logits_BV, -jnp.inf)
        if self.greedy:
            chosen_B = jnp.argmax(logits_BV, axis=-1)
        else:
            logits_BV = logits_BV / self.settings.temperature
            logits_BV = cut_tail(logits_BV, self.settings.top_k, self.settings.top_p) if self.cut else logits_BV
            keys = jax.vmap(jax.random.fold_in, (0, None))(keys_B, state.slot)
            chosen_B = jax.vmap(jax.random.categorical)(keys, logits_BV)
        given_B = jnp.where(first, self.begun_BC[:, state.slot], 0)
        return jnp.where(given_B != 0, given_B, chosen_B).astype(jnp.int32), given_B != 0

    def word(self, context_BD: jax.Array, keys_B: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the letters of one word in each text, int32 [B, C], and their log-probabilities."""
        B, C = self.begun_BC.shape
        ones_BC = jnp.ones((B, C - 1), bool)
        empty = {"writer": {"encoder": kept_by_layers(self.model.config.writer, B, C - 1)}}
        logits_BV, kept = self.run(empty, "first", context_BD, ones_BC)
        none_BC = jnp.zeros((B, C), jnp.int32)

        def letter(state: _Word) -> _Word:
            chosen_B, given_B = self.choose(state, keys_B, first)
            chosen_B = jnp.where(state.ended_B, 0, chosen_B)
            log_probs_BV = jax.nn.log_softmax(state.logits_BV)
            log_probs_B = jnp.take_along_axis(log_probs_BV, chosen_B[:, None], axis=-1)[:, 0]
            log_probs_B = jnp.where(state.ended_B | given_B, 0, log_probs_B)
            logits_BV, kept = self.run(state.kept, "after", chosen_B, ones_BC)
            rules, more_B = self.settings.bytes, state.more_B
            if rules is not None:
                more_B = jnp.where(more_B > 0, more_B - 1, rules.more_V[chosen_B])
            return _Word(
                state.slot + 1,
                kept,
                logits_BV,
                state.letters_BC.at[:, state.slot].set(chosen_B),
                state.log_probs_BC.at[:, state.slot].set(log_probs_B),
                state.ended_B | _is_end(chosen_B),
                chosen_B,
                more_B,
            )

        none_B = none_BC[:, 0]
        start = _Word(
            jnp.int32(1), kept, logits_BV, none_BC, none_BC.astype(jnp.float32), none_B != 0, none_B, none_B
        )  # fmt: skip
        word = jax.lax.while_loop(lambda state: (state.slot < C) & ~state.ended_B.all(), letter, start)
        return word.letters_BC, word.log_probs_BC

    def next_word(self, state: _Text) -> _Text:
        """Writes one word to each text, and reads it."""
        keys = jax.vmap(jax.random.fold_in, (0, None))(self.keys_B, state.step)
        letters_BC, log_probs_BC = self.word(state.context_BD, keys, state.step == 0)
        read_BC = jnp.where(_is_end(letters_BC), 0, letters_BC).at[:, 0].set(WORD_CLS)
        # Any: flax does not say what a method returns.
        words_BD: Any = self.model.apply({"params": self.params}, read_BC, method="word")
        end_B1 = jnp.where(_is_end(letters_BC), letters_BC, 0).max(axis=-1, keepdims=True)
        context_B1D, kept = self.run(state.kept, "read", words_BD[:, None], end_B1, self.mask_BN)
        written = WrittenWords(
            state.written.letters_BTC.at[:, state.step].set(letters_BC),
            state.written.log_probs_BTC.at[:, state.step].set(log_probs_BC),
        )
        return _Text(state.step + 1, kept, context_B1D[:, 0], written)


def _write(
    model: HLMForNextWord,
    params: Params,
    words_BWD: jax.Array,
    ends_BW: jax.Array,
    mask_BW: jax.Array,
    begun_BC: jax.Array,
    keys_B: jax.Array,
    settings: WritingSettings,
    *,
    places: int,
    greedy: bool,
    cut: bool,
) -> WrittenWords:
    """Writes `settings.max_new` (at most `places`) words after others.

    Args:
      words_BWD: the vectors of the words before, padded on the left.
      ends_BW: int32, the ends of these words; 0 at [CLS] and padding.
      begun_BC: the letters from slot 1 on with which the first word begins; 0 behind them.
    """
    B, C = begun_BC.shape
    mask_BN = jnp.concatenate([mask_BW, jnp.ones((B, places), bool)], axis=1)
    writing = _Writing(model, params, mask_BN, begun_BC, keys_B, settings, greedy, cut)
    before = {"hlm": {"inter_word": kept_by_layers(model.config.inter, B, mask_BN.shape[1])}}
    context_BWD, kept = writing.run(before, "read", words_BWD, ends_BW, mask_BN)
    none_BTC = jnp.zeros((B, places, C), jnp.int32)
    nothing = WrittenWords(none_BTC, none_BTC.astype(jnp.float32))
    start = _Text(jnp.int32(0), kept, context_BWD[:, -1], nothing)
    return jax.lax.while_loop(lambda state: state.step < settings.max_new, writing.next_word, start).written


def word_writer(model: HLMForNextWord) -> Callable[..., WrittenWords]:
    """Returns `_write` for a model, compiled for each shape and each combination of `greedy` and `cut`."""
    return jax.jit(functools.partial(_write, model), static_argnames=("places", "greedy", "cut"))
