"""Fine-tuned HLM: the encoder with an output layer for labels of sequences, of words, or for answers.

Open it to change how a fine-tuned HLM reads a word. There are three label heads. "paper" concatenates a word's vectors
before and in context and applies a small feed-forward network (section 3.3), and "mean" reads the mean over all words,
special ones included, of what that network returns; "reference" is the head of the released code.
"""

from __future__ import annotations

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.convert.heads import CAUSAL_LM, MASKED_LM
from charlm.core.types import Option
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.heads import IntraWordHead
from charlm.families.hlm.model import HLM, HLMForMaskedLM, HLMOutput
from charlm.families.hlm.writer import HLMForNextWord
from charlm.families.labels import ForLabels
from charlm.nn.embed import dense
from charlm.nn.heads import Pooler
from charlm.nn.masks import starts

LabelHead = Literal["paper", "reference", "mean"]
OURS = ("paper", "mean")  # those that the released code lacks


class HLMForLabels(ForLabels):
    """HLM with an output layer for labels.

    With `label_head="paper"` the output layer reads g([r_i ; w_i]), where g is one GELU layer (section 3.3): of a
    sequence that of its [CLS], with "mean" the mean over all its words.

    With "reference" it reads the contextual word vectors w if `head_layers` is 0. Otherwise it reads slot 0 of the
    head's intra-word layers over [w_i ; h_i1 ... h_iC], as the released code does; the batch must then carry the words
    to read in `masked`, with any non-zero id in their `labels_SMC`. `reshape_batch(chars_BWC, chars_BWC)` marks every
    word in this way; labels of sequences need only [CLS]. A sequence is read as tanh(Linear([CLS])). A "reference"
    model holds all parameters of a released checkpoint, including those it does not use.
    """

    encoder: type[nn.Module] = HLM
    label_head: LabelHead = "reference"  # pyright: ignore[reportIncompatibleVariableOverride]  # modules are frozen: it may be narrower

    def setup(self) -> None:
        super().setup()
        cfg = self.config
        if self.label_head in OURS:
            self.transform = dense(cfg.hidden, 2 * cfg.hidden, cfg.initializer, cfg.dtype)
        else:
            self.head = IntraWordHead(cfg)
            self.pooler = Pooler(cfg.hidden, cfg.initializer, cfg.dtype)

    @property
    def drops(self) -> bool:
        """Whether dropout precedes the output layer; the paper's head also has it for answers."""
        return self.label_head in OURS or super().drops

    def sequences(self, output: HLMOutput, deterministic: bool, *inputs: WordBatch, **options: Option) -> jax.Array:
        """Returns the vectors of sequences, which are those of their [CLS]."""
        first = starts(self.positions(output, deterministic, *inputs), self.mask_of(*inputs))
        return first if self.label_head == "paper" else self.pooler(first)

    def mask_of(self, *inputs: WordBatch, **options: Option) -> jax.Array:
        """Returns the mask [N, W] of words."""
        mask_SBW = inputs[0].mask_SBW
        return mask_SBW.reshape(-1, mask_SBW.shape[-1])

    def positions(self, output: HLMOutput, deterministic: bool, *inputs: WordBatch, **options: Option) -> jax.Array:
        """Returns the states [N, W, D] that the output layer reads; with `head_layers`, 0 for words not in `masked`.

        Raises:
          ValueError: when the head has layers and the batch carries no word in `masked`.
        """
        (batch,) = inputs
        if self.label_head in OURS:
            both_NWE = jnp.concatenate([output.words_NWD, output.context_NWD], axis=-1)
            return jax.nn.gelu(self.transform(both_NWE), approximate=False)
        if self.is_initializing():  # every released checkpoint holds these parameters, even where they are not used
            self.head.init_unused()
            self.pooler(output.context_NWD[:, 0])
        if not self.config.head_layers:
            return output.context_NWD
        if not batch.masked:
            raise ValueError("model.head_layers >= 1: a batch must carry the words that are read in `masked`")
        S, B, W = batch.index_SBW.shape
        context_SND = output.context_NWD.reshape(S, B * W, -1)
        words_SND = jnp.zeros_like(context_SND)
        for states, bucket in zip(output.char_states, batch.masked, strict=True):
            read_SMD = self.head(context_SND, states, bucket, deterministic=deterministic)
            # Rows that pad the bucket have position 0. Move them out of range, so that `mode="drop"` discards them.
            position_SM = jnp.where((bucket.labels_SMC != 0).any(axis=-1), bucket.position_SM, B * W)
            put = jax.vmap(lambda words, at, read: words.at[at].set(read, mode="drop"))
            words_SND = put(words_SND, position_SM, read_SMD)
        return words_SND.reshape(output.context_NWD.shape)


def hlm_with_head(
    config: HLMConfig, head: str = MASKED_LM, labels: int = 0, label_head: LabelHead = "reference"
) -> nn.Module:
    """Returns the model with the given head: `MASKED_LM`, `CAUSAL_LM`, or a head for that number of labels."""
    if head in (MASKED_LM, CAUSAL_LM):
        return HLMForMaskedLM(config) if head == MASKED_LM else HLMForNextWord(config)
    return HLMForLabels(config, labels, head, label_head=label_head)
