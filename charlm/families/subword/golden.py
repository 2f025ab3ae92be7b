"""Compares charlm's BERT, RoBERTa, RoFormer and GPT-2 with golden cases: arrays that transformers computed ("theirs").

`python -m charlm.convert check` runs it for these families. The module runs our model on the inputs of a case and names
every array as theirs. There are these passes: the padded batch, with all inner states; ids alone; embeddings in place
of ids, with given positions. GPT-2 also reads text padded on the left, and generates greedily with a cache. Padding is
not compared: both sides compute values there that nobody reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from charlm.convert.golden import Case, NotCompared, Ours, find_cases
from charlm.convert.heads import CAUSAL_LM
from charlm.convert.rules import import_state
from charlm.core.types import AnyModel, Params, Tree
from charlm.families.subword.bert_tensors import POOLED_ENCODER
from charlm.families.subword.conversion import TABLES
from charlm.families.subword.gpt2 import empty_cache
from charlm.families.subword.layout import Layout

__all__ = ["ATOL", "find_cases", "outputs"]

ATOL = 1e-5  # above the float32 noise between two implementations, below the effect of any real mistake
INPUTS = ("ids", "mask", "types", "embeddings", "position_ids", "right_mask", "left_mask")

# Golden array of a pass's logits -> the arguments of the pass: our parameter -> the golden array to pass.
PASSES = {
    "bare_logits": {"ids_BL": "ids"},
    "left_logits": {"ids_BL": "ids", "mask_BL": "left_mask"},
    "types_logits": {"ids_BL": "ids", "mask_BL": "mask", "types_BL": "types"},
    "position_logits": {"embeddings_BLD": "embeddings", "mask_BL": "mask", "position_ids_BL": "position_ids"},
}
FIRST = {"ids_BL": "ids", "mask_BL": "mask"}


def outputs(case: Case) -> dict[str, Ours | NotCompared]:
    """Returns what our model computes for the arrays of a case; see `charlm.convert.golden`.

    Raises:
      ValueError: when the config or weights of the case do not fit our model.
    """
    said = case.meta.get("config", {}).get("model_type")
    family = next((family for family in TABLES.values() if said in family.model_types), None)
    if family is None:
        raise ValueError(f"{case.name}.json: config.model_type is none of {', '.join(TABLES)}")
    found: dict[str, Ours | NotCompared] = {name: NotCompared("input") for name in INPUTS}
    model, params, head = ours_of(case, family)
    found |= dict(_first(case, head, _runner(model, params)))
    for name, arguments in _passes(case, head).items():
        if name in case.arrays:
            found[name] = Ours(_runner(model, params)(**arguments).logits, _real(arguments))
    if "pooled" in case.arrays and POOLED_ENCODER in family.heads:
        encoder, encoder_params, _ = ours_of(case, family, POOLED_ENCODER)
        found["pooled"] = Ours(_runner(encoder, encoder_params)(**_arguments(case, head)).pooled_BD)
    if "generated" in case.arrays:
        found |= dict(_generated(case, model, params))
    return found


def ours_of(case: Case, family: Layout, head: str = "") -> tuple[AnyModel, Params, str]:
    """Returns our model of a case with the given head ("": that of its state dict), its parameters, and the head."""
    state = family.canonical(case.state, case.name)
    head = family.find_head(state, case.name, head)
    config = family.from_theirs(case.meta["config"], head, f"{case.name}.json")
    model, _, table = family.target(config, head)
    return model, import_state(table, family.heads[head].leave, state, f"{case.name}.safetensors"), head


def _runner(model: AnyModel, params: Params) -> Callable[..., Tree]:
    @functools.partial(jax.jit, static_argnames=("return_layers", "return_attention"))
    def run(params: Params, **arguments: Tree) -> Tree:
        return model.apply({"params": params}, **arguments)

    return functools.partial(run, params)


def _arguments(case: Case, head: str) -> dict[str, np.ndarray]:
    """Returns the arguments of the first pass; types are segments in BERT, while in GPT-2 they have their own pass."""
    names = FIRST | ({"types_BL": "types"} if "types" in case.arrays and head != CAUSAL_LM else {})
    return {ours: case.arrays[name] for ours, name in names.items()}


def _passes(case: Case, head: str) -> dict[str, dict[str, np.ndarray]]:
    """Returns the arguments of the other passes for which the case has all arrays."""
    z = case.arrays
    passes = dict(PASSES)
    passes["embeddings_logits"] = {"embeddings_BLD": "embeddings", "mask_BL": "mask"}
    if "right_mask" in z:  # positions from the mask
        passes["embeddings_logits"]["mask_BL"] = "right_mask"
    elif "position_ids" in z:
        passes["embeddings_logits"]["position_ids_BL"] = "position_ids"
    complete = {name: names for name, names in passes.items() if set(names.values()) <= z.keys()}
    return {name: {ours: z[array] for ours, array in names.items()} for name, names in complete.items()}


def _real(arguments: dict[str, np.ndarray]) -> np.ndarray | None:
    return arguments.get("mask_BL")


def _first(case: Case, head: str, run: Callable[..., Tree]) -> Iterator[tuple[str, Ours]]:
    """Yields all states, attention probabilities and logits of the padded batch."""
    arguments = _arguments(case, head)
    mask_BL = _real(arguments)
    output = run(**arguments, return_layers=True, return_attention=True)
    for i, states_BLD in enumerate(output.transformer.layers):
        yield f"hidden_{i}", Ours(states_BLD, mask_BL)
    for i, probs_BHLL in enumerate(output.transformer.attention):
        valid = None if mask_BL is None else np.broadcast_to(mask_BL[:, None], probs_BHLL.shape[:3])
        yield f"attention_{i}", Ours(probs_BHLL, valid)
    yield "logits", Ours(output.logits, mask_BL)
    if output.next_sentence_BN is not None:
        yield "next_sentence", Ours(output.next_sentence_BN)


def _generated(case: Case, model: AnyModel, params: Params) -> Iterator[tuple[str, Ours]]:
    """Yields the tokens generated greedily after texts padded on the left, and their logits."""
    ids_BL, mask_BL = case.arrays["ids"], case.arrays["left_mask"]
    (B, L), steps = ids_BL.shape, case.arrays["generated"].shape[1]
    run = _runner(model, params)
    output = run(ids_BL=ids_BL, mask_BL=mask_BL, cache=empty_cache(model.config, B, L + steps))
    tokens, logits = [], [output.logits[:, -1]]
    for _ in range(steps):
        tokens.append(jnp.argmax(logits[-1], axis=-1).astype(jnp.int32))
        output = run(ids_BL=tokens[-1][:, None], cache=output.transformer.cache)
        logits.append(output.logits[:, 0])
    yield "generated", Ours(jnp.stack(tokens, axis=1))
    yield "generated_logits", Ours(jnp.stack(logits[:-1], axis=1))
