"""Compares charlm's CharBERT with golden cases: arrays that the released code computed ("theirs").

`python -m charlm.convert check --family=charbert` runs it. The module runs our model on the inputs of a case and names
every array as theirs. Padding is compared, too: their code computes over it, and so does ours with `compat_reference`.
There are two passes: the batch with mask and segments, as in fine-tuning, and without (`nomask/`), as in their
pre-training. `f64/` holds the arrays of the first pass in double precision.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from charlm.convert.golden import HEAD_OF_CASE, HEADS_PREFIX, Case, NamedOutputs, NotCompared, Ours, find_cases
from charlm.convert.rules import import_state
from charlm.core.trees import flat
from charlm.core.types import AnyModel, Params
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.tensors import ON_BERT, ON_ROBERTA, CharBertLayout

__all__ = ["ATOL", "find_cases", "outputs"]

ATOL = 5e-5  # above the float32 noise between two implementations, below the effect of any real mistake
INPUTS = (
    "input_ids", "attention_mask", "token_type_ids", "char_input_ids", "start_ids", "end_ids", "mlm_labels",
    "nlm_labels", "seqcls_labels", "tokcls_labels", "qa_start_positions", "qa_end_positions",
)  # fmt: skip


def outputs(case: Case) -> dict[str, Ours | NotCompared]:
    """Returns what our model computes for the arrays of a case; see `charlm.convert.golden`.

    Raises:
      ValueError: when the config or weights of the case do not fit our model.
    """
    found: dict[str, Ours | NotCompared] = {name: NotCompared("input") for name in INPUTS}
    first = dict(_pretraining(case, batch_of(case.arrays)))
    for short in HEAD_OF_CASE:
        if any(name.startswith(f"{HEADS_PREFIX}{short}.") for name in case.state):
            first |= dict(_fine_tuned(case, short))
    found |= first
    found |= {f"f64/{name}": ours for name, ours in first.items() if f"f64/{name}" in case.arrays}
    if any(name.startswith("nomask/") for name in case.arrays):
        bare = batch_of(case.arrays)._replace(mask_BL=None, types_BL=None)
        found |= {f"nomask/{name}": ours for name, ours in _pretraining(case, bare)}
    return found


def batch_of(arrays: dict[str, np.ndarray]) -> CharBertBatch:
    """Returns the input arrays of a case as a batch."""
    names = ("input_ids", "token_type_ids", "attention_mask", "char_input_ids", "start_ids", "end_ids")
    ids, types, mask, *chars = (arrays[name].astype(np.int32) for name in names)
    return CharBertBatch(ids, types, mask.astype(bool), *chars)


def ours_of(case: Case, short: str = "") -> tuple[AnyModel, Params]:
    """Returns our model of a case and its parameters; `short` names a fine-tuned head, "" none."""
    family: CharBertLayout = ON_ROBERTA if case.meta.get("arch") == "roberta" else ON_BERT
    own = f"{HEADS_PREFIX}{short}."
    state = {name: value for name, value in case.state.items() if not name.startswith(HEADS_PREFIX)}
    if short:
        state |= {name.removeprefix(own): value for name, value in case.state.items() if name.startswith(own)}
    state = family.canonical(state, case.name)
    head = family.find_head(state, case.name, HEAD_OF_CASE.get(short, ""))
    config = family.from_theirs(case.meta.get("config", {}), head, f"{case.name}.json", **family.sizes(state))
    layer = family.heads[head].labels
    model, _, table = family.target(config, head, state[layer].shape[0] if layer else 0)
    return model, import_state(table, family.heads[head].leave, state, f"{case.name}.safetensors")


def _pretraining(case: Case, batch: CharBertBatch) -> NamedOutputs:
    """Yields all states of a pass, and logits and losses if the case has the pre-training heads."""
    model, params = ours_of(case)
    apply = jax.jit(lambda p, b: model.apply({"params": p}, b, capture_intermediates=True))
    output, state = apply(params, batch)
    seen = {name.removeprefix("charbert/"): value for name, value in flat(state["intermediates"]).items()}
    states = getattr(output, "states", output)
    yield "embeddings_out", Ours(seen["embed/__call__"][0])
    yield "char_gru_all_hiddens", Ours(seen["char/states"][0])
    yield "char_embeddings_out", Ours(seen["char/__call__"][0])
    shared = model.config.one_fusion  # one module, called for every layer
    for n in range(model.config.layers):
        both_BCLD = seen["encoder/transformer"][n]
        name, call = ("fusion", n) if shared else (f"fusion_{n}", 0)
        channels = seen[f"encoder/{name}/__call__"][call]
        yield f"layer{n}_fusion", Ours(seen[f"encoder/{name}/mixed"][call])
        for c, channel in enumerate(("word", "char")):
            yield f"layer{n}_{channel}_transformer", Ours(both_BCLD[:, c])
            yield f"layer{n}_{channel}", Ours(channels[c])
    yield "seq_out", Ours(states.tokens_BLD)
    yield "char_seq_out", Ours(states.chars_BLD)
    yield "pooled_out", Ours(states.pooled_BD)
    yield "char_pooled_out", Ours(states.char_pooled_BD)
    if states is output:
        return
    losses = []
    for name, logits in (("mlm", output.mlm_logits_SMV), ("nlm", output.nlm_logits_SPT)):
        yield f"{name}_logits", Ours(logits)
        losses.append(_cross_entropy(logits, case.arrays[f"{name}_labels"], case.arrays[f"{name}_labels"] != -1))
        yield f"{name}_loss", Ours(losses[-1])
    yield "loss", Ours(sum(losses))


def _fine_tuned(case: Case, short: str) -> NamedOutputs:
    """Yields logits and loss of a fine-tuned model."""
    model, params = ours_of(case, short)
    z, batch = case.arrays, batch_of(case.arrays)
    logits = jax.jit(lambda p, b: model.apply({"params": p}, b))(params, batch)
    if short == "qa":
        parts = {"start": logits[..., 0], "end": logits[..., 1]}
        for name, scores in parts.items():
            yield f"qa_{name}_logits", Ours(scores)
        places = {name: z[f"qa_{name}_positions"].clip(0) for name in parts}  # those beyond the end are left out below
        losses = [_cross_entropy(parts[name], at, at < logits.shape[1]) for name, at in places.items()]
        yield "qa_loss", Ours(sum(losses) / 2)
        return
    yield f"{short}_logits", Ours(logits)
    labels = z[f"{short}_labels"]
    real = np.ones(labels.shape, bool) if short == "seqcls" else (z["attention_mask"] == 1) & (labels >= 0)
    yield f"{short}_loss", Ours(_cross_entropy(logits, labels, real))


def _cross_entropy(logits: jax.Array, labels: np.ndarray, real: np.ndarray) -> jax.Array:
    """Returns the mean loss over the positions where `real` is True."""
    log_probs = jax.nn.log_softmax(jnp.asarray(logits))[real]
    return -log_probs[np.arange(real.sum()), labels[real]].mean()
