"""The five losses of XRayEmb's second pre-training, and their summary (Pinter et al., 2021, section 2).

Open it to change a loss or what is reported of it; their weights are config keys.

    language       predicts masked subwords, or with GPT-2 the next subword; spelled words are not predicted
    embedding      the encoder's vector of a word against the pooled rows of its subwords
    generation     the characters of the word at each position, from the position's state
    cycle_words    characters -> encoder -> generator -> the same characters; gradients reach both
    cycle_sphere   a point of the unit sphere -> generator -> characters -> encoder -> the same point; the gradient
                   reaches only the encoder, because the characters are discrete

Words that the generator wrote are read between two `<e>`, as every other word; the released code omits the first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import RNGSequences

from charlm.core.types import Params
from charlm.families.xrayemb.batch import XRayBatch
from charlm.families.xrayemb.decoder import spelled_rows
from charlm.families.xrayemb.generation_loss import GenerationSums, generation_sums
from charlm.families.xrayemb.keys import LOSSES
from charlm.nn.apply import applied
from charlm.nn.heads import at_group_positions
from charlm.nn.label_sums import label_sums

# Numbers of random streams beside that of the text's dropout: of the sphere's points, and of the cycles' dropout.
SPHERE_STREAM, WORDS_DROPOUT, SPHERE_DROPOUT = 1, 2, 3
EVAL_SEED = 1  # seed of the sphere's points in evaluation, the same in every run
POOLINGS = ("max", "mean", "first")
DISTANCES = ("euclidean", "mean_square")


class XRaySums(NamedTuple):
    """Sums over a batch, float32 scalars: for each loss its weighted sum and the divisor `*_weight`; then counts.

    A loss whose weight is 0 stays 0, and so does its divisor. The fields `rebuilt_*` are counted in evaluation only.
    """

    language: jax.Array
    language_weight: jax.Array
    embedding: jax.Array
    embedding_weight: jax.Array
    generation: jax.Array
    generation_weight: jax.Array
    cycle_words: jax.Array
    cycle_words_weight: jax.Array
    cycle_sphere: jax.Array
    cycle_sphere_weight: jax.Array
    language_right: jax.Array  # subwords that are the most likely prediction
    generation_characters: jax.Array
    generation_right: jax.Array  # characters that are the most likely prediction, given the right ones before
    rebuilt_characters: jax.Array  # characters of the words of cycles
    rebuilt_right: jax.Array  # those that the generator wrote at the same place, from the encoder's vector
    rebuilt_words: jax.Array
    rebuilt_words_right: jax.Array  # words that were written with the same characters and length


@dataclasses.dataclass(frozen=True)
class XRayLosses:
    """Computes the losses that are in use.

    Attributes:
      weights: weight of each loss in `LOSSES`; a loss of weight 0 is not computed.
      pooling: how the rows of a word's subwords become one vector.
      detach: whether gradients are kept from these rows.
      reduction: how the cross entropy of characters is averaged, see `GenerationSums.loss`.
      distance: that of the embedding loss and of the sphere: "euclidean", the length of the difference (section 2.1),
        or "mean_square", the mean of its squares over the width (released code).
    """

    weights: Mapping[str, float]
    pooling: Literal["max", "mean", "first"] = "max"
    detach: bool = True
    reduction: Literal["mean", "sum_per_word"] = "mean"
    distance: Literal["euclidean", "mean_square"] = "mean_square"

    def __post_init__(self) -> None:
        if missing := [name for name in LOSSES if name not in self.weights]:
            raise ValueError(f"losses: no weight of {', '.join(missing)}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling={self.pooling!r} is not one of {', '.join(POOLINGS)}")
        if self.distance not in DISTANCES:
            raise ValueError(f"distance={self.distance!r} is not one of {', '.join(DISTANCES)}")

    def label_weights(self, batch: XRayBatch) -> tuple[jax.Array, ...]:
        """Returns the divisor of each loss, float32 scalars, for a batch with any leading axes."""
        count = lambda x: x.sum(dtype=jnp.float32)

        def words_of(chars: jax.Array) -> jax.Array:
            # The first symbol of a word is given to the generator; the symbols after it are labels.
            per_word = (chars[..., 1:] != 0).sum(axis=-1)
            return count(per_word) if self.reduction == "mean" else count(per_word > 0)

        weights = {
            "language": count(batch.labels_SM >= 0),
            "embedding": count(batch.learned.pieces_SWP[..., 0] >= 0),
            "generation": sum((words_of(written.chars_SGC) for written in batch.written), jnp.zeros(())),
            "cycle_words": sum((words_of(chars) for chars in batch.cycle), jnp.zeros(())),
            "cycle_sphere": count(batch.points_SK),
        }
        return tuple(weights[name] if self.weights[name] else jnp.zeros(()) for name in LOSSES)

    def sums(self, model: nn.Module, params: Params, batch: XRayBatch, dropout_key: jax.Array | None) -> XRaySums:
        """Applies a model to a micro-batch and sums its losses; without a dropout key it counts rebuilt words as well.

        Args:
          model: an `XRayEmbForMaskedLM` or `XRayEmbForCausalLM` with a generator.
          batch: arrays [S, ...].
          dropout_key: key of dropout and of the sphere's points; None: evaluation.
        """
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        quiet = dropout_key is None

        def of_text(model: nn.Module, batch: XRayBatch) -> dict[str, jax.Array]:
            return self._of_text(model, batch, quiet)

        found = applied(model, {"params": params}, rngs, method=of_text)(batch)
        if self.weights["cycle_words"] or self.weights["cycle_sphere"]:
            key = jax.random.key(EVAL_SEED) if dropout_key is None else jax.random.fold_in(dropout_key, SPHERE_STREAM)
            if quiet:  # different points for every batch
                key = jax.random.fold_in(key, batch.inputs.ids_SBL.sum().astype(jnp.uint32))
            found |= self._of_cycles(model, params, batch, key, dropout_key)
        weights = dict(zip(LOSSES, self.label_weights(batch), strict=True))
        weighted = {name: self.weights[name] * found.pop(name) for name in LOSSES if name in found}
        divided = {f"{name}_weight": weights[name] for name in LOSSES}
        none = jnp.zeros((), jnp.float32)
        known = found | weighted | divided
        return XRaySums(**{name: known.get(name, none) for name in XRaySums._fields})

    def _of_text(self, model: nn.Module, batch: XRayBatch, quiet: bool) -> dict[str, jax.Array]:
        """Returns the sums of the three losses on text, with counts of right predictions."""
        found = {}
        vectors_SUD = model.table_vectors(batch.inputs, quiet)
        if self.weights["embedding"]:
            found["embedding"] = self._embedding(model, vectors_SUD, batch)
        if not (self.weights["language"] or self.weights["generation"]):
            return found
        output = model(batch.inputs, batch.position_SM, vectors_SUD=vectors_SUD, deterministic=quiet)
        if self.weights["language"]:
            found["language"], _, found["language_right"] = label_sums(output.logits, batch.labels_SM)
        if self.weights["generation"]:
            states_NLD = output.transformer.states_BLD.astype(jnp.float32)
            vectors = [at_group_positions(states_NLD, written.position_SG) for written in batch.written]
            total = generation_sums(model.write(vectors, [written.chars_SGC for written in batch.written]))
            found["generation"] = total.nats
            found["generation_characters"], found["generation_right"] = total.characters, total.right
        return found

    def _embedding(self, model: nn.Module, vectors_SUD: jax.Array, batch: XRayBatch) -> jax.Array:
        """Returns the sum over words of the distance of the encoder's vector."""
        pieces_SWP = batch.learned.pieces_SWP
        rows_SWPD = model.embed_tokens(jnp.maximum(pieces_SWP, 0))
        real_SWP1 = (pieces_SWP >= 0)[..., None]
        if self.pooling == "max":
            target_SWD = jnp.where(real_SWP1, rows_SWPD, -jnp.inf).max(axis=2)
            target_SWD = jnp.where(real_SWP1[:, :, 0], target_SWD, 0)  # 0 at padding instead of -inf
        elif self.pooling == "mean":
            target_SWD = jnp.where(real_SWP1, rows_SWPD, 0).sum(axis=2) / jnp.maximum(real_SWP1.sum(axis=2), 1)
        else:
            target_SWD = rows_SWPD[:, :, 0]
        target_SWD = jax.lax.stop_gradient(target_SWD) if self.detach else target_SWD
        vectors_SWD = jnp.take_along_axis(vectors_SUD, batch.learned.row_SW[..., None], axis=1)
        return _distances(vectors_SWD - target_SWD, pieces_SWP[..., 0] >= 0, self.distance)

    def _of_cycles(
        self, model: nn.Module, params: Params, batch: XRayBatch, key: jax.Array, dropout_key: jax.Array | None
    ) -> dict[str, jax.Array]:
        """Returns the sums of both cycles; without words of cycles in the batch, zeros, and nothing is computed."""

        def rngs(stream: int) -> RNGSequences | None:
            return None if dropout_key is None else {"dropout": jax.random.fold_in(dropout_key, stream)}

        of_words, of_sphere = rngs(WORDS_DROPOUT), rngs(SPHERE_DROPOUT)

        def cycles(params: Params) -> dict[str, jax.Array]:
            found = {}
            if self.weights["cycle_words"]:
                found |= _words(model, params, batch.cycle, of_words)
            if self.weights["cycle_sphere"]:
                longest = batch.cycle[-1].shape[-1] - 2
                real_U = batch.points_SK.reshape(-1)
                found["cycle_sphere"] = _sphere(model, params, real_U, longest, key, of_sphere, self.distance)
            return found

        shapes = jax.eval_shape(cycles, params)
        none = lambda params: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return jax.lax.cond(batch.points_SK.any(), cycles, none, params)


