"""Files that are there whole or not at all, whatever ends the program or the machine while they are written.

A file is written under another name, brought to the disk and only then renamed: a rename alone may reach the disk
before the content does, and a power cut would leave an empty file under the final name. Needs the standard library
alone, so that every part of charlm can write its files this way.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Gives a temporary name beside `path` that becomes `path` on success and is removed on any failure.

    What is written there may be a file or a folder of files; it is on the disk before it has its final name. The
    temporary name is this process's own, so two processes that write the same file do not meet; the last one wins.
    """
    path = os.fspath(path)
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        yield temporary
        rename(temporary, path)
    finally:
        if os.path.isdir(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.remove(temporary)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file that appears when it is complete and on the disk."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file of UTF-8 text that appears when it is complete and on the disk; line ends stay as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a file of JSON that appears when it is complete and on the disk."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def rename(temporary: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Gives a file, or a folder with all that lies in it, its final name once the content is on the disk."""
    if os.path.isdir(temporary):
        for folder, _, names in os.walk(temporary):
            for name in names:
                _sync_file(os.path.join(folder, name))
            _sync_folder(folder)
    else:
        _sync_file(temporary)
    os.replace(temporary, path)
    _sync_folder(os.path.dirname(os.path.abspath(path)))


def _sync_file(path: str | os.PathLike[str]) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: str) -> None:
    """Brings the names in a folder to the disk; some systems cannot, and the files themselves are there."""
    with contextlib.suppress(OSError):
        _sync_file(path)
