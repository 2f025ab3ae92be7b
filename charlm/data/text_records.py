"""Records that keep the words of consecutive sentences as text, for families that cut words into subwords.

Open it to see the bytes of such a record; `charlm.data.records` has the form with character ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class TextRecord(NamedTuple):
    """Consecutive sentences of one corpus: S sentences with W words in all.

    Attributes:
      sentences: number of words in each sentence, unsigned [S].
      words: number of characters in each word, unsigned [W].
      spaces: bool [W], whether a space comes before the word; True for the first word of a paragraph.
      chars: code points of all words, one word after another, unsigned [sum of `words`].
    """

    sentences: np.ndarray
    words: np.ndarray
    spaces: np.ndarray
    chars: np.ndarray

    @classmethod
    def of(cls, sentences: Sequence[int], words: Sequence[str], spaces: Sequence[bool]) -> TextRecord:
        """Returns the record of these words; raises ValueError when the numbers do not agree."""
        lengths = [len(word) for word in words]
        if sum(sentences) != len(words) or len(spaces) != len(words):
            raise ValueError(
                f"inconsistent record: sentences of {sum(sentences)} words, {len(words)} words, {len(spaces)} spaces"
            )
        codes = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), np.uint32)
        return cls(_narrow(sentences), _narrow(lengths), np.asarray(spaces, bool), _narrow(codes))

    def texts(self) -> list[str]:
        """Returns the words as text."""
        text = self.chars.astype(np.uint32).tobytes().decode("utf-32-le", "surrogatepass")
        ends = itertools.accumulate(self.words.tolist(), initial=0)
        return [text[start:end] for start, end in itertools.pairwise(ends)]


def _narrow(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns unsigned integers in the smallest type that can hold them."""
    array = np.asarray(values, np.uint32)
    return array.astype(np.min_scalar_type(int(array.max(initial=0))))


def write_text_record(record: TextRecord) -> bytes:
    """Serializes a `TextRecord`."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in record._asdict().items()})


def read_text_record(data: bytes) -> TextRecord:
    """Parses bytes of `write_text_record` into read-only arrays; raises ValueError for any other bytes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        return TextRecord(*(arrays[name] for name in TextRecord._fields))
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not a record of text of charlm: {error}") from error
