"""Logs examples during training: subwords that an XRayEmb predicts in held-out text, and words that it writes.

The objective calls it at the end of a run (`train.examples`) and at every evaluation (`train.sample_words`). Open it to
change which examples a log shows and how.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

import flax.linen as nn
import jax
import ml_collections
import numpy as np

from charlm.core.state import stream_key
from charlm.core.types import Params
from charlm.families.examples import BEST, in_context, spread
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.text_objective import TextObjective
from charlm.families.xrayemb.decoder import XRDecoder
from charlm.families.xrayemb.loss import sphere_points

if TYPE_CHECKING:
    from charlm.families.xrayemb.batch import XRayBatch

log = logging.getLogger("charlm")


def show_examples(objective: TextObjective, params: Params) -> None:
    """Logs for `train.examples` positions of held-out text the likeliest subwords and the word that is written."""
    count, data = objective.config.train.examples, objective.data
    if not count:
        return
    batch: XRayBatch | None = objective.first_heldout()
    if batch is None:
        return
    part = jax.tree.map(lambda x: x[0], batch)
    (real,) = np.nonzero(part.labels_SM[0] >= 0)
    if not len(real):
        return
    chosen = spread(real, count)
    positions = part.position_SM[:, chosen]
    options = {"spaces_V": data.chars.spaces_V, "method": _predict_and_write}
    read = jax.jit(lambda params, *inputs: objective.model.apply({"params": params}, *inputs, **options))
    logits_MV, ids_MT = jax.device_get(read(params, part.inputs, positions))
    writes = _writes(objective.config)
    log.info("held-out text, the %d best guesses%s:", BEST, " and what is written from there" if writes else "")
    for place, logits_V, ids_T in zip(chosen, logits_MV, ids_MT, strict=True):
        right = data.tokenizer.token(int(part.labels_SM[0, place]))
        log.info("asked    %s", _context(objective, part, int(part.position_SM[0, place]), right))
        guesses = [index for index in np.argsort(-logits_V).tolist() if index < data.tokenizer.size][:BEST]
        log.info("guesses  %s", ", ".join(map(data.tokenizer.token, guesses)))
        if writes:
            log.info("written  %s", data.chars.decode(ids_T))


def show_samples(objective: TextObjective, params: Params) -> None:
    """Logs the words that the generator writes from points of the sphere, the same points in every call.

    Args:
      params: parameters of the generator.
    """
    config, shape, chars = objective.config, objective.model.config, objective.data.chars
    if not (config.train.sample_words and _writes(config)):
        return
    points_UD = sphere_points(stream_key(config.seed, "samples"), (config.train.sample_words, shape.hidden))
    options = {"spaces_V": chars.spaces_V, "method": "generate"}
    write = jax.jit(lambda params, points: XRDecoder(shape.generator).apply({"params": params}, points, **options))
    ids_UT = np.asarray(write(params, points_UD).ids_UT)
    log.info("written at points of the sphere: %s", "  ".join(map(chars.decode, ids_UT)))


def _writes(config: ml_collections.ConfigDict) -> bool:
    """Returns whether the generator is trained; the words of an untrained generator tell nothing."""
    return bool(config.loss.generation or config.loss.cycle_words)


def _predict_and_write(
    model: nn.Module, inputs: SpelledBatch, position_SM: jax.Array, spaces_V: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    """Returns logits [M, V] at positions of the first shard, and the characters written there, int32 [M, T].

    Args:
      spaces_V: bool, True at characters that are spaces, with which no word begins.
    """
    output = model(inputs, position_SM)
    states_NLD = output.transformer.states_BLD.astype(np.float32)
    states_ND = states_NLD.reshape(len(position_SM), -1, states_NLD.shape[-1])[0]
    return output.logits[0], model.generate(states_ND[position_SM[0]], spaces_V=spaces_V).ids_UT


def _context(objective: TextObjective, batch: XRayBatch, at: int, right: str) -> str:
    """Returns the subwords and <words> around a position, with the right subword there (GPT-2: the next subword)."""
    row, place = divmod(at, objective.shape.length)
    read = functools.partial(_read_at, objective, batch, row)
    named = "right" if objective.training_maker.framed else "next"
    return in_context(place, int(batch.inputs.mask_SBL[0, row].sum()), read, f"[{read(place)}, {named}: {right}]")


def _read_at(objective: TextObjective, batch: XRayBatch, row: int, place: int) -> str:
    index = int(batch.inputs.ids_SBL[0, row, place])
    if index >= 0:
        return objective.data.tokenizer.token(index)
    at, rows = int(batch.inputs.index_SBL[0, row, place]), objective.shape.rows
    bucket = int(np.searchsorted(np.cumsum(rows), at, side="right"))
    return f"<{objective.data.chars.decode(batch.inputs.chars[bucket][0, at - sum(rows[:bucket])])}>"
