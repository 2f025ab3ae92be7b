"""Base classes of models that read some positions from a table of subwords and others from characters.

Their input is a `SpelledBatch`; a family adds the module that turns spellings into vectors. Open it to see in what
order spellings become vectors, vectors fill positions, and the transformer reads them.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from charlm.core.types import ModelConfig, Option
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.subword.bert import Bert, MaskedLMHead
from charlm.nn.embed import gather_words
from charlm.nn.heads import at_group_positions
from charlm.nn.outputs import LanguageModelOutput, TransformerOutput


def merged(x_SBL: jax.Array) -> jax.Array:
    """Returns [S * B, L]: the shards' sequences one after another."""
    return x_SBL.reshape(-1, x_SBL.shape[-1])


class Spelled(nn.Module):
    """Makes the input vectors of a batch, some positions from the table of subwords and the others from spellings.

    A family defines how spellings become vectors (`vectors`); the other base class makes `bert` or `gpt2`.
    """

    config: ModelConfig

    def vectors(self, chars_UC: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the vectors [U, D] of spellings, float32."""
        raise NotImplementedError(f"{type(self).__name__} reads no characters")

    def read(
        self, ids_BL: None, mask_BL: jax.Array | None, *, types_BL: jax.Array | None, **inputs: Option
    ) -> TransformerOutput:
        """Returns the transformer's output for input vectors; the arguments are those of `Bert.__call__`."""
        return self.bert(ids_BL, mask_BL, types_BL=types_BL, **inputs)

    def embed_tokens(self, ids_NL: jax.Array) -> jax.Array:
        """Returns rows of the table of subwords, float32 [N, L, D]."""
        return self.bert.embed_tokens(ids_NL)

    def spell(self, chars_UC: jax.Array) -> jax.Array:
        """Returns the vectors [U, D] of spellings, float32; for `charlm.core.cache`."""
        return self.vectors(chars_UC)

    def table_vectors(self, inputs: SpelledBatch, deterministic: bool = True) -> jax.Array:
        """Returns the vectors of the spellings of all tables, concatenated, float32 [S, U, D]."""
        tables = []
        for chars_SUC in inputs.chars:
            if jnp.issubdtype(chars_SUC.dtype, jnp.floating):
                tables.append(chars_SUC)
                continue
            vectors = self.vectors(chars_SUC.reshape(-1, chars_SUC.shape[-1]), deterministic)
            tables.append(vectors.reshape(*chars_SUC.shape[:2], -1))
        return jnp.concatenate(tables, axis=1)

    def input_vectors(
        self, inputs: SpelledBatch, deterministic: bool = True, vectors_SUD: jax.Array | None = None
    ) -> jax.Array:
        """Returns the input vectors of all positions, from table rows or spellings, float32 [S * B, L, D].

        Args:
          vectors_SUD: the result of `table_vectors`, if the caller needs it as well; None: it is computed here.
        """
        vectors_SUD = self.table_vectors(inputs, deterministic) if vectors_SUD is None else vectors_SUD
        spelled = gather_words(vectors_SUD, inputs.index_SBL)
        return self.mix(spelled.reshape(-1, *spelled.shape[2:]), merged(inputs.ids_SBL))

    def mix(self, spelled_NLD: jax.Array, ids_NL: jax.Array) -> jax.Array:
        """Returns rows of the table where ids_NL is not negative, vectors of spellings elsewhere, float32 [N, L, D]."""
        rows_NLD = self.embed_tokens(jnp.maximum(ids_NL, 0))
        return jnp.where((ids_NL >= 0)[..., None], rows_NLD, spelled_NLD)

    def mask_of(self, inputs: SpelledBatch) -> jax.Array:
        """Returns the mask [S * B, L] of words and subwords."""
        return merged(inputs.mask_SBL)

    def _inner(
        self, inputs: SpelledBatch, deterministic: bool, vectors_SUD: jax.Array | None = None
    ) -> dict[str, Option]:
        """Returns the arguments for calling the transformer."""
        return {
            "ids_BL": None,
            "mask_BL": self.mask_of(inputs),
            "embeddings_BLD": self.input_vectors(inputs, deterministic, vectors_SUD),
            "types_BL": merged(inputs.types_SBL),
            "deterministic": deterministic,
        }


class SpelledEncoder(Spelled):
    """A transformer without a head: words and subwords -> contextual states."""

    def setup(self) -> None:
        self.bert = Bert(self.config)

    def __call__(self, inputs: SpelledBatch, *, deterministic: bool = True, **options: Option) -> TransformerOutput:
        """Returns the states of N = S * B sequences; `options` are those of the transformer, such as return_layers."""
        return self.read(**self._inner(inputs, deterministic), **options)

    def contextualize(
        self, spelled_NLD: jax.Array, ids_NL: jax.Array, types_NL: jax.Array, mask_NL: jax.Array
    ) -> TransformerOutput:
        """Returns the states of sequences whose spellings already are vectors (`spell`); see `SpelledBatch`."""
        return self.read(None, mask_NL, embeddings_BLD=self.mix(spelled_NLD, ids_NL), types_BL=types_NL)


class SpelledLM(Spelled):
    """A language model: it also predicts the subword at a position, or the next one (`predict`)."""

    def predict(self, states_NMD: jax.Array) -> jax.Array:
        """Returns float32 logits [N, M, V] over the table of subwords."""
        raise NotImplementedError(f"{type(self).__name__} predicts no subwords")

    def __call__(
        self,
        inputs: SpelledBatch,
        position_SM: jax.Array | None = None,
        *,
        vectors_SUD: jax.Array | None = None,
        deterministic: bool = True,
    ) -> LanguageModelOutput:
        """Returns logits [S, M, V] at positions of each shard's sequences; None: everywhere, [S * B, L, V].

        Args:
          position_SM: int in [0, B * L), counted from the first position of the shard.
          vectors_SUD: vectors of the spellings, if they were computed before; see `input_vectors`.
        """
        return self._predicted(self.read(**self._inner(inputs, deterministic, vectors_SUD)), position_SM)

    def contextualize(
        self,
        spelled_NLD: jax.Array,
        ids_NL: jax.Array,
        types_NL: jax.Array,
        mask_NL: jax.Array,
        position_SM: jax.Array | None = None,
    ) -> LanguageModelOutput:
        """Returns the output for sequences whose spellings already are vectors; see `SpelledEncoder.contextualize`."""
        output = self.read(None, mask_NL, embeddings_BLD=self.mix(spelled_NLD, ids_NL), types_BL=types_NL)
        return self._predicted(output, position_SM)

    def _predicted(self, output: TransformerOutput, position_SM: jax.Array | None) -> LanguageModelOutput:
        return LanguageModelOutput(self.predict(at_group_positions(output.states_BLD, position_SM)), output)


class SpelledMaskedLM(SpelledLM):
    """A BERT with its prediction head over the table of subwords."""

    def setup(self) -> None:
        self.bert = Bert(self.config)
        self.head = MaskedLMHead(self.config)

    def predict(self, states_NMD: jax.Array) -> jax.Array:
        """Returns float32 logits [N, M, V] of the hidden subwords."""
        return self.head(states_NMD, self.bert.embed.token.embedding)


def smallest_batch() -> SpelledBatch:
    """Returns the smallest input of a model."""
    one, chars = np.zeros((1, 1, 1), np.int32), np.ones((1, 1, 1), np.uint16)
    return SpelledBatch((chars,), one, one - 1, one, one == 0)


def smallest_inputs(model: nn.Module) -> tuple[SpelledBatch]:
    """Returns the smallest inputs that a model may be called with; see `charlm.convert.abstract`."""
    return (smallest_batch(),)
