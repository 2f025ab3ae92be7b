"""What people name to be read or written lies in this machine's file system.

An address such as gs://bucket/run is no path: taken for one, it would be a folder "gs:" in the current one. Every
command and config goes through the one rule here. Needs the standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

_ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")


def check_path(name: str, value: str, needed: bool = False) -> None:
    """Checks what somebody named in an option or a key.

    Args:
      name: of the option or key, as people write it. needed: it may not be empty.

    Raises:
      ValueError: it is an address, or it is empty and needed.
    """
    if _ADDRESS.match(value.lstrip()):
        raise ValueError(
            f"{name}={value} is an address: charlm reads and writes the file system of this machine alone; mount what "
            "is there (a bucket with gcsfuse, say) and name the folder"
        )
    if needed and not value.strip():
        raise ValueError(f"{name}= is empty: expected a path")


def check_options(options: Mapping[str, Any], texts: Collection[str] = (), needed: Collection[str] = ()) -> None:
    """Checks the options of a command line, single values and lists.

    Args:
      options: by their names in Python. texts: those that are text, which may be an address. needed: paths without
        which there is nothing to do.

    Raises:
      ValueError: as `check_path`.
    """
    for name, value in options.items():
        if name in texts:
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, str):
                check_path(f"--{name.replace('_', '-')}", one, name in needed)
