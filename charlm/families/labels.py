"""Models for labels: an encoder, and one of three heads put on it. Open it to give a family its heads.

The encoder is what a family is. The heads are the same in all: an output layer over the vector of a sequence, or over
those of all positions, where the two labels of an answer are its first and last position.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.convert.heads import FINE_TUNED, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION
from charlm.nn.embed import Dense, dense


class ForLabels(nn.Module):
    """Linear(Dropout(x)), of answers Linear(x) (BERT, sections 4.1, 4.2 and 5.3), over an encoder's states.

    A subclass says what is read of the encoder's output: `positions` and `sequences`.

    Attributes:
      config: of the encoder. labels: how many; those of an answer are two. kind: one of `FINE_TUNED`.
      encoder: the class of the encoder. Its parameters lie under its `scope`; those of one that has none, since it
        is made of parts, lie beside the head's.
    """

    config: Any
    labels: int
    kind: str
    encoder: type[nn.Module]

    def setup(self) -> None:
        scope = getattr(self.encoder, "scope_name", None)
        self.reader = self.encoder(self.config, name=scope)
        if scope is None:
            nn.share_scope(self, self.reader)
        self.dropout = nn.Dropout(self.config.dropout)
        self.label = self.output_layer()

    def output_layer(self) -> Dense:
        """Returns the layer of the labels."""
        cfg = self.config
        return dense(self.labels, cfg.hidden, cfg.initializer, cfg.dtype)

    @property
    def drops(self) -> bool:
        """Whether what the output layer reads drops out."""
        return self.kind != QUESTION_ANSWERING

    def __call__(self, *inputs: Any, deterministic: bool = True, **options: Any) -> jax.Array:
        """Returns float32 logits [N, labels] of sequences, else [N, L, labels]; they mean nothing at padding.

        The arguments are those of the encoder.
        """
        output = self.reader(*inputs, deterministic=deterministic, **options)
        read = self.sequences if self.kind == SEQUENCE_CLASSIFICATION else self.positions
        x = read(output, deterministic, *inputs, **options)
        return self.label(self.dropout(x, deterministic=deterministic or not self.drops)).astype(jnp.float32)

    def positions(self, output: Any, deterministic: bool, *inputs: Any, **options: Any) -> jax.Array:
        """Returns the states [N, L, E] of all positions."""
        return output.states_BLD

    def sequences(self, output: Any, deterministic: bool, *inputs: Any, **options: Any) -> jax.Array:
        """Returns the vectors [N, E] of sequences."""
        raise NotImplementedError(f"{type(self).__name__} reads no sequences")


def label_heads(model: type[ForLabels], **fields: Any) -> dict[str, Callable[..., ForLabels]]:
    """Returns by name of a head what builds the model from a config and a number of labels; `fields`: of the model."""
    return {kind: functools.partial(model, kind=kind, **fields) for kind in FINE_TUNED}
