"""Checks of frozen parameters (`optim.freeze`): the right ones are frozen, and training did not change them.

A run that freezes parameters calls it before its first step and when it ends. The patterns themselves are matched in
`charlm.core.optimizer`. Open it when a run ends with an error about what it freezes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from charlm.core import hosts
from charlm.core.optimizer import frozen
from charlm.core.sharding import path_name
from charlm.core.types import Json, Params


class Frozen(NamedTuple):
    """A fingerprint of frozen parameters: a digest of their names and bytes, their number, and their size in bytes."""

    digest: str
    arrays: int
    bytes: int


def fingerprint(params: Params, patterns: Sequence[str]) -> Frozen:
    """Returns the fingerprint of the parameters that `patterns` freeze, exact to the bit; all processes must call it.

    Args:
      patterns: regular expressions, see `charlm.core.optimizer.frozen`.

    Raises:
      ValueError: as `charlm.core.optimizer.frozen`.
    """
    digest, arrays, size = hashlib.sha256(), 0, 0
    stays = jax.tree.leaves(frozen(params, patterns))
    for (path, leaf), is_frozen in zip(jax.tree_util.tree_leaves_with_path(params), stays, strict=True):
        if is_frozen:  # one at a time: a second copy of all of them may not fit into memory
            value = np.ascontiguousarray(hosts.on_host(leaf))
            digest.update(f"{path_name(path)} {value.dtype} {leaf.shape};".encode())
            digest.update(value.reshape(-1).view(np.uint8).data)
            arrays, size = arrays + 1, size + value.nbytes
    return Frozen(digest.hexdigest(), arrays, size)


def at_start(params: Params, patterns: Sequence[str], past: Mapping[str, Json]) -> Frozen | None:
    """Returns the fingerprint of the frozen parameters at the start of their run; None if none are frozen.

    Args:
      params: the current parameters.
      past: metadata of the checkpoint that the run resumes from; {}: a new run.
    """
    if not patterns:
        return None
    same = tuple(past.get("config", {}).get("optim", {}).get("freeze", ())) == tuple(patterns)
    return Frozen(*past["frozen"]) if same and past.get("frozen") else fingerprint(params, patterns)


def check_unchanged(params: Params, patterns: Sequence[str], before: Frozen) -> str:
    """Checks that the frozen parameters are unchanged to the bit; returns a log line. All processes must call it.

    Raises:
      ValueError: they changed.
    """
    now = fingerprint(params, patterns)
    what = f"{now.arrays:,} arrays, {now.bytes / 1e6:,.1f} MB"
    if now != before:
        raise ValueError(
            f"frozen parameters changed ({what}): what optim.freeze={tuple(patterns)} names is no longer what the run "
            "began with"
        )
    return f"frozen parameters unchanged: {what}"


def check_trained(params: Params, patterns: Sequence[str], trained: str | tuple[str, ...]) -> None:
    """Checks that `patterns` freeze all parameters except those of one module, or of several.

    Args:
      params: parameters or their shapes.
      trained: prefix of the names of the module's parameters, such as "char2subword/", or several.

    Raises:
      ValueError: a parameter is trained that must be frozen, or frozen that must be trained; names it.
    """
    for path, is_frozen in jax.tree_util.tree_leaves_with_path(frozen(params, patterns)):
        name = path_name(path)
        if is_frozen and name.startswith(trained):
            raise ValueError(f"optim.freeze={tuple(patterns)} freezes {name}, of the module that is to learn")
        if not is_frozen and not name.startswith(trained):
            only = trained if isinstance(trained, str) else " and ".join(trained)
            raise ValueError(f"optim.freeze={tuple(patterns)} leaves {name} to be trained: only {only} may be")
