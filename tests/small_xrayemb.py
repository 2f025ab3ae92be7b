"""Tiny XRayEmbs: random encoders beside the tiny BERTs, RoBERTas and GPT-2s of `tiny_models`."""

from __future__ import annotations

import functools
from typing import Any

import jax
from flax import traverse_util
from tiny_models import _weight, release

from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.subword.labels import BertForLabels
from charlm.families.xrayemb import model as xrayemb_lm
from charlm.families.xrayemb.chars import XRayChars
from charlm.families.xrayemb.encoder import XREncoderConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz,.!'ßï今"
MODELS = {
    ("bert", "masked_lm"): xrayemb_lm.XRayEmbForMaskedLM,
    ("bert", "encoder"): xrayemb_lm.XRayEmbBert,
    ("bert", "token_classification"): functools.partial(
        BertForLabels, kind="token_classification", encoder=xrayemb_lm.XRayEmbBert
    ),
    ("gpt2", "masked_lm"): xrayemb_lm.XRayEmbForCausalLM,
    ("gpt2", "encoder"): xrayemb_lm.XRayEmbGPT2,
}


@functools.cache
def xrayemb(backbone: str = "bert", head: str = "masked_lm", **changes: Any) -> Pretrained:
    """Returns a model with the tiny transformer's weights, and others made of the names of its parameters.

    Args:
      changes: fields of the config, such as policy.
    """
    source = from_pretrained(release(backbone))
    chars = XRayChars(LETTERS)
    kind = "gpt2" if backbone == "gpt2" else "bert"
    encoder = XREncoderConfig(char_vocab_size=chars.size, char_embedding=6, hidden=5, output=source.config.hidden)
    fields = {name: getattr(source.config, name) for name in source.config.__dataclass_fields__}
    shape = xrayemb_lm.XRayEmbGPT2Config if kind == "gpt2" else xrayemb_lm.XRayEmbBertConfig
    config = shape(**fields | {"encoder": encoder, "generator": None} | changes)
    labels = {"labels": 3} if head == "token_classification" else {}
    module = MODELS[kind, head](config, **labels)
    empty = jax.numpy.zeros((1, 1, 2), jax.numpy.int32)
    inputs = SpelledBatch((jax.numpy.ones((1, 1, 22), jax.numpy.uint16),), empty, empty, empty, empty == 0)
    abstract = jax.eval_shape(module.init, jax.random.key(0), inputs)["params"]
    flat = traverse_util.flatten_dict(abstract, sep="/")
    params = {path: jax.numpy.asarray(_weight(path, leaf)) for path, leaf in flat.items()}
    params |= traverse_util.flatten_dict(source.params, sep="/") if head == "masked_lm" else {}
    metadata = {"family": "xrayemb", "backbone": backbone, "head": head, "xray_chars": chars.to_dict()}
    return Pretrained(
        module, traverse_util.unflatten_dict(params, sep="/"), config, "xrayemb", head, release(backbone), metadata
    )
