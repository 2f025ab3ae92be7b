"""How CharBERT reads text for fine-tuning: its units are the pieces of its tokenizer, with their characters.

Fine-tuning tasks and the predictor read text through it. Open it to see which characters unknown pieces get, and where
rows differ from the authors'.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import flax.linen as nn
import jax
import numpy as np

from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.core.flops import lengths_of
from charlm.core.types import Params
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.conversion import symbols_of
from charlm.families.charbert.flops import characters_of, charbert_forward
from charlm.families.charbert.model import CharBert, CharBertConfig
from charlm.families.subword.units import RowUnits
from charlm.families.units import Encoded, Joined, words_at
from charlm.nn.apply import applied
from charlm.text.subwords import Subwords

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained

_KNOWN = -1  # marks known pieces; unknown pieces have the number of their text instead


class CharBertUnits(RowUnits[CharBertBatch]):
    """Rows of pieces with their characters; an unknown piece has the characters of the text that it stands for.

    A unit is a piece id and, if the piece is unknown, the number of its text. With `compat_reference` the rows are laid
    out as in the authors' code for the model's task (only with labels of sequences does padding have slots), and
    unknown pieces have no characters, as in the authors' tasks with labels. In two cases the authors' code differs: in
    the context of question answering (not in the question) an unknown piece has all characters of the whole
    space-separated word around it, and in pre-training those of the noised word. This class does neither, so a row
    with unknown pieces differs from theirs.

    Args:
      pretrained: the model.
      longest: see `charlm.families.lookup.units_of`.

    Raises:
      ValueError: when there is no tokenizer, it does not fit, or the character vocabulary is missing or does not fit.
    """

    shares_rows = False  # the characters of a row are one stream, and the fusion mixes neighbouring pieces

    def __init__(self, pretrained: Pretrained, longest: int = 0) -> None:
        super().__init__(pretrained, longest)
        self._compat = pretrained.config.compat_reference
        self._chars = PieceChars(self._tokenizer, symbols_of(pretrained), self._compat)
        if self._chars.vocab.size != pretrained.config.char_vocab_size:
            raise ValueError(
                f"{pretrained.folder}: {self._chars.vocab.size} characters, but the model has rows for "
                f"{pretrained.config.char_vocab_size}: they do not belong together"
            )
        self._pads_have_slots = self._compat and pretrained.head == SEQUENCE_CLASSIFICATION
        self._unknown: dict[str, int] = {}  # text of unknown pieces -> its number
        self._texts: list[str] = []

    def fresh(self) -> Self:
        """Returns a copy without the unknown texts met so far; rows of the old object mean nothing to the copy."""
        other = copy.copy(self)
        other._unknown, other._texts = {}, []
        return other

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the pieces of texts."""
        texts = list(texts)
        items = self._tokenizer.encode_batch(texts)
        return [self._encoded(item, [text], False) for item, text in zip(items, texts, strict=True)]

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the pieces of words; a word without pieces gets the unknown token."""
        sentences = [list(words) for words in sentences]
        items = self._tokenizer.encode_words_batch(sentences)
        return [self._encoded(item, words, True) for item, words in zip(items, sentences, strict=True)]

    def _encoded(self, item: Subwords, texts: Sequence[str], words: bool) -> Encoded:
        inner = [i for i, special in enumerate(item.special) if not special]
        of_words = words_at(item.words, inner) if words else None
        content = np.full((len(inner), 2), _KNOWN, np.int32)
        for row, i in enumerate(inner):
            content[row, 0] = item.ids[i]
            if item.ids[i] == self._tokenizer.special.unk:
                start, end = item.offsets[i]
                content[row, 1] = self._number((texts[of_words[row]] if of_words else texts[0])[start:end])
        offsets = tuple(item.offsets[i] for i in inner)
        return Encoded(content, offsets, of_words)

    def _number(self, text: str) -> int:
        """Returns the number of the text of an unknown piece; assigns new numbers in order."""
        if text not in self._unknown:
            self._unknown[text] = len(self._texts)
            self._texts.append(text)
        return self._unknown[text]

    def join(self, first: Encoded, second: Encoded | None = None) -> Joined:
        """Returns ids, segments and numbers of unknown texts [L, 3] of the row; see `Units.join`."""
        parts = [(first, first.content[:, 1])] + ([] if second is None else [(second, second.content[:, 1])])
        joined = super().join(*(dataclasses.replace(part, content=part.content[:, 0]) for part, _ in parts))
        numbers_L = np.full((joined.length, 1), _KNOWN, np.int32)
        for start, (_, numbers) in zip((joined.first, joined.second), parts, strict=False):
            numbers_L[start : start + len(numbers), 0] = numbers
        return joined._replace(content=np.concatenate([joined.content, numbers_L], axis=1))

    def pack(self, rows: Sequence[Joined], shape: tuple[int, int]) -> CharBertBatch:
        """Returns the rows, padded on the right."""
        bare = [row._replace(content=row.content[:, :2]) for row in rows]
        inputs = self._padded(bare, shape)
        ids = [row.content[:, 0] for row in rows]
        chars = self._chars.rows(ids, *shape, [self._under(row) for row in rows], self._pads_have_slots)
        return CharBertBatch(*inputs, *chars)

    def _under(self, row: Joined) -> dict[int, str]:
        """Returns the texts of unknown pieces by their place in the row."""
        numbers_L = row.content[:, 2]
        return {place: self._texts[numbers_L[place]] for place in np.flatnonzero(numbers_L != _KNOWN).tolist()}

    def apply(
        self, model: nn.Module, params: Params, inputs: CharBertBatch, dropout: jax.Array | None = None
    ) -> jax.Array:
        """Returns the logits; see `Units.apply`."""
        return super().apply(model, params, _merged(inputs), dropout)

    def states(self, config: CharBertConfig, params: Params, inputs: CharBertBatch) -> jax.Array:
        """Returns the last states of both channels concatenated [N, L, 2D], as the heads read them."""
        return applied(CharBert(config), {"params": params["charbert"]})(_merged(inputs)).both_BLE

    def forward_flops(self, config: CharBertConfig, inputs: CharBertBatch) -> float:
        """Returns the operations of both channels; see `Units.forward_flops`."""
        return charbert_forward(config, lengths_of(inputs.mask_BL), characters_of(inputs))


def _merged(inputs: CharBertBatch) -> CharBertBatch:
    """Returns the batch with its shard axis merged into the row axis."""
    return jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), inputs)
