"""Compares charlm's HLM with golden cases: arrays that the released code computed ("theirs").

`python -m charlm.convert check --family=hlm` runs it. The module runs our model on the inputs of a case and gives every
state the name and layout of theirs. Their layout is slot-major, [C, W, B, D]; arrays of packed words are [N, C, D], N
in order of (w, b). Our model makes these passes: the masked text through the prediction head at every word, with loss
and gradients, and the original text through the fine-tuned models. Padding is not compared: both sides compute values
there that nobody reads.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from charlm.convert.golden import (
    GRADIENT,
    GRADIENT_TOLERANCE,
    HEAD_OF_CASE,
    Case,
    NamedOutputs,
    NotCompared,
    Ours,
    find_cases,
)
from charlm.convert.heads import MASKED_LM
from charlm.convert.rules import Entry, export_state, import_state
from charlm.core.trees import flat
from charlm.core.types import AnyModel, Params, Tree
from charlm.data.word_batch import WordBatch, reshape_batch
from charlm.families.hlm.config import HLMConfig, model_config
from charlm.families.hlm.conversion import head_of, target
from charlm.families.hlm.loss import masked_char_sums
from charlm.families.hlm.model import HLM
from charlm.families.hlm.released_config import from_theirs
from charlm.nn.attention import relative_bucket

__all__ = ["ATOL", "find_cases", "outputs"]

ATOL = 5e-5  # above the float32 noise between two implementations, below the effect of any real mistake
INPUTS = (
    "orig_input_ids", "input_ids", "predict_indices", "labels", "valid_word_flat_idx", "all_char_indices",
    "seqcls_labels", "tokcls_labels", "qa_start_positions", "qa_end_positions",
)  # fmt: skip
IGNORED_LABEL = -100
# A bias of the position keys adds the same number to all scores of a query, which softmax ignores. Its true gradient is
# zero, and both sides compute noise. We only require that our value is small beside the largest of all gradients.
ZERO_GRADIENT = re.compile(r"\.pos_key_proj\.bias$")
NOISE = 1e-6

Captured = dict[str, Tree]  # module path -> the output of that module


def outputs(case: Case) -> dict[str, Ours | NotCompared]:
    """Returns what our model computes for the arrays of a case; see `charlm.convert.golden`.

    Raises:
      ValueError: when the config or weights of the case do not fit our model.
    """
    shape = shape_of(case)
    found: dict[str, Ours | NotCompared] = {name: NotCompared("input") for name in INPUTS}
    if "input_ids" in case.arrays:
        found |= _masked_lm(case, shape)
    if "orig_input_ids" in case.arrays:
        found |= _fine_tuned(case, shape)
    return found


def shape_of(case: Case) -> HLMConfig:
    """Returns the shape of the model of a case."""
    heads = case.meta.get("hidden_heads_actually_used", 0)  # 12, unless the released code was patched
    return model_config(from_theirs(case.meta.get("config", {}), f"{case.name}.json", heads))


def state_of(case: Case, head: str, head_layers: int) -> dict[str, np.ndarray]:
    """Returns the state dict of one of their models; a case stores the encoder once and each head as heads.NAME."""
    own = "" if head == MASKED_LM else f"heads.{next(short for short, name in HEAD_OF_CASE.items() if name == head)}."

    def held(name: str) -> bool:
        if name.startswith("hlm_model."):
            return bool(head_layers) or ".local_layer_last." not in name
        return name.startswith(own) if own else not name.startswith("heads.")

    return {name.removeprefix(own): value for name, value in case.state.items() if held(name)}


def ours_of(case: Case, shape: HLMConfig, head: str) -> tuple[AnyModel, Params, dict[str, Entry]]:
    """Returns one of our models, its parameters from the case's state dict, and the table of names."""
    state = state_of(case, head, shape.head_layers)
    ours = target(shape, *head_of(state, case.name, head))
    params = import_state(ours.table, ours.aliases, state, f"{case.name}.safetensors")
    return ours.module, params, ours.table


