"""Models for labels in fine-tuning: an encoder with one of three heads. Open it to give a family its heads.

The encoder depends on the family; the heads are the same for all. Each head is an output layer, over the vector of a
sequence or over the vectors of all positions. The two labels of an answer are its first and its last position.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from charlm.convert.heads import FINE_TUNED, QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION
from charlm.core.types import ModelConfig, Option, Tree
from charlm.nn.embed import Dense, dense


class ForLabels(nn.Module):
    """Linear(Dropout(x)) over an encoder's states, for answers Linear(x) (BERT, sections 4.1, 4.2 and 5.3).

    A subclass defines `sequences`, and `positions` where needed: what is read from the encoder's output.

    Attributes:
      config: config of the encoder.
      labels: number of labels; two for answers.
      kind: one of `FINE_TUNED`.
      encoder: class of the encoder. Its parameters lie under its `scope_name`. An encoder without one is made of parts,
        and its parameters lie beside those of the head.
    """

    config: ModelConfig
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
        """Returns the linear layer that computes the labels' logits."""
        cfg = self.config
        return dense(self.labels, cfg.hidden, cfg.initializer, cfg.dtype)

    @property
    def drops(self) -> bool:
        """Whether dropout is applied to the input of the output layer."""
        return self.kind != QUESTION_ANSWERING

    def __call__(self, *inputs: Tree, deterministic: bool = True, **options: Option) -> jax.Array:
        """Returns float32 logits, [N, labels] for sequences, else [N, L, labels]; they are meaningless at padding.

        The arguments are those of the encoder.
        """
        output = self.reader(*inputs, deterministic=deterministic, **options)
        read = self.sequences if self.kind == SEQUENCE_CLASSIFICATION else self.positions
        x = read(output, deterministic, *inputs, **options)
        return self.label(self.dropout(x, deterministic=deterministic or not self.drops)).astype(jnp.float32)

    def positions(self, output: Tree, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the states [N, L, E] of all positions."""
        return output.states_BLD

    def sequences(self, output: Tree, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the vectors [N, E] of sequences."""
        raise NotImplementedError(f"{type(self).__name__} reads no sequences")


def label_heads(model: type[ForLabels], **fields: Option) -> dict[str, Callable[..., ForLabels]]:
    """Returns for each kind of head a function (config, labels) -> model; `fields` are further fields of the model."""
    return {kind: functools.partial(model, kind=kind, **fields) for kind in FINE_TUNED}
