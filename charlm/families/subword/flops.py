"""Counts the floating-point operations of BERT, RoBERTa and GPT-2 in the manner of `charlm.core.flops`."""

from __future__ import annotations

from charlm.core.flops import Lengths, layer
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.gpt2 import GPT2Config


def bert_forward(config: BertConfig | GPT2Config, words: Lengths) -> float:
    """Returns the forward operations of BERT's or GPT-2's layers, without pooler and head."""
    return config.layers * layer(words.total, words.total, words.squares, config.hidden, config.ffn)
