"""An LSTM layer (Hochreiter and Schmidhuber, 1997; Gers et al., 2000) with PyTorch's gates, in one direction or in two.

XRayEmb's encoder and generator read characters by it, its tagger (`charlm.families.labels`) and the word recogniser
read words. It has a backward pass of its own; open it to change the recursion or its gradient.

    i = sigmoid(W_i x + b_i + U_i h + c_i)      f, o likewise      n = tanh(W_n x + b_n + U_n h + c_n)
    s' = f s + i n                              h' = o tanh(s')

Axes: N steps, B sequences, E input width, K units, G = 4 K gates in the order i, f, n, o. Time is the first axis, so
that a layer reads the output of another without a copy. Everything but the recursion is computed for all steps at once:
the products with x (only those of the table's rows, if the inputs come from a short table), and in the backward pass
the gradients of the kernels.

Sequences of different lengths run together in stretches of steps, with the longest sequences first. B falls from one
stretch to the next as short sequences end, so a sequence that has ended costs only the rest of its stretch. `BiLSTM`
reads padded rows instead, and rows that several texts share: it begins anew at each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from charlm.nn.embed import Held
from charlm.nn.masks import real_positions
from charlm.nn.products import matmul, sum_of_outer


class LSTMState(NamedTuple):
    """The state of a layer between steps, float32: its output h and its memory s."""

    h_BK: jax.Array
    s_BK: jax.Array


class LSTM(Held, nn.Module):
    """One layer in one direction.

    Parameters, with the gates concatenated: `input_kernel` [E, G], `state_kernel` [K, G] and a bias [G] each. They
    start uniform in +-1/sqrt(K), as in PyTorch.

    Attributes:
      inputs: E, width of the inputs.
      units: K, number of units.
      dtype: the dtype of the products' inputs; states, gates and sums are float32.
    """

    inputs: int
    units: int
    dtype: DTypeLike

    def setup(self) -> None:
        bound = 1 / math.sqrt(self.units)
        init = lambda key, shape: jax.random.uniform(key, shape, jnp.float32, -bound, bound)
        G = 4 * self.units
        self.input_kernel = self.param("input_kernel", init, (self.inputs, G))
        self.state_kernel = self.param("state_kernel", init, (self.units, G))
        self.input_bias = self.param("input_bias", init, (G,))
        self.state_bias = self.param("state_bias", init, (G,))

    def __call__(self, x_NBE: jax.Array, start_BK: jax.Array) -> jax.Array:
        """Returns the outputs of all steps, float32 [N, B, K].

        Args:
          x_NBE: inputs.
          start_BK: the output before the first step, float32; the memory is zero there.
        """
        return self.run([self.gates(x_NBE)], start_BK)[0]

    def run(self, gates: Sequence[jax.Array], start_BK: jax.Array, groups: int = 1) -> list[jax.Array]:
        """Returns the outputs of stretches of steps, one after another, float32 [N, B, K] each.

        Args:
          gates: for each stretch the result of the method `gates`, float32 [N, B, G]; B never grows.
          start_BK: the output before the first step, float32; the memory is zero there.
          groups: number of equal groups of the B sequences; the first ones of each group continue in the next stretch.
        """
        state, outputs = LSTMState(start_BK, jnp.zeros_like(start_BK)), []
        for gates_NBG in gates:
            state = LSTMState(*(_first(x_BK, groups, gates_NBG.shape[1]) for x_BK in state))
            output_NBK, state = _run(gates_NBG, self.state_kernel.astype(self.dtype), state, None)
            outputs.append(output_NBK)
        return outputs

    def texts(self, x_NBE: jax.Array, goes_on_NB: jax.Array) -> jax.Array:
        """Returns the outputs of all steps, float32 [N, B, K], of rows that hold several sequences one after another.

        Args:
          x_NBE: inputs, finite everywhere.
          goes_on_NB: bool, False where a sequence begins, so that nothing of what stands before it is known there.
        """
        start_BK = jnp.zeros((x_NBE.shape[1], self.units), jnp.float32)
        start, keep_NB1 = LSTMState(start_BK, start_BK), goes_on_NB[..., None].astype(jnp.float32)
        return _run(self.gates(x_NBE), self.state_kernel.astype(self.dtype), start, keep_NB1)[0]

    def gates(self, x: jax.Array) -> jax.Array:
        """Returns the part of the gates' inputs that does not depend on the state, float32 [..., G], for [..., E]."""
        bias_G = self.input_bias + self.state_bias
        gates = matmul(x.astype(jnp.float32), self.input_kernel, self.dtype)
        return gates + bias_G.reshape((1,) * (gates.ndim - 1) + (-1,))

    def gates_of_rows(self, table_VE: jax.Array, ids: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns `gates` of rows of a table, for each array of ids; an id outside the table gives NaN."""
        if len(table_VE) > sum(x.size for x in ids):
            return [self.gates(jnp.take(table_VE, x, axis=0)) for x in ids]
        gates_VG = self.gates(table_VE)
        return [jnp.take(gates_VG, x, axis=0) for x in ids]

    def step(self, x_BE: jax.Array, state: LSTMState) -> LSTMState:
        """Returns the state after one input."""
        return _step(self.gates(x_BE), self.state_kernel.astype(self.dtype), state)[0]


class BiLSTM(nn.Module):
    """Two LSTMs over the positions of a row, one from each end of every text.

    Attributes:
      inputs: E, width of the inputs.
      units: K, number of units of each direction.
      dtype: the dtype of the products' inputs; states, gates and sums are float32.
    """

    inputs: int
    units: int
    dtype: DTypeLike

    def setup(self) -> None:
        self.forward = LSTM(self.inputs, self.units, self.dtype)
        self.backward = LSTM(self.inputs, self.units, self.dtype)

    def __call__(self, x_BLE: jax.Array, mask_BL: jax.Array | None = None) -> jax.Array:
        """Returns float32 [B, L, 2K], forward outputs before backward ones; they have no meaning at padding.

        Each text has the outputs of a row of its own, wherever it stands and whatever shares its row.

        Args:
          x_BLE: inputs.
          mask_BL: bool, True at real positions, or the numbers of the texts of a row (`charlm.nn.masks`); None: all
            positions are real, and a row is one text.
        """
        mask_BL = jnp.ones(x_BLE.shape[:2], bool) if mask_BL is None else mask_BL
        x_BLE = jnp.where(real_positions(mask_BL)[..., None], x_BLE, 0)  # states at padding may be anything, also NaN
        x_NBE, text_NB = x_BLE.swapaxes(0, 1), mask_BL.astype(jnp.int32).T
        forward = self.forward.texts(x_NBE, _goes_on(text_NB))
        backward = self.backward.texts(x_NBE[::-1], _goes_on(text_NB[::-1]))
        return jnp.concatenate([forward, backward[::-1]], axis=-1).swapaxes(0, 1)


def _goes_on(text_NB: jax.Array) -> jax.Array:
    """Returns whether each step is of the text of the step before, bool [N, B]; the first is not."""
    none_before = jnp.pad(text_NB, ((1, 0), (0, 0)), constant_values=-1)  # no slice of N - 1 steps: N may be symbolic
    return text_NB == none_before[: text_NB.shape[0]]


def _first(x_BK: jax.Array, groups: int, rows: int) -> jax.Array:
    """Returns the first rows of each group, [rows, K]; `rows` counts those of all groups."""
    B, K = x_BK.shape
    return x_BK.reshape(groups, B // groups, K)[:, : rows // groups].reshape(rows, K)


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.einsum("...k,kg->...g", x.astype(kernel.dtype), kernel, preferred_element_type=jnp.float32)


def _activated(before_G: jax.Array) -> jax.Array:
    """Returns sigmoid of i, f and o and tanh of n, all through one tanh: sigmoid(x) = tanh(x / 2) / 2 + 1 / 2.

    This is one pass without splitting or concatenating the array, which would take most of the time in a loop of steps.
    """
    K = before_G.shape[-1] // 4
    half = np.repeat(np.array([0.5, 0.5, 1, 0.5], np.float32), K)[None]
    return jnp.tanh(before_G * half) * half + (1 - half)


def _step(input_BG: jax.Array, kernel_KG: jax.Array, state: LSTMState) -> tuple[LSTMState, _Kept]:
    """Returns the state after a step, and the values that its gradient needs."""
    gates_BG = _activated(input_BG + _product(state.h_BK, kernel_KG))
    i, f, n, o = jnp.split(gates_BG, 4, axis=-1)
    s = f * state.s_BK + i * n
    tanh_s = jnp.tanh(s)
    return LSTMState(o * tanh_s, s), _Kept(gates_BG, tanh_s)


class _Kept(NamedTuple):
    """The gates [B, G] of a step, and tanh of the memory after it [B, K]."""

    gates_BG: jax.Array
    tanh_BK: jax.Array


def _kept(state: LSTMState, keep_B1: jax.Array | None) -> LSTMState:
    """Returns the state, which is zero where a new sequence begins."""
    return state if keep_B1 is None else LSTMState(state.h_BK * keep_B1, state.s_BK * keep_B1)


@jax.custom_vjp
def _run(
    input_NBG: jax.Array, kernel_KG: jax.Array, start: LSTMState, keep_NB1: jax.Array | None
) -> tuple[jax.Array, LSTMState]:
    """Returns the outputs of all steps [N, B, K], and the last state.

    Args:
      input_NBG: see `LSTM.gates`.
      keep_NB1: factors of the states before each step, which get no gradient; None: all are 1.
    """

    def one(state: LSTMState, x: tuple[jax.Array, jax.Array | None]) -> tuple[LSTMState, jax.Array]:
        state, _ = _step(x[0], kernel_KG, _kept(state, x[1]))
        return state, state.h_BK

    last, output_NBK = jax.lax.scan(one, start, (input_NBG, keep_NB1))
    return output_NBK, last


_Outputs = tuple[jax.Array, LSTMState]  # the result of `_run`


class _Saved(NamedTuple):
    """What the backward pass needs: arguments of `_run`, the states after all steps, and what they were made of."""

    kernel_KG: jax.Array
    start: LSTMState
    keep_NB1: jax.Array | None
    states: LSTMState
    kept: _Kept


def _run_forward(
    input_NBG: jax.Array, kernel_KG: jax.Array, start: LSTMState, keep_NB1: jax.Array | None
) -> tuple[_Outputs, _Saved]:
    def one(state: LSTMState, x: tuple[jax.Array, jax.Array | None]) -> tuple[LSTMState, tuple[LSTMState, _Kept]]:
        state, kept = _step(x[0], kernel_KG, _kept(state, x[1]))
        return state, (state, kept)

    last, (states, kept) = jax.lax.scan(one, start, (input_NBG, keep_NB1))
    return (states.h_BK, last), _Saved(kernel_KG, start, keep_NB1, states, kept)


def _run_backward(saved: _Saved, d_outputs: _Outputs) -> tuple[jax.Array, jax.Array, LSTMState, None]:
    kernel_KG, keep_NB1 = saved.kernel_KG, saved.keep_NB1
    dh_NBK, d_last = d_outputs
    i, f, n, o = jnp.split(saved.kept.gates_BG, 4, axis=-1)
    tanh_s = saved.kept.tanh_BK
    before = _kept(LSTMState(*map(_before, saved.states, saved.start)), keep_NB1)
    # The derivatives of the memory by the inputs of i, f and n, and of the output by that of o; then of the output by
    # the memory.
    slopes_NBG = jnp.concatenate(
        [n * i * (1 - i), before.s_BK * f * (1 - f), i * (1 - n * n), tanh_s * o * (1 - o)], axis=-1
    )
    by_memory_NBK = o * (1 - tanh_s * tanh_s)

    def one(later: LSTMState, x: tuple[tuple[jax.Array, ...], jax.Array | None]) -> tuple[LSTMState, jax.Array]:
        (dh_BK, by_memory_BK, f_BK, slopes_BG), keep_B1 = x
        dh = dh_BK + later.h_BK
        ds = later.s_BK + dh * by_memory_BK
        d_gates_BG = jnp.concatenate([ds, ds, ds, dh], axis=-1) * slopes_BG
        return _kept(LSTMState(_product(d_gates_BG, kernel_KG.T), ds * f_BK), keep_B1), d_gates_BG

    steps = ((dh_NBK, by_memory_NBK, f, slopes_NBG), keep_NB1)
    d_start, d_gates_NBG = jax.lax.scan(one, d_last, steps, reverse=True)
    d_kernel = sum_of_outer(before.h_BK, d_gates_NBG, kernel_KG.dtype)
    return d_gates_NBG, d_kernel.astype(kernel_KG.dtype), d_start, None


def _before(states_NBK: jax.Array, start_BK: jax.Array) -> jax.Array:
    """Returns the state before each step."""
    return jnp.concatenate([start_BK[None], states_NBK[:-1]])


_run.defvjp(_run_forward, _run_backward)
