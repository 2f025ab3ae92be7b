"""A BERT that reads misspelled words as the words that they may mean, with the speller whose file lies beside it.

Where a speller (`charlm.text.speller`) reads a word as others, the transformer reads the mean of their rows of the
table, weighed by how likely each is. Words of several pieces are left out of it; if one is the likeliest, it is read
alone. Letters of other scripts that look like ASCII are read as these. The transformer learns nothing for it, and all
other positions are those of the model itself. Open it to change what the transformer reads in place of a word.
"""

from __future__ import annotations

import copy
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import Tree
from charlm.families.arguments import checked_texts
from charlm.families.pretrained import Pretrained
from charlm.families.subword.bert import Bert, BertConfig
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.views import AttentionView
from charlm.families.windows import Text, Window, text_of
from charlm.nn.apply import applied
from charlm.nn.outputs import TransformerOutput
from charlm.text.defences import Normal
from charlm.text.noise.edits import Edit, NoisedText
from charlm.text.speller import Lexicon, Reading, Speller, mixed
from charlm.text.speller.context import Context
from charlm.text.speller.files import StoredSpeller, read_speller
from charlm.text.speller.ways import SHORTEST
from charlm.text.subwords import SubwordTokenizer

_FIRST = 3  # the rank of the most frequent word, by Zipf's law, as if that many were more frequent
# Weights of words of one letter, and of other single letters, of which a table does not say how frequent they are.
_ONE, _LETTER = 1 / 5, 1 / 3000
_BETWEEN_SPACES = re.compile(r"\S+")
NO_FILLS = "it reads through a speller, which makes vectors of texts; take the model without it to fill gaps"


def table_words(tokenizer: SubwordTokenizer) -> dict[str, float]:
    """Returns the whole words of a table with weights by Zipf's law.

    A WordPiece table is sorted by frequency, so a word's place among the words is its rank.

    Raises:
      ValueError: the tokenizer does not mark pieces that continue words, or keeps the case of letters.
    """
    if not tokenizer.marks_continuations or "".join(tokenizer.normalized("A").split()) != "a":
        raise ValueError(
            "a speller: expected a WordPiece tokenizer that lowercases text, such as that of bert-base-uncased"
        )
    found, rank = {}, _FIRST
    for index in sorted(tokenizer.ids()):
        look = tokenizer.surface(index)
        if look is None or not look.whole or not look.starts_word or not look.chars.isalpha():
            continue
        if len(look.chars) == 1:
            found[look.chars] = _ONE if look.chars in SHORTEST else _LETTER
            continue
        rank += 1
        found[look.chars] = 1 / rank
    return found


def speller_of(
    stored: StoredSpeller, tokenizer: SubwordTokenizer, width: int, vector_of: Callable[[str], np.ndarray | None]
) -> Speller:
    """Returns the speller of a file for a model's tokenizer.

    Args:
      width: of the rows of the model's table.
      vector_of: returns the row of a word, float32 [width]; None if it has several.

    Raises:
      ValueError: the tokenizer is none that a speller can work with, or the context was trained on another table.
    """
    words = table_words(tokenizer)
    lexicon = Lexicon(mixed(words, stored.words) if stored.words else words)
    context = None
    if stored.context is not None:
        if len(stored.context.word_DH) != width:
            raise ValueError(
                f"the speller's context is for a table of width {len(stored.context.word_DH)}, the model's is {width}: "
                "charlm search context trains one"
            )
        context = Context(stored.context, vector_of)
    return Speller(lexicon, stored.settings, tokenizer.normalized, context)


class Respelled(nn.Module):
    """A BERT some of whose positions read vectors that are given instead of rows of the table."""

    config: BertConfig

    def setup(self) -> None:
        self.bert = Bert(self.config)

    def __call__(self, vectors_BLD: jax.Array, ids_BL: jax.Array, mask_BL: jax.Array) -> TransformerOutput:
        """Returns the transformer's output.

        Args:
          vectors_BLD: float32, read at positions whose id is negative.
          ids_BL: int32, rows of the table.
          mask_BL: as in `Bert.__call__`.
        """
        rows_BLD = self.bert.embed_tokens(jnp.maximum(ids_BL, 0))
        read_BLD = jnp.where((ids_BL < 0)[..., None], vectors_BLD, rows_BLD)
        return self.bert(None, mask_BL, types_BL=jnp.zeros_like(ids_BL), embeddings_BLD=read_BLD)


class BertPredictor(SubwordPredictor):
    """A BERT with its tokenizer, and with a speller if the file of one lies beside it."""

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> SubwordPredictor:
        """Returns the predictor of a loaded model; ValueError if the file of a speller is damaged or does not fit."""
        stored = read_speller(pretrained.folder)
        return cls(pretrained) if stored is None else RespelledPredictor(pretrained, stored)

    @classmethod
    def with_speller(cls, pretrained: Pretrained, stored: StoredSpeller) -> SubwordPredictor:
        """Returns the predictor behind a speller; see `Predictor.with_speller`."""
        return RespelledPredictor(pretrained, stored)


