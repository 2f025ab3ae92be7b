"""A bidirectional GRU (Cho et al., EMNLP 2014) with PyTorch's gates, as CharBERT reads characters (section 3.3).

It has a backward pass of its own; open it to change the recursion or to check its gradient.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from charlm.nn.sizes import is_symbolic

DIRECTIONS = ("forward", "backward")


class BiGRU(nn.Module):
    """Two GRUs over a sequence, one from each end, both starting from zeros:

        r = sigmoid(W_r x + b_r + U_r h + c_r)          z = sigmoid(W_z x + b_z + U_z h + c_z)
        n = tanh(W_n x + b_n + r * (U_n h + c_n))       h' = (1 - z) n + z h

    The products with x, more than half of the work, are computed outside of the loop. If the sequences are longer than
    the table they are drawn from, they are computed for the table's rows alone.

    The parameters of each direction are `input_kernel` [E, 3K], `state_kernel` [K, 3K] and two biases [3K], with the
    gates r, z, n side by side. They are initialised uniformly in +-1/sqrt(K), as in PyTorch.

    Attributes:
      units: K of each direction.
      dtype: dtype of the products' inputs; states, gates and sums are float32.
    """

    units: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, table_VE: jax.Array, ids_BN: jax.Array, mask_BN: jax.Array | None = None) -> jax.Array:
        """Reads rows of a table in the order of the ids.

        Args:
          table_VE: embeddings.
          ids_BN: int, row numbers; one outside of the table gives NaN.
          mask_BN: bool, True at real positions, False only after the last of them. The backward direction begins at the
            last real position, so padding does not affect the states of real positions. None: all are real.

        Returns:
          float32 [B, N, 2K], forward states before backward ones.
        """
        ids_NB = ids_BN.T
        if is_symbolic(ids_BN.size) or table_VE.shape[0] <= ids_BN.size:
            x_RE, rows_NB = table_VE, ids_NB
        else:
            x_RE = jnp.take(table_VE, ids_NB.reshape(-1), axis=0)
            rows_NB = jnp.arange(ids_NB.size).reshape(ids_NB.shape)
        keep_NB1 = jnp.ones((*ids_NB.shape, 1), jnp.float32)
        real_NB1 = keep_NB1 if mask_BN is None else mask_BN.T[:, :, None].astype(jnp.float32)
        forward, backward = (self._direction(name, x_RE) for name in DIRECTIONS)
        # Backward states are zero at padding, which is as if this direction began at the last real character.
        sides = (rows_NB, rows_NB[::-1]), (keep_NB1, real_NB1[::-1])
        states_f, states_b = _run((forward, backward), *sides)
        return jnp.concatenate([states_f, states_b[::-1]], axis=-1).swapaxes(0, 1)

    def _direction(self, name: str, x_RE: jax.Array) -> _Direction:
        """Makes the parameters of a direction and computes the part of its gates that depends on the input alone."""
        bound = 1 / math.sqrt(self.units)
        init = lambda key, shape: jax.random.uniform(key, shape, jnp.float32, -bound, bound)
        make = lambda part, *shape: self.param(f"{name}_{part}", init, shape)
        G = 3 * self.units
        kernel, bias = make("input_kernel", x_RE.shape[-1], G), make("input_bias", G)
        gates_RG = _product(x_RE.astype(self.dtype), kernel.astype(self.dtype)) + bias[None]
        return _Direction(gates_RG, make("state_kernel", self.units, G).astype(self.dtype), make("state_bias", G))


class _Direction(NamedTuple):
    """What a direction needs in the loop: its gates for every input row, float32, and the state's kernel and bias."""

    gates_RG: jax.Array
    kernel_KG: jax.Array
    bias_G: jax.Array


T = TypeVar("T")
Two = tuple[T, T]  # one value for the forward and one for the backward direction
_Saved = tuple[Two[_Direction], Two[jax.Array], Two[jax.Array], Two[jax.Array]]  # arguments of `_run` and its result


def _each(function: Callable[..., T], *columns: Two[object]) -> Two[T]:
    """Applies a function to each of the two directions."""
    forward, backward = (function(*arguments) for arguments in zip(*columns, strict=True))
    return forward, backward


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.einsum("...k,kg->...g", x.astype(kernel.dtype), kernel, preferred_element_type=jnp.float32)