def _run(model: AnyModel, params: Params, batch: WordBatch) -> tuple[Tree, Captured]:
    """Returns the model's output and, by path, that of each of its modules; attention adds `probs` and `mixed`."""
    output, state = jax.jit(lambda p, b: model.apply({"params": p}, b, capture_intermediates=True))(params, batch)
    seen = flat(state["intermediates"])
    # Take the first call: the last intra-word layer is called a second time, for words of which only slot 0 is read.
    return output, {name.removesuffix("/__call__"): calls[0] for name, calls in seen.items()}


class ReleasedLayout:
    """Converts our arrays to their layout.

    Attributes:
      ids_BWC: the character ids of the text.
      words_BW: bool, True where there is a word.
      slots_CWB: bool, True where there is an id.
      packed_NC: bool, True where their packed words have an id.
    """

    def __init__(self, ids_CWB: np.ndarray) -> None:
        self.slots_CWB = ids_CWB != 0
        self.ids_BWC = ids_CWB.transpose(2, 1, 0)
        self.words_BW = self.ids_BWC[:, :, 0] != 0
        w, b = np.nonzero(self.words_BW.T)
        self.packed_NC = self.slots_CWB[:, w, b].T
        self._row_N = b * self.words_BW.shape[1] + w

    def pack(self, rows: ArrayLike) -> np.ndarray:
        """Converts [B * W, ...], one row for each position, to [N, ...]."""
        return np.asarray(rows)[self._row_N]

    def matrix(self, rows: ArrayLike) -> np.ndarray:
        """Converts [B * W, C, D], one row for each position, to [C, W, B, D]."""
        rows = np.asarray(rows)
        return rows.reshape(*self.words_BW.shape, *rows.shape[-2:]).transpose(2, 1, 0, 3)

    def spread(self, rows: ArrayLike) -> np.ndarray:
        """Converts [M, ...] of the real words, in order of (b, w), to one row for each position; 0 at padding."""
        rows = np.asarray(rows)
        full = np.zeros((self.words_BW.size, *rows.shape[1:]), rows.dtype)
        full[self.words_BW.reshape(-1)] = rows
        return full


def _masked_lm(case: Case, shape: HLMConfig) -> dict[str, Ours | NotCompared]:
    """Returns states, logits, loss and gradients of the masked text."""
    z, at = case.arrays, ReleasedLayout(case.arrays["input_ids"])
    model, params, table = ours_of(case, shape, MASKED_LM)
    # Declare every word as masked, so that all states of all characters are computed.
    (logits_SMCV,), seen = _run(model, params, reshape_batch(at.ids_BWC, at.ids_BWC))
    found = dict(_states(seen, shape, at))
    found |= dict(_head_states(seen, logits_SMCV[0], shape, at, z))
    if "predict_indices" in z and "orig_input_ids" in z:
        labels_CWB = np.where(z["predict_indices"], z["orig_input_ids"], 0)
        batch = reshape_batch(at.ids_BWC, labels_CWB.transpose(2, 1, 0))

        def loss(params: Params) -> jax.Array:
            sums = masked_char_sums(model, params, batch, None)
            return sums.nats / sums.chars

        if any(name.startswith(GRADIENT) for name in z):
            value, gradients = jax.jit(jax.value_and_grad(loss))(params)
            found["mlm_loss"] = Ours(value)
            found |= dict(_gradients(case, export_state(table, (), gradients)))
        elif "mlm_loss" in z:
            found["mlm_loss"] = Ours(jax.jit(loss)(params))
    return found


