"""The option --policy of the command line: which words an XRayEmb reads as characters."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from charlm.convert.changes import NotChangeable
from charlm.families.family import families_with_option

T = TypeVar("T")
HELP = 'XRayEmb: words read as characters, such as "none", "all_multi" or "no_suffix"; none given: what the model says'


def load_with_policy(load: Callable[..., T], args: argparse.Namespace, *more: Any) -> T:
    """Returns what `load` makes of `args.checkpoint`, with the policy of `args` if it has one.

    Args:
      more: further arguments of `load`, which takes changes of the model's config by name.

    Raises:
      ValueError: there is no such policy, or the model is no XRayEmb.
    """
    policy = getattr(args, "policy", None)
    if policy is None:
        return load(args.checkpoint, *more)
    (owner,) = families_with_option("eval_policy")
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
