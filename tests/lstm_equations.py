"""Computes LSTMs (Hochreiter and Schmidhuber, 1997) by PyTorch's equations in NumPy, to test what reads by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def linear(x: np.ndarray, layer: Mapping[str, Any]) -> np.ndarray:  # Any: arrays of JAX or NumPy
    """Returns W x + b in float64."""
    return x @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"], np.float64)


def one_direction(x_LE: np.ndarray, layer: Mapping[str, Any]) -> np.ndarray:  # Any: arrays of JAX or NumPy
    """Returns the outputs [L, K] of an LSTM over the rows, float64."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    layer = {name: np.asarray(value, np.float64) for name, value in layer.items()}
    h = s = np.zeros(len(layer["state_kernel"]))
    found = []
    for x in x_LE:
        gates = x @ layer["input_kernel"] + h @ layer["state_kernel"] + layer["input_bias"] + layer["state_bias"]
        i, f, n, o = np.split(gates, 4)
        s = sigmoid(f) * s + sigmoid(i) * np.tanh(n)
        h = sigmoid(o) * np.tanh(s)
        found.append(h)
    return np.stack(found)


def both_directions(x_LE: np.ndarray, layer: Mapping[str, Any]) -> np.ndarray:  # Any: arrays of JAX or NumPy
    """Returns the outputs [L, 2K] of an LSTM from each end, float64."""
    backward = one_direction(x_LE[::-1], layer["backward"])[::-1]
    return np.concatenate([one_direction(x_LE, layer["forward"]), backward], axis=-1)


def tagged(x_LE: np.ndarray, params: Mapping[str, Any]) -> np.ndarray:  # Any: arrays of JAX or NumPy
    """Returns the logits [L, labels] of a text's positions by a head of two such layers and a linear one."""
    for name in ("layer_0", "layer_1"):
        x_LE = both_directions(x_LE, params["lstm"][name])
    return linear(x_LE, params["label"])
