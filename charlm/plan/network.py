"""Computes how long the communication of a step takes at least, from what each chip must send and the links it can use.

Open it to change how links are shared, or to add a kind of collective. A chip of a group of n chips sends:

    all-reduce               2 (n - 1) / n of the array      collective-permute, -broadcast   all of it
    all-gather, reduce-scatter, all-to-all   (n - 1) / n of the whole array

No algorithm sends less (Patarasuk and Yuan, 2009); the time is this size divided by the bandwidth of the links. In a
torus, a group uses the links of every axis that the group extends over, in both directions where the axis is a ring.
The GPUs of a node send over NVLink. In a group over several nodes, each GPU also sends its share through its own
network adapter, at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh

from charlm.plan.counting import Collective
from charlm.plan.groups import groups_of
from charlm.plan.topology import Topology


class Traffic(NamedTuple):
    """Collectives of a step that are alike.

    Attributes:
      kind, dtype: see `charlm.plan.counting.Collective`.
      axes: the axes of the mesh along which the members of a group lie, such as "data x fsdp".
      members: the number of chips of a group; 1 for collective-permute.
      times: how often a step runs these collectives.
      bytes: the size of all whole arrays of a step.
      sent: bytes that leave each chip in a step.
      seconds: how long sending takes at least in a step; 0: not known.
    """

    kind: str
    dtype: str
    axes: str
    members: int
    times: float
    bytes: float
    sent: float
    seconds: float


def traffic(collectives: Iterable[Collective], mesh: Mesh, topology: Topology) -> list[Traffic]:
    """Returns the communication of a step, the slowest first; groups of one chip are left out.

    Args:
      collectives: the collectives of the compiled step.
      mesh: the mesh of the step, over the devices of the topology.
      topology: the machine.
    """
    found: dict[tuple[str, str, str, int], list[float]] = {}
    for one in collectives:
        groups = groups_of(one.attributes, mesh.size)
        members = groups.shape[1]
        permutes = one.kind == "collective-permute"
        if members < 2 or (permutes and (groups[:, 0] == groups[:, 1]).all()):
            continue
        whole = one.bytes * (members if one.kind == "all-gather" else 1)
        sent = whole * _share(one.kind, members)
        seconds = sum(x * sent for x in _seconds_a_byte(one.kind, groups, mesh, topology))
        total = found.setdefault((one.kind, one.dtype, _axes(groups, mesh), 1 if permutes else members), [0.0] * 4)
        for place, value in enumerate((1, whole, sent, seconds)):
            total[place] += value * one.times
    lines = [Traffic(*key, *sums) for key, sums in found.items()]
    return sorted(lines, key=lambda line: (-line.seconds, -line.bytes))


def reducing(mesh: Mesh, topology: Topology) -> float:
    """Returns the seconds for each byte of gradients, which all chips with rows of the batch sum.

    It is 0 if the rates are not known, or if only one chip has rows.

    Args:
      mesh: a mesh with the axes data, fsdp and model; the chips along the first two have different rows.
      topology: the machine.
    """
    places = np.arange(mesh.size).reshape([mesh.shape[name] for name in mesh.axis_names])
    groups = np.moveaxis(places, mesh.axis_names.index("model"), 0).reshape(mesh.shape["model"], -1)
    if groups.shape[1] < 2:
        return 0.0
    return _share("all-reduce", groups.shape[1]) * sum(_seconds_a_byte("all-reduce", groups, mesh, topology))


def _share(kind: str, members: int) -> float:
    if kind == "all-reduce":
        return 2 * (members - 1) / members
    return (members - 1) / members if kind in ("all-gather", "reduce-scatter", "all-to-all") else 1.0


def _axes(groups: np.ndarray, mesh: Mesh) -> str:
    """Returns the axes of the mesh along which the members of groups differ, such as "data x fsdp"."""
    sizes = [mesh.shape[name] for name in mesh.axis_names]
    places = np.array(np.unravel_index(groups, sizes))  # [axes, groups, members]
    varies = (places != places[:, :, :1]).any(axis=(1, 2))
    return " x ".join(name for name, own in zip(mesh.axis_names, varies, strict=True) if own)


def _seconds_a_byte(kind: str, groups: np.ndarray, mesh: Mesh, topology: Topology) -> Sequence[float]:
    """Returns the seconds for each byte that leaves a chip, as terms to be added; () if rates are not known."""
    chip, devices = topology.chip, mesh.devices.ravel().tolist()
    if not chip.link:
        return ()
    if topology.platform == "tpu":
        coords = np.array([devices[place].coords[: len(topology.shape)] for place in groups.ravel()])
        coords = coords.reshape(*groups.shape, -1)
        spans = (coords != coords[:, :1]).any(axis=(0, 1))
        links = sum(2 if size >= chip.wraps else 1 for size, own in zip(topology.shape, spans, strict=True) if own)
        return (1 / (chip.link * links),)
    nodes = np.array([devices[place].process_index for place in groups.ravel()]).reshape(groups.shape)
    across = len(set(nodes[0].tolist()))
    if across == 1:
        return (1 / chip.link,)
    members = groups.shape[1]
    beside = max(members // across, 1)  # members on a node share what has to leave it
    between = _share(kind, across) / _share(kind, members) / beside
    inside = _share(kind, beside) / _share(kind, members) if beside > 1 else 0.0
    return (max(between / chip.network, inside / chip.link),)
