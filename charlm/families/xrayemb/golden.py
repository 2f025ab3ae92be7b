"""Compares charlm's XRayEmb with golden cases: vectors of XR-Enc; logits, losses and generated words of XR-Dec.

`python -m charlm.convert check --family=xrayemb` runs it.

`modules_meta.json` describes the cases of encoders and generators, each of which has a .safetensors and an .npz file of
its name. The case `embedder` holds sequences with collapsed words; `policy_golden.json` says which words.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import VariableDict

from charlm.convert.files import read_state
from charlm.convert.golden import Case, NamedOutputs, NotCompared, Ours, read_arrays
from charlm.core.reading import read_object
from charlm.core.types import ModelConfig, Params
from charlm.families.xrayemb.decoder import Generated, XRDecoder
from charlm.families.xrayemb.encoder import XREncoder
from charlm.families.xrayemb.generation_loss import generation_sums
from charlm.families.xrayemb.policy_golden import FILE as POLICY_FILE
from charlm.families.xrayemb.policy_golden import NAME as POLICIES
from charlm.families.xrayemb.policy_golden import outputs as policy_outputs
from charlm.families.xrayemb.policy_golden import policy_case
from charlm.families.xrayemb.tensors import read_decoder, read_encoder

ATOL = 1e-5  # float32 noise between two implementations stays below this; real mistakes exceed it
META_FILE = "modules_meta.json"
EMBEDDER = "embedder"
INPUT = NotCompared("input")
LOGITS_TOLERANCE = 1e-4  # tolerance of logits and of results computed from them


def find_cases(folder: str | Path) -> Iterator[Case]:
    """Yields the cases of a folder, and prints a line for each case whose files are missing.

    Raises:
      ValueError: the folder or its description is missing, or a file cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"--golden-dir={folder} is not a folder")
    meta = read_object(folder / META_FILE)
    described = dict.fromkeys(meta, META_FILE) | {EMBEDDER: POLICY_FILE}
    policies = read_object(folder / POLICY_FILE) if (folder / POLICY_FILE).is_file() else {}
    meta |= {EMBEDDER: policies[EMBEDDER]} if EMBEDDER in policies else {}
    for name in sorted(meta.keys() | {path.stem for path in folder.glob("*.npz")}):
        weights, arrays = folder / f"{name}.safetensors", folder / f"{name}.npz"
        lacking = [path.name for path in (weights, arrays) if not path.is_file()]
        lacking += [] if name in meta else [f"{described.get(name, META_FILE)}: {name}"]
        if lacking:
            print(f"{name}: no case, for {', '.join(lacking)} is missing")
            continue
        yield Case(name, meta[name], read_state(weights), read_arrays(arrays))
    case = policy_case(folder) if policies else None
    if case is not None:
        yield case


def outputs(case: Case) -> Mapping[str, Ours | NotCompared]:
    """Returns our results for the arrays of a case; see `charlm.convert.golden`.

    Raises:
      ValueError: the weights do not fit our modules.
    """
    if case.name == POLICIES:
        return policy_outputs(case)
    if case.name == EMBEDDER:
        return dict(_embedder(case))
    return dict(_generator(case) if case.name.startswith("dec_") else _encoder(case))


def ours_of(ids: np.ndarray, vocab: int) -> np.ndarray:
    """Returns our character ids for theirs, whose last id is padding."""
    return ((ids + 1) % vocab).astype(np.int32)


def theirs_of(ids: np.ndarray, vocab: int) -> np.ndarray:
    """Returns their character ids for ours."""
    return (np.asarray(ids) - 1) % vocab


def spell(words: Sequence[str], chars: Sequence[str]) -> np.ndarray:
    """Returns words as rows of our ids, as wide as the longest word; at most 20 characters of a word are read."""
    ids = {char: index for index, char in enumerate(chars[:-1], start=1)}
    spelled = [["<e>", *(char if char in ids else "<unk>" for char in word[:20]), "<e>"] for word in words]
    rows = np.zeros((len(words), max(map(len, spelled))), np.int32)
    for row, word in zip(rows, spelled, strict=True):
        row[: len(word)] = [ids[char] for char in word]
    return rows


def _encoder(case: Case) -> NamedOutputs:
    """Yields the vectors of words in one batch with padding read as characters, as theirs, and of every word alone."""
    z, about = case.arrays, case.meta
    config, params = read_encoder(
        case.state, f"{case.name}.safetensors", about.get("heads", 1), z.get("h_0"), char_slots=z["char_ids"].shape[1]
    )
    chars_UC = spell(about["words"], about["char_vocab"])
    yield "char_ids", Ours(theirs_of(chars_UC, config.char_vocab_size))
    yield "lengths", Ours((chars_UC != 0).sum(axis=1))
    yield "h_0", INPUT
    yield from _vectors(config, params, {"out_batched_padded": (chars_UC, True), "out_each_alone": (chars_UC, False)})


