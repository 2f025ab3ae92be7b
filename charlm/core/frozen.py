"""Parameters that stay as they are (`optim.freeze`): that they are the right ones, and that they did stay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from charlm.core import hosts
from charlm.core.optimizer import frozen
from charlm.core.sharding import path_name


class Frozen(NamedTuple):
    """What frozen parameters were at one time: a digest of their names and bytes, and how many there are."""

    digest: str
    arrays: int
    bytes: int


def fingerprint(params: Any, patterns: Sequence[str]) -> Frozen:
    """Returns what tells the parameters that `patterns` freeze, to the bit; all processes must call it.

    Args:
      patterns: as `charlm.core.optimizer.frozen` takes them.

    Raises:
      ValueError: as `charlm.core.optimizer.frozen`.
    """
    digest, arrays, size = hashlib.sha256(), 0, 0
    stays = jax.tree.leaves(frozen(params, patterns))
    for (path, leaf), is_frozen in zip(jax.tree_util.tree_leaves_with_path(params), stays, strict=True):
        if is_frozen:  # one after another: all of them a second time may not fit
            value = np.ascontiguousarray(hosts.on_host(leaf))
            digest.update(f"{path_name(path)} {value.dtype} {leaf.shape};".encode())
            digest.update(value.reshape(-1).view(np.uint8).data)
            arrays, size = arrays + 1, size + value.nbytes
    return Frozen(digest.hexdigest(), arrays, size)


def at_start(params: Any, patterns: Sequence[str], past: Mapping[str, Any]) -> Frozen | None:
    """Returns what frozen parameters were when their run began, None where there are none.

    Args:
      params: as they are now. past: what lies with the checkpoint that the run goes on from; {}: it begins now.
    """
    if not patterns:
        return None
    same = tuple(past.get("config", {}).get("optim", {}).get("freeze", ())) == tuple(patterns)
    return Frozen(*past["frozen"]) if same and past.get("frozen") else fingerprint(params, patterns)


def check_unchanged(params: Any, patterns: Sequence[str], before: Frozen) -> str:
    """Returns a line that says that frozen parameters are still the same to the bit; all processes must call it.

    Raises:
      ValueError: when they are not.
    """
    now = fingerprint(params, patterns)
    what = f"{now.arrays:,} arrays, {now.bytes / 1e6:,.1f} MB"
    if now != before:
        raise ValueError(
            f"frozen parameters changed ({what}): what optim.freeze={tuple(patterns)} names is no longer what the run "
            "began with"
        )
    return f"frozen parameters unchanged: {what}"


def check_trained(params: Any, patterns: Sequence[str], trained: str) -> None:
    """Checks that `patterns` freeze all parameters but those of one module.

    Args:
      params: or their shapes. trained: beginning of the names of the module's parameters, such as "char2subword/".

    Raises:
      ValueError: naming one that would be trained and must not be, or the other way round.
    """
    for path, is_frozen in jax.tree_util.tree_leaves_with_path(frozen(params, patterns)):
        name = path_name(path)
        if is_frozen and name.startswith(trained):
            raise ValueError(f"optim.freeze={tuple(patterns)} freezes {name}, of the module that is to learn")
        if not is_frozen and not name.startswith(trained):
            raise ValueError(f"optim.freeze={tuple(patterns)} leaves {name} to be trained: only {trained} may be")
