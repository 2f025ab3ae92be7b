"""The HLM model: characters -> words -> context, without a subword vocabulary (Sun et al., ACL 2023, arXiv 2305.14571).

Open it to change how characters become words, and how words get context. Read top-down: `HLM.__call__` is the paper's
figure 1. Notable choices:
  - a batch holds tables of distinct words (`charlm.data.word_batch`); the paper's reshape is a table with one row
    for each position;
  - both levels use disentangled relative attention, so there are no absolute positions and no segments; what newer
    encoders do differently is a choice of `HLMConfig` each, from `position` on;
  - the last intra-word layer computes only [WORD_CLS] for words of which no other state is read;
  - `wiring` chooses how word vector and character states meet before the prediction head: "paper" lays them side by
    side (section 3.3), "reference" first mixes the word vector into every character (the released code).
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.heads import CharPredictionHead
from charlm.nn.embed import CharEmbed, gather_words
from charlm.nn.heads import Pooler
from charlm.nn.transformer import Encoder


class HLMOutput(NamedTuple):
    """States of a batch; N = S * B sequences in shard order.

    Attributes:
      words_NWD: word vectors r, before context (HLM, section 3.1).
      context_NWD: contextual word vectors w (section 3.2).
      mask_NW: bool, True where there is a word; vectors at padding are meaningless.
      char_states: for each bucket of `WordBatch.masked`, the intra-word states [S, P, C, D] of its table.
    """

    words_NWD: jax.Array
    context_NWD: jax.Array
    mask_NW: jax.Array
    char_states: tuple[jax.Array, ...]


class HLM(nn.Module):
    """The encoder: a `WordBatch` -> word vectors and contextual word vectors."""

    scope_name: ClassVar[str] = "hlm"
    config: HLMConfig

    def setup(self) -> None:
        cfg = self.config
        self.embed = CharEmbed(
            cfg.vocab_size, cfg.hidden, cfg.epsilon, cfg.dropout, cfg.initializer, cfg.dtype,
            cfg.norm, cfg.bias, cfg.ngrams, cfg.ngram_sizes, cfg.pieces,
        )  # fmt: skip
        self.intra_word = Encoder(cfg.intra)
        self.inter_word = Encoder(cfg.inter)

    def __call__(self, batch: WordBatch, *, deterministic: bool = True) -> HLMOutput:
        """Returns the states of a batch; see `HLMOutput`."""
        words_NWD, states = self.words(batch, deterministic)
        mask_NW = batch.mask_SBW.reshape(words_NWD.shape[:2])
        context_NWD = self.contextualize(words_NWD, mask_NW, deterministic)
        return HLMOutput(words_NWD, context_NWD, mask_NW, states[: len(batch.masked)])

    def words(self, batch: WordBatch, deterministic: bool = True) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Returns the word vectors r [N, W, D] of a batch, and the character states of each table."""
        masked, states, words = [], [], []
        for whole_SPC, chars_SUC in tables_by_bucket(batch):
            if is_encoded(chars_SUC):
                words_SUD, chars_SUC = chars_SUC.astype(self.config.dtype), whole_SPC[:, :0]
                states_SPCD, _ = self.encode_table(whole_SPC, chars_SUC, deterministic)
            else:
                states_SPCD, words_SUD = self.encode_table(whole_SPC, chars_SUC, deterministic)
            masked.append(self.pool(states_SPCD, whole_SPC))
            states.append(states_SPCD)
            words.append(words_SUD)
        words_SBWD = gather_words(jnp.concatenate(masked + words, axis=1), batch.index_SBW)
        return words_SBWD.reshape(-1, *words_SBWD.shape[2:]), tuple(states)

    def encode_table(
        self, whole_SPC: jax.Array, chars_SUC: jax.Array, deterministic: bool = True
    ) -> tuple[jax.Array, jax.Array]:
        """Runs the intra-word encoder over the distinct words of one bucket.

        Args:
          whole_SPC: words of which all character states are needed.
          chars_SUC: words of which only the vector is needed.

        Returns:
          Character states [S, P, C, D] of `whole_SPC`, word vectors [S, U, D] of `chars_SUC`.
        """
        P, C = whole_SPC.shape[1:]
        chars_SRC = jnp.concatenate([whole_SPC, chars_SUC], axis=1)
        chars_NC = chars_SRC.reshape(-1, C)
        x_NCD = self.intra_word.lower(self.embed(chars_NC, deterministic), chars_NC != 0, deterministic)
        x_SRCD = x_NCD.reshape(*chars_SRC.shape, self.config.hidden)
        # Most words are read through [WORD_CLS] only, so the last layer computes nothing else for them.
        queries = 1 if self.config.aggregation == "word_cls" else C

        def last(x_SRCD: jax.Array, chars_SRC: jax.Array, queries: int) -> jax.Array:
            rows = x_SRCD.reshape(-1, *x_SRCD.shape[2:])
            h = self.intra_word.last(rows, chars_SRC.reshape(-1, C) != 0, queries, deterministic)
            return h.reshape(*chars_SRC.shape[:2], queries, self.config.hidden)

        return last(x_SRCD[:, :P], whole_SPC, C), self.pool(last(x_SRCD[:, P:], chars_SUC, queries), chars_SUC)

    def encode_words(self, chars_UC: jax.Array) -> jax.Array:
        """Returns the vectors [U, D] of words before context; `charlm.core.cache` stores them."""
        chars_SUC = chars_UC[None]
        return self.encode_table(chars_SUC[:, :0], chars_SUC)[1][0]

    def contextualize(self, words_NWD: jax.Array, mask_NW: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns the contextual word vectors w [N, W, D]."""
        context_NWD = self.inter_word(words_NWD, mask_NW, deterministic)
        # The residual that the authors found to help in a follow-up (appendix A.3).
        return context_NWD + words_NWD if self.config.word_residual else context_NWD

    def pool(self, states_SUCD: jax.Array, chars_SUC: jax.Array) -> jax.Array:
        """Returns word vectors [S, U, D]: the state of [WORD_CLS], or the mean or maximum over characters (Table 6)."""
        if self.config.aggregation == "word_cls":
            return states_SUCD[:, :, 0]
        is_char = chars_SUC != 0
        # Slot 0 is [WORD_CLS], not a character. [CLS] and [SEP] have only slot 0, so it counts for them.
        is_char &= (jnp.arange(chars_SUC.shape[-1]) > 0)[None, None] | ~is_char[..., 1:].any(axis=-1, keepdims=True)
        x = states_SUCD.astype(jnp.float32)
        if self.config.aggregation == "max":
            pooled = jnp.max(jnp.where(is_char[..., None], x, -jnp.inf), axis=2)
            pooled = jnp.where(jnp.isfinite(pooled), pooled, 0)  # rows that hold no word
        else:
            weight = is_char.astype(jnp.float32)
            pooled = jnp.einsum("sucd,suc->sud", x, weight) / jnp.maximum(weight.sum(-1, keepdims=True), 1)
        return pooled.astype(states_SUCD.dtype)


def is_encoded(table: jax.Array) -> bool:
    """Returns whether a table of words holds their vectors [S, U, D] already, instead of their characters."""
    return jnp.issubdtype(table.dtype, jnp.floating)


def tables_by_bucket(batch: WordBatch) -> list[tuple[jax.Array, jax.Array]]:
    """Returns for each length bucket its words at masked positions [S, P, C] and its other words [S, U, C]."""
    if batch.masked and batch.chars:
        return [(m.chars_SPC, chars_SUC) for m, chars_SUC in zip(batch.masked, batch.chars, strict=True)]
    if batch.masked:
        return [(m.chars_SPC, m.chars_SPC[:, :0]) for m in batch.masked]
    return [
        (jnp.zeros((*chars_SUC.shape[:1], 0, 2), jnp.uint16), chars_SUC)
        if is_encoded(chars_SUC)
        else (chars_SUC[:, :0], chars_SUC)
        for chars_SUC in batch.chars
    ]


class HLMForMaskedLM(nn.Module):
    """HLM with its intra-word prediction head, which predicts masked words character by character (section 3.3)."""

    config: HLMConfig

    def setup(self) -> None:
        self.hlm = HLM(self.config)
        self.head = CharPredictionHead(self.config)
        self.pooler = Pooler(self.config.hidden, self.config.initializer, self.config.dtype)

    def __call__(self, batch: WordBatch, *, deterministic: bool = True) -> tuple[jax.Array, ...]:
        """Returns for each bucket the logits of the masked words, float32 [S, M, C - 1, V], without slot 0."""
        output = self.hlm(batch, deterministic=deterministic)
        if self.is_initializing():
            self.pooler(output.context_NWD[:, 0])  # checkpoints hold fine-tuning's pooler; no loss here uses it
        S, B, W = batch.index_SBW.shape
        context = output.context_NWD.reshape(S, B * W, -1)
        return tuple(
            self.head(context, states, bucket, deterministic=deterministic)
            for states, bucket in zip(output.char_states, batch.masked, strict=True)
        )
