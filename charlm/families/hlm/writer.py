"""An HLM that writes: from each word in its left context, a small decoder writes the next word letter by letter.

Words and context are those of `charlm.families.hlm.model`, with layers between words that see only the words before.
Open it to change how letters are predicted. `writing` trains it, `writing_predictor` writes and scores texts.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.data.word_batch import MaskedWords, WordBatch
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.heads import HEAD_EPSILON
from charlm.families.hlm.model import HLM
from charlm.nn.embed import CharEmbed, Embed, dense, kernel_init, norm_layer
from charlm.nn.kernels import product
from charlm.nn.transformer import Encoder
from charlm.text.chars import FIRST_CHAR


class WordWriter(nn.Module):
    """Predicts the letters of a word, and its end, from the context before it and the letters written so far."""

    config: HLMConfig

    def setup(self) -> None:
        cfg = self.config
        self.context = dense(cfg.hidden, cfg.hidden, cfg.initializer, cfg.dtype, bias=cfg.bias)
        self.embed = CharEmbed(
            cfg.vocab_size, cfg.hidden, cfg.epsilon, cfg.dropout, cfg.initializer, cfg.dtype, cfg.norm, cfg.bias
        )
        self.encoder = Encoder(cfg.writer)
        if cfg.head_transform:
            self.transform = dense(cfg.hidden, cfg.hidden, cfg.initializer, cfg.dtype, bias=cfg.bias)
            self.transform_norm = norm_layer(cfg.norm, HEAD_EPSILON, cfg.dtype, cfg.bias)
        self.output_kernel = self.param("output_kernel", kernel_init(cfg.initializer), (cfg.hidden, cfg.vocab_size))
        self.output_bias = self.param("output_bias", nn.initializers.zeros, (cfg.vocab_size,))

    def __call__(self, context_ND: jax.Array, letters_NC: jax.Array, deterministic: bool = True) -> jax.Array:
        """Returns float32 logits [N, C, V]: of the first letter at 0, and behind each letter of the one after it.

        Args:
          context_ND: the contextual vectors of the words before.
          letters_NC: ids whose first column is not read; those behind the end of a word have no effect on it.
        """
        context_N1D = self.context(context_ND)[:, None]
        x_NCD = jnp.concatenate([context_N1D, self.embed(letters_NC[:, 1:], deterministic)], axis=1)
        return self._logits(x_NCD, jnp.ones(letters_NC.shape, bool), deterministic)

    def first(self, context_BD: jax.Array, mask_BN: jax.Array) -> jax.Array:
        """Returns the logits [B, V] of the first letters, with the collection `KEPT` of an encoder of N positions."""
        return self._logits(self.context(context_BD)[:, None], mask_BN, True)[:, 0]

    def after(self, letter_B: jax.Array, mask_BN: jax.Array) -> jax.Array:
        """Returns the logits [B, V] of the letters after one more; see `first`."""
        return self._logits(self.embed(letter_B[:, None], True), mask_BN, True)[:, 0]

    def _logits(self, x_NCD: jax.Array, mask_NC: jax.Array, deterministic: bool) -> jax.Array:
        x_NCD = self.encoder(x_NCD, mask_NC, deterministic)
        if self.config.head_transform:
            x_NCD = self.transform_norm(jax.nn.gelu(self.transform(x_NCD), approximate=False))
        return (
            product("ncd,dv->ncv", x_NCD, self.output_kernel.astype(self.config.dtype)) + self.output_bias[None, None]
        )


class HLMForNextWord(nn.Module):
    """An HLM with a `WordWriter`; its config is `causal`."""

    config: HLMConfig

    def setup(self) -> None:
        self.hlm = HLM(self.config)
        self.ends = Embed(FIRST_CHAR, self.config.hidden, embedding_init=nn.initializers.zeros)
        self.writer = WordWriter(self.config)

    def __call__(self, batch: WordBatch, *, deterministic: bool = True) -> tuple[jax.Array, ...]:
        """Returns for each bucket float32 logits [S, M, C - 1, V] of the words in `masked`, without slot 0.

        A word is predicted from the position before it, which must be of the same text. `labels_SMC` has its letters
        and its end, from slot 1 on.
        """
        tables = (*(bucket.chars_SPC for bucket in batch.masked), *batch.chars)
        words_NWD, _ = self.hlm.words(batch._replace(chars=tables, masked=()), deterministic)
        mask_NW = batch.mask_SBW.reshape(words_NWD.shape[:2])
        words_NWD = self._with_ends(words_NWD, ends_of(batch).reshape(mask_NW.shape))
        context_NWD = self.hlm.contextualize(words_NWD, mask_NW, deterministic)
        S, B, W = batch.index_SBW.shape
        context_SND = context_NWD.reshape(S, B * W, -1)
        return tuple(self._written(context_SND, bucket, deterministic) for bucket in batch.masked)

    def _written(self, context_SND: jax.Array, bucket: MaskedWords, deterministic: bool) -> jax.Array:
        S, M, C = bucket.labels_SMC.shape
        before_SM = jnp.maximum(bucket.position_SM - 1, 0)  # rows that pad the bucket have position 0
        # In float32, since the gradient adds up.
        context_SMD = jax.vmap(lambda context, rows: context[rows])(context_SND.astype(jnp.float32), before_SM)
        context_ND = context_SMD.reshape(S * M, -1).astype(self.config.dtype)
        logits = self.writer(context_ND, bucket.labels_SMC.reshape(S * M, C)[:, : C - 1], deterministic)
        return logits.reshape(S, M, C - 1, -1)

    def log_probs(
        self, words_BWD: jax.Array, ends_BW: jax.Array, mask_BW: jax.Array, labels_BWC: jax.Array
    ) -> jax.Array:
        """Returns the log-probability [B, W] of each word given those before it, float32; 0 at the first one.

        Args:
          words_BWD: the vectors of words, the first of which is [CLS].
          ends_BW: their ends; `labels_BWC` are their letters and ends, from slot 1 on.
        """
        context_BWD = self.read(words_BWD, ends_BW, mask_BW)
        B, W, C = labels_BWC.shape
        labels_NC = labels_BWC[:, 1:].astype(jnp.int32).reshape(-1, C)
        logits_NCV = self.writer(context_BWD[:, :-1].reshape(len(labels_NC), -1), labels_NC[:, : C - 1])
        found_BW = log_probs_of(logits_NCV, labels_NC[:, 1:]).sum(axis=-1).reshape(B, W - 1)
        return jnp.pad(found_BW, ((0, 0), (1, 0)))

    def read(self, words_BWD: jax.Array, ends_BW: jax.Array, mask_BN: jax.Array) -> jax.Array:
        """Returns the context [B, W, D] of words, with their ends, that follow those in the collection `KEPT`."""
        return self.hlm.contextualize(self._with_ends(words_BWD, ends_BW), mask_BN)

    def _with_ends(self, words_NWD: jax.Array, ends_NW: jax.Array) -> jax.Array:
        """Returns word vectors that say whether a space follows: what comes next depends on it."""
        return words_NWD + self.ends(ends_NW.astype(jnp.int32)).astype(words_NWD.dtype)

    def word(self, letters_BC: jax.Array) -> jax.Array:
        """Returns the vectors [B, D] of words that were written; `letters_BC` is as an HLM reads them."""
        return self.hlm.encode_words(letters_BC)

    def first(self, context_BD: jax.Array, mask_BN: jax.Array) -> jax.Array:
        """See `WordWriter.first`."""
        return self.writer.first(context_BD, mask_BN)

    def after(self, letter_B: jax.Array, mask_BN: jax.Array) -> jax.Array:
        """See `WordWriter.after`."""
        return self.writer.after(letter_B, mask_BN)


def ends_of(batch: WordBatch) -> jax.Array:
    """Returns the ends of the words in `masked`, `SPACED` or `JOINED`, at their positions, int32 [S, B, W]; else 0."""
    S, B, W = batch.index_SBW.shape
    ends_SN = jnp.zeros((S, B * W), jnp.int32)
    for bucket in batch.masked:
        labels_SMC = bucket.labels_SMC.astype(jnp.int32)
        last_SM1 = (labels_SMC != 0).sum(axis=-1, keepdims=True)  # slot 0 has no label
        end_SM = jnp.take_along_axis(labels_SMC, last_SM1, axis=-1)[..., 0]
        # The greater, since rows that pad the bucket have position 0 and no end.
        ends_SN = jax.vmap(lambda ends, at, end: ends.at[at].max(end))(ends_SN, bucket.position_SM, end_SM)
    return ends_SN.reshape(S, B, W)


def log_probs_of(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the log-probability of every label, float32 [...]; 0 where there is none, which is a label of 0.

    Args:
      logits: [..., V].
      labels: int32 [...].
    """
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.where(labels != 0, chosen - jax.nn.logsumexp(logits, axis=-1), 0)
