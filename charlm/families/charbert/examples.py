"""Logs what a trained CharBERT predicts for some masked and misspelled held-out words, for a person to look at.

The objective calls it at the end of a run (`train.examples`). Open it to change which places it shows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import jax
import numpy as np

from charlm.core.types import Params
from charlm.families.examples import BEST, in_context, spread
from charlm.families.text_objective import TextObjective

if TYPE_CHECKING:
    from charlm.families.charbert.batch import NoisyBatch

log = logging.getLogger("charlm")


def show_examples(objective: TextObjective, params: Params) -> None:
    """Logs the likeliest subwords at `train.examples` masked places, and the likeliest words at misspelled ones."""
    count, tokenizer = objective.config.train.examples, objective.data.tokenizer
    if not count:
        return
    batch: NoisyBatch | None = objective.first_heldout()
    if batch is None:
        return
    inputs = jax.tree.map(lambda x: x[0, 0], batch.inputs)
    kinds = [("masked", batch.mlm_position_SM, batch.mlm_labels_SM, tokenizer.token)]
    if objective.config.model.char_channel and objective.config.model.nlm:
        terms = objective.data.terms.terms
        kinds.append(("misspelled", batch.nlm_position_SP, batch.nlm_labels_SP, terms.__getitem__))
    positions = [position[0] for _, position, _, _ in kinds]
    apply = jax.jit(lambda params, inputs, *at: objective.model.apply({"params": params}, inputs, *at))
    output = apply(params, inputs, *positions)
    log.info("held-out text and the %d best guesses:", BEST)
    for (kind, position, labels, name), logits in zip(
        kinds, (output.mlm_logits_SMV, output.nlm_logits_SPT), strict=False
    ):
        unknown = objective.data.terms.unknown if kind == "misspelled" else -1
        real = np.flatnonzero((labels[0, 0] >= 0) & (labels[0, 0] != unknown))
        for place in spread(real, count):
            at, right = int(position[0, 0, place]), name(int(labels[0, 0, place]))
            guesses = np.argsort(-np.asarray(logits[0, place]))[:BEST]
            log.info("%-10s  %s", kind, _context(objective, inputs.ids_BL.reshape(-1), at, right))
            log.info("%-10s  %s", "", ", ".join(name(int(guess)) for guess in guesses))


def _context(objective: TextObjective, ids: np.ndarray, at: int, right: str) -> str:
    """Returns the subwords around a place, with the right answer marked there."""
    tokenizer, length = objective.data.tokenizer, objective.shape.length
    row, place = divmod(at, length)
    ids_L = [int(i) for i in ids[row * length : (row + 1) * length] if i != tokenizer.special.pad]
    read = lambda i: tokenizer.token(ids_L[i])
    return in_context(place, len(ids_L), read, f"[{read(place)}, right: {right}]")
