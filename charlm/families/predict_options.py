"""The options of `charlm.predict` that families add, such as --policy, which sets the words that an XRayEmb spells.

Open it when such an option is missing from the help or is not applied to a model. All other commands use what the
model's config names; `charlm.families.options` says how a family adds such an option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from charlm.convert.changes import NotChangeable
from charlm.core.types import Option
from charlm.families.family import families, families_with_option, model_options
from charlm.families.options import ModelOption

T = TypeVar("T")


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of all families to a command that reads texts."""
    for option in _options().values():
        assert option.predict is not None
        command.add_argument(
            f"--{option.predict.name.replace('_', '-')}",
            dest=option.predict.name,
            help=option.predict.help.replace("%", "%%"),
        )


def load_with_options(load: Callable[..., T], args: argparse.Namespace, *more: Option) -> T:
    """Returns `load(args.checkpoint, ...)`, with the fields changed whose options in `args` are set.

    Args:
      load: loads a model; accepts changes of its config as keyword arguments.
      more: further arguments of `load`.

    Raises:
      ValueError: an option has a wrong value, or the model is of a family that does not have the option.
    """
    changes: dict[str, str] = {}
    flags = {name: option.predict for name, option in _options().items() if option.predict is not None}
    for name, flag in flags.items():
        if (value := getattr(args, flag.name, None)) is None:
            continue
        try:
            families_with_option(name)[0].check_option(name, value)
        except ValueError as error:
            raise ValueError(f"--{flag.name.replace('_', '-')}: {error}") from None
        changes[name] = value
    try:
        return load(args.checkpoint, *more, **changes)
    except NotChangeable as error:
        flag = flags[error.names[0]]
        raise ValueError(
            f"--{flag.name.replace('_', '-')}={changes[error.names[0]]}: {flag.needs}, {args.checkpoint} is a "
            f"{error.family}"
        ) from None


def _options() -> dict[str, ModelOption]:
    """Returns the options of models that `charlm.predict` can set, by the field that they set."""
    return {name: option for name, option in model_options(families()).items() if option.predict is not None}
