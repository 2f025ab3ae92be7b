"""A layer of LSTM (Hochreiter and Schmidhuber, 1997; Gers et al., 2000) with PyTorch's gates, as XRayEmb has them.

    i = sigmoid(W_i x + b_i + U_i h + c_i)      f, o likewise      n = tanh(W_n x + b_n + U_n h + c_n)
    s' = f s + i n                              h' = o tanh(s')

Axes: N steps, B sequences, E input width, K units, G = 4 K gates in the order i, f, n, o; time comes first, so that a
layer reads what another one wrote without a copy. Everything but the recursion itself is done for all steps at once:
the products with x, which for sequences drawn from a short table are those of its rows alone, and in the backward
pass the gradients of kernels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from charlm.nn.kernels import this_machine
from charlm.nn.mixed import matmul


class LSTMState(NamedTuple):
    """What a layer hands to its next step, float32: its output h and its memory s."""

    h_BK: jax.Array
    s_BK: jax.Array


class LSTM(nn.Module):
    """One layer in one direction.

    Parameters, the gates side by side: `input_kernel` [E, G], `state_kernel` [K, G] and a bias [G] each, uniform
    +-1/sqrt(K) at first as in PyTorch.

    Attributes:
      inputs: E. units: K.
      dtype: of the products' inputs; states, gates and sums are float32.
    """

    inputs: int
    units: int
    dtype: Any

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
          x_NBE: inputs. start_BK: the output before the first step, float32; the memory is zero there.
        """
        return _run(self._gates(x_NBE), self.state_kernel.astype(self.dtype), start_BK)

    def read(self, table_VE: jax.Array, ids_NB: jax.Array, start_BK: jax.Array) -> jax.Array:
        """Returns what `__call__` does for rows of a table; an id outside of it gives NaN."""
        if len(table_VE) > ids_NB.size:
            return self(jnp.take(table_VE, ids_NB, axis=0), start_BK)
        gates_NBG = jnp.take(self._gates(table_VE), ids_NB, axis=0)
        return _run(gates_NBG, self.state_kernel.astype(self.dtype), start_BK)

    def step(self, x_BE: jax.Array, state: LSTMState) -> LSTMState:
        """Returns the state after one input."""
        return _step(self._gates(x_BE), self.state_kernel.astype(self.dtype), state)[0]

    def _gates(self, x: jax.Array) -> jax.Array:
        """Returns the gates' part that no state changes, float32 [..., G]."""
        bias_G = self.input_bias + self.state_bias
        gates = matmul(x.astype(jnp.float32), self.input_kernel, self.dtype)
        return gates + bias_G.reshape((1,) * (gates.ndim - 1) + (-1,))


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.einsum("...k,kg->...g", x.astype(kernel.dtype), kernel, preferred_element_type=jnp.float32)


def _activated(before_G: jax.Array) -> jax.Array:
    """Returns sigmoid of i, f and o and tanh of n, all through one tanh: sigmoid(x) = tanh(x / 2) / 2 + 1 / 2.

    One pass over an array that is neither split nor put together: in a loop over steps that takes the most time.
    """
    K = before_G.shape[-1] // 4
    half = np.repeat(np.array([0.5, 0.5, 1, 0.5], np.float32), K)[None]
    return jnp.tanh(before_G * half) * half + (1 - half)


def _step(input_BG: jax.Array, kernel_KG: jax.Array, state: LSTMState) -> tuple[LSTMState, _Kept]:
    """Returns the state after a step, and what its gradient needs."""
    gates_BG = _activated(input_BG + _product(state.h_BK, kernel_KG))
    i, f, n, o = jnp.split(gates_BG, 4, axis=-1)
    s = f * state.s_BK + i * n
    tanh_s = jnp.tanh(s)
    return LSTMState(o * tanh_s, s), _Kept(gates_BG, tanh_s)


class _Kept(NamedTuple):
    """The gates [B, G] of a step, and tanh of the memory behind it [B, K]."""

    gates_BG: jax.Array
    tanh_BK: jax.Array


@jax.custom_vjp
def _run(input_NBG: jax.Array, kernel_KG: jax.Array, start_BK: jax.Array) -> jax.Array:
    """Returns the outputs [N, B, K] of all steps, from the gates' parts that no state changes."""

    def one(state: LSTMState, input_BG: jax.Array) -> tuple[LSTMState, jax.Array]:
        state, _ = _step(input_BG, kernel_KG, state)
        return state, state.h_BK

    return jax.lax.scan(one, LSTMState(start_BK, jnp.zeros_like(start_BK)), input_NBG)[1]


def _run_forward(input_NBG: jax.Array, kernel_KG: jax.Array, start_BK: jax.Array) -> tuple[jax.Array, Any]:
    def one(state: LSTMState, input_BG: jax.Array) -> tuple[LSTMState, tuple[LSTMState, _Kept]]:
        state, kept = _step(input_BG, kernel_KG, state)
        return state, (state, kept)

    start = LSTMState(start_BK, jnp.zeros_like(start_BK))
    _, (states, kept) = jax.lax.scan(one, start, input_NBG)
    return states.h_BK, (kernel_KG, start_BK, states, kept)


def _run_backward(saved: Any, dh_NBK: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    kernel_KG, start_BK, states, kept = saved
    i, f, n, o = jnp.split(kept.gates_BG, 4, axis=-1)
    tanh_s = kept.tanh_BK
    before_s = _before(states.s_BK, jnp.zeros_like(start_BK))
    # How the gates' inputs change the memory, and o's the output; and how the output changes with the memory.
    slopes_NBG = jnp.concatenate(
        [n * i * (1 - i), before_s * f * (1 - f), i * (1 - n * n), tanh_s * o * (1 - o)], axis=-1
    )
    by_memory_NBK = o * (1 - tanh_s * tanh_s)

    def one(later: LSTMState, x: tuple[jax.Array, ...]) -> tuple[LSTMState, jax.Array]:
        dh_BK, by_memory_BK, f_BK, slopes_BG = x
        dh = dh_BK + later.h_BK
        ds = later.s_BK + dh * by_memory_BK
        d_gates_BG = jnp.concatenate([ds, ds, ds, dh], axis=-1) * slopes_BG
        return LSTMState(_product(d_gates_BG, kernel_KG.T), ds * f_BK), d_gates_BG

    zero = LSTMState(jnp.zeros_like(start_BK), jnp.zeros_like(start_BK))
    first, d_gates_NBG = jax.lax.scan(one, zero, (dh_NBK, by_memory_NBK, f, slopes_NBG), reverse=True)
    rows = [_before(states.h_BK, start_BK), d_gates_NBG]
    if this_machine().platform != "cpu":  # which sums over rows faster in float32 than in bfloat16; see nn.mixed
        rows = [row.astype(kernel_KG.dtype) for row in rows]
    d_kernel = jnp.einsum("nbk,nbg->kg", *rows, preferred_element_type=jnp.float32)
    return d_gates_NBG, d_kernel.astype(kernel_KG.dtype), first.h_BK


def _before(states_NBK: jax.Array, start_BK: jax.Array) -> jax.Array:
    """Returns the state before each step."""
    return jnp.concatenate([start_BK[None], states_NBK[:-1]])


_run.defvjp(_run_forward, _run_backward)
