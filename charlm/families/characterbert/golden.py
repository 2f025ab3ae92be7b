"""CharacterBERT's golden cases: runs our model on their characters and names every array as theirs.

A case has characters as ELMo pads them, to all slots. They are read twice: as they are, and as distinct words in a
table for each length, as training does it (`tables/`), which must give the same. Nothing is compared at padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from charlm.convert.golden import Case, Ours, Skipped, find_cases
from charlm.convert.heads import MASKED_LM, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.convert.rules import import_state
from charlm.families.characterbert.characters import PAD
from charlm.families.characterbert.tensors import LAYOUT
from charlm.families.characterbert.units import word_slots
from charlm.families.spelled.batch import SpelledBatch

__all__ = ["ATOL", "find_cases", "outputs"]

ATOL = 1e-5  # float32 noise of two implementations stays below; the smallest mistake worth the name does not
INPUTS = ("char_ids", "mask", "types")
FINE_TUNED = {"seqcls": SEQUENCE_CLASSIFICATION, "tokcls": TOKEN_CLASSIFICATION, "qa": QUESTION_ANSWERING}
HEADS = "head."  # begins the tensors of fine-tuned heads, head.NAME.
TABLES = "tables/"  # begins the arrays of the second reading


def outputs(case: Case) -> dict[str, Ours | Skipped]:
    """Returns what our model computes for the arrays of a case; see `charlm.convert.golden`.

    Raises:
      ValueError: when its config or weights do not fit our model.
    """
    found: dict[str, Ours | Skipped] = {name: Skipped("input") for name in INPUTS}
    padded = batch_of(case.arrays, whole=True)
    found |= dict(_pretraining(case, padded))
    found |= {f"{TABLES}{name}": ours for name, ours in _pretraining(case, batch_of(case.arrays, whole=False))}
    for short, head in FINE_TUNED.items():
        if any(name.startswith(f"{HEADS}{short}.") for name in case.state):
            model, params = ours_of(case, head, f"{HEADS}{short}.")
            logits = jax.jit(model.apply)({"params": params}, padded)
            found[f"{short}_logits"] = Ours(logits, None if short == "seqcls" else case.arrays["mask"])
    return found


def ours_of(case: Case, head: str, prefix: str = "") -> tuple[Any, Any]:
    """Returns our model of a case with that head, and its parameters; `prefix`: of the tensors of the head alone."""
    inner = {name: value for name, value in case.state.items() if name.startswith(LAYOUT.prefix)}
    others = {name: value for name, value in case.state.items() if not name.startswith((LAYOUT.prefix, HEADS))}
    own = {name.removeprefix(prefix): value for name, value in case.state.items() if prefix and name.startswith(prefix)}
    state = LAYOUT.canonical(inner | (own if prefix else others), case.name)
    config = LAYOUT.from_theirs(case.meta["config"], head, f"{case.name}.json")
    labels = (*state[sign].shape, 0)[0] if (sign := LAYOUT.heads[head].labels) else 0
    model, _, table = LAYOUT.target(config, head, labels)
    return model, import_state(table, LAYOUT.heads[head].leave, state, f"{case.name}.safetensors")


def batch_of(arrays: dict[str, np.ndarray], whole: bool) -> SpelledBatch:
    """Returns the texts of a case as one shard.

    Args:
      whole: one table with a row a position, of all slots and with their padding; else distinct words by length.
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

    def run(params: Any, batch: SpelledBatch) -> Any:
        encoder = model.clone()
        vectors = encoder.apply({"params": params}, batch, method="input_vectors")
        return vectors, encoder.apply({"params": params}, batch)

    mask_BL = np.asarray(batch.mask_SBL[0])
    vectors_BLD, output = jax.jit(run)(params, batch)
    yield "word_vectors", Ours(vectors_BLD, mask_BL)
    yield "states", Ours(output.transformer.states_BLD, mask_BL)
    yield "logits", Ours(output.logits, mask_BL)