class RespelledPredictor(SubwordPredictor):
    """A BERT with its tokenizer and a speller, which makes vectors of texts.

    Words and offsets are those of the text as it is written.

    Args:
      pretrained: the model.
      stored: what lies beside it.

    Raises:
      ValueError: there is no tokenizer, or it is none that the speller can work with.
    """

    def __init__(self, pretrained: Pretrained, stored: StoredSpeller) -> None:
        super().__init__(pretrained)
        self.missing = {**self.missing, "fill_mask": NO_FILLS}
        if "bert" not in self._params:  # it has no head
            self._params = {"bert": self._params}
        self._table_VD = np.asarray(self._params["bert"]["embed"]["token"]["embedding"], np.float32)
        self._single: dict[str, int | None] = {}
        self._normal = Normal()
        self._speller = speller_of(stored, self.tokenizer, self._table_VD.shape[1], self._vector)
        self._mixtures: list[list[tuple[int, float]]] = []  # of the call; the code -1 - m is mixture m

    def _programs(self, model: nn.Module) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
        respelled = Respelled(self.config)
        states = lambda p, *inputs: applied(respelled, {"params": p})(*inputs).states_BLD.astype(np.float32)
        return jax.jit(states), super()._programs(model)[1]

    def _probing(self, model: nn.Module) -> Callable[..., dict[str, list[jax.Array]]]:
        return super()._probing(Respelled(self.config))

    def _inputs(self, ids_BL: np.ndarray, mask_BL: np.ndarray, unknown: Sequence[dict[int, str]]) -> tuple[Tree, ...]:
        """Returns the inputs of `Respelled`."""
        vectors_BLD = np.zeros((*ids_BL.shape, self.config.hidden), np.float32)
        for b, place in zip(*np.nonzero(ids_BL < 0), strict=True):
            ids, shares = zip(*self._mixtures[-1 - ids_BL[b, place]], strict=True)
            vectors_BLD[b, place] = np.array(shares, np.float32) @ self._table_VD[list(ids)]
        return vectors_BLD, ids_BL, mask_BL

    def _fresh(self) -> Self:
        """Returns a copy for a single call, which starts without mixtures."""
        other = copy.copy(self)
        other._mixtures = []
        return other

    def positions(self, texts: Iterable[str], batch_size: int = 32, longest: int | None = None) -> list[np.ndarray]:
        """Returns the states of all positions of each text; see `Predictor.positions`.

        Of a text of which only `longest` positions are read, twice as many words are spelled: the speller makes at
        most one word of two, and new words take it long.
        """
        if longest is not None:
            texts = [_beginning(text, 2 * longest) for text in checked_texts(texts, batch_size)]
        return super().positions(texts, batch_size, longest)

    def _texts(self, texts: Sequence[str]) -> list[Text]:
        """Returns the pieces of texts as they are read, with offsets in the texts as they are written."""
        normal = [self._plain(text) for text in texts]
        readings = [self._speller.read(one.text) for one in normal]
        read = [
            NoisedText.of(one.text, [edit for reading in found for edit in reading.edits(one.text)])
            for one, found in zip(normal, readings, strict=True)
        ]
        items = self.tokenizer.encode_batch([one.text for one in read])
        parts = zip(texts, normal, readings, read, map(text_of, items), strict=True)
        return [self._written(*part) for part in parts]

    def _plain(self, text: str) -> NoisedText:
        """Returns a text with letters that look like others, and without what is invisible."""
        return NoisedText.of(text, [edit for edit in self._normal.edits(text) if _is_letter(text, edit)])

    def _written(
        self, text: str, normal: NoisedText, readings: Sequence[Reading], read: NoisedText, pieces: Text
    ) -> Text:
        """Returns pieces with mixtures for ids, and with offsets in the text before both corrections."""
        codes = {}
        for reading in readings:
            rows = [(row, share) for word, share in reading.words if (row := self._row(word)) is not None]
            if len(rows) > 1 and rows[0][0] == self._row(reading.words[0][0]):
                total = sum(share for _, share in rows)
                codes[read.move(reading.start, reading.end)] = -1 - len(self._mixtures)
                self._mixtures.append([(row, share / total) for row, share in rows])
        ids = [codes.get(span, index) for span, index in zip(pieces.offsets, pieces.ids, strict=True)]
        offsets = [normal.back(*read.back(*span)) for span in pieces.offsets]
        return pieces._replace(ids=ids, offsets=offsets, text=text)

    def table_words(self) -> tuple[list[str], np.ndarray]:
        """Returns the whole words of the table and their rows, float32 [N, D]."""
        rows = {word: row for word in table_words(self.tokenizer) if (row := self._row(word)) is not None}
        return [*rows], self._table_VD[[*rows.values()]]

    def _vector(self, word: str) -> np.ndarray | None:
        """Returns the row of the table for a word, float32 [D]; None if it has several pieces."""
        row = self._row(word)
        return None if row is None else self._table_VD[row]

    def _row(self, word: str) -> int | None:
        """Returns the row of a word; None if it has several pieces."""
        if word not in self._single:
            found = text_of(self.tokenizer.encode(word)).ids
            self._single[word] = found[0] if len(found) == 1 else None
        return self._single[word]

    def _shown(self, pieces: Text) -> list[str]:
        return [self.tokenizer.token(index if index >= 0 else self._mixtures[-1 - index][0][0]) for index in pieces.ids]

    def _views_of(
        self, stacks: dict[str, list[np.ndarray]], names: Sequence[str], pieces: Text, window: Window
    ) -> list[AttentionView]:
        stack = next(stack for name, stack in stacks.items() if name.startswith("bert"))
        about = f"{self._about_pieces} Misspelled words are read as the words that they may mean."
        return [AttentionView("Between pieces", about, (self._map(stack, names),))]


def _beginning(text: str, count: int) -> str:
    """Returns a text up to its word `count`, counted from 0; words are what stands between spaces."""
    behind = next(itertools.islice(_BETWEEN_SPACES.finditer(text), count, None), None)
    return text if behind is None else text[: behind.start()]


def _is_letter(text: str, edit: Edit) -> bool:
    """Whether a normalisation changes a letter, or takes away what is invisible; signs such as ½ and … stay."""
    old = text[edit.start : edit.end]
    return any(char.isalpha() or unicodedata.category(char) in ("Cf", "Mn") for char in old)
