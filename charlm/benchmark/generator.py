"""The paths of charlm's XR-Dec, the generator of XRayEmb: its loss and gradients on words.

The words are in one table for all lengths, or in several tables by length. Open it to change the shape of XR-Dec or the
words of a step; the rivals in PyTorch (`torch_generator`) take both from here.
"""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np

from charlm.benchmark.hlm import device_name, jax_peak
from charlm.benchmark.paths import Job, Runner
from charlm.core.state import on_processor
from charlm.core.types import Array, Option, Params
from charlm.data.batching import bucket_of, in_rooms, word_table
from charlm.data.budgets import choose_tables
from charlm.families.xrayemb.chars import XRAY_SLOTS, XRayChars, word_rows
from charlm.families.xrayemb.decoder import XRDecoder, XRDecoderConfig
from charlm.families.xrayemb.generation_loss import generation_sums
from charlm.nn.apply import applied
from charlm.text.symbols import count_symbols

SMOKE: dict[str, Option] = {"char_embedding": 8, "hidden": 16, "vector": 12}
GIVEN_SLOTS = {
    "generator_buckets": (),
    "generator_slots": (XRAY_SLOTS,),
}  # slots of the tables; (): chosen as in training

# Characters [K, C] of words, and the index [K] of the word in each row; -1: no word.
WordTable = tuple[np.ndarray, np.ndarray]


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return Generator(job)


def decoder_config(job: Job) -> XRDecoderConfig:
    """Returns the config of XR-Dec, which is the same for every path."""
    return XRDecoderConfig(dtype=jnp.dtype(job.dtype), **(SMOKE if job.smoke else {}))


def rows_of_words(job: Job, texts: list[str]) -> list[np.ndarray]:
    """Returns the words of each text as XR-Dec reads them, uint16 [U, C]; ids fit `decoder_config`."""
    words = Counter(word for batch in job.texts for text in batch for word in text.split())
    chars = XRayChars.build(count_symbols(words, words.values()), XRDecoderConfig.char_vocab_size)
    return [word_rows(text.split(), chars, XRAY_SLOTS) for text in texts]


def vectors_of(words: int, width: int) -> np.ndarray:
    """Returns random vectors [U, D] from which the words of a step are generated; the same for every step and path."""
    return np.random.default_rng(0).standard_normal((words, width), np.float32)


def lengths_of(chars_UC: np.ndarray) -> np.ndarray:
    """Returns the number of characters of each word, including both marks, int [U]."""
    return (chars_UC != 0).sum(axis=1)


def tables_of(chars_UC: np.ndarray, slots: tuple[int, ...], rows: tuple[int, ...]) -> list[WordTable]:
    """Returns the tables of a step, laid out as training lays out words of cycles; rows without a word are zeros.

    Raises:
      ValueError: the tables have no room for a word.
    """
    placed, left = in_rooms(bucket_of(lengths_of(chars_UC), slots), rows)
    if len(left):
        raise ValueError(f"{len(left)} of {len(chars_UC)} words find no room in tables of {rows} rows of {slots} slots")
    made = []
    for words, C, K in zip(placed, slots, rows, strict=True):
        word_K = np.full(K, -1)
        word_K[: len(words)] = words
        made.append((word_table(chars_UC, words, K, C), word_K))
    return made


class Generator(Runner):
    """Computes steps one after another: the loss, and its gradients for all parameters and for the vectors of words."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.config = decoder_config(job)
        self.model = XRDecoder(self.config)
        example = np.zeros((1, self.config.vector), np.float32), np.ones((1, 3), np.int32)
        self.params = jax.device_put(on_processor(lambda: self.model.init(jax.random.key(0), *example)["params"]))
        steps = [chars_UC for texts in job.texts for chars_UC in rows_of_words(job, texts)]
        longer = [(lengths_of(chars_UC)[:, None] > np.arange(XRAY_SLOTS)).sum(axis=0) for chars_UC in steps]
        self.slots, self.rows = choose_tables(np.max(longer, axis=0), GIVEN_SLOTS[job.path])
        self.about = {"device": device_name(), "parameters_dtype": "float32"}
        self.about["tables"] = ", ".join(f"{n} x {c}" for n, c in zip(self.rows, self.slots, strict=True))
        self._step = jax.jit(jax.value_and_grad(self._loss, (0, 1)))

    def _loss(self, params: Params, vectors: tuple[jax.Array, ...], tables: tuple[jax.Array, ...]) -> jax.Array:
        """Returns the mean loss over all characters of the words in the tables."""
        of_one_shard = [x[None] for x in vectors], [x[None] for x in tables]
        sums = generation_sums(applied(self.model, {"params": params}, method="tables")(*of_one_shard))
        return sums.nats / sums.characters

    def tokenise(self, texts: list[str], words: int) -> list[tuple[tuple[jax.Array, ...], tuple[np.ndarray, ...]]]:
        """See `Runner`; for each step, returns the vectors (on the device, as in training) and the tables."""
        made = []
        for chars_UC in rows_of_words(self.job, texts):
            vectors_UD = vectors_of(len(chars_UC), self.config.vector)
            tables = tables_of(chars_UC, self.slots, self.rows)
            vectors = tuple(jnp.asarray(vectors_UD[word_K]) for _, word_K in tables)
            made.append((vectors, tuple(chars_KC for chars_KC, _ in tables)))
        return made

    def run(self, host: list[tuple[tuple[Array, ...], tuple[Array, ...]]]) -> list[jax.Array]:
        """See `Runner`; returns the loss of each step, and sets `gradients` to those of the last step."""
        losses = []
        for step in host:
            # Wait for each step, as training does: without an optimizer update, steps do not depend on each other.
            loss, self.gradients = jax.block_until_ready(self._step(self.params, *step))
            losses.append(loss)
        return losses

    def tokens(self, host: list[tuple[tuple[Array, ...], tuple[Array, ...]]]) -> tuple[float, int]:
        """See `Runner`; the tokens are the characters of a step's words, the length is the slots of its tables."""
        found = [sum(int((table != 0).sum()) for table in tables) for _, tables in host]
        return sum(found) / len(found), sum(n * c for n, c in zip(self.rows, self.slots, strict=True))

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()