def _words(
    model: nn.Module, params: Params, tables: tuple[jax.Array, ...], rngs: RNGSequences | None
) -> dict[str, jax.Array]:
    """Returns the sums of the cycle of words through encoder and generator.

    Args:
      tables: the words of each length bucket, int [S, K, C].
    """
    quiet = rngs is None

    def through(model: nn.Module) -> tuple[list[jax.Array], GenerationSums]:
        vectors = [_encoded(model, chars_SKC, quiet) for chars_SKC in tables]
        return vectors, generation_sums(model.write(vectors, tables))

    vectors, sums = applied(model, {"params": params}, rngs, method=through)()
    found = {"cycle_words": sums.nats}
    if not quiet:
        return found
    # The generator may write words of full length for short words, too; a shorter limit would tell it where they end.
    C = tables[-1].shape[-1]
    chars_SKC = jnp.concatenate([jnp.pad(x, ((0, 0), (0, 0), (0, C - x.shape[-1]))) for x in tables], axis=1)
    vectors_UD = jnp.concatenate(vectors, axis=1).reshape(-1, model.config.hidden)
    return found | rebuilt_sums(model, params, vectors_UD, chars_SKC.reshape(-1, C).astype(jnp.int32))


def _encoded(model: nn.Module, chars_SKC: jax.Array, quiet: bool) -> jax.Array:
    """Returns the vectors of words, float32 [S, K, D]."""
    S, K, C = chars_SKC.shape
    return model.vectors(chars_SKC.reshape(S * K, C), quiet).reshape(S, K, -1)