def _gates(input_G: jax.Array, state_G: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns r, z, n and the state's part of n, from the parts of input and state."""
    reset_x, update_x, new_x = jnp.split(input_G, 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(state_G, 3, axis=-1)
    reset, update = _sigmoid(reset_x + reset_h), _sigmoid(update_x + update_h)
    return reset, update, jnp.tanh(new_x + reset * new_h), new_h


def _sigmoid(x: jax.Array) -> jax.Array:
    return 0.5 * jnp.tanh(0.5 * x) + 0.5  # the whole loop is a tenth faster than with exp


@jax.custom_vjp
def _run(sides: Two[_Direction], rows: Two[jax.Array], keep: Two[jax.Array]) -> Two[jax.Array]:
    """Returns the states [N, B, K] of both directions, each in its order of reading.

    Args:
      sides: two `_Direction`.
      rows: int [N, B], the row of gates for each step.
      keep: [N, B, 1], factor of the states; it gets no gradient.
    """

    def one(side: _Direction, h_BK: jax.Array, row_B: jax.Array, keep_B1: jax.Array) -> jax.Array:
        # Taken inside the loop: the gates of all steps at once would be by far the largest array.
        input_BG = jnp.take(side.gates_RG, row_B, axis=0)
        _, update, new, _ = _gates(input_BG, _product(h_BK, side.kernel_KG) + side.bias_G[None])
        return (new + update * (h_BK - new)) * keep_B1

    def both(h: Two[jax.Array], x: Two[Two[jax.Array]]) -> Two[Two[jax.Array]]:
        h = _each(one, sides, h, *x)
        return h, h

    start = jnp.zeros((rows[0].shape[1], sides[0].kernel_KG.shape[0]), jnp.float32)
    return jax.lax.scan(both, (start, start), (rows, keep))[1]


def _run_forward(sides: Two[_Direction], rows: Two[jax.Array], keep: Two[jax.Array]) -> tuple[Two[jax.Array], _Saved]:
    states = _run(sides, rows, keep)
    return states, (sides, rows, keep, states)


def _run_backward(saved: _Saved, gradients: Two[jax.Array]) -> tuple[Two[_Direction], None, None]:
    """Returns the gradients of both directions.

    Everything but the recursion itself is computed for all steps at once. Otherwise sums over steps, such as those of
    kernels, would be taken inside the loop (and over devices in every step of it).
    """
    sides, rows, keep, states = saved
    slopes = _each(_slopes, sides, rows, keep, states)

    def step(carry: Two[jax.Array], x: tuple[Two[jax.Array], Two[_Slopes]]) -> Two[Two[jax.Array]]:
        total = _each(operator.add, carry, x[0])
        return _each(_through, sides, x[1], total), total

    start = jnp.zeros_like(states[0][0])
    _, totals = jax.lax.scan(step, (start, start), (gradients, slopes), reverse=True)
    return _each(_gradient, sides, rows, states, slopes, totals), None, None


class _Slopes(NamedTuple):
    """Derivatives of a step's state by both parts of its gates, [N, B, 3K] each, and directly by the state before."""

    input_G: jax.Array
    state_G: jax.Array
    direct: jax.Array


def _slopes(side: _Direction, rows_NB: jax.Array, keep_NB1: jax.Array, states_NBK: jax.Array) -> _Slopes:
    before_NBK = _before(states_NBK)
    state_G = _product(before_NBK, side.kernel_KG) + side.bias_G[None, None]
    reset, update, new, new_h = _gates(jnp.take(side.gates_RG, rows_NB, axis=0), state_G)
    of_new = keep_NB1 * (1 - update) * (1 - new * new)
    of_update = keep_NB1 * (before_NBK - new) * update * (1 - update)
    of_reset = of_new * new_h * reset * (1 - reset)
    return _Slopes(
        jnp.concatenate([of_reset, of_update, of_new], axis=-1),
        jnp.concatenate([of_reset, of_update, of_new * reset], axis=-1),
        keep_NB1 * update,
    )


def _through(side: _Direction, slopes: _Slopes, dh_BK: jax.Array) -> jax.Array:
    """Returns the gradient of the state before a step, given that of the state after it."""
    return dh_BK * slopes.direct + _product(_thrice(dh_BK) * slopes.state_G, side.kernel_KG.T)


def _gradient(
    side: _Direction, rows_NB: jax.Array, states_NBK: jax.Array, slopes: _Slopes, dh_NBK: jax.Array
) -> _Direction:
    """Returns the gradients of a direction's gates and parameters, given those of all its states."""
    dh_NBG = _thrice(dh_NBK)
    by_input, by_state = dh_NBG * slopes.input_G, dh_NBG * slopes.state_G
    gates_RG = jnp.zeros_like(side.gates_RG).at[rows_NB].add(by_input)
    dtype = side.kernel_KG.dtype
    kernel_KG = jnp.einsum(
        "nbk,nbg->kg", _before(states_NBK).astype(dtype), by_state.astype(dtype), preferred_element_type=jnp.float32
    )
    return _Direction(gates_RG, kernel_KG.astype(dtype), by_state.sum(axis=(0, 1)))


def _before(states_NBK: jax.Array) -> jax.Array:
    """Returns the state before each step."""
    return jnp.concatenate([jnp.zeros_like(states_NBK[:1]), states_NBK[:-1]])


def _thrice(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x, x, x], axis=-1)


_run.defvjp(_run_forward, _run_backward)
