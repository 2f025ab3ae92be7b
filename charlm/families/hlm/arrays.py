"""The plain arrays that an HLM reads outside of charlm: the characters of distinct words, and where each word stands.

`charlm.export` makes programs of them. Open it to change what such a program reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import JsonObject
from charlm.data.word_batch import MaskedWords, WordBatch
from charlm.families.arrays import ArrayInput, Arrays, distinct, padded
from charlm.families.hlm.units import HLMUnits
from charlm.families.units import Joined, Units
from charlm.text.chars import CHAR_VOCAB_FILE, CLS, FIRST_CHAR, SEP, UNK, WORD_CLS

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

# Python that stands beside an exported program; see `Arrays.recipe`.


_CHARACTERS = """\
ids = json.load(open(f"{folder}/char_vocab.json"))


def characters(word):  # behind a mark; a long word is cut
    return (reading["word"], *(ids.get(char, reading["unknown"]) for char in word[: reading["slots"] - 1]))
"""
_CHARACTERS_BY_BYTES = """\
ids = json.load(open(f"{folder}/char_vocab.json"))


def spelled(char):  # a character without an id by the bytes of its UTF-8
    return [ids[char]] if char in ids else [reading["bytes"] + byte for byte in char.encode()]


def characters(word):  # behind a mark; a long word is cut between characters
    found = [reading["word"]]
    for char in map(spelled, word):
        if len(found) + len(char) > reading["slots"]:
            break
        found += char
    return tuple(found)
"""
_ARRAYS_OF = """

def arrays_of(texts):
    rows = [[(reading["cls"],), *map(characters, words), (reading["sep"],)] for words in texts]
    numbers = {word: n for n, word in enumerate(dict.fromkeys(word for row in rows for word in row))}
    chars = np.zeros((len(numbers), max(2, *map(len, numbers))), np.int32)
    for word, n in numbers.items():
        chars[n, : len(word)] = word
    return {"chars": chars, "index": padded([[numbers[word] for word in row] for row in rows])}"""


class HLMArrays(Arrays):
    """Words are rows of characters behind [WORD_CLS]; [CLS] and [SEP] are words of one character."""

    units: HLMUnits
    texts = "lists of words: a list of words for each text, punctuation marks being words of their own"

    def __init__(self, pretrained: Pretrained, units: Units) -> None:
        super().__init__(pretrained, units)
        self._by_bytes = pretrained.vocab().by_bytes
        self.recipe = (_CHARACTERS_BY_BYTES if self._by_bytes else _CHARACTERS) + _ARRAYS_OF

    @property
    def inputs(self) -> tuple[ArrayInput, ...]:
        """See `Arrays`."""
        return (
            ArrayInput("chars", ("words", "slots"), "the characters of each distinct word, 0 pads"),
            ArrayInput("index", ("batch", "length"), "the row of chars at each position, -1 pads"),
        )

    @property
    def bounds(self) -> tuple[str, ...]:
        """See `Arrays`; [CLS] and [SEP] are always there, and a word has a mark and a character."""
        return (*super().bounds, "length >= 2", "slots >= 2")

    def of(self, rows: Sequence[Joined]) -> dict[str, np.ndarray]:
        """See `Arrays`."""
        chars_UC, number_N = distinct(np.concatenate([row.content.chars_WC for row in rows]))
        ends = np.cumsum([row.length for row in rows])
        return {"chars": chars_UC, "index": padded(np.split(number_N, ends[:-1]))}

    def batch(self, arrays: Mapping[str, jax.Array]) -> WordBatch:
        """See `Arrays`."""
        chars_UC, index_BW = arrays["chars"], arrays["index"]
        mask_BW, index_BW = index_BW >= 0, jnp.maximum(index_BW, 0)
        B, W = index_BW.shape
        if self.units.read == "none":
            return WordBatch((chars_UC[None],), (), index_BW[None], mask_BW[None])
        if self.units.read == "first":  # the first word of each text is read whole, too
            first_BC = chars_UC[index_BW[:, 0]]
            masked = MaskedWords(first_BC, jnp.arange(B, dtype=jnp.int32) * W, jnp.arange(B), first_BC)
            index_BW, others = index_BW + B, (chars_UC[None],)
        else:
            read_NC = jnp.where(mask_BW.reshape(-1, 1), chars_UC[index_BW.reshape(-1)], 0)
            masked = MaskedWords(chars_UC, jnp.arange(B * W, dtype=jnp.int32), index_BW.reshape(-1), read_NC)
            others = ()
        return WordBatch(others, (jax.tree.map(lambda x: x[None], masked),), index_BW[None], mask_BW[None])

    def reading(self) -> JsonObject:
        """See `Arrays`."""
        text = self.pretrained.run_config().text
        return {
            "word": WORD_CLS,
            **({"bytes": FIRST_CHAR} if self._by_bytes else {"unknown": UNK}),
            "cls": CLS,
            "sep": SEP,
            "slots": self.units.slots,
            "normalize": text.normalize,
            "splitter": text.splitter,
            "language": text.language,
        }

    def write_beside(self, folder: Path) -> None:
        """See `Arrays`."""
        self.pretrained.vocab().save(folder / CHAR_VOCAB_FILE)