def _vectors(
    config: ModelConfig, params: Params, asked: dict[str, tuple[np.ndarray, bool]]
) -> Iterator[tuple[str, Ours]]:
    """Yields the vectors of words under the names asked for, with or without padding read as a character."""
    for name, (chars_UC, compat) in asked.items():
        module = XREncoder(dataclasses.replace(config, compat_padding=compat))
        yield name, Ours(jax.jit(module.apply)({"params": params}, jnp.asarray(chars_UC)))


def _generator(case: Case) -> NamedOutputs:
    """Yields states, logits, losses and generated words, computed correctly and with `compat_scramble`."""
    z, about = case.arrays, case.meta
    where = f"{case.name}.safetensors"
    chars_UC = spell(about["words"], about["char_vocab"])
    length_U = (chars_UC != 0).sum(axis=1)
    vocab = len(about["char_vocab"])
    spaces_V = np.zeros(vocab, bool)
    spaces_V[1:-2] = [char.isspace() for char in about["char_vocab"][:-3]]
    yield "gold_ids", Ours(theirs_of(chars_UC, vocab))
    yield "lengths", Ours(length_U)
    yield from ((name, INPUT) for name in ("in_vecs", "gen_in"))
    for name, compat in (("correct", False), ("author_scrambled", True)):
        config, params = read_decoder(case.state, where, char_slots=chars_UC.shape[1], compat_scramble=compat)
        module, variables = XRDecoder(config), {"params": params}
        teach = jax.jit(module.apply)
        begin = jax.jit(functools.partial(module.apply, method="start_states"))
        yield f"h0_{name}", Ours(begin(variables, z["in_vecs"]))
        logits = teach(variables, z["in_vecs"], np.pad(chars_UC, ((0, 0), (0, 1))))
        valid = np.arange(chars_UC.shape[1])[None] < length_U[:, None]
        yield f"logits_{name}", Ours(logits, valid, tolerance=LOGITS_TOLERANCE)
        tables = functools.partial(module.apply, method="tables")
        score = jax.jit(lambda *inputs, tables=tables: generation_sums(tables(*inputs)))
        sums = score(variables, [z["in_vecs"][None]], [chars_UC[None]])
        total, weight = sums.loss("mean")
        yield f"loss_mean_{name}", Ours(total / weight, tolerance=LOGITS_TOLERANCE)
        yield "n_target_chars", Ours(np.int64(weight))
        if not compat:
            yield "loss_sum_correct", Ours(total, tolerance=LOGITS_TOLERANCE)
        options = {"max_steps": about["max_gen"], "spaces_V": spaces_V, "spaces_end": about["spaces_end"]}
        write = functools.partial(module.apply, method="generate", **options)
        words = jax.jit(write)(variables, z["gen_in"])
        ids_name, lengths_name = (f"gen_{what}_{'author_batched' if compat else 'alone'}" for what in ("ids", "lens"))
        yield (ids_name if compat else f"{ids_name}_padded"), Ours(theirs_of(words.ids_UT, vocab))
        yield lengths_name, Ours(words.length_U)
        if compat:
            found = _probabilities(teach, variables, z["gen_in"], words, spaces_V)
            yield "gen_probs_author_batched", Ours(found, tolerance=LOGITS_TOLERANCE)


def _probabilities(
    teach: Callable[..., jax.Array],
    variables: VariableDict,
    vectors: np.ndarray,
    words: Generated,
    spaces_V: np.ndarray,
) -> jax.Array:
    """Returns the probabilities that each generated character was chosen from, by teacher forcing on the words."""
    end = len(spaces_V) - 1
    given = np.full((len(vectors), words.ids_UT.shape[1] + 3), end)  # the width of the golden words: one program
    given[:, 1:-2] = words.ids_UT
    logits = np.array(teach(variables, vectors, given))[:, : words.ids_UT.shape[1]]
    logits[:, 0, spaces_V[1:] | (np.arange(end) == end - 1)] = -np.inf
    return jax.nn.softmax(logits, axis=-1)


def _embedder(case: Case) -> NamedOutputs:
    """Yields the input vectors of collapsed sequences: rows of the table and vectors of words."""
    z, about = case.arrays, case.meta
    config, params = read_encoder(case.state, f"{case.name}.safetensors")
    chars_UC = spell(list(about["orig_words"].values()), about["char_vocab"])
    learned_UC = ours_of(z["learn_char_ids"], config.char_vocab_size)
    asked = {"replaced": (chars_UC, True), "replaced_alone": (chars_UC, False), "learn_preds": (learned_UC, True)}
    found = dict(_vectors(config, params, asked))
    vectors = found.pop("replaced").value
    yield from found.items()
    ids = z["masked_in_ids"].astype(np.float64)
    table = np.sin(0.01 * (ids[..., None] + 1) * np.arange(1, config.output + 1)).astype(np.float32)  # its formula
    rows, columns = z["replaced_coords"].T
    yield "encode_embs", Ours(jnp.asarray(table).at[rows, columns].set(vectors))
    yield from ((name, INPUT) for name in ("in_ids", "learn_char_ids", "uniform_draws"))
    reason = "of the policy, which reads text"
    yield from (
        (name, NotCompared(reason)) for name in ("infer_map", "masked_in_ids", "replaced_coords", "learn_targets")
    )
