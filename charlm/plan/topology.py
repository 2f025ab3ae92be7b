"""Reads names of machines, such as "v5e:4x4" or "2xh100:8", and makes the JAX devices that describe these machines.

Open it to accept another way to name machines. Reading a name does not need JAX. The devices come from the packages
that hold the compilers for TPUs and GPUs; these packages do not need such a chip.
"""

from __future__ import annotations

import math
import os
import re
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

from charlm.core.extras import missing
from charlm.core.types import Option
from charlm.plan.chips import CHIPS, Chip, target_config

# Chips of a slice -> its shape, as Google Cloud offers them.
_FLAT = {1: (1, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16)}
_CUBES = {4: (2, 2, 1), 8: (2, 2, 2), 16: (2, 2, 4), 32: (2, 4, 4), 64: (4, 4, 4), 128: (4, 4, 8), 256: (4, 8, 8),
          512: (8, 8, 8), 1024: (8, 8, 16)}  # fmt: skip
SHAPES = {"v5e": _FLAT, "v6e": _FLAT, "v5p": _CUBES}
CORES = {"v5p": 2}  # cores of a chip, which names such as v5p-128 count
LARGEST = {"v5p": 6144}  # chips of the largest slice of a torus
EXAMPLES = "v5e:4x4, v5p:2x2x4, v6e:16x16, v5e-16, h100:8, 2xh100:8, h200:8, a100:8, cpu:8"
INSTALL = {
    "tpu": ("libtpu", "libtpu"),
    "gpu": ("jax_plugins.xla_cuda12", "jax-cuda12-pjrt jax-cuda12-plugin nvidia-cuda-nvcc-cu12"),
}


# `jax.Device` is a class of C++ that type checkers do not know; a name of it, so that this module needs no JAX.
Device: TypeAlias = Any


class Topology(NamedTuple):
    """Chips and how they are connected.

    Attributes:
      name: the name as it was given.
      kind: the key of the chip in `CHIPS`.
      shape: for TPUs the chips along each axis of the torus, for GPUs (nodes, chips of a node), for CPUs (1, devices).
    """

    name: str
    kind: str
    shape: tuple[int, ...]

    @property
    def chip(self) -> Chip:
        """The kind of chip."""
        return CHIPS[self.kind]

    @property
    def chips(self) -> int:
        """The number of chips."""
        return math.prod(self.shape)

    @property
    def platform(self) -> str:
        """The platform in JAX's words."""
        return self.chip.platform

    def described(self) -> str:
        """Returns the machine in words."""
        if self.platform == "tpu":
            return f"{self.chips} x TPU {self.kind} ({'x'.join(map(str, self.shape))})"
        if self.platform == "cpu":
            return f"{self.chips} CPU devices"
        nodes, each = self.shape
        return f"{nodes} x {each} {self.kind.upper()}" if nodes > 1 else f"{each} {self.kind.upper()}"


