"""The released HLM code's state dict as a parameter tree of ours (names and transpositions only)."""

from __future__ import annotations

import re

import numpy as np
from flax import traverse_util

_ENCODERS = {
    "local_layer_first": "hlm/intra_word",
    "global_layer": "hlm/inter_word",
    "local_layer_last": "head/encoder",
}
_LAYER = {
    "attention.self.query_proj": "attention/query",
    "attention.self.key_proj": "attention/key",
    "attention.self.value_proj": "attention/value",
    "attention.self.pos_key_proj": "attention/pos_key",
    "attention.self.pos_query_proj": "attention/pos_query",
    "attention.output.dense": "attention/output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "ffn_in",
    "output.dense": "ffn_out",
    "output.LayerNorm": "ffn_norm",
}
_WHOLE = {
    "hlm_model.embedder.weight": "hlm/embed/table/embedding",
    "hlm_model.layer_norm.weight": "hlm/embed/norm/scale",
    "hlm_model.layer_norm.bias": "hlm/embed/norm/bias",
    "hlm_model.cls_linear_final.weight": "pooler/dense/kernel",
    "hlm_model.cls_linear_final.bias": "pooler/dense/bias",
    "hlm_model.deep_transformer.proj.weight": "head/projection/kernel",
    "hlm_model.deep_transformer.proj.bias": "head/projection/bias",
    "hlm_model.deep_transformer.LayerNorm.weight": "head/projection_norm/scale",
    "hlm_model.deep_transformer.LayerNorm.bias": "head/projection_norm/bias",
    "dense_layer.weight": "head/transform/kernel",
    "dense_layer.bias": "head/transform/bias",
    "layer_norm.weight": "head/transform_norm/scale",
    "layer_norm.bias": "head/transform_norm/bias",
    "lm_layer.weight": "head/output_kernel",
    "bias": "head/output_bias",
}


def _rename(name: str) -> str | None:
    if name in _WHOLE:
        return _WHOLE[name]
    match = re.fullmatch(r"hlm_model\.deep_transformer\.(\w+)\.(.*)\.(weight|bias)", name)
    if match is None or match[1] not in _ENCODERS:
        return None
    encoder, rest, kind = _ENCODERS[match[1]], match[2], match[3]
    if rest == "rel_embeddings":
        return f"{encoder}/positions/embedding"
    if rest == "LayerNorm":
        return f"{encoder}/positions/norm/" + ("scale" if kind == "weight" else "bias")
    _, index, part = rest.split(".", 2)
    leaf = kind if kind == "bias" else ("scale" if part.endswith("LayerNorm") else "kernel")
    return f"{encoder}/layer_{index}/{_LAYER[part]}/{leaf}"


def to_params(state: dict[str, np.ndarray]) -> dict:
    """Returns the nested parameter tree of `HLMForMaskedLM`; fine-tuning heads are left out."""
    flat = {}
    for name, value in state.items():
        ours = None if name.startswith("heads.") else _rename(name)
        if ours is not None:
            flat[ours] = value.T if ours.endswith("kernel") else value
    return traverse_util.unflatten_dict(flat, sep="/")
