"""A trained recogniser: it reads rows of words, and returns the words that it recognises.

`defence` puts it in front of models. Open it to see how long texts are read, or which checkpoints are taken.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from charlm.core import checkpoint as checkpoints
from charlm.core.types import Params
from charlm.nn.apply import applied
from charlm.wordrec.batches import padded_rows
from charlm.wordrec.model import Recogniser, RecogniserConfig
from charlm.wordrec.objective import NAME
from charlm.wordrec.words import WORDS_FILE, KnownWords

_SHORTEST = 8  # rows are padded to this or a power of two above it, so that few programs are compiled


class TrainedRecogniser:
    """A recogniser with its parameters.

    Args:
      known: its words.
      model: its module.
      params: of the module.
      longest: most words that are read at once, as in training; longer texts are read in pieces.

    Attributes:
      known: its words.
      digest: of words and parameters; another recogniser has another one.
    """

    def __init__(self, known: KnownWords, model: Recogniser, params: Params, longest: int) -> None:
        self.known, self._params, self._longest = known, params, longest

        def recognise(
            params: Params, first_BL: jax.Array, inner_BLA: jax.Array, last_BL: jax.Array, mask_BL: jax.Array
        ) -> jax.Array:
            logits_BLV = applied(model, {"params": params})(first_BL, inner_BLA, last_BL, mask_BL)
            return logits_BLV.argmax(axis=-1)

        self._apply = jax.jit(recognise)
        self._recognised = functools.lru_cache(1 << 12)(self._rows)

    @classmethod
    def load(cls, path: str | Path, key: str = "wordrec") -> TrainedRecogniser:
        """Returns the recogniser of a workdir or checkpoint.

        Args:
          key: what names the path, for messages.

        Raises:
          ValueError: there is no checkpoint, it is damaged, or it holds another kind of model.
        """
        checkpoint = checkpoints.find(path, key=key)
        told = checkpoints.read_metadata(checkpoint)
        if told.get("family") != NAME:
            held = told.get("family") or told.get("config", {}).get("family")
            raise ValueError(f"{key}: {path} holds a model of the family {held}, expected a word recogniser")
        known = KnownWords.load(checkpoints.files_of(checkpoint) / WORDS_FILE)
        if known.digest() != told["words"]:
            raise ValueError(f"{key}: {checkpoint} knows other words than it was trained with: the file was changed")
        dtype = jnp.dtype(told["config"]["model"]["dtype"])
        model = Recogniser(RecogniserConfig(**told["model"], dtype=dtype))
        shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *_smallest(known))["params"])
        params = checkpoints.load_params(checkpoint, checkpoints.on_one_device(shapes))
        return cls(known, model, params, told["config"]["data"]["max_length"])

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of words and parameters, in hexadecimal."""
        found = hashlib.sha256(self.known.digest().encode())
        for name, value in sorted(traverse_util.flatten_dict(self._params, sep="/").items()):
            array = np.asarray(value)
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def recognise(self, words: Sequence[str]) -> tuple[str, ...]:
        """Returns the word that is recognised in the place of each of `words`, in lower case; "": none that is known.

        Args:
          words: of one text, in order; none may be empty.
        """
        return self._recognised(tuple(words))

    def _rows(self, words: tuple[str, ...]) -> tuple[str, ...]:
        found: list[str] = []
        for start in range(0, len(words), self._longest):
            piece = words[start : start + self._longest]
            length = max(_SHORTEST, 1 << (len(piece) - 1).bit_length())
            read, mask_BL = padded_rows(self.known, [piece], 1, length)
            labels_L = np.asarray(self._apply(self._params, *read, mask_BL))[0]
            found += [self.known.word(label) for label in labels_L[: len(piece)].tolist()]
        return tuple(found)


def _smallest(known: KnownWords) -> tuple[np.ndarray, ...]:
    read, mask_BL = padded_rows(known, [], 1, 1)
    return *read, mask_BL
