"""Finds which devices take part in a collective of a compiled program; XLA writes these groups in three ways.

Open it when a plan fails because a new version of XLA writes groups in another way.

{{0,1},{2,3}}                             every group
[4,4]<=[2,8]T(1,0)                        numbers in the shape [2,8], its axes swapped, as 4 rows of 4
mesh['a'=4,'b'=4], device_ids=(...) {'b'}   the groups along some axes of a mesh; 'b':(2)4 is a part of an axis
"""

from __future__ import annotations

import math
import re

import numpy as np

_NUMBERS = re.compile(r"\[([\d,]*)\](?:T\(([\d,]+)\))?")


def groups_of(attributes: str, devices: int) -> np.ndarray:
    """Returns the groups of a collective, int [groups, members]: positions in the mesh's flattened devices.

    Args:
      attributes: the text of the instruction after its operands.
      devices: the number of devices of the program.

    Raises:
      ValueError: the groups are written in a way that is not known.
    """
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?\]?(?:T\([\d,]+\))?)\))? \{([^}]*)\}",
                          attributes):  # fmt: skip
        return _of_mesh(found[1], found[2], found[3], devices)
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", attributes):
        return _permuted(found[2]).reshape(_sizes(found[1]))
    if found := re.search(r"source_target_pairs=\{(.*?)\}\}", attributes):
        return np.array([_sizes(pair) for pair in re.findall(r"\{([\d,]+)", found[1] + "}")])
    if found := re.search(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}", attributes):
        groups = [_sizes(group) for group in re.findall(r"\{([\d,]+)\}", found[1])]
        return np.array(groups) if groups else np.arange(devices)[None]
    raise ValueError(f"a collective without groups: {attributes[:200]}")


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _permuted(text: str) -> np.ndarray:
    """Returns the numbers that "[2,8]T(1,0)" stands for, flat."""
    found = _NUMBERS.search(text)
    assert found is not None
    shape = _sizes(found[1])
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return (numbers.transpose(_sizes(found[2])) if found[2] else numbers).ravel()


def _of_mesh(axes: str, ids: str | None, along: str, devices: int) -> np.ndarray:
    sizes = {name: int(size) for name, size in re.findall(r"'?(\w+)'?=(\d+)", axes)}
    numbers = _permuted(ids) if ids else np.arange(math.prod(sizes.values()))
    if numbers.size != devices:
        raise ValueError(f"a collective over {numbers.size} devices in a program of {devices}")
    shape, inside = [], []
    parts: dict[str, list[tuple[int, int]]] = {}
    for name, before, size in re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", along):
        parts.setdefault(name, []).append((int(before or 1), int(size or sizes[name])))
    for name, size in sizes.items():
        done = 1
        for before, length in sorted(parts.get(name, [])):
            shape += [before // done, length]
            inside += [False, True]
            done = before * length
        shape.append(size // done)
        inside.append(False)
    order = [i for i, own in enumerate(inside) if not own] + [i for i, own in enumerate(inside) if own]
    members = math.prod(size for size, own in zip(shape, inside, strict=True) if own)
    return numbers.reshape(shape).transpose(order).reshape(-1, members)
