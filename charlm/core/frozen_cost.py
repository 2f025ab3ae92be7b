"""Estimates the cost of a training step with frozen parameters, as a share of its cost when all are trained; for MFU.

The training loop calls it; open it when the MFU of a run with frozen parameters looks wrong.

A product x W is computed once in the forward pass. The backward pass has another product of the same cost for the
gradient of W, if W is trained, and one for the gradient of x, if x depends on a trained parameter. So frozen layers
over a frozen embedding table cost a third of trained ones, and frozen layers above trained parameters two thirds. The
share is found by counting the products in two traced gradients, with and without frozen parameters, so that it holds
for every model; nothing is compiled or computed.

With `model.remat` both counts include the recomputation, so that the share is approximate. The body of a loop whose
number of steps is not known counts once, and of several branches the most expensive one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
from jax.extend import core as jax_core
from jax.interpreters import partial_eval

from charlm.core.optimizer import with_frozen, without_frozen
from charlm.core.types import Params


def share_left(loss: Callable[[Params], jax.Array], params: Params, freeze: tuple[str, ...]) -> float:
    """Returns the cost of a training step with frozen parameters as a share of its cost with none.

    Args:
      loss: returns the loss for given parameters.
      params: the parameters, or their shapes and dtypes.
      freeze: regular expressions, see `charlm.core.optimizer.frozen`.
    """
    with_all, with_few = (_step(loss, params, patterns) for patterns in ((), freeze))
    return with_few / with_all if with_all else 1.0


def _step(loss: Callable[[Params], jax.Array], params: Params, freeze: tuple[str, ...]) -> float:
    """Returns the operations of the products of a loss and its gradient."""

    def gradient(trained: Params, params: Params) -> tuple[jax.Array, Params]:
        return jax.value_and_grad(lambda trained: loss(with_frozen(trained, params)))(trained)

    traced = jax.make_jaxpr(gradient)(without_frozen(params, freeze), params).jaxpr
    used, _ = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))  # gradients of frozen parameters are unused
    return products(used)


def products(jaxpr: jax_core.Jaxpr) -> float:
    """Returns the operations of the matrix products and convolutions of a traced function; an addition is one, too."""
    return sum(map(_operations, jaxpr.eqns))


def _operations(equation: jax_core.JaxprEqn) -> float:
    name, given = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = given["dimension_numbers"]
        left = _shape(equation.invars[0])
        return 2.0 * math.prod(_shape(equation.outvars[0])) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, (features, *_) = _shape(equation.invars[1]), given["dimension_numbers"].rhs_spec
        return 2.0 * math.prod(_shape(equation.outvars[0])) * math.prod(kernel) / kernel[features]
    inside = [products(getattr(inner, "jaxpr", inner)) for inner in jax_core.jaxprs_in_params(given)]
    if not inside:
        return 0.0
    return max(inside) if name == "cond" else sum(inside) * (given["length"] if name == "scan" else 1)


def _shape(variable: jax_core.Var | jax_core.Literal) -> tuple[int, ...]:
    return variable.aval.shape  # pyright: ignore[reportAttributeAccessIssue]  # that of products is an array's
