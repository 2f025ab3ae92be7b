"""Compares charlm's CharacterBERT with golden cases: arrays that the authors' code computed ("theirs").

`python -m charlm.convert check --family=characterbert` runs it. The module runs our model on the characters of a case
and names every array as theirs. The characters of a case are padded to all slots, as in ELMo. Our model reads them
twice, with results that must be equal: as they are, and as distinct words in one table for each length bucket, as in
training (`tables/`). Padding is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from charlm.convert.golden import HEAD_OF_CASE, HEADS_PREFIX, Case, NotCompared, Ours, find_cases
from charlm.convert.heads import MASKED_LM
from charlm.convert.rules import import_state
from charlm.core.types import AnyModel, Params, Tree
from charlm.families.characterbert.characters import PAD
from charlm.families.characterbert.tensors import LAYOUT
from charlm.families.characterbert.units import word_slots
from charlm.families.spelled.batch import SpelledBatch

__all__ = ["ATOL", "find_cases", "outputs"]

ATOL = 1e-5  # above the float32 noise between two implementations, below the effect of any real mistake
INPUTS = ("char_ids", "mask", "types")
TABLES_PREFIX = "tables/"  # prefix of the arrays of the second pass


def outputs(case: Case) -> dict[str, Ours | NotCompared]:
    """Returns what our model computes for the arrays of a case; see `charlm.convert.golden`.

    Raises:
      ValueError: when the config or weights of the case do not fit our model.
    """
    found: dict[str, Ours | NotCompared] = {name: NotCompared("input") for name in INPUTS}
    padded = batch_of(case.arrays, whole=True)
    found |= dict(_pretraining(case, padded))
    found |= {f"{TABLES_PREFIX}{name}": ours for name, ours in _pretraining(case, batch_of(case.arrays, whole=False))}
    for short, head in HEAD_OF_CASE.items():
        if any(name.startswith(f"{HEADS_PREFIX}{short}.") for name in case.state):
            model, params = ours_of(case, head, f"{HEADS_PREFIX}{short}.")
            logits = jax.jit(model.apply)({"params": params}, padded)
            found[f"{short}_logits"] = Ours(logits, None if short == "seqcls" else case.arrays["mask"])
    return found


def ours_of(case: Case, head: str, prefix: str = "") -> tuple[AnyModel, Params]:
    """Returns our model of a case with the given head, and the model's parameters.

    Args:
      head: a name of `charlm.convert.heads`.
      prefix: the beginning of the names of the head's own tensors in the case; "": their names have no prefix.
    """
    inner = {name: value for name, value in case.state.items() if name.startswith(LAYOUT.prefix)}
    others = {name: value for name, value in case.state.items() if not name.startswith((LAYOUT.prefix, HEADS_PREFIX))}
    own = {name.removeprefix(prefix): value for name, value in case.state.items() if prefix and name.startswith(prefix)}
    state = LAYOUT.canonical(inner | (own if prefix else others), case.name)
    config = LAYOUT.from_theirs(case.meta["config"], head, f"{case.name}.json")
    labels = (*state[sign].shape, 0)[0] if (sign := LAYOUT.heads[head].labels) else 0
    model, _, table = LAYOUT.target(config, head, labels)
    return model, import_state(table, LAYOUT.heads[head].leave, state, f"{case.name}.safetensors")


def batch_of(arrays: dict[str, np.ndarray], whole: bool) -> SpelledBatch:
    """Returns the texts of a case as one shard.

    Args:
      whole: True: one table with one row for each position, with all slots and ELMo's padding; False: tables of
        distinct words by length.
    """
    char_ids_BLC, mask_BL = arrays["char_ids"].astype(np.uint16), arrays["mask"].astype(bool)
    B, L, C = char_ids_BLC.shape
    rows_NC = char_ids_BLC.reshape(B * L, C)
    if whole:
        tables, index_N = (rows_NC,), np.arange(B * L)
    else:
        words_UC, index_N = np.unique(np.where(rows_NC == PAD, np.uint16(0), rows_NC), axis=0, return_inverse=True)
        slots = word_slots(C)
        bucket_U = np.searchsorted(slots, (words_UC != 0).sum(axis=1))
        order_U = np.argsort(bucket_U, kind="stable")
        tables = tuple(words_UC[bucket_U == b, :n] for b, n in enumerate(slots) if (bucket_U == b).any())
        index_N = np.argsort(order_U)[index_N.reshape(-1)]
    index_BL, types_BL = index_N.astype(np.int32).reshape(B, L), arrays["types"].astype(np.int32)
    batch = SpelledBatch(tables, index_BL, np.full((B, L), -1, np.int32), types_BL, mask_BL)
    return jax.tree.map(lambda x: x[None], batch)


def _pretraining(case: Case, batch: SpelledBatch) -> Iterator[tuple[str, Ours]]:
    """Yields word vectors, the states before, between and after the layers, and the logits."""
    model, params = ours_of(case, MASKED_LM)

    def run(params: Params, batch: SpelledBatch) -> tuple[jax.Array, Tree]:
        encoder = model.clone()
        vectors = encoder.apply({"params": params}, batch, method="input_vectors")
        return vectors, encoder.apply({"params": params}, batch)

    mask_BL = np.asarray(batch.mask_SBL[0])
    vectors_BLD, output = jax.jit(run)(params, batch)
    yield "word_vectors", Ours(vectors_BLD, mask_BL)
    yield "states", Ours(output.transformer.states_BLD, mask_BL)
    yield "logits", Ours(output.logits, mask_BL)
