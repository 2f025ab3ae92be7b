"""Computes trees of fresh arrays leaf by leaf, compiling equal leaves once; open it when a run compiles long at start.

The random parameters of a model are hundreds of generators of which few differ: the kernels of all layers have the same
shape and the same distribution. As one program, XLA compiles each of them again, which takes longer than to train the
first hundreds of steps of a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core

T = TypeVar("T")

_programs: dict[str, Callable[..., list[jax.Array]]] = {}  # a leaf's operations as text -> its program
_KEPT = 1_024  # programs, a few kilobytes each; no model has a tenth of it


def leafwise(make: Callable[[], T]) -> T:
    """Returns what `jax.jit(make)()` returns, to the bit for parameters that initializers of flax draw.

    Operations that no leaf needs, such as the forward pass that `init` of a flax module runs through, are left out.
    What several leaves need, other than random keys, is computed for each of them.

    Args:
      make: returns a tree of arrays. One that is jitted already is not traced again after `jax.eval_shape(make)`.
    """
    traced = (make if isinstance(make, jax.stages.Wrapped) else jax.jit(make)).trace()
    whole = traced.jaxpr.jaxpr
    makers = {made: (place, eqn) for place, eqn in enumerate(whole.eqns) for made in eqn.outvars}
    known = dict(zip(whole.constvars, traced.jaxpr.consts, strict=True))

    def part(wanted: Sequence[core.Var | core.Literal]) -> core.Jaxpr:
        """Returns the operations that `wanted` need beyond what is known, and which known values they take."""
        found, inputs, open_ = {}, {}, _names(wanted)
        while open_:
            name = open_.pop()
            if name in known:
                inputs[name] = None
                continue
            place, eqn = makers[name]
            if place not in found:
                found[place] = eqn
                open_ += _names(eqn.invars)
        eqns = [found[place] for place in sorted(found)]
        return whole.replace(constvars=[], invars=list(inputs), outvars=list(wanted), eqns=eqns)

    keys = [made for eqn in part(whole.outvars).eqns for made in eqn.outvars if _is_key(made)]
    made = part(keys)
    # Operation by operation: they are few kinds of scalars, which JAX compiles once each.
    known |= zip(keys, core.jaxpr_as_fun(core.ClosedJaxpr(made, ()))(*map(known.get, made.invars)), strict=True)

    def compute(leaf: core.Var | core.Literal) -> jax.Array:
        alone = part([leaf])
        return _program(alone)(*map(known.get, alone.invars))[0]

    return jax.tree.unflatten(jax.tree.structure(traced.out_info), map(compute, whole.outvars))


def _names(atoms: Iterable[core.Var | core.Literal]) -> list[core.Var]:
    return [x for x in atoms if isinstance(x, core.Var)]


def _is_key(value: core.Var) -> bool:
    aval = value.aval
    return isinstance(aval, ShapedArray) and jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def _program(jaxpr: core.Jaxpr) -> Callable[..., list[jax.Array]]:
    """Returns the compiled operations; the same for operations that differ in the names of their values alone."""
    program = jax.jit(core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ())))
    if not all(map(_says_all, _with_inner(jaxpr))):
        return program
    if len(_programs) >= _KEPT:
        _programs.clear()
    return _programs.setdefault(str(jaxpr), program)


def _with_inner(jaxpr: core.Jaxpr) -> Iterator[core.Jaxpr]:
    """Yields operations and those inside them, such as of a `jit` or a loop."""
    yield jaxpr
    for inner in core.subjaxprs(jaxpr):
        yield from _with_inner(inner)


def _says_all(jaxpr: core.Jaxpr) -> bool:
    """Returns whether the text of these operations tells them from all others: arrays in it are cut short."""
    literals = [x.val for eqn in jaxpr.eqns for x in eqn.invars if isinstance(x, core.Literal)]
    held = literals + [x for eqn in jaxpr.eqns for x in eqn.params.values()]
    return not jaxpr.constvars and not any(isinstance(x, np.ndarray | jax.Array) and x.ndim for x in held)
