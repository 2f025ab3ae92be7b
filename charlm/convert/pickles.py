"""Checks PyTorch's own files before PyTorch reads them: how much they unpack to, and which globals they ask for.

Nothing is run here: the module only lists the opcodes of a pickle. PyTorch's reader of tensors (`weights_only`) decides
what may run: it allows a few functions and refuses the rest. Two of the allowed functions can allocate any amount of
memory, so they are refused here (`OF_MEMORY`). Open this module when charlm refuses a `.bin` or `.pt` file.
"""

from __future__ import annotations

import io
import os
import pickletools
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from charlm.core.reading import MIB, check_unpacked, check_zip, scaled, shown, too_large

# Largest pickle in bytes: enough for names, shapes and places of 50,000 tensors. An opcode may take 60 bytes of memory.
PICKLE = 8 * MIB
# Functions that allocate memory: bytearray(number), and encode(text), which may be repeated. No tensor needs them.
OF_MEMORY = ("builtins.bytearray", "__builtin__.bytearray", "_codecs.encode")
_LEGACY_PICKLES = 5  # before the tensor data: magic number, version, system, the state dict, names of its storages


def is_zip(path: Path) -> bool:
    """Returns whether PyTorch reads the file as a zip, which it decides by the first bytes."""
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def globals_of(path: Path) -> list[str]:
    """Returns the globals, such as "collections.OrderedDict", that the pickles of a file ask for, in order.

    Raises:
      TooLarge: the zip or its pickles exceed their limits.
      OSError: the file cannot be read.
      Any other exception: the file is damaged.
    """
    pickles = _of_zip(path) if is_zip(path) else _of_legacy(path)
    return list(dict.fromkeys(name for data in pickles for name in _globals(data)))


def check_tensors(path: Path, sizes: Iterable[int]) -> None:
    """Raises TooLarge if the tensors of a file, with these sizes in bytes, are far larger than the file.

    This is possible because a tensor in a file may repeat one number a billion times.
    """
    check_unpacked(str(path), "the state dict", os.path.getsize(path), sum(sizes))


def _of_zip(path: Path) -> Iterator[bytes]:
    check_zip(path)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.lower().endswith(".pkl"):  # PyTorch finds its pickle in any case of letters
                with archive.open(member) as file:  # read up to the limit: the size that the zip declares may be false
                    data = file.read(scaled(PICKLE) + 1)
                _check_size(path, max(len(data), member.file_size))
                yield data


def _of_legacy(path: Path) -> Iterator[bytes]:
    """Yields the pickles at the beginning of a file in PyTorch's format before zip."""
    most = scaled(PICKLE)
    with open(path, "rb") as file:
        data = file.read(most + 1)
    start = 0
    for _ in range(_LEGACY_PICKLES):
        if start == len(data):
            return
        stream = io.BytesIO(data[start:])
        try:
            for _ in pickletools.genops(stream):
                pass
        except Exception:
            _check_size(path, len(data))  # the pickle may be valid but longer than the limit
            raise
        yield data[start : start + stream.tell()]
        start += stream.tell()


def _check_size(path: Path, size: int) -> None:
    if size > (most := scaled(PICKLE)):
        raise too_large(str(path), f"a pickle of more than {shown(most)}")


def _globals(data: bytes) -> Iterator[str]:
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("GLOBAL", "INST"):
            yield str(argument).replace(" ", ".")
        elif opcode.name == "STACK_GLOBAL":
            yield ".".join(strings[-2:])
        elif isinstance(argument, str):
            strings.append(argument)
