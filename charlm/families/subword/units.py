"""How BERT, RoBERTa, RoFormer and GPT-2 read text for fine-tuning: their units are the pieces of their tokenizers.

Other families that read pieces subclass `PieceUnits` or `RowUnits`. Open it to see how texts and pairs become rows with
special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import flax.linen as nn
import jax
import numpy as np

from charlm.core.flops import text_lengths
from charlm.core.types import Array, Option, Params, Tree
from charlm.families.subword.bert import Bert, BertConfig
from charlm.families.subword.flops import bert_forward
from charlm.families.subword.gpt2 import GPT2, GPT2Config
from charlm.families.units import (
    Encoded,
    Inputs,
    Joined,
    Lost,
    Packing,
    RoomyPacking,
    Shape,
    Units,
    check_ids,
    checked_longest,
    part_numbers,
    words_at,
)
from charlm.text.subwords import Subwords, SubwordTokenizer

if TYPE_CHECKING:
    from charlm.families.pretrained import Pretrained


class SubwordRows(NamedTuple):
    """Rows of pieces [..., B, L]: int32 ids, int32 segments, and the mask of real pieces (`charlm.nn.masks`)."""

    ids_BL: Array
    types_BL: Array
    mask_BL: Array


class Template(NamedTuple):
    """The special pieces before, between and after texts, as rows of (id, segment); `types`: segments of the texts."""

    before: np.ndarray
    between: np.ndarray
    after: np.ndarray
    types: tuple[int, int]


class PieceUnits(Units[Shape, Inputs]):
    """Rows of pieces with special tokens, for example [CLS] pieces [SEP], as in the tokenizer's template.

    GPT-2 has no template: the end-of-text token closes each text. The last token, which has read everything, represents
    the row, and a word's label is at its last piece, the only one that has read the whole word, unless the model's
    config says the first.

    Args:
      pretrained: the model.
      longest: see `charlm.families.lookup.units_of`.

    Raises:
      ValueError: when there is no tokenizer, or some of its ids have no row in the model.
    """

    shares_rows = True
    _causal = False  # whether the last position represents a row

    def __init__(self, pretrained: Pretrained, longest: int = 0) -> None:
        self._tokenizer = pretrained.tokenizer()
        config = pretrained.config
        check_ids(pretrained.folder, "the tokenizer has", self._tokenizer.size, config.vocab_size)
        causal = isinstance(config, GPT2Config)
        self._causal = causal
        self.labelled = config.labelled if causal else "first"
        self._pad = getattr(config, "pad_id", 0)
        # A model with only one segment has no row for a second one.
        self._one_type = getattr(config, "type_vocab", 1) < 2
        self._has_types = not causal
        self._single, self._double = (_causal(self._tokenizer, pair) if causal else self._template(pair) for pair in
                                      (False, True))  # fmt: skip
        most = config.max_positions if causal else config.longest
        self.longest = checked_longest(longest, most, self.specials(True) + 4)

    @property
    def padding(self) -> int:
        """The id that stands at padding."""
        return self._pad

    @property
    def segments(self) -> bool:
        """Whether the second text of a pair is in another segment than the first."""
        return bool(self._double.types[1])

    @property
    def around(self) -> tuple[list[int], list[int]]:
        """The units before and after a single text (not a pair)."""
        return self._single.before[:, 0].tolist(), self._single.between[:, 0].tolist()

    def _template(self, pair: bool) -> Template:
        item = self._tokenizer.encode("a", "b" if pair else None)
        types = [0] * len(item.ids) if self._one_type else item.type_ids
        rows = np.array([item.ids, types], np.int32).T
        inner = [[i for i, s in enumerate(item.sequences) if s == side] for side in (0, 1)]
        first = inner[0]
        second = inner[1] or [len(rows)]
        if not first:
            raise ValueError("the tokenizer has no piece for the letter a: it is not one for text")
        of_second = int(types[second[0]]) if pair else 0
        between = rows[first[-1] + 1 : second[0]]
        after = rows[second[-1] + 1 :] if pair else np.zeros((0, 2), np.int32)
        return Template(rows[: first[0]], between, after, (int(types[first[0]]), of_second))

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the pieces of texts."""
        return [_encoded(item, False) for item in self._tokenizer.encode_batch(list(texts))]

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the pieces of words; a word without pieces gets the unknown token."""
        return [_encoded(item, True) for item in self._tokenizer.encode_words_batch([list(s) for s in sentences])]

    def lost(self, sentences: Sequence[Sequence[str]], encoded: Sequence[Encoded]) -> Lost:
        """Returns the share of unknown pieces; see `Units.lost`."""
        ids = np.concatenate([item.content for item in encoded])
        return Lost(float((ids == self._tokenizer.special.unk).mean()), 0.0)

    def specials(self, pair: bool) -> int:
        """Returns the number of special pieces in a row."""
        template = self._double if pair else self._single
        return len(template.before) + len(template.between) + len(template.after)

    def join(self, first: Encoded, second: Encoded | None = None) -> Joined:
        """Returns ids and segments [L, 2] of the row; see `Units.join`."""
        template = self._single if second is None else self._double
        parts = [template.before, _with_type(first, template.types[0]), template.between]
        if second is not None:
            parts += [_with_type(second, template.types[1]), template.after]
        content = np.concatenate(parts)
        start = len(template.before)
        whole = len(content) - 1 if self._causal else 0
        return Joined(content, len(content), start, start + len(first) + len(template.between), whole)


class RowUnits(PieceUnits[tuple[int, int], Inputs]):
    """Pieces whose batches are padded rows, without tables of distinct words."""

    def measure(
        self, groups: Sequence[Sequence[Joined]], rows: int, length: int, slack: float = 0.0, least: int = 0
    ) -> tuple[int, int]:
        """Returns (rows, length), since pieces need no tables."""
        return rows, length

    def widest(self, rows: int, length: int) -> tuple[int, int]:
        """Returns (rows, length)."""
        return rows, length

    def packing(self, shape: tuple[int, int]) -> Packing[Inputs]:
        """Returns what takes any rows."""
        return RoomyPacking(lambda rows: self.pack(rows, shape))

    def _padded(self, rows: Sequence[Joined], shape: tuple[int, int]) -> SubwordRows:
        """Returns the rows, padded on the right."""
        B, L = shape
        ids, types, mask = np.full((B, L), self._pad, np.int32), np.zeros((B, L), np.int32), np.zeros((B, L), bool)
        for b, row in enumerate(rows):
            ids[b, : row.length], types[b, : row.length] = row.content.T
            mask[b, : row.length] = True
        return SubwordRows(ids, types, mask)


class SubwordUnits(RowUnits[SubwordRows]):
    """The pieces of BERT, RoBERTa, RoFormer and GPT-2."""

    def pack(self, rows: Sequence[Joined], shape: tuple[int, int]) -> SubwordRows:
        """Returns the rows, padded on the right."""
        return self._padded(rows, shape)

    def numbered(self, inputs: SubwordRows, rows: Sequence[Joined]) -> SubwordRows:
        """Returns the rows with a mask that numbers their parts; see `Units.numbered`."""
        return inputs._replace(mask_BL=part_numbers(rows, inputs.mask_BL.shape))

    def apply(
        self, model: nn.Module, params: Params, inputs: SubwordRows, dropout: jax.Array | None = None
    ) -> jax.Array:
        """Returns the logits; see `Units.apply`."""
        rngs = None if dropout is None else {"dropout": dropout}
        return self._run(model, params, inputs, deterministic=dropout is None, rngs=rngs)

    def states(self, config: BertConfig | GPT2Config, params: Params, inputs: SubwordRows) -> jax.Array:
        """Returns the last states; see `Units.states`."""
        if isinstance(config, GPT2Config):
            return self._run(GPT2(config), params["gpt2"], inputs).states_BLD
        return self._run(Bert(config), params["bert"], inputs).states_BLD

    def forward_flops(self, config: BertConfig | GPT2Config, inputs: SubwordRows) -> float:
        """Returns the operations of the layers; see `Units.forward_flops`."""
        return bert_forward(config, text_lengths(inputs.mask_BL))

    def _run(self, model: nn.Module, params: Params, inputs: SubwordRows, **options: Option) -> Tree:
        ids, types, mask = (x.reshape(-1, x.shape[-1]) for x in inputs)
        segments = {"types_BL": types} if self._has_types else {}
        return model.apply({"params": params}, ids, mask, **options, **segments)


def _causal(tokenizer: SubwordTokenizer, pair: bool) -> Template:
    """Returns the special pieces of a causal model without a template: an end-of-text token after each text."""
    if tokenizer.special.eos is None:
        raise ValueError("the vocabulary has no end-of-text token")
    end = np.array([[tokenizer.special.eos, 0]], np.int32)
    return Template(end[:0], end, end if pair else end[:0], (0, 0))


def _encoded(item: Subwords, words: bool) -> Encoded:
    inner = [i for i, special in enumerate(item.special) if not special]
    ids = np.array([item.ids[i] for i in inner], np.int32)
    offsets = tuple(item.offsets[i] for i in inner)
    return Encoded(ids, offsets, words_at(item.words, inner) if words else None)


def _with_type(part: Encoded, segment: int) -> np.ndarray:
    return np.stack([part.content, np.full(len(part), segment, np.int32)], axis=1).astype(np.int32)
