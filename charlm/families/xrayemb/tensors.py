"""Reads and writes XR-Enc and XR-Dec in the released code's format, with tables of its names of tensors and ours.

Open it when weights of the released code are not recognised, or a tensor is reported as missing. Their character ids
have the order characters, <unk>, <e>, <pad>, and ours begin with padding. So the rows of a character table move by one,
and the classes of the output are the same in both (our id - 1 is their id).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import flax.linen as nn
import jax
import numpy as np

from charlm.convert.files import Tensor
from charlm.convert.rules import Entry, Leave, Rule, build_table, dense_rules, import_state
from charlm.core.types import Option, Params
from charlm.families.subword.bert_tensors import encoder_rules
from charlm.families.xrayemb.decoder import XRDecoder, XRDecoderConfig
from charlm.families.xrayemb.encoder import XREncoder, XREncoderConfig

ENCODER, GENERATOR = "tdtemb.vectorizer.", "tdtgen."  # prefixes of names in a state of the whole model
START = "h_0"  # first states of the LSTM encoder: the released code does not save them, we do
SIGNS = {"conv": "bi_conv.weight", "lstm": "lstm.weight_ih_l0_reverse", "transformer": "encoder.embeddings."}
ELSEWHERE = "the backbone is that of --backbone"
_CONVOLUTIONS = {"bi_conv": 2, "tri_conv": 3, "quad_conv": 4}
_GATES = (("weight_ih", "input_kernel"), ("weight_hh", "state_kernel"), ("bias_ih", "input_bias"),
          ("bias_hh", "state_bias"))  # fmt: skip
_POOLER = "encoder.pooler.dense"


def encoder_table(kind: str, theirs: str = "", ours: str = "") -> tuple[list[Rule], list[Leave]]:
    """Returns the rules of XR-Enc, and the tensors that are not imported.

    The prefix `theirs` ends in a dot and `ours` in a slash, unless empty.
    """
    body = f"{ours}body/"
    chars = Rule(f"{theirs}char_embs.weight", f"{body}chars/embedding", roll=1)
    if kind == "conv":
        rules = [chars]
        for name, width in _CONVOLUTIONS.items():
            rules.append(Rule(f"{theirs}{name}.weight", f"{body}convolution_{width}/kernel", transpose=True))
            rules.append(Rule(f"{theirs}{name}.bias", f"{body}convolution_{width}/bias"))
        rules += dense_rules(f"{theirs}proj", f"{ours}projection_0")
        return rules + dense_rules(f"{theirs}proj2", f"{ours}projection_1"), []
    if kind == "lstm":
        rules = [chars, Rule(f"{theirs}{START}", f"{body}start_state")]
        for side, end in (("forward", ""), ("backward", "_reverse")):
            rules += _lstm_rules(f"{theirs}lstm.{{part}}_l{{n}}{end}", f"{body}{side}_{{n}}")
        return rules + dense_rules(f"{theirs}mlp.{{n}}", f"{ours}projection_{{n}}"), []
    rules = encoder_rules(f"{theirs}encoder.", f"{body}bert/", pooler=False)
    table = f"{body}bert/embed/token/embedding"
    rules = [dataclasses.replace(rule, roll=1) if rule.ours == table else rule for rule in rules]
    leave = [Leave(f"{theirs}{_POOLER}.{part}", "no vector depends on it") for part in ("weight", "bias")]
    leave.append(Leave(f"{theirs}encoder.embeddings.position_ids", "a constant"))
    return rules + dense_rules(f"{theirs}proj", f"{ours}projection_0"), leave


def decoder_rules(theirs: str = "", ours: str = "") -> list[Rule]:
    """Returns the rules of XR-Dec; the prefix `theirs` ends in a dot and `ours` in a slash, unless empty."""
    rules = [Rule(f"{theirs}char_embs.weight", f"{ours}chars/embedding", roll=1)]
    rules += dense_rules(f"{theirs}h_0", f"{ours}start_projection")
    rules += _lstm_rules(f"{theirs}lstm.{{part}}_l{{n}}", f"{ours}lstm_{{n}}")
    rules += dense_rules(f"{theirs}proj1", f"{ours}projection")
    return rules + dense_rules(f"{theirs}proj2", f"{ours}output_projection")


def _lstm_rules(theirs: str, ours: str) -> list[Rule]:
    """Returns the rules of LSTM layers; "{part}" in `theirs` stands for the kind of tensor."""
    return [
        Rule(theirs.replace("{part}", part), f"{ours}/{name}", transpose=name.endswith("kernel"))
        for part, name in _GATES
    ]


def prefix_of(state: Iterable[str], prefix: str) -> str:
    """Returns the prefix if any of the names has it, else "", since the state then holds one part alone."""
    return prefix if any(name.startswith(prefix) for name in state) else ""


def part_of(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Returns the tensors whose names begin with the prefix, without it in the names."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def is_released(names: Iterable[str]) -> bool:
    """Returns whether the names are those of the released code's state of a whole model."""
    return any(name.startswith((ENCODER, GENERATOR)) for name in names)