def rebuilt_sums(model: nn.Module, params: Params, vectors_UD: jax.Array, chars_UC: jax.Array) -> dict[str, jax.Array]:
    """Returns the counts `rebuilt_*` of `XRaySums`: words that the generator writes greedily from their vectors.

    A word is whole if it is ended where it ends. A word of full length is whole without its end: writing stops after as
    many characters, here as in use (released code: 20 steps, the end symbol among them).

    Args:
      vectors_UD: vectors of the words.
      chars_UC: int, the words; a row of zeros is no word.
    """
    generate = applied(model, {"params": params}, method="generate")
    generated = generate(vectors_UD, max_steps=chars_UC.shape[1] - 2)
    length_U1 = (chars_UC != 0).sum(axis=1, keepdims=True) - 2  # without both <e>
    inside_UT = jnp.arange(chars_UC.shape[1] - 2)[None] < length_U1
    right_UT = inside_UT & (generated.ids_UT == chars_UC[:, 1:-1])
    whole_U = ((right_UT == inside_UT).all(axis=1)) & (generated.length_U == length_U1[:, 0])
    count = lambda x: x.sum(dtype=jnp.float32)
    return {
        "rebuilt_characters": count(inside_UT),
        "rebuilt_right": count(right_UT),
        "rebuilt_words": count(length_U1 >= 0),
        "rebuilt_words_right": count(whole_U),
    }


