"""Digests of files, which tell whether a corpus changed and whether a shard is whole; the cache keeps them.

Open it to change how a file's content is identified, or when it is read again for that.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Sequence

from charlm.core.durable import write_text
from charlm.core.files import stable_hash
from charlm.core.reading import read_text
from charlm.data import spreading
from charlm.data.parts import clear_read_errors


def file_digests(paths: Sequence[str], cache_dir: str | None) -> list[str]:
    """Returns the sha256 (hex) of each file, see `file_sha256`; workers, if there are some, read what is not known."""
    workers = spreading.current()
    if workers is not None and cache_dir:
        new = [path for path in paths if not known_sha256(path, cache_dir)]
        workers.run("hash", functools.partial(_remember, cache_dir=cache_dir), new)
    return [file_sha256(path, cache_dir) for path in paths]


def _remember(path: str, cache_dir: str) -> None:
    file_sha256(path, cache_dir)


def file_sha256(path: str, cache_dir: str | None) -> str:
    """Returns the sha256 (hex) of a file; `cache_dir` keeps it by path, size and modification time.

    Where it cannot be kept, such as on a read-only disk, it is computed each time.
    """
    memo, identity = _memo(path, cache_dir)
    if memo and (remembered := _read_digest(memo, identity)):
        return remembered
    with clear_read_errors(path), open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if memo:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(memo), exist_ok=True)
            write_text(memo, f"{digest} {_memo_sum(identity, digest)}\n")
    return digest


def known_sha256(path: str, cache_dir: str) -> str | None:
    """Returns what `file_sha256` remembers of a file; None: nothing. The file itself is not read."""
    return _read_digest(*_memo(path, cache_dir))


def _memo(path: str, cache_dir: str | None) -> tuple[str, str]:
    """Returns where a file's digest is kept ("": nowhere), and the identity of the file's present state."""
    with clear_read_errors(path):
        status = os.stat(path)
    identity = stable_hash(os.path.abspath(path), status.st_size, status.st_mtime_ns)[:32]
    return os.path.join(cache_dir, "fingerprints", identity) if cache_dir else "", identity


def _read_digest(memo: str, identity: str) -> str | None:
    """Returns the digest in a memo of `file_sha256`; None when it is missing, damaged or of another file."""
    try:
        digest, checksum = read_text(memo).split()
    except (OSError, ValueError):
        return None
    return digest if checksum == _memo_sum(identity, digest) else None


def _memo_sum(identity: str, digest: str) -> str:
    return stable_hash(identity, digest)[:32]
