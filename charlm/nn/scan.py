"""Applies the layers of a stack one after the other, either each on its own or, with `scan_layers`, as one loop.

Every Transformer of charlm calls `in_turn`; open it when a deep model compiles slowly or takes too much memory. A loop
over the layers is compiled once instead of once for each layer. The parameters are stored for each layer under the
layer's own name in both cases, so checkpoints, conversion, sharding and frozen layers do not depend on `scan_layers`.
The price is memory: the loop reads the parameters of all layers from stacked arrays [layers, ...], one more copy of
these parameters and, in training, of their gradients.

What the loop keeps for the backward pass is fixed before XLA sees it, so we choose: matrix products, convolutions and
outputs of kernels are kept, everything else is cheap and computed again, dropout masks (`charlm.core.hashed_keys`) too.
Without that choice a training step of a BERT of 12 layers took a fifth more time and twice the memory on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import VariableDict

States = TypeVar("States")
KEPT = ("dot_general", "conv_general_dilated", "pallas_call")  # names of JAX's operations, see above
BATCH_AXES = ("data", "fsdp")  # mesh axes over which the rows of a batch are spread; see `charlm.core.sharding`
Layer = Callable[..., Any]  # a module as `step` sees it: something to call with the arguments of its `__call__`


def in_turn(
    parent: nn.Module,
    step: Callable[..., States],
    states: States,
    layers: Sequence[nn.Module],
    *others: Sequence[nn.Module] | nn.Module,
    scan: bool,
    remat: bool,
) -> States:
    """Returns the states after all layers.

    Where values besides the output are recorded (parameters at initialisation, `intermediates`), the layers always run
    one by one, so that each value keeps its name. Scanned layers draw other dropout masks than layers that run one by
    one; without dropout, both give the same result up to rounding.

    Args:
      parent: the module that holds the layers and calls this function from one of its methods.
      step: (states, a layer, one of each of `others`) -> states of the same structure, shapes and dtypes. It must call
        no other module.
      states: a pytree of arrays, the input of the first layer.
      layers: modules of one configuration.
      others: further modules that `step` calls: as many as there are layers and of one configuration, or one module
        that all layers share.
      scan: whether to run the layers as one loop.
      remat: whether the modules are those of `nn.remat`, which themselves choose what they keep.
    """
    parts, count = (layers, *others), len(layers)
    assert parent.scope is not None  # only modules in use have methods that run
    if not scan or count < 2 or parent.scope.mutable:
        for n in range(count):
            states = step(states, *(part if isinstance(part, nn.Module) else part[n] for part in parts))
        return states
    alone = [part if isinstance(part, nn.Module) else part[0] for part in parts]
    unbound = [module.clone(parent=None, name=None) for module in alone]
    shared = [module.variables if module is part else None for module, part in zip(alone, parts, strict=True)]
    stacked = [None if isinstance(part, nn.Module) else _stacked(part) for part in parts]
    key = parent.make_rng("dropout") if parent.has_rng("dropout") else None

    def body(states: States, item: tuple[jax.Array, list[VariableDict | None]]) -> tuple[States, None]:
        n, own = item
        states = jax.tree.map(_spread_by_rows, states)
        modules = []
        for place, module in enumerate(unbound):
            variables = shared[place] if own[place] is None else own[place]
            assert variables is not None  # each module has its own or shares them
            drawn = None if key is None else {"dropout": jax.random.fold_in(jax.random.fold_in(key, n), place)}
            modules.append(_applied(module, variables, drawn))
        return step(states, *modules), None

    if not remat:
        body = jax.checkpoint(body, prevent_cse=False, policy=lambda operation, *_, **__: operation.name in KEPT)
    return jax.lax.scan(body, states, (jnp.arange(count), stacked))[0]


def _spread_by_rows(x: jax.Array) -> jax.Array:
    """Returns an array [rows, ...], spread over the devices by rows if there are several devices.

    XLA finds this out by itself for single layers. In a loop it would follow the parameters, and with `mesh.fsdp` send
    activations instead of parameters.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not set(BATCH_AXES) <= set(mesh.axis_names) or x.ndim == 0:
        return x
    if x.shape[0] % math.prod(mesh.shape[axis] for axis in BATCH_AXES):
        return x
    return jax.lax.with_sharding_constraint(x, jax.sharding.PartitionSpec(BATCH_AXES))


def _stacked(modules: Sequence[nn.Module]) -> VariableDict:
    """Returns the variables of the modules as one tree of arrays [modules, ...]."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(dict(module.variables) for module in modules))


def _applied(module: nn.Module, variables: VariableDict, rngs: dict[str, jax.Array] | None) -> Layer:
    return lambda *arguments: module.apply(variables, *arguments, rngs=rngs)
