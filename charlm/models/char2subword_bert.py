"""BERT, mBERT or RoBERTa that reads words through Char2Subword (Aguilar et al., 2021, section 3.3), with every head.

The encoder is the one that was there before, and so are its parameters' names: `bert`, `head` or `label`, and beside
them `char2subword`. What changes is where the input vectors come from: rows of the table of subwords at some
positions, vectors made from characters at the others. A batch (`SpelledBatch`) says which.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.batch import SpelledBatch
from charlm.models.bert import Bert, BertConfig, MaskedLMHead
from charlm.models.char2subword import Char2Subword, Char2SubwordConfig
from charlm.models.heads import at_group_positions
from charlm.models.labels import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from charlm.models.outputs import LanguageModelOutput, TransformerOutput
from charlm.nn.embed import read_words


@dataclasses.dataclass(frozen=True)
class Char2SubwordBertConfig(BertConfig):
    """Shape of a BERT and of the module in front of it.

    Attributes:
      characters: shape of the module; its output is as wide as the table.
      mode: what text becomes (section 3.3): "full": every word is spelled, the table is read for special tokens alone;
        "hybrid": words that are entries of the vocabulary have their rows, the others are spelled.
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


class _Spelled(nn.Module):
    """What every model of the family has: the module, and the input vectors of a batch."""

    config: Char2SubwordBertConfig

    def setup(self) -> None:
        super().setup()  # of the model that reads the vectors: it makes `bert` and the head
        self.char2subword = Char2Subword(self.config.characters)

    def spell(self, chars_UC: jax.Array) -> jax.Array:
        """Returns the vectors [U, D] of spellings, float32; for `charlm.cache`."""
        return self.char2subword(chars_UC)

    def input_vectors(self, inputs: SpelledBatch, deterministic: bool = True) -> jax.Array:
        """Returns the vectors [S * B, L, D] of all positions, float32: where the table of subwords is read no more."""
        tables = []
        for chars_SUC in inputs.chars:
            vectors = self.char2subword(chars_SUC.reshape(-1, chars_SUC.shape[-1]), deterministic=deterministic)
            tables.append(vectors.reshape(*chars_SUC.shape[:2], -1))
        spelled = read_words(jnp.concatenate(tables, axis=1), inputs.index_SBL)
        return self.mix(spelled.reshape(-1, *spelled.shape[2:]), merged(inputs.ids_SBL))

    def mix(self, spelled_NLD: jax.Array, ids_NL: jax.Array) -> jax.Array:
        """Returns rows of the table where an id says so, and the vectors of spellings elsewhere, float32 [N, L, D]."""
        rows_NLD = self.bert.embed_tokens(jnp.maximum(ids_NL, 0))
        return jnp.where((ids_NL >= 0)[..., None], rows_NLD, spelled_NLD)

    def _inner(self, inputs: SpelledBatch, deterministic: bool) -> dict[str, Any]:
        """Returns what the BERT behind is called with."""
        return {
            "ids_BL": None,
            "mask_BL": merged(inputs.mask_SBL),
            "embeddings_BLD": self.input_vectors(inputs, deterministic),
            "types_BL": merged(inputs.types_SBL),
            "deterministic": deterministic,
        }


def merged(x_SBL: jax.Array) -> jax.Array:
    """Returns [S * B, L]: the shards' sequences one after another."""
    return x_SBL.reshape(-1, x_SBL.shape[-1])


class _Encoder(nn.Module):
    config: Char2SubwordBertConfig

    def setup(self) -> None:
        self.bert = Bert(self.config)


class Char2SubwordBert(_Spelled, _Encoder):
    """The encoder: words and subwords -> contextual states."""

    def __call__(self, inputs: SpelledBatch, *, deterministic: bool = True, **options: Any) -> TransformerOutput:
        """Returns the states of N = S * B sequences; `options` are those of `Bert.__call__`, such as return_layers."""
        return self.bert(**self._inner(inputs, deterministic), **options)

    def contextualize(
        self, spelled_NLD: jax.Array, ids_NL: jax.Array, types_NL: jax.Array, mask_NL: jax.Array
    ) -> TransformerOutput:
        """Returns the states of words whose spellings were read before (`spell`); see `SpelledBatch` for the rest."""
        return self.bert(None, mask_NL, embeddings_BLD=self.mix(spelled_NLD, ids_NL), types_BL=types_NL)


class _MaskedLM(nn.Module):
    config: Char2SubwordBertConfig

    def setup(self) -> None:
        self.bert = Bert(self.config)
        self.head = MaskedLMHead(self.config)


class Char2SubwordForMaskedLM(_Spelled, _MaskedLM):
    """With BERT's prediction head over the table of subwords (section 3.2)."""

    def __call__(
        self, inputs: SpelledBatch, position_SM: jax.Array | None = None, *, deterministic: bool = True
    ) -> LanguageModelOutput:
        """Returns logits [S, M, V] at positions of each shard's sequences; None: everywhere, [S * B, L, V].

        Args:
          position_SM: int in [0, B * L), counted from the first position of the shard.
        """
        output = self.bert(**self._inner(inputs, deterministic))
        return LanguageModelOutput(self._logits(output.states_BLD, position_SM), output, None)

    def contextualize(
        self,
        spelled_NLD: jax.Array,
        ids_NL: jax.Array,
        types_NL: jax.Array,
        mask_NL: jax.Array,
        position_SM: jax.Array | None = None,
    ) -> LanguageModelOutput:
        """Returns what words give whose spellings were read before; see `Char2SubwordBert.contextualize`."""
        output = self.bert(None, mask_NL, embeddings_BLD=self.mix(spelled_NLD, ids_NL), types_BL=types_NL)
        return LanguageModelOutput(self._logits(output.states_BLD, position_SM), output, None)

    def _logits(self, states_BLD: jax.Array, position_SM: jax.Array | None) -> jax.Array:
        return self.head(at_group_positions(states_BLD, position_SM), self.bert.embed.token.embedding)


class Char2SubwordForSequenceClassification(_Spelled, BertForSequenceClassification):
    """Labels of texts, or of pairs."""

    def __call__(self, inputs: SpelledBatch, *, deterministic: bool = True) -> jax.Array:
        """Returns float32 logits [S * B, labels]."""
        return BertForSequenceClassification.__call__(self, **self._inner(inputs, deterministic))


class Char2SubwordForTokenClassification(_Spelled, BertForTokenClassification):
    """Labels of words: one position each, so none is split."""

    def __call__(self, inputs: SpelledBatch, *, deterministic: bool = True) -> jax.Array:
        """Returns float32 logits [S * B, L, labels]."""
        return BertForTokenClassification.__call__(self, **self._inner(inputs, deterministic))


class Char2SubwordForQuestionAnswering(_Spelled, BertForQuestionAnswering):
    """Answers: every word scored as first and as last."""

    def __call__(self, inputs: SpelledBatch, *, deterministic: bool = True) -> jax.Array:
        """Returns float32 logits [S * B, L, 2] of start and end."""
        return BertForQuestionAnswering.__call__(self, **self._inner(inputs, deterministic))
