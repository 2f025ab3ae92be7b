"""The inputs and outputs of a subword tokenizer: checked texts, encoded texts, and padded batches.

Open it to see which arrays a tokenizer returns, or how texts that the library would reject are repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Encoding

T = TypeVar("T")

_SURROGATE = re.compile("[\ud800-\udfff]")


class Subwords(NamedTuple):
    """One encoded text or pair: six tuples of the same length.

    Attributes:
      ids: vocabulary ids, including the special tokens that the family's template adds ("added tokens" below).
      type_ids: segment of each token as the family numbers them (XLNet: 2 for the last token).
      special: true for added tokens; special tokens that are spelled out in the text are not marked.
      offsets: (start, end) characters in the text as it was given, before any lower-casing or normalisation; for text
        given as words, characters in the word. (0, 0) for added tokens. If several tokens come from one character,
        each has the offsets of that character: tokens of a byte-level vocabulary that cut a character, tokens of a
        character that normalises to several, and a lone `▁` before the character. The offsets of GPT-2 include the
        leading space of a token (those of RoBERTa do not), as in transformers.
      words: index of the word of each token within its own sequence: either of the given words, or of the words into
        which the family first cuts a text (BERT: punctuation is a word). None for added tokens.
      sequences: 0 for the first text, 1 for its pair, None for added tokens.
    """

    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    special: tuple[bool, ...]
    offsets: tuple[tuple[int, int], ...]
    words: tuple[int | None, ...]
    sequences: tuple[int | None, ...]


class SubwordBatch(NamedTuple):
    """Encoded texts padded to one length: int32 ids and type ids, bool mask (false at padding), all [batch, length]."""

    ids_BW: np.ndarray
    type_ids_BW: np.ndarray
    mask_BW: np.ndarray


def padded(
    batch: Sequence[Subwords], length: int | None, pad_id: int | None, pad_type_id: int, left: bool
) -> SubwordBatch:
    """Pads to `length` (None: the longest text); raises ValueError if a text is longer, or if `pad_id` is None."""
    if pad_id is None:
        raise ValueError("pad: this vocabulary has no padding token: pass pad_id= (masked, so any id will do)")
    longest = max((len(item.ids) for item in batch), default=0)
    length = longest if length is None else length
    if longest > length:
        raise ValueError(f"pad to length={length}: expected texts no longer than that, found {longest} tokens")
    ids = np.full((len(batch), length), pad_id, np.int32)
    types = np.full((len(batch), length), pad_type_id, np.int32)
    mask = np.zeros((len(batch), length), bool)
    for row, item in enumerate(batch):
        start = length - len(item.ids) if left else 0
        place = slice(start, start + len(item.ids))
        ids[row, place], types[row, place], mask[row, place] = item.ids, item.type_ids, True
    return SubwordBatch(ids, types, mask)


class SpecialIds(NamedTuple):
    """Ids of the special tokens by role, None where a family has none: BERT has cls and sep, GPT-2 bos and eos."""

    pad: int | None
    cls: int | None
    sep: int | None
    mask: int | None
    unk: int | None
    bos: int | None
    eos: int | None

    def needed(self, role: str) -> int:
        """Returns the id of a role; raises ValueError if the vocabulary has no token for it."""
        index: int | None = getattr(self, role)
        if index is None:
            raise ValueError(f"expected a vocabulary with a {role} token, this one has none")
        return index


def checked_texts(values: object) -> list[str]:
    """Returns texts with lone surrogates, which the library rejects, replaced by U+FFFD, which keeps offsets valid.

    A single text instead of several would be read letter by letter, so it raises a ValueError, as do other types.
    """
    texts = _listed(values)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"expected texts (str), found {type(text).__name__}; split words go to encode_words")
    return [text if text.isascii() else _SURROGATE.sub("\ufffd", text) for text in texts]


def checked_words(values: object) -> list[list[str]]:
    """Checks sequences of words as `checked_texts` checks texts, and returns them."""
    return [checked_texts(words) for words in _listed(values)]


def _listed(values: object) -> list[Any]:  # of anything: the caller checks each value
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"expected a list, found {type(values).__name__}")
    return list(values)


def inputs(firsts: list[T], seconds: list[T] | None) -> list[T] | list[tuple[T, T]]:
    """Returns the input of the library's `encode_batch`: texts, or pairs of texts."""
    if seconds is None:
        return firsts
    if len(firsts) != len(seconds):
        raise ValueError(f"pairs: expected {len(firsts)}, one for each text, found {len(seconds)}")
    return list(zip(firsts, seconds, strict=True))


def subwords_of(encoding: Encoding) -> Subwords:
    """Returns those parts of the library's result that charlm uses."""
    return Subwords(
        ids=tuple(encoding.ids),
        type_ids=tuple(encoding.type_ids),
        special=tuple(map(bool, encoding.special_tokens_mask)),
        offsets=tuple(encoding.offsets),
        words=tuple(encoding.word_ids),
        sequences=tuple(encoding.sequence_ids),
    )
