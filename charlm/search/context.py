"""Trains what a reader knows of context: which words stand beside which, over the rows of an encoder's table.

`charlm search context` runs it, and `charlm search speller --context` puts the result beside an encoder. Each known
word of the texts is told from the other words of its batch by the words around it (`charlm.text.speller.context` has
the model). Open it to change the loss or the schedule.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from charlm.convert.files import new_folder
from charlm.core.stores import here
from charlm.families.family import family
from charlm.families.pretrained import from_pretrained
from charlm.search.texts import read_texts
from charlm.text.speller.context import FILE, PLACES, REACH, ContextWeights, place_of, write_context
from charlm.text.speller.files import StoredSpeller
from charlm.text.speller.settings import WORD, SpellerSettings

log = logging.getLogger("charlm")

UNKNOWN = -1
_DISTANCES = np.array([distance for distance in range(-REACH, REACH + 1) if distance])
_PLACES = np.array([place_of(int(distance)) for distance in _DISTANCES])
_HELD_OUT = 0.002  # of the known words, and not more than
_MOST_HELD_OUT = 8192
_RATE, _WARMUP = 2e-3, 200
_INITIAL = 0.02  # standard deviation of the kernels
_LEFT_OUT = 0.1  # of the words around one, as if they were not known
_PARTITION = 0.1  # weight of the square of the logarithm of the partition function


@dataclasses.dataclass(frozen=True)
class ContextSettings:
    """How a context is trained.

    Attributes:
      passes: how often the texts are read; parts of one count.
      width: numbers by which a place and a word are compared.
      batch_size: words at a time, which are told from each other.
      seed: of all random draws.
    """

    passes: float = 1.0
    width: int = 128
    batch_size: int = 2048
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        if not 0 < self.passes <= 1000:
            raise ValueError(f"--passes={self.passes:g}: expected more than 0 and at most 1000")
        if not 1 <= self.width <= 4096:
            raise ValueError(f"--width={self.width}: expected 1 to 4096")
        if not 2 <= self.batch_size <= 1 << 16:
            raise ValueError(f"--batch-size={self.batch_size}: expected 2 to {1 << 16:,}")
        if not 0 <= self.seed < 1 << 32:
            raise ValueError(f"--seed={self.seed}: expected 0 to {(1 << 32) - 1:,}")


class Params(NamedTuple):
    """Kernels over rows of mean 0 and variance 1."""

    around_GDH: jax.Array
    word_DH: jax.Array


def make_context(model: str, output: str, texts: Sequence[str], settings: ContextSettings) -> str:
    """Trains a context on files of texts and writes it into a new folder; returns a line about it.

    Args:
      model: an encoder, as `charlm.load` takes it.
      output: the folder.
      texts: files, a text per line or JSON lines.
      settings: how it is trained.

    Raises:
      ValueError: there is no such model or file, the model has no table of words, the texts are too few to learn from,
        or the folder exists.
    """
    with new_folder(output) as folder:
        pretrained = from_pretrained(here(model))
        predictors = family(pretrained.family).get_predictor()
        words, rows_VD = predictors.with_speller(pretrained, StoredSpeller({}, SpellerSettings())).table_words()
        normalized, known = pretrained.tokenizer().normalized, {word: row for row, word in enumerate(words)}
        ids_N = words_of((text for path in texts for text in read_texts("--texts", path)), normalized, known)
        log.info("%s words of texts are among the %s of the table", f"{(ids_N != UNKNOWN).sum():,}", f"{len(words):,}")
        weights, likelier = train_context(rows_VD, ids_N, settings)
        if likelier <= 0:
            raise ValueError(
                f"--texts: held-out words are {-likelier:.2f} nats less likely in their contexts than anywhere, after "
                f"--passes={settings.passes:g} of {(ids_N != UNKNOWN).sum():,} words: expected more, such as millions"
            )
        write_context(folder, weights)
    return (
        f"{output}: a held-out word is {likelier:.2f} nats likelier in its context than anywhere; put it beside the "
        f"encoder with charlm search speller --context {output} ({Path(output) / FILE})"
    )


def words_of(texts: Iterable[str], normalized: Callable[[str], str], known: Mapping[str, int]) -> np.ndarray:
    """Returns the numbers of the words of texts, int32 [N], with `REACH` unknown ones before, between and behind texts.

    Args:
      normalized: the form in which words are compared.
      known: the number of each known word; all others are `UNKNOWN`.
    """
    parts = [np.full(REACH, UNKNOWN, np.int32)]
    for text in texts:
        parts.append(np.array([known.get(word, UNKNOWN) for word in WORD.findall(normalized(text))], np.int32))
        parts.append(np.full(REACH, UNKNOWN, np.int32))
    return np.concatenate(parts)


def train_context(rows_VD: np.ndarray, ids_N: np.ndarray, settings: ContextSettings) -> tuple[ContextWeights, float]:
    """Returns trained weights, and how much likelier they say that held-out words are where they stand, in nats.

    Args:
      rows_VD: float32, the vectors of the known words.
      ids_N: int32, as `words_of` returns them.
      settings: how it is trained.

    Raises:
      ValueError: there are fewer known words than two batches.
    """
    rng = np.random.default_rng(settings.seed)
    (places,) = np.nonzero(ids_N != UNKNOWN)
    size = settings.batch_size
    if len(places) < 2 * size:
        raise ValueError(f"--texts: {len(places):,} words that the encoder's table has, expected at least {2 * size:,}")
    rng.shuffle(places)
    held = max(size, min(_MOST_HELD_OUT, round(_HELD_OUT * len(places))) // size * size)
    held_out, places = places[:held], places[held:]
    steps = max(1, round(settings.passes * len(places) / size))
    mean_D, scale = rows_VD.mean(axis=0), float((rows_VD - rows_VD.mean(axis=0)).std())
    table_VD = jnp.asarray(np.vstack([(rows_VD - mean_D) / scale, np.zeros_like(rows_VD[:1])]))  # last: UNKNOWN
    optimizer = optax.adam(optax.warmup_cosine_decay_schedule(0.0, _RATE, min(_WARMUP, steps // 2), steps))
    params = _initial(settings, rows_VD.shape[1])
    state, started = optimizer.init(params), time.perf_counter()
    key = jax.random.key(settings.seed)
    for step, chosen in enumerate(_batches(places, steps, size, rng), 1):
        params, state, likelier = _step(
            optimizer, table_VD, params, state, *_around(ids_N, chosen), jax.random.fold_in(key, step)
        )
        if step % max(1, steps // 10) == 0 or step == steps:
            log.info(
                "step %s/%s  %.2f nats  %.0f words/s", f"{step:,}", f"{steps:,}", likelier,
                step * size / (time.perf_counter() - started),
            )  # fmt: skip
    return _folded(params, mean_D, scale), _held_out(table_VD, ids_N, held_out, settings, params)


def _initial(settings: ContextSettings, width: int) -> Params:
    around, word = jax.random.split(jax.random.key(settings.seed))
    return Params(
        _INITIAL * jax.random.normal(around, (PLACES, width, settings.width)),
        _INITIAL * jax.random.normal(word, (width, settings.width)),
    )


def _batches(places: np.ndarray, steps: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yields places in random order, pass after pass."""
    at = len(places)
    for _ in range(steps):
        if at + size > len(places):
            rng.shuffle(places)
            at = 0
        yield places[at : at + size]
        at += size


