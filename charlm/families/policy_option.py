"""The command-line option --policy, which sets the words that an XRayEmb reads as characters."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from charlm.convert.changes import NotChangeable
from charlm.families.family import families_with_option

T = TypeVar("T")
HELP = 'XRayEmb: words read as characters, such as "none", "all_multi" or "no_suffix"; none given: what the model says'


def load_with_policy(load: Callable[..., T], args: argparse.Namespace, *more: Any) -> T:
    """Returns `load(args.checkpoint, ...)`, with the policy of `args` if it is set.

    Args:
      load: loads a model; accepts changes of its config as keyword arguments. more: further arguments of `load`.

    Raises:
      ValueError: there is no such policy, or the model is not an XRayEmb.
    """
    policy = getattr(args, "policy", None)
    if policy is None:
        return load(args.checkpoint, *more)
    owner = families_with_option("eval_policy")[0]
    try:
        owner.check_option("eval_policy", policy)
    except ValueError as error:
        raise ValueError(f"--policy: {error}") from None
    try:
        return load(args.checkpoint, *more, eval_policy=policy)
    except NotChangeable as error:
        raise ValueError(
            f"--policy={policy}: an XRayEmb reads words as characters, {args.checkpoint} is a {error.family}"
        ) from None
