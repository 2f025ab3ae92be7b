"""How well a word fits between others: a matrix for each place around it, over vectors that an encoder has of words.

    context = Context(weights, vector_of)
    before_NH, behind_NH = context.sides([[("the", 1.0)], [("cat", 0.8), ("car", 0.2)], [("sat", 1.0)]])
    context.fits(before_NH[1] + behind_NH[2], ("cat", "car"))   # [1.9, -0.4]: in place of word 1

A continuous bag of words (Mikolov et al., 2013) that knows the order of the nearest words, and whose vectors are not
its own: they are the rows of the encoder's table, so it is small, and knows words that its training texts seldom have.
A fit is trained to be the logarithm of how much likelier a word is there than anywhere (noise-contrastive estimation
with a partition function held at one), so a word of which nothing is known has fit 0. Open it to change how the words
around a place count; `charlm.search.context` trains it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from charlm.core.durable import write_bytes

FILE = "speller_context.safetensors"
REACH = 10  # words on each side
NEAR = 3  # of them, how many have a matrix of their own; those behind share one
PLACES = 2 * (NEAR + 1)
LARGEST_FIT = 5.0  # nats: what a context can say for or against a word

Mixture = Sequence[tuple[str, float]]  # words as which one may be read, with shares; none: it is not known


class ContextWeights(NamedTuple):
    """What is trained, float32 (float16 in files); G is `PLACES`, D the width of the encoder's rows.

    Attributes:
      around_GDH, around_GH: kernel and bias of what a word says about the word at a place around it.
      word_DH, word_H: kernel and bias of the word at the place itself.
    """

    around_GDH: np.ndarray
    around_GH: np.ndarray
    word_DH: np.ndarray
    word_H: np.ndarray


def place_of(distance: int) -> int:
    """Returns the number of the matrix for a word `distance` words behind the place in question, or before, if < 0."""
    return 2 * (min(abs(distance), NEAR + 1) - 1) + (distance > 0)


class Context:
    """Scores words between others.

    Args:
      weights: what is trained.
      vector_of: returns the vector of a word, float32 [D]; None if it has none.
    """

    def __init__(self, weights: ContextWeights, vector_of: Callable[[str], np.ndarray | None]) -> None:
        self._weights, self._vector_of = weights, vector_of
        G, D, H = weights.around_GDH.shape
        self._around_DN = np.ascontiguousarray(weights.around_GDH.transpose(1, 0, 2)).reshape(D, G * H)
        self._says = functools.lru_cache(1 << 13)(self._says_of)
        self._own = functools.lru_cache(1 << 13)(self._own_of)

    def sides(self, words: Sequence[Mixture]) -> tuple[np.ndarray, np.ndarray]:
        """Returns what the words of a text say about a word in front of each of them, and behind the last.

        Returns:
          What those before that place say, and what those behind it do, float32 [W + 1, H] each. What all say about a
          word that stands in place of others is the sum of the first at their beginning and the second at their end.
        """
        W, (G, H) = len(words), self._weights.around_GH.shape
        says_WGH = np.zeros((W, G, H), np.float32)
        for w, mixture in enumerate(words):
            known = [(says_GH, share) for word, share in mixture if (says_GH := self._says(word)) is not None]
            total = sum(share for _, share in known)
            for says_GH, share in known:
                says_WGH[w] += np.float32(share / total) * says_GH
        before_NH, behind_NH = np.zeros((2, W + 1, H), np.float32)
        for distance in range(1, min(REACH, W) + 1):
            before_NH[distance:] += says_WGH[: W + 1 - distance, place_of(-distance)]
            behind_NH[: W + 1 - distance] += says_WGH[distance - 1 :, place_of(distance)]
        return before_NH, behind_NH

    def fits(self, around_H: np.ndarray, words: tuple[str, ...]) -> np.ndarray:
        """Returns how much likelier each word is there than elsewhere, in nats, float32 [K]."""
        return np.clip(self._own(words) @ around_H, -LARGEST_FIT, LARGEST_FIT)

    def _says_of(self, word: str) -> np.ndarray | None:
        """Returns what a word says about those around it, float32 [G, H]."""
        vector_D = self._vector_of(word)
        if vector_D is None:
            return None
        return (vector_D @ self._around_DN).reshape(self._weights.around_GH.shape) + self._weights.around_GH

    def _own_of(self, words: tuple[str, ...]) -> np.ndarray:
        """Returns the vectors of words at the place itself, float32 [K, H]; 0 for those that are not known."""
        found_KH = np.zeros((len(words), *self._weights.word_H.shape), np.float32)
        for k, word in enumerate(words):
            if (vector_D := self._vector_of(word)) is not None:
                found_KH[k] = vector_D @ self._weights.word_DH + self._weights.word_H
        return found_KH


def write_context(folder: Path, weights: ContextWeights) -> None:
    """Writes the weights into a folder, in float16; OSError if that cannot be done."""
    write_bytes(folder / FILE, save({name: array.astype(np.float16) for name, array in weights._asdict().items()}))


def read_context(folder: Path) -> ContextWeights | None:
    """Returns the weights in a folder, float32; None if there is no such file; ValueError if it is damaged."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        found = load_file(path)
    except (SafetensorError, AttributeError) as error:  # the second, if NumPy lacks the type of a tensor
        raise ValueError(f"{path}: {error}") from None
    if set(found) != set(ContextWeights._fields):
        raise ValueError(f"{path}: holds {', '.join(sorted(found))}, expected {', '.join(ContextWeights._fields)}")
    weights = ContextWeights(**found)
    if weights.word_DH.ndim != 2:
        raise ValueError(f"{path}: word_DH is {weights.word_DH.shape}, expected two axes")
    D, H = weights.word_DH.shape
    shapes = (PLACES, D, H), (PLACES, H), (D, H), (H,)
    for name, array, shape in zip(weights._fields, weights, shapes, strict=True):
        if array.dtype != np.float16 or array.shape != shape or not array.size:
            raise ValueError(f"{path}: {name} is {array.dtype} {array.shape}, expected float16 {shape}, not empty")
        if not np.isfinite(array).all():
            raise ValueError(f"{path}: {name} has numbers that are not finite")
    return ContextWeights(*(array.astype(np.float32) for array in weights))