def _around(ids_N: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the words at places, int32 [B], and those around them, int32 [B, 2 * REACH]."""
    return ids_N[places], ids_N[places[:, None] + _DISTANCES]


def _scores(table_VD: jax.Array, params: Params, words_B: jax.Array, around_BN: jax.Array) -> jax.Array:
    """Returns the fit of each word of a batch in each of its contexts, float32 [contexts B, words B]."""
    read_BND = table_VD[around_BN]
    context_BH = jnp.zeros((len(words_B), params.word_DH.shape[1]))
    for place in range(PLACES):
        of_place = np.flatnonzero(place == _PLACES)
        summed_BD = read_BND[:, of_place].sum(axis=1) / len(of_place) ** 0.5
        context_BH += summed_BD @ params.around_GDH[place]
    return context_BH @ (table_VD[words_B] @ params.word_DH).T


def _likelier(scores_BB: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the mean of log(B p) of the right words among those of the batch, and of log(Z / B) squared."""
    partition_B = jax.nn.logsumexp(scores_BB, axis=1) - jnp.log(len(scores_BB))
    return (jnp.diagonal(scores_BB) - partition_B).mean(), (partition_B**2).mean()


@functools.partial(jax.jit, static_argnums=0)
def _step(
    optimizer: optax.GradientTransformation,
    table_VD: jax.Array,
    params: Params,
    state: optax.OptState,
    words_B: jax.Array,
    around_BN: jax.Array,
    key: jax.Array,
) -> tuple[Params, optax.OptState, jax.Array]:
    def loss(params: Params) -> tuple[jax.Array, jax.Array]:
        left_out_BN = jax.random.bernoulli(key, _LEFT_OUT, around_BN.shape)
        scores_BB = _scores(table_VD, params, words_B, jnp.where(left_out_BN, UNKNOWN, around_BN))
        likelier, partition = _likelier(scores_BB)
        return _PARTITION * partition - likelier, likelier

    gradient, likelier = jax.grad(loss, has_aux=True)(params)
    updates, state = optimizer.update(gradient, state)
    return jax.tree.map(jnp.add, params, updates), state, likelier


@jax.jit
def _measured(table_VD: jax.Array, params: Params, words_B: jax.Array, around_BN: jax.Array) -> jax.Array:
    return _likelier(_scores(table_VD, params, words_B, around_BN))[0]


def _held_out(
    table_VD: jax.Array, ids_N: np.ndarray, places: np.ndarray, settings: ContextSettings, params: Params
) -> float:
    parts = places.reshape(-1, settings.batch_size)
    return float(np.mean([float(_measured(table_VD, params, *_around(ids_N, part))) for part in parts]))


def _folded(params: Params, mean_D: np.ndarray, scale: float) -> ContextWeights:
    """Returns weights for rows as they are: with what brings these to mean 0 and variance 1, and sums to means."""
    sizes_G = np.bincount(_PLACES, minlength=PLACES).astype(np.float32)
    around_GDH = np.asarray(params.around_GDH) / (scale * np.sqrt(sizes_G)[:, None, None])
    word_DH = np.asarray(params.word_DH) / scale
    return ContextWeights(around_GDH, -mean_D @ around_GDH, word_DH, -mean_D @ word_DH)
