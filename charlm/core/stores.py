"""Reads and writes objects in Google Cloud Storage (gs://), and in S3 or servers that speak its protocol (s3://).

All traffic of charlm with object stores passes through `Store`. `charlm.core.mirror` uses it to keep the workdir of a
run in a store. `matching` and `folder` copy corpora and models to this machine, so that all other code reads files.
Open it when an address cannot be read or written, or to support another kind of store.

The drivers are those of tensorstore, which orbax uses, too, so no further package is needed. They find credentials
where the stores' own tools find them: in GOOGLE_APPLICATION_CREDENTIALS, from `gcloud auth application-default login`
or the machine's service account; in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in ~/.aws or from the machine's role.
AWS_ENDPOINT_URL names another server that speaks S3, and AWS_REGION its region. tensorstore is imported on first use.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from charlm.core.durable import TEMPORARY, replacing, write_bytes
from charlm.core.files import default_cache_dir, is_stale
from charlm.core.local_paths import is_address, split_address
from charlm.core.types import JsonObject

log = logging.getLogger("charlm")

T = TypeVar("T")
Item = TypeVar("Item")

BLOCK_BYTES = 64 << 20  # bytes of an object that are held at once while it is read
AT_ONCE = 8  # objects that are read or written in parallel
FIRST_TRIES = 4  # of requests that show whether a store can be reached; tensorstore's default is 32
CHECKPOINTS = "checkpoints"  # folder of a run's checkpoints; each has the file WHOLE, which is written last
WHOLE = "_CHECKPOINT_METADATA"


class Store:
    """The objects below an address; their names are relative to it, such as "a/b.txt".

    Args:
      address: such as s3://bucket/run; or a whole bucket.
      impatient: give up after a few tries.

    Raises:
      ValueError: every method raises it if the store refuses or cannot be reached; names the address and the reason.
    """

    def __init__(self, address: str, impatient: bool = False) -> None:
        scheme, bucket, key = split_address(address, whole=True)
        self.address = f"{scheme}://{bucket}/{key}".rstrip("/")
        driver = {"gs": "gcs", "s3": "s3"}[scheme]
        spec: JsonObject = {"driver": driver, "bucket": bucket, "path": key and f"{key}/"}
        if scheme == "s3":
            spec |= _s3_settings()
        if impatient:
            spec["context"] = {f"{driver}_request_retries": {"max_retries": FIRST_TRIES}}
        self._spec = spec

    @functools.cached_property
    def _objects(self) -> Any:  # a tensorstore.KvStore; tensorstore has no types
        import tensorstore

        return self._do(lambda: tensorstore.KvStore.open(self._spec).result())

    def names(self, prefix: str = "") -> list[str]:
        """Returns the sorted names of all objects whose names begin with a prefix."""
        import tensorstore

        first = prefix.encode()
        after = first[:-1] + bytes([first[-1] + 1]) if first else b""  # the last byte of UTF-8 is never 255
        among = tensorstore.KvStore.KeyRange(first, after)
        found = [name.decode() for name in self._do(lambda: self._objects.list(among).result())]
        unsafe = [name for name in found if {"", ".", ".."} & set(name.rstrip("/").split("/"))]
        if unsafe:
            raise ValueError(f"{self.address}/{unsafe[0]}: an object of this name cannot be a file")
        return sorted(name for name in found if not name.endswith("/"))  # some consoles make such objects as folders

    def read(self, name: str) -> bytes | None:
        """Returns the content of an object, or None if the object does not exist."""
        found = self._do(lambda: self._objects.read(name).result(), name)
        return found.value if found.state == "value" else None

    def write(self, name: str, content: bytes) -> None:
        """Writes an object; readers see it whole or not at all."""
        self._do(lambda: self._objects.write(name, content).result(), name)

    def remove(self, name: str) -> None:
        """Removes an object if it exists."""
        self._do(lambda: self._objects.write(name, None).result(), name)

    def upload(self, path: Path, name: str) -> None:
        """Writes a file as an object; OSError if the file cannot be read."""
        self.write(name, path.read_bytes())

    def download(self, name: str, path: Path, known: bytes = b"") -> bytes:
        """Writes an object to a file and returns the object's generation, which changes with its content.

        Args:
          name: the object.
          path: the file; its folder is created.
          known: the generation that the file holds already. If the object still has it, nothing is read or written.

        Raises:
          ValueError: also if the object is missing or changes meanwhile.
          OSError: the file cannot be written.
        """
        first = self._range(name, 0, known)
        if first.state == "unspecified":
            return known
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            part, at = first, 0
            while part is not None:
                if part.state == "missing" or part.stamp.generation != first.stamp.generation:
                    raise ValueError(f"{self.address}/{name} was changed or removed while it was read")
                file.write(part.value)
                at += len(part.value)
                part = self._range(name, at) if len(part.value) == BLOCK_BYTES else None
        return first.stamp.generation

    def _range(self, name: str, at: int, known: bytes = b"") -> Any:  # tensorstore's result of a read
        """Returns the block of an object that begins at byte `at`: a shorter one at the object's end, None after it."""
        wanted = {"if_not_equal": known} if known else {}

        def read() -> Any:  # tensorstore's result of a read
            try:
                return self._objects.read(name, byte_range=slice(at, at + BLOCK_BYTES), **wanted).result()
            except ValueError as error:
                if not str(error).startswith("OUT_OF_RANGE"):
                    raise
            try:
                return self._objects.read(name, byte_range=slice(at, None) if at else None, **wanted).result()
            except ValueError as error:
                if not at or not str(error).startswith("OUT_OF_RANGE"):
                    raise
                return None

        return self._do(read, name)

    def _do(self, work: Callable[[], T], name: str = "") -> T:
        try:
            return work()
        except ValueError as error:
            place = f"{self.address}/{name}" if name else self.address
            reason = " ".join(str(error).split()).split(" [http_response")[0][:300]
            raise ValueError(f"{place}: {reason}") from error


