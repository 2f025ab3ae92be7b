"""Counts the floating-point operations of BERT, RoBERTa, RoFormer and GPT-2 in the manner of `charlm.core.flops`.

The families built on a BERT add the operations of their own parts to these. Open it when the layers of a model change,
so that MFU stays right.
"""

from __future__ import annotations

from charlm.core.flops import TotalLengths, layer
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.gpt2 import GPT2Config


def bert_forward(config: BertConfig | GPT2Config, words: TotalLengths) -> float:
    """Returns the forward operations of BERT's or GPT-2's layers, without pooler and head.

    GPT-2's layers are causal and score half of the pairs.
    """
    pairs = (words.squares + words.total) / 2 if isinstance(config, GPT2Config) else words.squares
    return config.layers * layer(words.total, words.total, pairs, config.hidden, config.ffn)