def _states(seen: Captured, shape: HLMConfig, at: ReleasedLayout) -> NamedOutputs:
    """Yields masks, embeddings, states of the two encoders, r, w and the character states."""
    yield "pad_mask_matrix", Ours(~at.slots_CWB)
    yield "pad_mask_sentence", Ours(~np.asarray(seen["hlm"].mask_NW))
    yield "intra_mask", Ours(at.packed_NC)
    yield "inter_mask", Ours(seen["hlm"].mask_NW)
    yield "emb_raw", Ours(at.matrix(seen["hlm/embed/table"]), at.slots_CWB)
    yield "emb_ln", Ours(at.matrix(seen["hlm/embed/norm"]), at.slots_CWB)
    yield "intra_in", Ours(at.pack(seen["hlm/embed/norm"]), at.packed_NC)
    yield from _encoder("intra", "hlm/intra_word", seen, shape.intra_layers, shape.char_slots, at.pack, at.packed_NC)
    distance = shape.max_relative_words
    yield from _encoder("inter", "hlm/inter_word", seen, shape.inter_layers, distance, np.asarray, at.words_BW)
    words_WBD, context_WBD = (np.asarray(x).transpose(1, 0, 2) for x in seen["hlm"][:2])
    yield "inter_in", Ours(seen["hlm"].words_NWD, at.words_BW)
    yield "r", Ours(words_WBD, at.words_BW.T)
    yield "w", Ours(context_WBD, at.words_BW.T)
    yield "char_states", Ours(at.matrix(seen["hlm"].char_states[0][0]), at.slots_CWB)


def _encoder(
    theirs: str,
    ours: str,
    seen: Captured,
    layers: int,
    max_distance: int,
    arrange: Callable[[ArrayLike], np.ndarray],
    real_NL: np.ndarray,
) -> NamedOutputs:
    """Yields the arrays of an encoder over [N, L].

    Args:
      arrange: puts our rows into their order.
      real_NL: bool, True where there is an id.
    """
    for k in range(layers):
        yield f"{theirs}_l{k}_out", Ours(arrange(seen[f"{ours}/layer_{k}"]), real_NL)
    probs_NHQK = arrange(seen[f"{ours}/layer_0/attention/probs"])
    yield f"{theirs}_l0_probs", Ours(probs_NHQK, np.broadcast_to(real_NL[:, None], probs_NHQK.shape[:3]))
    yield f"{theirs}_l0_ctx", Ours(arrange(seen[f"{ours}/layer_0/attention/mixed"]), real_NL)
    yield f"{theirs}_l0_attn_out", Ours(arrange(seen[f"{ours}/layer_0/attention_norm"]), real_NL)
    table_RD = seen[f"{ours}/positions/norm"]
    yield f"{theirs}_rel_emb_ln", Ours(table_RD)
    place, buckets = np.arange(real_NL.shape[1]), len(table_RD) // 2
    yield f"{theirs}_rel_pos_idx", Ours(relative_bucket(place[:, None] - place, buckets, max_distance) + buckets)


def _head_states(
    seen: Captured, logits_MCV: jax.Array, shape: HLMConfig, at: ReleasedLayout, z: dict[str, np.ndarray]
) -> NamedOutputs:
    """Yields the states of the projection, the last encoder, and those at the predicted characters."""
    words_UD = np.asarray(seen["hlm"].context_NWD).reshape(-1, 1, shape.hidden)
    chars_UCD = np.asarray(seen["hlm"].char_states[0][0])[:, 1:]
    if shape.wiring == "reference":
        chars_CWB = at.slots_CWB[1:]
        beside = np.concatenate([chars_UCD, np.broadcast_to(words_UD, chars_UCD.shape)], axis=-1)
        yield "proj_in", Ours(at.matrix(beside), chars_CWB)
        yield "proj_lin", Ours(at.matrix(at.spread(seen["head/projection"][0])), chars_CWB)
        chars_UCD = at.spread(seen["head/projection_norm"][0])
        yield "proj_out", Ours(at.matrix(chars_UCD), chars_CWB)
    final_UCD = np.concatenate([words_UD, chars_UCD], axis=1)
    if shape.head_layers:
        yield "last_in", Ours(at.pack(final_UCD), at.packed_NC)
        yield "last_mask", Ours(at.packed_NC)
        arrange = lambda rows_MCD: at.pack(at.spread(rows_MCD))
        yield from _encoder("last", "head/encoder", seen, shape.head_layers, shape.char_slots, arrange, at.packed_NC)
        final_UCD = at.spread(seen[f"head/encoder/layer_{shape.head_layers - 1}"])
    yield "final_matrix", Ours(at.matrix(final_UCD), at.slots_CWB)

    def chosen(rows_MCD: ArrayLike, indices_CWB: np.ndarray) -> Ours:
        return Ours(at.matrix(at.spread(rows_MCD))[indices_CWB[1:]])

    if "predict_indices" in z:
        predict_CWB = z["predict_indices"]
        yield "mlm_in", Ours(at.matrix(final_UCD)[predict_CWB])
        yield "mlm_dense", chosen(seen["head/transform"], predict_CWB)
        yield "mlm_ln", chosen(seen["head/transform_norm"], predict_CWB)
        yield "mlm_logits", chosen(logits_MCV, predict_CWB)
    if "all_char_indices" in z:
        yield "all_char_logits", chosen(logits_MCV, z["all_char_indices"])


