"""The Char2Subword model: a BERT or RoBERTa that reads words through the module (Aguilar et al., 2021, section 3.3).

Open it to see how module and transformer are put together. The encoder is unchanged and keeps its parameter names
`bert`, `head` and `label`; the module's parameters lie beside them in `char2subword`. Only the input vectors differ:
some positions read rows of the table of subwords, the others vectors that the module makes from characters. The batch
(`SpelledBatch`) says which positions read which.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax

from charlm.core.types import ModelConfig
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.spelled.model import Spelled, SpelledEncoder, SpelledMaskedLM
from charlm.families.subword.bert import BertConfig


@dataclasses.dataclass(frozen=True)
class Char2SubwordBertConfig(BertConfig):
    """Shape of a BERT and of the module in front of it.

    Attributes:
      characters: shape of the module; its output is as wide as the table.
      mode: how words are read (section 3.3). "full": every word is spelled, and the table is read for special tokens
        only. "hybrid": words that are entries of the vocabulary are read as their rows, all others are spelled.
      splitter, language: how text is cut into words; see `charlm.text.words.get_splitter`.
    """

    characters: Char2SubwordConfig = dataclasses.field(default_factory=Char2SubwordConfig)
    mode: Literal["full", "hybrid"] = "hybrid"
    splitter: str = "rules"
    language: str = "en"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ("full", "hybrid"):
            raise ValueError(f"char2subword: mode={self.mode!r} is not one of full, hybrid")
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
        """Returns the vectors [U, D] of spellings, float32."""
        return self.char2subword(chars_UC, deterministic=deterministic)


class Char2SubwordBert(_Spelled, SpelledEncoder):
    """The encoder: words and subwords -> contextual states."""


class Char2SubwordForMaskedLM(_Spelled, SpelledMaskedLM):
    """The encoder with BERT's prediction head over the table of subwords (section 3.2)."""
