"""Models for labels in fine-tuning: an encoder with one of three heads. Open it to give a family its heads.

The encoder depends on the family; the heads are the same for all. Each head is an output layer, over the vector of a
sequence or over the vectors of all positions. The two labels of an answer are its first and its last position. Below
the output layer there may be further layers, those of XRayEmb's paper (section 4.2) and of CharBERT's taggers on
features (section 5.3): `label_head`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
from jax.typing import DTypeLike

from charlm.convert.heads import (
    FINE_TUNED,
    LINEAR,
    LSTM_768,
    LSTM_TAGGER,
    MEAN,
    PERCEPTRON,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
)
from charlm.core.types import ModelConfig, Option, Tree
from charlm.nn.embed import dense
from charlm.nn.lstm import BiLSTM
from charlm.nn.masks import means
from charlm.nn.mixed import MixedDense


class LSTMSize(NamedTuple):
    """The size of a head's LSTM.

    Attributes:
      units: K, number of units of each direction.
      dropout: share of a layer's outputs that are dropped before the next layer in training.
      layers: number of layers.
    """

    units: int
    dropout: float
    layers: int = 2


LSTMS = {  # the heads that have one
    # XRayEmb's paper says "an LSTM" (Pinter et al., 2021, section 4.2); the sizes are those of its released code.
    LSTM_TAGGER: LSTMSize(units=128, dropout=0.5),
    # "A two-layer 768-dimensional Bi-LSTM" (Ma et al., 2020, section 5.3; no code was released). It does not say
    # whether 768 counts both directions, and here each has as many; it states no dropout, and here there is none.
    LSTM_768: LSTMSize(units=768, dropout=0.0),
}


class LSTMReader(nn.Module):
    """Layers of LSTMs over the states of a text, each in both directions.

    Attributes:
      inputs: E, width of the states.
      size: number and width of the layers, and dropout between them.
      dtype: the dtype of the products' inputs.
    """

    inputs: int
    size: LSTMSize
    dtype: DTypeLike

    def setup(self) -> None:
        widths = (self.inputs, *[2 * self.size.units] * (self.size.layers - 1))
        self.layer = [BiLSTM(width, self.size.units, self.dtype) for width in widths]
        self.dropout = nn.Dropout(self.size.dropout)

    def __call__(self, states_BLE: jax.Array, mask_BL: jax.Array | None, deterministic: bool) -> jax.Array:
        """Returns float32 [B, L, 2K]; `mask_BL` is that of `BiLSTM`."""
        x_BLE = self.layer[0](states_BLE, mask_BL)
        for layer in self.layer[1:]:
            x_BLE = layer(self.dropout(x_BLE, deterministic=deterministic), mask_BL)
        return x_BLE


class ForLabels(nn.Module):
    """Linear(Dropout(x)) over an encoder's states, for answers Linear(x) (BERT, sections 4.1, 4.2 and 5.3).

    With `label_head` "perceptron" it is Linear(ReLU(Linear(x))) over the vector of a sequence, as wide as the model
    between the layers; with "lstm" it is Linear(LSTM(x)) over the states of all positions of a text (Pinter et al.,
    2021, section 4.2), and with "lstm768" the same with a wider LSTM (Ma et al., 2020, section 5.3). These have no
    dropout before the last layer, as in the code released with XRayEmb. With "mean" it is Linear(Dropout(x)) over the
    mean of the states of all positions of a text, special ones included: small models that never learned to gather a
    text in one position learn more from few examples with it.

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
            self.transform = dense(width, self.read_width, cfg.initializer, cfg.dtype)
        elif size := LSTMS.get(self.label_head):
            width = 2 * size.units
            self.lstm = LSTMReader(self.read_width, size, cfg.dtype)
        # Not `dense`, whose results have the model's dtype: logits are float32, like those of characters and subwords.
        self.label = MixedDense(self.labels, cfg.initializer, cfg.dtype) if width else self.output_layer()

    @property
    def read_width(self) -> int:
        """E, width of what `positions` and `sequences` return."""
        return self.config.hidden

    def output_layer(self) -> MixedDense:
        """Returns the linear layer that computes the labels' logits."""
        return MixedDense(self.labels, self.config.initializer, self.config.dtype)

    @property
    def drops(self) -> bool:
        """Whether dropout is applied to the input of the output layer."""
        return self.kind != QUESTION_ANSWERING

    def __call__(self, *inputs: Tree, deterministic: bool = True, **options: Option) -> jax.Array:
        """Returns float32 logits, [N, labels] for sequences, else [N, L, labels]; they are meaningless at padding.

        Where texts share rows (`charlm.nn.masks`), those of sequences are [N, L, labels], too: the logits of the text
        that starts at a position, or ends there for models that read left to right. The arguments are those of the
        encoder.
        """
        output = self.reader(*inputs, deterministic=deterministic, **options)
        if self.label_head == MEAN:
            states_BLE = self.positions(output, deterministic, *inputs, **options)
            x = means(states_BLE, self.mask_of(*inputs, **options))
        else:
            read = self.sequences if self.kind == SEQUENCE_CLASSIFICATION else self.positions
            x = read(output, deterministic, *inputs, **options)
        if self.label_head == PERCEPTRON:
            x = jax.nn.relu(self.transform(x))
        elif self.label_head in LSTMS:
            x = self.lstm(x, self.mask_of(*inputs, **options), deterministic).astype(self.config.dtype)
        else:
            x = self.dropout(x, deterministic=deterministic or not self.drops)
        return self.label(x)

    def mask_of(self, *inputs: Tree, **options: Option) -> jax.Array | None:
        """Returns the mask [N, L] of all positions (`charlm.nn.masks`), given the arguments of `__call__`."""
        return self.reader.mask_of(*inputs, **options)

    def positions(self, output: Tree, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the states [N, L, E] of all positions."""
        return output.states_BLD

    def sequences(self, output: Tree, deterministic: bool, *inputs: Tree, **options: Option) -> jax.Array:
        """Returns the vectors [N, E] of sequences; [N, L, E] where texts share rows, see `__call__`."""
        raise NotImplementedError(f"{type(self).__name__} reads no sequences")


def label_heads(model: type[ForLabels], **fields: Option) -> dict[str, Callable[..., ForLabels]]:
    """Returns for each kind of head a function (config, labels) -> model; `fields` are further fields of the model."""
    return {kind: functools.partial(model, kind=kind, **fields) for kind in FINE_TUNED}
