"""Makes the input of CharBERT's character channel: the characters of subwords (Ma et al., COLING 2020, section 3.3).

Pre-training, fine-tuning and the predictor all use it. Open it when a token gets the wrong characters.

The characters of all tokens stand end to end in one row of `slots`, with an empty slot (id 0) after every token. For
every token there are the slots of its first and of its last character:

    tokens  [CLS]  ab  c  [SEP]          chars   0 0 a b 0 c 0 0 0 0 ...
    starts  0      2   5  7              ends    0 3 5 7

Special tokens, and tokens that must not be recognised (masked ones), are a single 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from charlm.text.symbols import SymbolVocab

if TYPE_CHECKING:
    from charlm.text.subwords import SubwordTokenizer

SLOTS_PER_TOKEN = 6  # as released (run_lm_finetuning.py, char_maxlen_for_word)
SPARE_SLOTS = 64  # added to those, except with `compat_reference`: a short text may have long words
_CONTINUATION = "##"  # WordPiece's mark of continuation pieces
_HIDDEN = np.zeros(1, np.int32)  # the characters of a token that has none or must not show them


class CharInputs(NamedTuple):
    """The character side of one row of L tokens; N = `slots`.

    Attributes:
      chars_N: int32, ids of a `SymbolVocab`; 0 between tokens, at tokens without characters and after the last.
      starts_L: int32, the slot of each token's first character; 0 at padding.
      ends_L: int32, the slot of each token's last character (inclusive); 0 at padding.
    """

    chars_N: np.ndarray
    starts_L: np.ndarray
    ends_L: np.ndarray


def slots_for(tokens: int) -> int:
    """Returns the slots of a row with so many real tokens; they do not depend on the length the row is padded to."""
    return SLOTS_PER_TOKEN * tokens + SPARE_SLOTS


def lay_out(lengths_T: np.ndarray, values: np.ndarray, length: int, slots: int) -> CharInputs:
    """Lays the characters of T real tokens into a row.

    No token is dropped. When the characters do not fit, the longest tokens lose their last characters: all tokens are
    cut to the largest common length at which they fit. The layout does not depend on `length`, so the outputs of a
    model that masks padding depend only on the tokens and `slots`. Padding gets no slot; its start and end are 0.

    Args:
      lengths_T: number of characters of each token, at least 1 each.
      values: int, the characters of all tokens end to end.
      length: L, the number of tokens including padding.
      slots: N; every token needs at least two, one for a character and one empty.

    Raises:
      ValueError: T is above `length`, a token has no character, or `slots` is below 2 T.
    """
    T = len(lengths_T)
    _check_row(lengths_T, values, length, slots)
    if T and lengths_T.min() < 1:
        raise ValueError("lay_out: a token without characters: expected at least one, 0 for a special token")
    if slots < 2 * T:
        raise ValueError(f"lay_out: {slots} slots for {T} tokens, expected at least {2 * T}")
    kept_T = np.minimum(lengths_T, _common_length(lengths_T, slots - T))
    starts_T = np.cumsum(kept_T + 1) - (kept_T + 1)
    chars_N = np.zeros(slots, np.int32)
    source = np.cumsum(lengths_T) - lengths_T
    chars_N[_runs(starts_T, kept_T)] = values[_runs(source, kept_T)]
    starts_L, ends_L = np.zeros((2, length), np.int32)
    starts_L[:T] = starts_T
    ends_L[:T] = starts_T + kept_T - 1
    return CharInputs(chars_N, starts_L, ends_L)


def lay_out_as_released(
    lengths_T: np.ndarray, values: np.ndarray, length: int, slots: int, pads_have_slots: bool
) -> CharInputs:
    """Lays out a row as the authors' code does, including its mistakes, for parity with released weights.

    A token without characters has its empty slot but no start and no end, so the starts and ends of all later tokens
    move one token to the left. The row is cut at the last slot, even inside a token. Starts and ends that are missing
    because of this point to the last slot.

    Args:
      lengths_T: number of characters of each token; 0 if stripping "#" from both ends left nothing.
      values: int, the characters of all tokens end to end.
      length: L, the number of tokens including padding.
      slots: N, the number of character slots.
      pads_have_slots: True: each padding token has one character 0 (the authors' GLUE tasks); False: padding has no
        slots (all their other tasks).

    Raises:
      ValueError: T is above `length`, or `values` is not as long as the lengths say.
    """
    _check_row(lengths_T, values, length, slots)
    source_T = np.cumsum(lengths_T) - lengths_T
    starts_T = np.cumsum(lengths_T + 1) - (lengths_T + 1)
    target, origin = _runs(starts_T, lengths_T), _runs(source_T, lengths_T)
    chars_N = np.zeros(slots, np.int32)
    chars_N[target[target < slots]] = values[origin[target < slots]]
    if pads_have_slots:
        first = int(np.sum(lengths_T + 1))
        pads = first + 2 * np.arange(length - len(lengths_T), dtype=starts_T.dtype)
        starts_T = np.concatenate([starts_T, pads])
        lengths_T = np.concatenate([lengths_T, np.ones_like(pads)])
    ends_T = starts_T + lengths_T - 1
    starts_L, ends_L = np.full((2, length), slots - 1, np.int32)
    for target_L, place_T in ((starts_L, starts_T), (ends_L, ends_T)):
        place_T = place_T[(lengths_T > 0) & (place_T < slots)]
        target_L[: len(place_T)] = place_T
    return CharInputs(chars_N, starts_L, ends_L)


class PieceChars:
    """The characters of every piece of a subword vocabulary, looked up once, so that rows are made without a loop."""

    def __init__(self, tokenizer: SubwordTokenizer, vocab: SymbolVocab, compat_reference: bool = False) -> None:
        """Looks up the characters of all pieces.

        A piece is spelled as in its vocabulary (byte-level pieces by their glyphs, `Ġ` included), without the `##` of a
        WordPiece continuation. Special tokens and unused ids are a single 0.

        Args:
          compat_reference: work as the authors' code does: strip every "#" from both ends of a piece, even where it is
            text ("C#" becomes "C" in a byte-level vocabulary, "#" becomes empty), and lay out rows by
            `lay_out_as_released`.
        """
        self.vocab = vocab
        self.compat_reference = compat_reference
        spelled = [self._spell(tokenizer, index) for index in range(tokenizer.size)]
        self._lengths_V = np.array([len(ids) for ids in [*spelled, _HIDDEN]], np.int64)
        self._offsets_V = np.cumsum(self._lengths_V) - self._lengths_V
        self._flat = np.concatenate([*spelled, _HIDDEN])

    @property
    def lengths_V(self) -> np.ndarray:
        """The number of characters of every piece of the vocabulary, int64; 1 for pieces that are a single 0."""
        return self._lengths_V[:-1]

    def _spell(self, tokenizer: SubwordTokenizer, index: int) -> np.ndarray:
        """Returns the characters of a piece."""
        try:
            token, surface = tokenizer.token(index), tokenizer.surface(index)
        except ValueError:  # ids may have gaps
            return _HIDDEN
        if surface is None:
            return _HIDDEN
        if self.compat_reference:
            return self.vocab.ids(token.strip("#"))
        continues = token.startswith(_CONTINUATION) and token[len(_CONTINUATION) :] == surface.chars != ""
        return self.vocab.ids(surface.chars if continues else token)

    def row(
        self,
        ids_T: np.ndarray,
        length: int | None = None,
        slots: int | None = None,
        *,
        hidden_T: np.ndarray | None = None,
        texts: Mapping[int, str] | None = None,
        pads_have_slots: bool = False,
    ) -> CharInputs:
        """Returns the character side of the T real tokens of a row.

        Args:
          ids_T: subword ids without padding.
          length: L; None: T.
          slots: N; None: 6 L, as released.
          hidden_T: bool, True at tokens whose characters must not be seen: those to be predicted, whether they are
            masked, replaced or kept.
          texts: by place in the row, a text whose characters replace those of the token: the text of an unknown token,
            which the piece itself does not show. An empty text changes nothing.
          pads_have_slots: with `compat_reference` only; see `lay_out_as_released`.

        Raises:
          ValueError: there are more tokens than `length`, too few slots, or a place or an id does not exist.
        """
        ids_T = np.asarray(ids_T, np.int64)
        length = len(ids_T) if length is None else length
        slots = SLOTS_PER_TOKEN * length if slots is None else slots
        if len(ids_T) and not 0 <= ids_T.min() <= ids_T.max() < len(self._lengths_V) - 1:
            raise ValueError(
                f"subword ids from {ids_T.min()} to {ids_T.max()}: expected 0 to {len(self._lengths_V) - 2}"
            )
        if hidden_T is not None:
            ids_T = np.where(hidden_T, len(self._lengths_V) - 1, ids_T)
        lengths_T = self._lengths_V[ids_T]
        values = self._flat[_runs(self._offsets_V[ids_T], lengths_T)]
        if texts := {place: text for place, text in (texts or {}).items() if text}:
            lengths_T, values = self._with_texts(lengths_T, values, texts)
        if self.compat_reference:
            return lay_out_as_released(lengths_T, values, length, slots, pads_have_slots)
        return lay_out(lengths_T, values, length, slots)

    def rows(
        self,
        ids: Sequence[np.ndarray],
        rows: int,
        length: int,
        texts: Sequence[Mapping[int, str]] | None = None,
        pads_have_slots: bool = False,
    ) -> CharInputs:
        """Returns the character side of a padded batch: arrays [rows, N], [rows, length] and [rows, length].

        The slots of a row follow from its own length (`slots_for`), so padding does not change its layout. With
        `compat_reference` they follow from the padded length, as released, and `texts` are ignored.

        Args:
          ids: the ids of each row, without padding; any further rows are empty.
          texts, pads_have_slots: see `row`.

        Raises:
          ValueError: see `row`.
        """
        slots = SLOTS_PER_TOKEN * length if self.compat_reference else slots_for(length)
        batch = CharInputs(*(np.zeros((rows, size), np.int32) for size in (slots, length, length)))
        for b, ids_T in enumerate(ids):
            if self.compat_reference:
                found = self.row(ids_T, length, slots, pads_have_slots=pads_have_slots)
            else:
                found = self.row(ids_T, slots=slots_for(len(ids_T)), texts=texts[b] if texts else None)
            for array, part in zip(batch, found, strict=True):
                array[b, : len(part)] = part
        return batch

    def _with_texts(
        self, lengths_T: np.ndarray, values: np.ndarray, texts: Mapping[int, str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lengths and characters of a row after replacing those of the tokens at the places of `texts`."""
        if not 0 <= min(texts) <= max(texts) < len(lengths_T):
            raise ValueError(f"texts for places {min(texts)} to {max(texts)}: expected 0 to {len(lengths_T) - 1}")
        parts = np.split(values, np.cumsum(lengths_T)[:-1])
        for place, text in texts.items():
            parts[place] = self.vocab.ids(text)
        return np.array([len(part) for part in parts], np.int64), np.concatenate(parts)


def _check_row(lengths_T: np.ndarray, values: np.ndarray, length: int, slots: int) -> None:
    if len(lengths_T) > length:
        raise ValueError(f"{len(lengths_T)} tokens in a row of {length}")
    if slots < 1 or len(values) != lengths_T.sum():
        raise ValueError(f"{len(values)} characters in {slots} slots: expected {lengths_T.sum()} of them, and a slot")


def _common_length(lengths_T: np.ndarray, room: int) -> int:
    """Returns the largest length such that all tokens, cut to it, have at most `room` characters in total."""
    longest = int(lengths_T.max(initial=0))
    if lengths_T.sum() <= room:
        return longest
    longer_than = len(lengths_T) - np.cumsum(np.bincount(lengths_T, minlength=longest + 1))  # tokens above 0, 1, 2 ...
    return int(np.searchsorted(np.cumsum(longer_than), room, side="right"))


def _runs(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the indices start, start + 1, ... of every run, end to end; a run has `lengths` indices."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