def _s3_settings() -> JsonObject:
    variables, settings = os.environ, {}
    if endpoint := variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL"):
        settings["endpoint"] = endpoint.rstrip("/")
    if region := variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or (endpoint and "us-east-1"):
        settings["aws_region"] = region
    if variables.get("AWS_ACCESS_KEY_ID"):  # the default looks for files first, and logs errors if there are none
        settings["aws_credentials"] = {"type": "environment"}
    return settings


def in_parallel(work: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
    """Returns the result of `work` for each item, in order; raises the first error."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


# ---- Local copies ----


def matching(spec: str, key: str) -> list[str]:
    """Returns local copies of the objects that match an address or glob (** is allowed), sorted by name.

    The copies are in the cache folder ($CHARLM_CACHE, else ~/.cache/charlm). Objects that did not change are not copied
    again.

    Args:
      spec: the address or glob.
      key: the config key of `spec`, for messages.

    Raises:
      ValueError: no object matches, or the store cannot be read.
    """
    scheme, bucket, path = split_address(spec)
    parts = path.split("/")
    plain = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    store = Store("/".join([f"{scheme}://{bucket}", *parts[:plain]]), impatient=True)
    pattern = parts[plain:]
    listed = store.names(re.split(r"[*?\[]", "/".join(pattern))[0])
    names = [name for name in listed if _matches(name.split("/"), pattern)]
    if not names:
        below = any(name.split("/")[: len(pattern)] == pattern for name in listed)
        raise ValueError(f"{key}: {spec!r} {'is a folder; give its objects, with *' if below else 'matches no object'}")
    return [str(path) for path in _bring(store, names)]


def folder(address: str) -> Path:
    """Returns a local copy of a model or run; of a run's checkpoints, only the newest is copied.

    Raises:
      ValueError: there are no objects at the address, or the store cannot be read.
    """
    store = Store(address, impatient=True)
    names = newest_alone(store.names())
    if not names:
        raise ValueError(f"{address}: there is nothing")
    paths = _bring(store, names)
    place, wanted = _place(store), set(paths)
    for path in sorted(place.rglob("*")):  # what is left from an earlier copy, but not what others are writing now
        with suppress(FileNotFoundError):
            if path.is_file() and path not in wanted and (path.suffix != TEMPORARY or is_stale(path)):
                path.unlink()
    return place


def _matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Returns whether the parts of a name match those of a glob, in which ** stands for any number of folders."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_matches(name[i:], pattern[1:]) for i in range(len(name) + 1))
    if not name or (name[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatchcase(name[0], pattern[0]) and _matches(name[1:], pattern[1:])


def newest_alone(names: Sequence[str]) -> list[str]:
    """Returns the names without all checkpoints except the newest complete one of each run."""
    newest: dict[PurePosixPath, int] = {}
    steps = {}
    for name in names:
        path = PurePosixPath(name)
        for above in path.parents:
            if above.parent.name == CHECKPOINTS and above.name.isdigit():
                steps[name] = above
                if path == above / WHOLE:
                    newest[above.parent] = max(newest.get(above.parent, 0), int(above.name))
    return [name for name in names if name not in steps or newest.get(steps[name].parent) == int(steps[name].name)]


def _place(store: Store) -> Path:
    """Returns where copies of what is below an address are: apart from those of addresses above and below it."""
    own = hashlib.sha256(store.address.encode()).hexdigest()[:16]
    return Path(default_cache_dir(), "stores", own, store.address.replace("://", "/"))


def _bring(store: Store, names: Sequence[str]) -> list[Path]:
    place = _place(store)
    known = Path(default_cache_dir(), "stores", "generations", hashlib.sha256(store.address.encode()).hexdigest())

    def bring(name: str) -> Path:
        path, generation = place / name, known / hashlib.sha256(name.encode()).hexdigest()
        before = generation.read_bytes() if path.is_file() and generation.is_file() else b""
        after = store.download(name, path, before)
        if after != before:
            known.mkdir(parents=True, exist_ok=True)
            write_bytes(generation, after)
        return path

    log.info("reading %d objects from %s", len(names), store.address)
    return in_parallel(bring, names)


def here(path: str) -> str:
    """Returns the local copy (see `folder`) if `path` is an address of a model or run, otherwise `path` itself."""
    return str(folder(path)) if is_address(path) else path
