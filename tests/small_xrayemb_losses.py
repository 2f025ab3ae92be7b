"""A batch for XRayEmb's losses, and a model, so small that loops can compute them."""

from __future__ import annotations

import jax
import numpy as np
from programs import initial

from charlm.core.trees import stack
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.xrayemb.batch import LearnedWords, WrittenWords, XRayBatch
from charlm.families.xrayemb.cycle_words import cycle_tables
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.encoder import XREncoderConfig
from charlm.families.xrayemb.model import XRayEmbBertConfig, XRayEmbForCausalLM, XRayEmbForMaskedLM, XRayEmbGPT2Config

V, D, S, B, L, C, CHARS = 13, 8, 2, 2, 5, 7, 11
END = CHARS - 1


def words(rng, *shape, slots=C):
    """Returns words: `<e>`, at least a character, `<e>`, zeros."""
    rows = np.zeros((*shape, slots), np.uint16)
    for place in np.ndindex(shape):
        count = rng.integers(1, slots - 1)
        rows[place][: count + 2] = [END, *rng.integers(1, END, count), END]
    return rows


def with_words(batch, words_SKC, slots, rows):
    """Returns a batch with other words of cycles, in length buckets."""
    tables = stack([cycle_tables(words_KC, slots, rows) for words_KC in words_SKC])
    return batch._replace(cycle=tables, points_SK=words_SKC[..., 0] != 0)


def small_batch():
    """Returns a batch with two length buckets of words to write, and of words of cycles."""
    rng = np.random.default_rng(0)
    ids = np.where(rng.random((S, B, L)) < 0.6, rng.integers(0, V, (S, B, L)), -1).astype(np.int32)
    index = rng.integers(0, 6, (S, B, L)).astype(np.int32)
    inputs = SpelledBatch((words(rng, S, 6),), index, ids, 0 * ids, np.ones((S, B, L), bool))
    pieces = np.array([[[3, 5, -1], [7, -1, -1]], [[2, 4, 9], [-1, -1, -1]]], np.int32)
    written = words(rng, S, 3)
    written[1, 2] = 0
    short = words(rng, S, 2, slots=4)
    short[0, 1] = 0
    batch = XRayBatch(
        inputs=inputs,
        position_SM=np.array([[1, 7, 9], [3, 0, 0]], np.int32),
        labels_SM=np.array([[4, 0, 10], [5, -1, -1]], np.int32),
        learned=LearnedWords(np.array([[1, 4], [0, 0]], np.int32), pieces),
        written=(
            WrittenWords(np.array([[3, 0], [4, 7]], np.int32), short),
            WrittenWords(np.array([[2, 6, 9], [0, 8, 0]], np.int32), written),
        ),
        cycle=(),
        points_SK=None,
    )
    return with_words(batch, words(rng, S, 4), (5, C), (2, 3))


def small_model(kind, batch):
    """Returns a model and its parameters."""
    parts = {
        "encoder": XREncoderConfig(char_vocab_size=CHARS, char_embedding=4, hidden=4, output=D, char_slots=C),
        "generator": XRDecoderConfig(char_vocab_size=CHARS, char_embedding=4, hidden=6, vector=D, char_slots=C),
    }
    shape = {"vocab_size": V, "hidden": D, "layers": 1, "heads": 2, "ffn": 16, "max_positions": 8, "dropout": 0.0}
    shape |= {"attention_dropout": 0.0, "initializer": "lecun"} | parts
    if kind == "bert":
        model = XRayEmbForMaskedLM(XRayEmbBertConfig(**shape, pooler=False))
    else:
        model = XRayEmbForCausalLM(XRayEmbGPT2Config(**shape, embed_dropout=0.0))
    params = initial(model, batch.inputs, seed=1)
    return model, jax.tree.map(lambda x: 3 * x, jax.device_get(params))  # words that differ