def sphere_points(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns points near the surface of the unit sphere: N(0, I) / sqrt(d), float32 (section 4)."""
    return jax.random.normal(key, shape) / math.sqrt(shape[-1])


def _sphere(
    model: nn.Module,
    params: Params,
    real_U: jax.Array,
    longest: int,
    key: jax.Array,
    rngs: RNGSequences | None,
    distance: str,
) -> jax.Array:
    """Returns the sum over points of the distance of the encoder's vectors.

    Args:
      real_U: bool, True at points that count.
      longest: most characters of a word.
    """
    config = model.config
    points_UD = sphere_points(key, (len(real_U), config.hidden))
    fixed = jax.lax.stop_gradient(params)
    generated = applied(model, {"params": fixed}, method="generate")(points_UD, max_steps=longest)
    rows_UC = spelled_rows(generated, config.generator.end)
    vectors_UD = applied(model, {"params": params}, rngs, method="vectors")(rows_UC, rngs is None)
    return _distances(vectors_UD - points_UD, real_U, distance)


def _distances(off: jax.Array, real: jax.Array, distance: str) -> jax.Array:
    """Returns the sum over real positions of the lengths, or mean squares, of differences over the last axis."""
    squares = off * off
    # The square root has no finite gradient at 0, where there is nothing left to learn.
    length = lambda: jnp.sqrt(jnp.maximum(squares.sum(axis=-1), 1e-24))
    found = squares.mean(axis=-1) if distance == "mean_square" else length()
    return jnp.where(real, found, 0).sum(dtype=jnp.float32)


def summarize(sums: XRaySums, weights: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics for the user: the weighted loss, each loss without its weight, accuracies, and rebuilt words.

    The embedding loss and that of the sphere are distances or mean squares, the others are in nats.

    Args:
      weights: weight of each loss in `LOSSES`.

    Raises:
      ValueError: the batch had nothing to learn for any loss.
    """
    values = {name: float(value) for name, value in sums._asdict().items()}
    asked = {name: values[f"{name}_weight"] for name in LOSSES if values[f"{name}_weight"]}
    if not asked:
        raise ValueError("nothing was asked: too little text, or data.mask_rate too small for it")
    parts = {f"{name}_loss": values[name] / weights[name] / weight for name, weight in asked.items()}
    metrics = {"loss": sum(values[name] / weight for name, weight in asked.items())} | parts
    shares = {
        "language_accuracy": ("language_right", "language_weight"),
        "generation_accuracy": ("generation_right", "generation_characters"),
        "rebuilt_accuracy": ("rebuilt_right", "rebuilt_characters"),
        "rebuilt_word_accuracy": ("rebuilt_words_right", "rebuilt_words"),
    }
    for name, (right, of) in shares.items():
        if values[of]:
            metrics[name] = values[right] / values[of]
    if values["rebuilt_words"]:
        metrics["rebuilt_words"] = values["rebuilt_words"]
    return metrics