def _gradients(case: Case, ours: dict[str, np.ndarray]) -> NamedOutputs:
    """Yields the gradients; each is compared relative to the largest value of its golden tensor."""
    golden = {name: case.arrays[GRADIENT + name] for name in ours if GRADIENT + name in case.arrays}
    for name in ours.keys() - golden.keys():
        yield GRADIENT + name, Ours(ours[name])
    sizes = {name: float(np.abs(gradient).max()) for name, gradient in golden.items()}
    largest = max(sizes.values(), default=0.0)
    for name, size in sizes.items():
        if ZERO_GRADIENT.search(name):
            yield GRADIENT + name, Ours(ours[name], scale=largest, tolerance=NOISE)
        elif size:
            yield GRADIENT + name, Ours(ours[name], scale=size, tolerance=GRADIENT_TOLERANCE)
        else:
            yield GRADIENT + name, Ours(ours[name], tolerance=0.0)  # the loss does not depend on it: exactly zero


def _fine_tuned(case: Case, shape: HLMConfig) -> dict[str, Ours | NotCompared]:
    """Returns w of the original text, and logits and losses of the fine-tuned models, without and with head layers."""
    z, at = case.arrays, ReleasedLayout(case.arrays["orig_input_ids"])
    found: dict[str, Ours | NotCompared] = {}
    if "w_unmasked" in z:
        _, params, _ = ours_of(case, shape, MASKED_LM)
        context_NWD = jax.jit(HLM(shape).apply)({"params": params["hlm"]}, reshape_batch(at.ids_BWC)).context_NWD
        found["w_unmasked"] = Ours(np.asarray(context_NWD).transpose(1, 0, 2), at.words_BW.T)
    for short, head in HEAD_OF_CASE.items():
        for layers in sorted({0, shape.head_layers}):
            name = f"{short}_nlast{layers}" if layers else short
            if not any(array in z for array in (f"{name}_logits", f"{name}_start", f"{name}_loss")):
                continue
            model, params, _ = ours_of(case, dataclasses.replace(shape, head_layers=layers), head)
            batch = reshape_batch(at.ids_BWC, at.ids_BWC if layers else None)
            logits, seen = _run(model, params, batch)
            found |= dict(_labels(short, name, np.asarray(logits), seen, at, z))
    return found


def _labels(
    short: str, name: str, logits: np.ndarray, seen: Captured, at: ReleasedLayout, z: dict[str, np.ndarray]
) -> NamedOutputs:
    """Yields logits and loss of one fine-tuned model."""
    if short == "qa":
        yield f"{name}_start", Ours(logits[..., 0], at.words_BW)
        yield f"{name}_end", Ours(logits[..., 1], at.words_BW)
        yield f"{name}_loss", NotCompared("their softmax runs over padding too, whose scores are theirs alone")
        return
    if short == "seqcls":
        yield f"{name}_pooled_linear", Ours(seen["pooler/dense"])
        yield f"{name}_logits", Ours(logits)
    else:
        yield f"{name}_logits", Ours(logits, at.words_BW)
    if f"{short}_labels" in z:
        labels = z[f"{short}_labels"]
        real = labels != IGNORED_LABEL
        log_probs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits)))[real]
        yield f"{name}_loss", Ours(-log_probs[np.arange(real.sum()), labels[real]].mean())
