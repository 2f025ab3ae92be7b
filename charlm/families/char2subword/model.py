"""The Char2Subword model: a BERT, RoBERTa or RoFormer that reads words through the module (Aguilar et al., 2021, 3.3).

Open it to see how module and transformer are put together. The encoder is unchanged and keeps its parameter names
`bert`, `head` and `label`; the module's parameters lie beside them in `char2subword`. Only the input vectors differ:
some positions read rows of the table of subwords, the others vectors that the module makes from characters. The batch
(`SpelledBatch`) says which positions read which.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp

from charlm.core.types import ModelConfig, Params
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.char2subword.speller import mixed_rows
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.model import Spelled, SpelledEncoder, SpelledMaskedLM
from charlm.families.subword.bert import BertConfig
from charlm.nn.apply import applied

Mode: TypeAlias = Literal["full", "hybrid", "gated"]
MODES, GATED = get_args(Mode), "gated"


@dataclasses.dataclass(frozen=True)
class Char2SubwordBertConfig(BertConfig):
    """Shape of a BERT and of the module in front of it.

    Attributes:
      characters: shape of the module; its output is as wide as the table.
      mode: how words are read (section 3.3). "full": every word is spelled, and the table is read for special tokens
        only. "hybrid": words that are entries of the vocabulary are read as their rows, all others are spelled.
        "gated", which is ours: text is cut into pieces as the transformer's tokenizer cuts it; the rows of the pieces
        of a word that it splits are moved (`Char2Subword.beside`) towards the rows that the word's spelling resembles
        (`mixed_rows`).
      splitter, language: how text is cut into words; see `charlm.text.words.get_splitter`.
    """

    characters: Char2SubwordConfig = dataclasses.field(default_factory=Char2SubwordConfig)
    mode: Mode = "hybrid"
    splitter: str = "rules"
    language: str = "en"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in MODES:
            raise ValueError(f"char2subword: mode={self.mode!r} is not one of {', '.join(MODES)}")
        if self.mode == GATED and not self.characters.gate:
            raise ValueError(f"mode={GATED!r}: this module has no gate; a run of configs/align.py trains one")
        if self.characters.output != self.hidden:
            raise ValueError(
                f"char2subword: the module's vectors are {self.characters.output} wide, the table's rows {self.hidden}"
            )


class _Spelled(Spelled):
    """Adds the module to a model; every model of the family inherits from it."""

    config: ModelConfig  # a `Char2SubwordBertConfig`; naming the type would contradict the type in the other base class

    def setup(self) -> None:
        super().setup()  # the other base class makes `bert` and the head
        self.char2subword = Char2Subword(self.config.characters)

    def vectors(self, chars_UC: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the vectors [U, D] of spellings, float32; in gated mode, means of rows of the table."""
        vectors_UD = self.char2subword(chars_UC, deterministic=deterministic)
        if self.config.mode != GATED:
            return vectors_UD
        return mixed_rows(vectors_UD, self.bert.embed.token.embedding, self.config.characters.dtype)

    def mix(self, spelled_NLD: jax.Array, ids_NL: jax.Array) -> jax.Array:
        """Returns the input vectors of positions; in gated mode, -2 - n is row n beside the spelling of its word.

        See `Spelled.mix`.
        """
        makes_gate = self.config.characters.gate and self.is_initializing()  # it is there in every mode
        if self.config.mode != GATED and not makes_gate:
            return super().mix(spelled_NLD, ids_NL)
        rows_NLD = self.embed_tokens(jnp.where(ids_NL < -1, -2 - ids_NL, jnp.maximum(ids_NL, 0)))
        beside_NLD = self.char2subword.beside(rows_NLD, spelled_NLD)
        read_NLD = jnp.where((ids_NL < -1)[..., None], beside_NLD, rows_NLD)
        return jnp.where((ids_NL == -1)[..., None], spelled_NLD, read_NLD)


class Char2SubwordBert(_Spelled, SpelledEncoder):
    """The encoder: words and subwords -> contextual states."""


class Char2SubwordForMaskedLM(_Spelled, SpelledMaskedLM):
    """The encoder with BERT's prediction head over the table of subwords (section 3.2)."""


def encoder_states(
    config: Char2SubwordBertConfig, params: Params, inputs: SpelledBatch, dropout_key: jax.Array | None = None
) -> jax.Array:
    """Returns the states of the last layer [S * B, L, D], before any head.

    Args:
      params: all parameters of a model, with any head.
      dropout_key: randomness of dropout; None: no dropout.
    """
    encoder = {name: params[name] for name in ("bert", "char2subword")}
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    apply = applied(Char2SubwordBert(config), {"params": encoder}, rngs)
    return apply(inputs, deterministic=dropout_key is None).states_BLD
