"""Tiny BERTs, RoBERTas, RoFormers and GPT-2s of random weights, with trained vocabularies, as transformers has them."""

from __future__ import annotations

import functools
import json
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import traverse_util
from safetensors.numpy import save_file

from charlm.convert.rules import export_state
from charlm.families.charbert.conversion import SYMBOLS_FILE
from charlm.families.charbert.tensors import ON_BERT
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.conversion import TABLES
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab, count_symbols

GOLDENS = Path(__file__).resolve().parents[0] / "goldens"
VOCABULARIES = json.loads((GOLDENS / "subwords_small.json").read_text(encoding="utf-8"))["vocabularies"]
POSITIONS = 40  # of a text; RoBERTa has two rows more
SHAPE = {"hidden": 24, "layers": 1, "heads": 4, "ffn": 96}
FAMILIES = {  # family -> head, vocabulary and how it is read, further fields of the config
    "bert": ("masked_lm", "bert-uncased", {"lowercase": True}, {"max_positions": POSITIONS}),
    "roberta": (
        "masked_lm",
        "roberta",
        {"family": "roberta"},
        {"max_positions": POSITIONS + 2, "type_vocab": 1, "position_offset": 2, "pad_id": 1, "epsilon": 1e-5},
    ),
    "roformer": (
        "masked_lm",
        "bert-uncased",
        {"lowercase": True},
        {"max_positions": POSITIONS, "position": "rotary", "pooler": False},
    ),
    "gpt2": ("causal_lm", "gpt2", {"family": "gpt2"}, {"max_positions": POSITIONS}),
}


CHARBERT = (
    "masked_lm",
    "bert-uncased",
    {"lowercase": True},
    {"max_positions": POSITIONS, "char_hidden": 8, "word_vocab_size": 11, "fusion": "reference", "windows": (3,)},
)


def _weight(path: str, leaf: Any) -> np.ndarray:
    """Returns numbers that depend on the parameter's name alone, large enough that everything matters."""
    noise = np.random.default_rng(zlib.crc32(path.encode())).normal(size=leaf.shape)
    return np.asarray(noise * (0.5 if leaf.ndim > 1 else 0.1) + path.endswith("scale"), np.float32)


@functools.cache
def _padded_run(family: str, head: str, changes: tuple[tuple[str, Any], ...]) -> Any:
    pretrained = from_pretrained(release(family, head, **dict(changes)))
    run = jax.jit(lambda p, ids, mask: pretrained.model.apply({"params": p}, ids, mask))
    return lambda ids, mask: run(pretrained.params, ids, mask)


def run_alone(family: str, ids: Sequence[int], head: str = "", **changes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the model's last states [L, D] and log-probabilities [L, V] for one sequence of at most `POSITIONS`."""
    ids_1L, mask_1L = np.zeros((1, POSITIONS), np.int32), np.zeros((1, POSITIONS), bool)
    ids_1L[0, : len(ids)], mask_1L[0, : len(ids)] = ids, True
    output = _padded_run(family, head, tuple(changes.items()))(ids_1L, mask_1L)
    log_probs = jax.nn.log_softmax(output.logits[0])
    return np.asarray(output.transformer.states_BLD[0])[: len(ids)], np.asarray(log_probs, np.float64)[: len(ids)]


@functools.cache
def release(family: str, head: str = "", **changes: Any) -> Path:
    """Returns a folder with weights, config and tokenizer of a tiny model; changed are fields of its config."""
    usual, vocabulary, options, shape = CHARBERT if family == "charbert" else FAMILIES[family]
    head = head or usual
    folder = Path(tempfile.mkdtemp())
    for name, content in VOCABULARIES[vocabulary].items():
        (folder / name).write_text(content, encoding="utf-8")
    tokenizer = SubwordTokenizer.load(folder, **options)
    tokenizer.save(folder)
    kind = ON_BERT if family == "charbert" else TABLES[family]
    fields = dict(kind.heads[head].fields)
    if family == "charbert":
        tokens = [tokenizer.token(index).removeprefix("##") for index in range(5, tokenizer.size)]
        symbols = SymbolVocab.build(count_symbols(tokens), 30)  # some are unknown
        symbols.save(folder / SYMBOLS_FILE)
        fields["char_vocab_size"] = symbols.size
    config = kind.config(**{"vocab_size": tokenizer.size} | SHAPE | shape | fields | changes)
    _, abstract, table = kind.target(config, head)
    flat = traverse_util.flatten_dict(abstract, sep="/")
    params = traverse_util.unflatten_dict({path: _weight(path, leaf) for path, leaf in flat.items()}, sep="/")
    save_file(export_state(table, (), jax.tree.map(np.asarray, params)), folder / "model.safetensors", {"format": "pt"})
    special = tokenizer.special
    ids = {"pad_token_id": special.pad, "bos_token_id": special.bos, "eos_token_id": special.eos}
    theirs = kind.to_theirs(config, head, {key: value for key, value in ids.items() if value is not None})
    (folder / "config.json").write_text(json.dumps(theirs), encoding="utf-8")
    if family != "charbert":
        return folder
    clean = Path(tempfile.mkdtemp()) / "clean"  # theirs runs over padding, which most tests are not about
    from_pretrained(folder, compat_reference=False).save_pretrained(clean)
    return clean
