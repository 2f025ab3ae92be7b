"""Atomic file writes: a file appears complete or not at all, even if the program or the machine stops meanwhile.

A file is written under a temporary name, synced to disk and only then renamed. Without the sync, the rename may reach
the disk before the content does, and a power cut would leave an empty file under the final name. The module needs only
the standard library, so every part of charlm can use it. Use it for every file that a run relies on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator

from charlm.core.types import Json

TEMPORARY = ".tmp"  # how the names of unfinished files and folders end


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yields a temporary name beside `path` that is renamed to `path` on success and removed on any failure.

    The caller may write a file or a folder of files there; the content is synced to disk before the rename. Every call
    has a temporary name of its own, so two processes that write the same file do not collide; the last one wins. Of two
    that make the same folder the first one wins, and the other gets an OSError.
    """
    path = os.fspath(path)
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}{TEMPORARY}"
    try:
        yield temporary
        rename(temporary, path)
    except OSError as error:
        if error.filename == temporary:
            error.filename = path  # which is what the caller has asked for
        raise
    finally:
        if os.path.isdir(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.remove(temporary)


def remove_folder(folder: str | os.PathLike[str]) -> None:
    """Removes a folder so that none finds half of it: it gets a temporary name first; OSError if that fails."""
    gone = f"{os.fspath(folder)}.{os.getpid()}-{os.urandom(4).hex()}{TEMPORARY}"
    os.rename(folder, gone)
    _sync_folder(os.path.dirname(os.path.abspath(folder)))
    shutil.rmtree(gone, ignore_errors=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file atomically, see `replacing`."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file of UTF-8 text atomically, with line ends unchanged."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Json) -> None:
    """Writes a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def rename(temporary: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Renames a file, or a folder with its content, to its final name after the content is synced to disk."""
    if os.path.isdir(temporary):
        sync_tree(temporary)
    else:
        _sync_file(temporary)
    os.replace(temporary, path)
    _sync_folder(os.path.dirname(os.path.abspath(path)))


def sync_tree(root: str | os.PathLike[str]) -> None:
    """Waits until all files below a folder, and their names, are on disk."""
    for folder, _, names in os.walk(root):
        for name in names:
            _sync_file(os.path.join(folder, name))
        _sync_folder(os.fspath(folder))


def _sync_file(path: str | os.PathLike[str]) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: str) -> None:
    """Syncs the names in a folder to disk; ignores systems that cannot, because the files themselves are synced."""
    with contextlib.suppress(OSError):
        _sync_file(path)