def parse(name: str) -> Topology:
    """Reads the name of a machine.

    - "v5e:4x4": a slice by its shape
    - "v5e-16", "v5p-128": a slice by Google Cloud's type, which counts two cores for each chip of v5p
    - "h100:8": GPUs of one node, at most eight; a larger number means several full nodes
    - "2xh100:8": the number of nodes, and of the GPUs of each
    - "cpu:8": the CPU of this machine as eight devices

    Raises:
      ValueError: the name is none of these; the message lists names that are.
    """
    found = re.fullmatch(r"(?:(\d+)x)?([a-z]\w*?)(?:([:-])(\d+(?:x\d+)*))?", name.strip().lower())
    kinds = ", ".join(CHIPS)
    if found is None or found[2] not in CHIPS:
        raise ValueError(f"--topology={name!r}: expected a machine of {kinds}, such as {EXAMPLES}")
    nodes, kind, mark, size = found.groups()
    if CHIPS[kind].platform == "tpu":
        if nodes:
            raise ValueError(f"--topology={name!r}: several slices are not planned; name one, such as {kind}:4x4")
        return Topology(name, kind, _slice(name, kind, mark, size))
    counts = [int(count) for count in (size or "1").split("x") if count]
    if mark == "-" or len(counts) != 1 or not counts[0] or nodes == "0" or (nodes and kind == "cpu"):
        raise ValueError(f"--topology={name!r}: expected {kind}:N, such as {EXAMPLES}")
    if kind == "cpu":
        return Topology(name, kind, (1, counts[0]))
    each = CHIPS[kind].per_node
    if nodes or counts[0] <= each:
        if counts[0] > each:
            raise ValueError(f"--topology={name!r}: a node has {each} {kind.upper()} at most")
        return Topology(name, kind, (int(nodes or 1), counts[0]))
    if counts[0] % each:
        raise ValueError(f"--topology={name!r}: more than {each} GPUs must fill nodes of {each}")
    return Topology(name, kind, (counts[0] // each, each))


def _slice(name: str, kind: str, mark: str | None, size: str | None) -> tuple[int, ...]:
    shapes = SHAPES[kind]
    offered = ", ".join("x".join(map(str, shape)) for shape in shapes.values())
    if mark == "-" and size and size.isdigit():
        count, cores = int(size), CORES.get(kind, 1)
        if count % cores == 0 and count // cores in shapes:
            return shapes[count // cores]
        types = ", ".join(f"{kind}-{chips * cores}" for chips in shapes)
        raise ValueError(f"--topology={name!r} is no type of {kind}: {types}")
    shape = tuple(int(part) for part in (size or "").split("x") if part)
    if mark != ":" or len(shape) != len(next(iter(shapes.values()))) or not all(shape):
        raise ValueError(f"--topology={name!r}: expected {kind}:SHAPE, such as {offered}")
    if not (shape in shapes.values() or _is_a_cube_more(kind, shape)):
        raise ValueError(f"--topology={name!r} is no slice of {kind} that Google Cloud offers: {offered}")
    return shape


def _is_a_cube_more(kind: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a shape is one of the larger slices, which are built of whole cubes of 4 x 4 x 4 chips."""
    most = LARGEST.get(kind, 0)
    return math.prod(shape) <= most and list(shape) == sorted(shape) and not any(side % 4 for side in shape)


def check_packages(topology: Topology) -> None:
    """Raises ValueError, saying what to install, if the compiler for the chips is not installed."""
    if topology.platform == "cpu":
        return
    module, packages = INSTALL[topology.platform]
    if missing(module.partition(".")[0]) or missing(module):
        of_jax = version("jaxlib")  # JAX loads no plugin of another version
        pinned = " ".join(f"{name}=={of_jax}" if name.startswith("jax-") else name for name in packages.split())
        beside = "" if topology.platform == "gpu" else "; then set JAX_PLATFORMS=cpu where there is no TPU to look for"
        raise ValueError(
            f"--topology={topology.name}: its compiler is not installed (no such chip is needed): pip install {pinned}"
            + beside
        )


def devices_of(topology: Topology) -> list[Device]:
    """Returns JAX's devices of a machine, in the order that a run on the machine has.

    Raises:
      ValueError: the compiler is not installed, or does not know such a machine.
    """
    import jax
    from jax.experimental import topologies

    check_packages(topology)
    if topology.platform == "cpu":
        present = jax.devices("cpu")
        if len(present) < topology.chips:
            raise ValueError(f"--topology={topology.name}: JAX has {len(present)} CPU devices here")
        return present[: topology.chips]
    try:
        if topology.platform == "tpu":
            options: dict[str, Option] = {}
            if topology.chips < CHIPS[topology.kind].per_node:
                options["chips_per_host_bounds"] = [*topology.shape, *[1] * (3 - len(topology.shape))]
            shape = "x".join(map(str, topology.shape))
            described = topologies.get_topology_desc(f"{topology.kind}:{shape}", "tpu", **options)
        else:
            nodes, each = topology.shape
            described = topologies.get_topology_desc(
                "cuda", "cuda", target_config=target_config(topology.chip), topology=f"1x{nodes}x{each}"
            )
    except Exception as error:  # of the plugin: its classes differ
        raise ValueError(f"--topology={topology.name}: {str(error).splitlines()[0][:300]}") from error
    return list(described.devices)


def use_as_cpu(topology: Topology) -> None:
    """Sets the environment so that JAX runs on this machine's CPU; call it before JAX is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # programs for chips that are not here are never run
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # its lock is for processes that share a TPU
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # libtpu would ask the cloud which machine this is
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    flags = os.environ.get("XLA_FLAGS", "")
    if topology.platform == "cpu" and "host_platform_device_count" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={topology.chips}".strip()
