"""Checks the paths in options and configs: which may be an address in an object store, and which are local paths only.

Taken as a path, an address such as gs://bucket/run would name a folder "gs:" in the current folder. All commands and
configs use the check here; open it to change which addresses are refused. `charlm.core.stores` reads and writes the
stores; this module needs only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

STORE_SCHEMES = ("gs", "s3")  # of the stores that `charlm.core.stores` knows

_ADDRESS = re.compile("([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
# An address with a slash too few: of any scheme, or of a store's with none. A drive's letter is no scheme.
_SLIP = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)|({'|'.join(STORE_SCHEMES)}):(?!/)", re.IGNORECASE)


def is_address(value: str) -> bool:
    """Returns whether a value is an address, of whatever scheme."""
    return _ADDRESS.match(value.lstrip()) is not None


def split_address(value: str, whole: bool = False) -> tuple[str, str, str]:
    """Returns scheme, bucket and key of an address in an object store.

    Args:
      whole: the address may be that of a whole bucket; its key is "".

    Raises:
      ValueError: it has another scheme, or names no bucket or nothing in it.
    """
    found = _ADDRESS.match(value)
    scheme, rest = found.groups() if found else ("", "")
    bucket, _, key = rest.partition("/")
    key = key.strip("/")
    odd = {"", ".", ".."} & set(key.split("/")) if key else not whole
    if scheme not in STORE_SCHEMES or not bucket or odd:
        expected = " or ".join(f"{one}://BUCKET/PATH" for one in STORE_SCHEMES)
        raise ValueError(f"{value} is not an address that charlm reads or writes: expected {expected}")
    return scheme, bucket, key


def check_path(name: str, value: str, needed: bool = False, stored: bool = False) -> None:
    """Checks the path given in an option or config key.

    Args:
      name: the option or key, as users write it.
      needed: the path may not be empty.
      stored: the path may be an address in an object store.

    Raises:
      ValueError: the value is an address, and none may be or not this one; it looks like one that lacks a slash; or it
        is empty although needed.
    """
    if slip := _SLIP.match(value.lstrip()):
        raise ValueError(
            f"{name}={value} looks like an address that lacks a slash: expected {slip[0].partition(':')[0]}://..., or "
            f"./{value.lstrip()} for a folder of that name"
        )
    if is_address(value) and not stored:
        raise ValueError(
            f"{name}={value} is an address: charlm reads and writes only the file system of this machine here; mount "
            "what is there (for example a bucket with gcsfuse) and name the folder"
        )
    if is_address(value):
        try:
            split_address(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}, or a local path") from None
    if needed and not value.strip():
        raise ValueError(f"{name}= is empty: expected a path")


def check_options(
    options: Mapping[str, object],
    texts: Collection[str] = (),
    needed: Collection[str] = (),
    stored: Collection[str] = (),
) -> None:
    """Checks all paths among the options of a command line, both single values and lists.

    Args:
      options: values by their names in Python.
      texts: names of options that are text, not paths, and so may be an address.
      needed: names of options that may not be empty.
      stored: names of options that may be an address in an object store.

    Raises:
      ValueError: as `check_path`.
    """
    for name, value in options.items():
        if name in texts:
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, str):
                check_path(f"--{name.replace('_', '-')}", one, name in needed, name in stored)
