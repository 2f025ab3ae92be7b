"""Models for labels in fine-tuning: an encoder with one of three heads. Open it to give a family its heads.

The encoder depends on the family; the heads are the same for all. Each head is an output layer, over the vector of a
sequence or over the vectors of all positions. The two labels of an answer are its first and its last position. Below
the output layer there may be further layers, those of XRayEmb's paper (section 4.2): `label_head`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.convert.heads import (
    FINE_TUNED,
    LINEAR,
    LSTM_TAGGER,
    PERCEPTRON,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
)
from charlm.core.types import ModelConfig, Option, Tree
from charlm.nn.embed import Dense, dense
from charlm.nn.lstm import BiLSTM

# The paper says "an LSTM" (Pinter et al., 2021, section 4.2). Its size, and dropout between its layers, are those of
# the released code.
LSTM_LAYERS, LSTM_UNITS, LSTM_DROPOUT = 2, 128, 0.5


class LSTMReader(nn.Module):
    """Layers of LSTMs over the states of a text, each in both directions (Pinter et al., 2021, section 4.2).

    Attributes:
      inputs: E, width of the states.
      dtype: the dtype of the products' inputs.
    """

    inputs: int
    dtype: DTypeLike

    def setup(self) -> None:
        widths = (self.inputs, *[2 * LSTM_UNITS] * (LSTM_LAYERS - 1))
        self.layer = [BiLSTM(width, LSTM_UNITS, self.dtype) for width in widths]
        self.dropout = nn.Dropout(LSTM_DROPOUT)

    def __call__(self, states_BLE: jax.Array, mask_BL: jax.Array | None, deterministic: bool) -> jax.Array:
        """Returns float32 [B, L, 2 * LSTM_UNITS]; `mask_BL` is that of `BiLSTM`."""
        x_BLE = self.layer[0](states_BLE, mask_BL)
        for layer in self.layer[1:]:
            x_BLE = layer(self.dropout(x_BLE, deterministic=deterministic), mask_BL)
        return x_BLE


class ForLabels(nn.Module):
    """Linear(Dropout(x)) over an encoder's states, for answers Linear(x) (BERT, sections 4.1, 4.2 and 5.3).

    With `label_head` "perceptron" it is Linear(ReLU(Linear(x))) over the vector of a sequence, as wide as the model
    between the layers; with "lstm" it is Linear(LSTM(x)) over the states of all positions of a text (Pinter et al.,
    2021, section 4.2). These have no dropout before the last layer, as in that paper's released code.

    A subclass defines `sequences`, and `positions` where needed: what is read from the encoder's output.

    Attributes:
      config: config of the encoder.
      labels: number of labels; two for answers.
      kind: one of `FINE_TUNED`.
      encoder: class of the encoder. Its parameters lie under its `scope_name`. An encoder without one is made of parts,
        and its parameters lie beside those of the head.
      label_head: `LINEAR`, or a head that `charlm.convert.heads.READ_BY` has for the kind; a family may have its own.
    """

    config: ModelConfig
    labels: int
    kind: str
    encoder: type[nn.Module]
    label_head: str = LINEAR

    def setup(self) -> None:
        scope = getattr(self.encoder, "scope_name", None)
        self.reader = self.encoder(self.config, name=scope)
        if scope is None:
            nn.share_scope(self, self.reader)
        self.dropout = nn.Dropout(self.config.dropout)
        cfg, width = self.config, 0
        if self.label_head == PERCEPTRON:
            width = cfg.hidden
            self.transform = dense(width, cfg.hidden, cfg.initializer, cfg.dtype)
        elif self.label_head == LSTM_TAGGER:
            width = 2 * LSTM_UNITS
            self.lstm = LSTMReader(cfg.hidden, cfg.dtype)
        self.label = dense(self.labels, width, cfg.initializer, cfg.dtype) if width else self.output_layer()

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
        if self.label_head == PERCEPTRON:
            x = jax.nn.relu(self.transform(x))
        elif self.label_head == LSTM_TAGGER:
            x = self.lstm(x, self.reader.mask_of(*inputs, **options), deterministic).astype(self.config.dtype)
        else:
            x = self.dropout(x, deterministic=deterministic or not self.drops)
        return self.label(x).astype(jnp.float32)

    def positions(self, output: Tree, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the states [N, L, E] of all positions."""
        return output.states_BLD

    def sequences(self, output: Tree, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the vectors [N, E] of sequences."""
        raise NotImplementedError(f"{type(self).__name__} reads no sequences")


def label_heads(model: type[ForLabels], **fields: Option) -> dict[str, Callable[..., ForLabels]]:
    """Returns for each kind of head a function (config, labels) -> model; `fields` are further fields of the model."""
    return {kind: functools.partial(model, kind=kind, **fields) for kind in FINE_TUNED}
