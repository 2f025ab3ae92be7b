"""Imports an XRayEmb from XR-Enc and XR-Dec of the released code and a model such as a BERT as their backbone.

`conversion` calls it for files of the released code. Open it when such a file is refused. The released code saves only
tensors. They do not tell which backbone they were trained with, nor which characters they know, so both are given by
the user.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path

import jax
from flax import traverse_util

from charlm.convert.files import Tensor, find_state, open_state
from charlm.convert.heads import CAUSAL_LM, ENCODER, MASKED_LM
from charlm.convert.model import Converter, Model, Target
from charlm.convert.rules import group
from charlm.core.trees import flat
from charlm.core.types import Option, Params
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb.chars import XRayChars
from charlm.families.xrayemb.model import XRayEmbBertConfig, XRayEmbGPT2Config
from charlm.families.xrayemb.tensors import ELSEWHERE, GENERATOR, others_of, read_decoder, read_encoder
from charlm.families.xrayemb.text import BACKBONES

log = logging.getLogger("charlm")

RELEASED_CHARS_FILE = "chars.txt"  # beside the tensors, as the released code writes it
_SIGN = "lstm.weight_hh_l0"  # a tensor that XR-Dec always has


def read_states(converter: Converter, source: str, backbone: str, char_vocab: str = "", heads: int = 0) -> Model:
    """Returns a model of the encoder, and the generator if there is one, of their state dict on a backbone.

    Tensors of the state that belong to neither part are not imported; their names are logged.

    Args:
      source: the state dict, names with their prefixes; without prefixes it is XR-Enc alone.
      backbone: workdir, checkpoint, folder of PyTorch weights or name of a cached model, with the head of a language
        model or without a head.
      char_vocab: `chars.txt` or a JSON list; "": the `chars.txt` beside the tensors.
      heads: attention heads of a Transformer that reads characters; 0: 8.

    Raises:
      ValueError: something is missing, or the parts do not fit each other.
    """
    file = find_state(source)
    state: Mapping[str, Tensor] = dict(open_state(file, False))
    if others := others_of(state):
        log.info("not imported, %s: %s", ELSEWHERE, ", ".join(group(others)))
    encoder, xr_enc = read_encoder(state, str(file), heads or 8)
    if heads and encoder.kind != "transformer":
        raise ValueError(f"--heads={heads}: {file} holds an encoder of the kind {encoder.kind}, which has none")
    chars = _chars(file, char_vocab)
    behind = from_pretrained(backbone)
    if behind.family not in BACKBONES or behind.head not in (MASKED_LM, CAUSAL_LM, ENCODER):
        raise ValueError(
            f"--backbone={backbone} is a {behind.family} with the head {behind.head}; expected {', '.join(BACKBONES)}, "
            "for language modelling or alone"
        )
    parts = {"xr_enc": xr_enc}
    generator = None
    if f"{GENERATOR}{_SIGN}" in state:
        generator, parts["xr_dec"] = read_decoder(state, str(file))
    if encoder.char_vocab_size != chars.size:
        raise ValueError(
            f"{file}: XR-Enc has rows for {encoder.char_vocab_size - 3} characters, but there are {len(chars.chars)}"
        )
    fields: dict[str, Option] = {
        field.name: getattr(behind.config, field.name) for field in dataclasses.fields(behind.config)
    }
    fields |= {"encoder": encoder, "generator": generator}
    if behind.family == "gpt2":
        config: XRayEmbBertConfig | XRayEmbGPT2Config = XRayEmbGPT2Config(**fields)
    else:
        config = XRayEmbBertConfig(**{**fields, "pooler": False})
    metadata = {"family": converter.name, "backbone": behind.family, "head": behind.head}
    metadata |= {"model": config_to_dict(config), "xray_chars": chars.to_dict()}
    target = converter.target(metadata, str(file))
    params = _joined(target, parts, behind.params, f"--backbone={backbone}")
    return Model(params, metadata, behind.folder, file)


def _chars(file: Path, char_vocab: str) -> XRayChars:
    path = Path(char_vocab) if char_vocab else file.parent / RELEASED_CHARS_FILE
    try:
        return XRayChars.load(path)
    except OSError as error:
        said = f"--char-vocab={char_vocab}" if char_vocab else f"{path}, and no --char-vocab was named"
        raise ValueError(f"{said}: {error.strerror}; no other file has the ids of the characters") from None


def _joined(target: Target, parts: Mapping[str, Params], backbone: Params, where: str) -> Params:
    """Returns the parameters of the model: encoder and generator from `parts`, all others from the backbone."""
    wanted = flat(target.params)
    theirs = flat(backbone)
    if "embed" in backbone:  # the parameters of an encoder alone lie at the top
        behind = "gpt2/" if any(name.startswith("gpt2/") for name in wanted) else "bert/"
        theirs = {behind + name: value for name, value in theirs.items()}
    known = theirs | flat(dict(parts))
    wrong = [name for name, leaf in wanted.items() if name not in known or known[name].shape != leaf.shape]
    if wrong:
        raise ValueError(f"{where}: {', '.join(wrong[:5])} missing, or of another shape than the config says")
    return traverse_util.unflatten_dict({name: jax.numpy.asarray(known[name]) for name in wanted}, sep="/")
