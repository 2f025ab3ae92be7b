"""Sharding: the device mesh, and one table of rules from parameter names to partitions.

Arrays are placed by `jax.jit` with `NamedSharding` (formerly pjit). Mesh axes: "data" shards the batch; "fsdp" shards
the batch, the parameters and the optimizer state; "model" shards single matrices. Open this module to add a rule for
the parameters of a new layer.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import ml_collections
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import KeyPath
from jax.typing import ArrayLike

from charlm.core import hosts
from charlm.core.types import Tree

log = logging.getLogger("charlm")

AXES = ("data", "fsdp", "model")
Function = TypeVar("Function", bound=Callable[..., Any])  # Any: of whatever arguments and result

# Exactly one rule matches each parameter of charlm's models. An embedding table could be sharded over its rows only: a
# sharded feature axis makes XLA gather the whole table at every lookup. Our tables are small, so they are replicated.
RULES: tuple[tuple[str, P], ...] = (
    (r"embedding$", P()),
    (r"(query|key|value|ffn_in)/kernel$", P("fsdp", "model")),
    (r"attention/output/kernel$|ffn_out/kernel$", P("model", "fsdp")),
    # Two consecutive matrices can be sharded over "model" by output and then by input, without a gather in between.
    # These matrices have no such partner: sharding one over "model" would gather all its activations.
    (
        r"(transform|writer/context|(?<!output_)projection(_\d+)?|pooler/dense|label|linear|split|gate)/kernel$|"
        r"(output|input)_kernel$",
        P("fsdp", None),
    ),
    (r"convolution_\d+/kernel$", P(None, "fsdp", None)),
    # These are read at every step of a loop, which would gather a sharded array each time. Besides, one dimension of
    # XR-Dec's output layer is the number of characters, which the mesh need not divide.
    (r"state_kernel$|start_state$|output_projection/kernel$", P()),
    (r"(query|key|value|ffn_in)/bias$", P("model")),
    (
        r"(norm|attention/output|ffn_out|transform|writer/context|projection(_\d+)?|pooler/dense|label|linear|split|gate)"
        r"/bias$|"
        r"convolution_\d+/bias$|(output|input|state)_bias$|scale$",
        P(),
    ),
    (r"^history/", P()),  # see `charlm.core.spikes`: every device decides alike
)


def path_name(path: KeyPath) -> str:
    """Returns a tree path as "a/b/c"."""
    return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


def make_mesh(
    config: ml_collections.ConfigDict,
    devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]  # a class of C++, no stub
) -> Mesh:
    """Returns the mesh of `config.mesh` over all devices.

    Raises:
      ValueError: the axis sizes do not multiply to the number of devices.
    """
    devices = devices if devices is not None else jax.devices()
    sizes = [config.mesh[axis] for axis in AXES]
    free = [i for i, size in enumerate(sizes) if size == -1]
    if len(free) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise ValueError(f"mesh: sizes must be positive, at most one -1; got {dict(zip(AXES, sizes, strict=True))}")
    if free:
        sizes[free[0]] = len(devices) // int(np.prod([s for s in sizes if s != -1]))
    if int(np.prod(sizes)) != len(devices):
        named = ", ".join(f"mesh.{axis}={config.mesh[axis]}" for axis in AXES)
        raise ValueError(f"{named} do not multiply to the {len(devices)} devices present")
    return Mesh(np.array(devices).reshape(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def traced_on(mesh: Mesh, function: Function) -> Function:
    """Returns the function, which is traced with the mesh in place: what it calls finds it by `get_abstract_mesh`.

    `jax.jit` does not do that by itself, whatever shardings it is given.
    """

    @functools.wraps(function)
    def traced(*arguments: Any, **named: Any) -> Any:  # Any: of whatever function
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*arguments, **named)

    return cast(Function, traced)


def one_device() -> Mesh:
    """Returns a mesh of the first device only."""
    return Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1, 1), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def table_shards(config: ml_collections.ConfigDict, mesh: Mesh) -> int:
    """Returns the number of word tables of a micro-batch: `data.table_shards`, or one per device of the batch.

    Raises:
      ValueError: the tables cannot be divided evenly among the devices.
    """
    spread = mesh.shape["data"] * mesh.shape["fsdp"]
    shards = config.data.table_shards or spread
    if shards % spread:
        raise ValueError(
            f"data.table_shards={shards} must be a multiple of the {spread} devices the batch is spread over "
            "(mesh.data x mesh.fsdp)"
        )
    return shards


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of batch arrays [accumulation, S, ...]: table shards over data and fsdp."""
    return NamedSharding(mesh, P(None, ("data", "fsdp")))


def local_shards(mesh: Mesh, shards: int) -> tuple[int, ...]:
    """Returns the indices of the table shards on devices of this process, ascending."""
    places = batch_sharding(mesh).addressable_devices_indices_map((1, shards)).values()
    parts = [place[1] for place in places if place is not None]
    return tuple(sorted({shard for part in parts for shard in range(shards)[part]}))


