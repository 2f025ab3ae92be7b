"""Checks that paths in options and configs are local paths, not addresses such as gs://bucket/run.

Taken as a path, such an address would name a folder "gs:" in the current folder. All commands and configs use the check
here. The module needs only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

_ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")


def check_path(name: str, value: str, needed: bool = False) -> None:
    """Checks the path given in an option or config key.

    Args:
      name: the option or key, as users write it. needed: the path may not be empty.

    Raises:
      ValueError: the value is an address, or it is empty although needed.
    """
    if _ADDRESS.match(value.lstrip()):
        raise ValueError(
            f"{name}={value} is an address: charlm reads and writes the file system of this machine alone; mount what "
            "is there (a bucket with gcsfuse, say) and name the folder"
        )
    if needed and not value.strip():
        raise ValueError(f"{name}= is empty: expected a path")


def check_options(options: Mapping[str, Any], texts: Collection[str] = (), needed: Collection[str] = ()) -> None:
    """Checks all paths among the options of a command line, both single values and lists.

    Args:
      options: values by their names in Python. texts: names of options that are text, not paths, and so may be an
        address. needed: names of options that may not be empty.

    Raises:
      ValueError: as `check_path`.
    """
    for name, value in options.items():
        if name in texts:
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, str):
                check_path(f"--{name.replace('_', '-')}", one, name in needed)