def is_known(names: Iterable[str]) -> bool:
    """Returns whether the names are those of the released code, for a whole model or for XR-Enc alone."""
    names = list(names)
    return is_released(names) or kind_of(names) is not None


def kind_of(names: Iterable[str]) -> str | None:
    """Returns the kind of XR-Enc that has tensors of these names (without prefixes); None: no kind has."""
    names = list(names)
    return next((kind for kind, sign in SIGNS.items() if any(name.startswith(sign) for name in names)), None)


def rules_of(names: Iterable[str], where: str) -> tuple[list[Rule], list[Leave]]:
    """Returns the rules of XR-Enc and XR-Dec for a state of the released code, and the tensors that are not imported.

    Raises:
      ValueError: the state has neither of the two.
    """
    names = list(names)
    front = prefix_of(names, ENCODER)
    kind = kind_of(name.removeprefix(front) for name in names if name.startswith(front))
    generator = any(name.startswith(GENERATOR) for name in names)
    if kind is None and not generator:
        raise _no_encoder(names, where)
    rules, leave = encoder_table(kind, front, "xr_enc/") if kind else ([], [])
    rules = [*rules, *(decoder_rules(GENERATOR, "xr_dec/") if generator else [])]
    return rules, [*leave, *(Leave(name, ELSEWHERE) for name in others_of(names))]


def others_of(names: Iterable[str]) -> list[str]:
    """Returns the names in a state of their whole model that belong neither to XR-Enc nor to XR-Dec."""
    names = list(names)
    return [name for name in names if not name.startswith((ENCODER, GENERATOR))] if is_released(names) else []


def _no_encoder(names: Iterable[str], where: str) -> ValueError:
    return ValueError(
        f"{where} holds no XR-Enc: expected one of {', '.join(SIGNS.values())}, got {', '.join(list(names)[:3])}"
    )


def read_encoder(
    state: Mapping[str, Tensor], where: str, heads: int = 8, start: np.ndarray | None = None, **changes: Option
) -> tuple[XREncoderConfig, Params]:
    """Returns the config and the parameters of XR-Enc in one of their states; the config follows from tensor shapes.

    Args:
      state: tensors, with or without the prefix `ENCODER`.
      where: name of the state in error messages.
      heads: attention heads of a Transformer, which no tensor shape tells; 8 in the released code.
      start: first states of an LSTM's layers, [2 * layers, hidden] or [2 * layers, 1, hidden], if the state lacks them;
        None: zeros. The released code draws them at random each time, so its own vectors cannot be reproduced.
      changes: fields of the config to change.

    Raises:
      ValueError: the state is of no known kind or does not fit; one line names every tensor.
    """
    front = prefix_of(state, ENCODER)
    part = part_of(state, front)
    if (kind := kind_of(part)) is None:
        raise _no_encoder(part, where)
    own = {"heads": heads} if kind == "transformer" else {}
    config = XREncoderConfig(**{"kind": kind, **_encoder_shape(kind, part, where, front), **own, **changes})
    if kind == "lstm" and START not in part:
        given = np.zeros((2 * config.layers, config.hidden)) if start is None else start
        part[START] = np.asarray(given, np.float32).reshape(-1, config.hidden)
    _, table, leave = encoder_target(config, front)
    return config, import_state(table, leave, {f"{front}{name}": value for name, value in part.items()}, where)