def place_batch(batch: Tree, mesh: Mesh, shards: int) -> Tree:
    """Puts a host batch onto the devices.

    Args:
      batch: arrays [accumulation, S', ...] with the `local_shards` of this process.
      shards: S, the table shards of all processes.
    """
    sharding = batch_sharding(mesh)
    if hosts.alone():
        return jax.device_put(batch, sharding)
    local = local_shards(mesh, shards)

    def place(x: np.ndarray) -> jax.Array:
        def part(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None  # JAX asks only for parts on devices of this process
            wanted = range(shards)[index[1]]  # contiguous, hence also contiguous among the local shards
            return x[:, local.index(wanted[0]) : local.index(wanted[-1]) + 1]

        return jax.make_array_from_callback((x.shape[0], shards, *x.shape[2:]), sharding, part)

    return jax.tree.map(place, batch)


def place_state(state: Tree, placed: Tree) -> Tree:
    """Puts the arrays of a state, which must be the same on every process, onto the devices as `placed` says.

    In a run of one process, a JAX array that is already in place is not copied.
    """
    if hosts.alone():
        return jax.device_put(state, placed)

    def place(x: ArrayLike, sharding: NamedSharding) -> jax.Array:
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(place, state, placed)


def state_sharding(state: Tree, mesh: Mesh) -> Tree:
    """Returns the sharding of every array of a training state (abstract or real) by `RULES`.

    The names of optimizer moments end in the name of their parameter, so the same rules apply to them. Scalars are
    replicated. So are arrays that no rule matches, such as those of layers from other packages: this is correct on any
    mesh but uses more memory, and the log names them. A dimension that its axis does not divide, such as the narrow
    ones of CharacterBERT's convolutions on hundreds of devices, is not sharded.

    Raises:
      ValueError: an array matches several rules; names it.
    """
    copied: list[str] = []

    def place(path: KeyPath, leaf: jax.Array | jax.ShapeDtypeStruct) -> NamedSharding:
        if leaf.ndim == 0:
            return NamedSharding(mesh, P())
        name = path_name(path)
        specs = [spec for pattern, spec in RULES if re.search(pattern, name)]
        if len(specs) > 1:
            raise ValueError(f"sharding: {len(specs)} rules match {name} {leaf.shape}; one at most may")
        if not specs:
            copied.append(name)
        return NamedSharding(mesh, _dividing(specs[0], leaf.shape, mesh) if specs else P())

    placed = jax.tree_util.tree_map_with_path(place, state)
    if copied and mesh.size > 1:
        _say_copied(tuple(name for name in copied if not re.search("/(mu|nu)/", name)))
    return placed


def is_split(name: str, shape: Sequence[int]) -> bool:
    """Returns whether the mesh of the program that is traced splits a parameter over devices.

    Args:
      name: of the parameter, "a/b/c".
    """
    sizes = dict(jax.sharding.get_abstract_mesh().shape)
    spec = next((spec for pattern, spec in RULES if re.search(pattern, name)), P())
    return any(axis is not None and n < len(shape) and sizes.get(axis, 1) > 1 for n, axis in enumerate(spec))


def copied(x: jax.Array) -> jax.Array:
    """Returns the array, of which every device of the mesh of the traced program gets a copy.

    XLA could otherwise split what is made of several arrays, and send the parts around.
    """
    mesh = jax.sharding.get_abstract_mesh()
    return jax.lax.with_sharding_constraint(x, P()) if mesh.size > 1 else x


def _dividing(spec: P, shape: tuple[int, ...], mesh: Mesh) -> P:
    """Returns a partition without those axes that do not divide their dimension."""
    return P(*(axis if axis is None or shape[n] % mesh.shape[axis] == 0 else None for n, axis in enumerate(spec)))


@functools.cache  # warns once per set of names, because the same arrays are placed several times
def _say_copied(names: tuple[str, ...]) -> None:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    log.warning("sharding: no rule places %s%s: every device holds a copy", ", ".join(names[:3]), more)


COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
               "collective-broadcast", "ragged-all-to-all")  # fmt: skip
_COLLECTIVE = re.compile(rf"= (.+?) ({'|'.join(COLLECTIVES)})(?:-start)?\(")


def collectives(program: str) -> dict[str, list[tuple[int, ...]]]:
    """Returns the communication of a compiled program: the shapes of the results of each kind of collective.

    Args:
      program: text of the optimized program, `jax.jit(...).lower(...).compile().as_text()`.
    """
    found: dict[str, list[tuple[int, ...]]] = {}
    for results, kind in _COLLECTIVE.findall(program):
        shapes = [tuple(map(int, filter(None, dims.split(",")))) for dims in re.findall(r"\[([\d,]*)\]", results)]
        found.setdefault(kind, []).extend(shapes)
    return found
