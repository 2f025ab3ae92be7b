"""Converts the model config (JSON) of HLM's released code (lisun-ai/HLM, config/config_pretrain.json) to ours and back.

`conversion` uses it; open it when an imported config is refused. In this module "theirs" is the released code, "ours"
is charlm. Their JSON mixes the keys of the model with those of the Trainer; only those of the model are read. A setting
of one side that the other side cannot represent is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import ml_collections

from charlm.config import flatten, get_config, validate
from charlm.core.types import Json, JsonObject
from charlm.families.hlm.positions import POSITION_BUCKETS, rows_in_theirs

log = logging.getLogger("charlm")

# Larger values are mistakes, and memory would be allocated before anyone notices.
MOST_LAYERS, LARGEST_SIZE = 512, 65_536
ATTENTION_HEADS = 12  # the default of their BertEncoder: their model never passes attention_heads on to it
RELEASED_ATTENTION_DROPOUT = 0.1  # fixed in their BertEncoder, as is RELEASED_EPSILON
RELEASED_EPSILON = 1e-7

# Their key -> ours in config.model.
SIZES = {
    "hidden_size": "hidden",
    "max_codepoint": "vocab_size",
    "n_local_layer_first": "intra_layers",
    "n_global_layer": "inter_layers",
    "n_local_layer_last": "head_layers",
    "local_transformer_ff_size": "intra_ffn",
    "transformer_ff_size": "inter_ffn",
    "max_char_per_word": "char_slots",
    "max_num_word": "max_relative_words",
}
# Their key -> (the one value our model can represent, the default of their code where the key is absent (None: the key
# is required), the reason why other values are refused).
FIXED: dict[str, tuple[Json, Json, str]] = {
    "activation": ("gelu", None, "every layer of our model has the exact GELU"),
    "use_token_type": (False, None, "our model has no segment embeddings"),
    "relative_attention": (True, False, "our model has relative positions only"),
    "word_context": (1, 1, "our intra-word encoder reads one word at a time"),
    "aggregation_method": (
        "word_cls",
        "word_cls",
        "their pooling of characters reads padding and hides the wrong word",
    ),
    "pos_att_type": ("p2c|c2p", "p2c|c2p", "our attention has both position terms and no other"),
    "layer_norm_eps": (RELEASED_EPSILON, RELEASED_EPSILON, "our encoders and embeddings share one epsilon"),
}
# Our keys that have no counterpart in their JSON. An export stores them under OWN, which their code ignores, so that
# charlm can import them again.
OWN = "charlm"
OWN_KEYS = ("text.splitter", "text.language", "text.normalize", "data.max_words", "model.heads",
            "model.position_buckets", "model.attention_dropout", "model.initializer", "objective")  # fmt: skip
# The values of our keys of newer layers that make the layers of their code.
PLAIN: dict[str, Json] = {"position": "disentangled", "norm_position": "post", "norm": "layer", "feed_forward": "gelu",
                          "bias": True, "ngrams": 0, "local_words": 0}  # fmt: skip
WRITTEN = {"masking_type": "rand_char", "max_char_length": 2048}  # written for their code; the model reads neither


def from_theirs(theirs: Mapping[str, Json], where: str, heads: int = 0) -> ml_collections.ConfigDict:
    """Returns our complete config for one of their model configs.

    Args:
      theirs: their keys, and perhaps `OWN`.
      where: the name of the config in error messages, for example its file.
      heads: attention heads; 0: the number that an export of ours stored, else the 12 that their code always has.

    Raises:
      ValueError: naming every missing key, or the first key whose value our model cannot represent.
    """
    needed = [*SIZES, "dropout", "use_projection", *(key for key, (_, absent, _) in FIXED.items() if absent is None)]
    if missing := [key for key in needed if key not in theirs]:
        raise ValueError(f"{where} lacks {', '.join(missing)}: is it the model config of the released code?")
    for key, (only, absent, reason) in FIXED.items():
        value = theirs.get(key, absent)
        same = set(str(value).split("|")) == {"p2c", "c2p"} if key == "pos_att_type" else value == only
        if not same or isinstance(value, bool) != isinstance(only, bool):
            said = f"{key}={value!r}" + ("" if key in theirs else " (absent, so their default)")
            raise ValueError(f"{where}: {said} cannot be imported, only {only!r}: {reason}")
    for key in SIZES:
        least, most = (0 if key == "n_local_layer_last" else 1), (MOST_LAYERS if "layer_" in key else LARGEST_SIZE)
        if type(theirs[key]) is not int or not least <= theirs[key] <= most:
            raise ValueError(f"{where}: {key}={theirs[key]!r:.40}, expected a whole number from {least} to {most}")
    dropout = theirs["dropout"]
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ValueError(f"{where}: dropout={dropout!r}, expected a number in [0, 1)")
    if not isinstance(theirs["use_projection"], bool):
        raise ValueError(f"{where}: use_projection={theirs['use_projection']!r}, expected true or false")
    own = _own(theirs, where)
    heads = heads or own.get("model.heads", 0)
    said = theirs.get("attention_heads", ATTENTION_HEADS)
    if said != (heads or ATTENTION_HEADS):
        ignored = f"their code ignores it and always has {ATTENTION_HEADS} (patched: --heads=N)"
        why = f"--heads={heads}" if heads else ignored
        log.info("%s: attention_heads=%s is not used: %s", where, said, why)
    if theirs["hidden_size"] % (heads or ATTENTION_HEADS):
        raise ValueError(
            f"{where}: hidden_size={theirs['hidden_size']} is not a multiple of {heads or ATTENTION_HEADS} heads"
            + ("" if heads else "; was their code patched to have another number? --heads=N")
        )
    config = _config(theirs, heads or ATTENTION_HEADS)
    config.update_from_flattened_dict(own | {"model.heads": heads or ATTENTION_HEADS})
    return config


def _own(theirs: Mapping[str, Json], where: str) -> JsonObject:
    """Returns the keys that an export of ours stored under `OWN`; raises ValueError naming an invalid one."""
    own = theirs.get(OWN, {})
    if not isinstance(own, dict) or own.keys() - set(OWN_KEYS):
        raise ValueError(f"{where}: {OWN}={own!r:.80}, expected a table of {', '.join(OWN_KEYS)}")
    config = get_config()
    config.model.update(hidden=theirs["hidden_size"], heads=1)  # so that `validate` checks the heads against `hidden`
    for key, value in own.items():
        try:
            config.update_from_flattened_dict({key: value})
        except TypeError as error:
            raise ValueError(f"{where}: {OWN}: {key}={value!r} has the wrong type") from error
        if isinstance(value, int) and not 0 < value <= LARGEST_SIZE:
            raise ValueError(f"{where}: {OWN}: {key}={value!r}, expected a whole number from 1 to {LARGEST_SIZE}")
    try:
        validate(config)
    except ValueError as error:
        raise ValueError(f"{where}: {OWN}: {error}") from error
    return own


def _config(theirs: Mapping[str, Json], heads: int) -> ml_collections.ConfigDict:
    """Returns our config for their model, with text and masking as in their code."""
    config = get_config()
    config.text.splitter = "reference"
    config.data.masking = "reference"
    config.data.max_words = theirs["max_num_word"]
    for key, ours in SIZES.items():
        config.model[ours] = theirs[key]
    config.model.heads = heads
    config.model.wiring = "reference" if theirs["use_projection"] else "paper"
    config.model.position_buckets = POSITION_BUCKETS
    config.model.dropout = float(theirs["dropout"])
    config.model.attention_dropout = RELEASED_ATTENTION_DROPOUT
    config.model.initializer = "torch"
    return config


def to_theirs(config: ml_collections.ConfigDict, head: str, where: str) -> JsonObject:
    """Returns their model config for ours, and logs where their code would behave differently.

    Args:
      head: the head of the model, "masked_lm" or that of a fine-tuned model.
      where: the name of the checkpoint in error messages.

    Raises:
      ValueError: naming every key of ours whose value their code does not support.
    """
    model = config.model
    wrong = [
        f"model.{key}={model[key]!r} (only {only!r})"
        for key, only, read in (
            ("aggregation", "word_cls", True),
            ("word_residual", False, True),
            ("head_transform", True, head == "masked_lm"),
            *((key, only, True) for key, only in PLAIN.items()),
        )
        if read and model[key] != only
    ]
    for key in ("char_slots", "max_relative_words"):
        if rows_in_theirs(model.position_buckets, model[key]) is None:
            wrong.append(
                f"model.position_buckets={model.position_buckets} (their {POSITION_BUCKETS} buckets do not make the "
                f"same ones of the distances up to model.{key}={model[key]})"
            )
    if wrong:
        raise ValueError(f"{where} cannot be exported, the released code has no such model: {', '.join(wrong)}")
    for note in _notes(config):
        log.info("%s: %s", where, note)
    theirs = {key: model[ours] for key, ours in SIZES.items()}
    fixed = {key: only for key, (only, _, _) in FIXED.items() if key not in ("pos_att_type", "layer_norm_eps")}
    theirs = WRITTEN | theirs | fixed | {
        "attention_heads": model.heads,
        "dropout": model.dropout,
        "use_projection": model.wiring == "reference",
        "for_token_classification": head == "token_classification",
    }  # fmt: skip
    said, implied = flatten(config), flatten(_config(theirs, ATTENTION_HEADS))
    own = {key: said[key] for key in OWN_KEYS if said[key] != implied[key]}
    return theirs | ({OWN: own} if own else {})


def _notes(config: ml_collections.ConfigDict) -> list[str]:
    """Returns the differences to expect when their code runs a model of ours with the same weights."""
    model, text = config.model, config.text
    notes = []
    if model.heads != ATTENTION_HEADS:
        notes.append(
            f"model.heads={model.heads}: their code ignores attention_heads and always has {ATTENTION_HEADS}; patch it"
        )
    if model.attention_dropout != RELEASED_ATTENTION_DROPOUT:
        notes.append(
            f"model.attention_dropout={model.attention_dropout}: their code trains with {RELEASED_ATTENTION_DROPOUT}"
        )
    if config.data.max_words != model.max_relative_words:
        notes.append(
            f"data.max_words={config.data.max_words} is not written: their max_num_word is one number for the longest "
            f"text and for relative positions, here model.max_relative_words={model.max_relative_words}"
        )
    if text.splitter != "reference" or text.normalize != "none":
        notes.append(
            f"text.splitter={text.splitter}, text.normalize={text.normalize}: their tokenizer splits words its own way"
        )
    if text.unknown != "symbol":
        notes.append(f"text.unknown={text.unknown}: their tokenizer reads unknown characters as [UNK]")
    return notes