def read_decoder(state: Mapping[str, Tensor], where: str, **changes: Option) -> tuple[XRDecoderConfig, Params]:
    """Returns config and parameters of XR-Dec, as `read_encoder` does; with or without the prefix `GENERATOR`."""
    front = prefix_of(state, GENERATOR)
    part = part_of(state, front)
    chars, hidden, vectors = (
        _shape(part, name, where, front) for name in ("char_embs.weight", "lstm.weight_hh_l0", "h_0.weight")
    )
    shape = {"char_vocab_size": chars[0], "char_embedding": chars[1], "hidden": hidden[1], "vector": vectors[1]}
    config = XRDecoderConfig(**{**shape, "layers": vectors[0] // hidden[1], **changes})
    whole = {f"{front}{name}": value for name, value in part.items()}
    return config, import_state(decoder_target(config, front)[1], (), whole, where)


def encoder_target(config: XREncoderConfig, prefix: str = "") -> tuple[Params, dict[str, Entry], list[Leave]]:
    """Returns XR-Enc's abstract parameters, its table of names, and the tensors not imported; computes nothing."""
    rules, leave = encoder_table(config.kind, prefix)
    params = _abstract(XREncoder(config), np.ones((1, 2), np.int32))
    return params, build_table(rules, params), leave


def decoder_target(config: XRDecoderConfig, prefix: str = "") -> tuple[Params, dict[str, Entry]]:
    """Returns XR-Dec's abstract parameters and its table of names; computes nothing."""
    params = _abstract(XRDecoder(config), np.ones((1, config.vector), np.float32), np.ones((1, 2), np.int32))
    return params, build_table(decoder_rules(prefix), params)


def _abstract(module: nn.Module, *inputs: np.ndarray) -> Params:
    return jax.eval_shape(lambda: module.init(jax.random.key(0), *inputs))["params"]


def _shape(state: Mapping[str, Tensor], name: str, where: str, prefix: str = "") -> tuple[int, ...]:
    if name not in state:
        raise ValueError(
            f"{where} holds no {prefix}{name}: expected the tensors of XR-Dec or XR-Enc, got {len(state)} others"
        )
    return tuple(state[name].shape)


def _encoder_shape(kind: str, state: Mapping[str, Tensor], where: str, prefix: str) -> dict[str, int]:
    """Returns the fields of the config that follow from the shapes of the tensors."""
    shape = lambda name: _shape(state, name, where, prefix)
    count = lambda pattern: next(n for n in range(len(state) + 1) if pattern.format(n) not in state)
    if kind == "conv":
        chars = shape("char_embs.weight")
        found = {"hidden": shape("bi_conv.weight")[0], "output": shape("proj.weight")[0]}
        found["projections"] = 1 + ("proj2.weight" in state)
    elif kind == "lstm":
        chars, layers = shape("char_embs.weight"), count("mlp.{}.weight")
        found = {"hidden": shape("lstm.weight_hh_l0")[1], "layers": count("lstm.weight_hh_l{}"), "projections": layers}
        found["output"] = shape(f"mlp.{max(layers, 1) - 1}.weight")[0]
    else:
        chars, layer = (
            shape("encoder.embeddings.word_embeddings.weight"),
            "encoder.encoder.layer.{}.output.dense.weight",
        )
        found = {"hidden": chars[1], "layers": count(layer), "ffn": shape(layer.format(0))[1]}
        found["max_positions"] = shape("encoder.embeddings.position_embeddings.weight")[0]
        found["output"] = shape("proj.weight")[0]
    return found | {"char_vocab_size": chars[0], "char_embedding": chars[1]}
