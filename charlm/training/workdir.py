"""The folder of a run: who may write there, what lies there, and whether all processes mean the same run."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ml_collections

from charlm.config import flatten, from_dict
from charlm.core import checkpoint as checkpoints
from charlm.core import hosts
from charlm.core.local_paths import check_path
from charlm.core.reading import loads, read_bytes
from charlm.families.objective import Objective

log = logging.getLogger("charlm")

CONFIG_FILE = "config.json"
OF_THE_HOST = ("data.cache_dir", "data.encode_processes", "data.reader_threads", "data.prefetch")


def folder_of(workdir: str | os.PathLike[str]) -> Path:
    """Returns the folder that `--workdir` names.

    Raises:
      ValueError: it is empty, or an address.
    """
    check_path("--workdir", os.fspath(workdir), needed=True)
    return Path(workdir)


def create(folder: Path, key: str = "--workdir") -> None:
    """Makes the folder of a run, if need be; `key` names it in errors.

    Raises:
      ValueError: when it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{key}={folder} cannot be written: {error.strerror}") from error


def check_writable(folder: Path, key: str = "--workdir") -> None:
    """Checks that a run can write its folder; a finished one need not, and may lie on a disk that is read-only.

    Args:
      key: what names the folder, for messages.

    Raises:
      ValueError: when it cannot.
    """
    try:
        probe = folder / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)  # another host may have a process of this number
    except OSError as error:
        raise ValueError(f"{key}={folder} cannot be written: {error.strerror}") from error


def check_shared(folder: Path, key: str = "--workdir") -> None:
    """Checks that all processes see one folder; all must call it.

    Raises:
      ValueError: on every process, when they do not.
    """
    if not hosts.shares(folder):
        raise ValueError(f"{key}={folder} must be one folder that all hosts share; not all see what process 0 writes")


@contextmanager
def created(folder: Path, key: str = "--workdir") -> Iterator[None]:
    """Makes a folder as `create` does; of what could not begin, nothing stays."""
    new = not folder.exists()
    create(folder, key)
    try:
        yield
    finally:
        if new:
            with suppress(OSError):  # it holds something
                folder.rmdir()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keeps a second process out of the workdir; the lock goes with the process, however it ends.

    Raises:
      ValueError: when there is one.
    """
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"--workdir={folder}: another process is training there") from None
        except OSError as error:  # some network file systems have no locks
            log.warning("%s cannot be locked (%s): do not start a second run there", folder, error.strerror)
        yield
    finally:
        os.close(lock)


def newest_step(folder: Path) -> int | None:
    """Returns the step of the newest complete checkpoint of a run, None when there is none.

    Raises:
      ValueError: when the folder is a checkpoint itself.
    """
    try:
        found = checkpoints.find(folder)
    except ValueError:
        return None
    if found == folder.absolute():
        raise ValueError(f"--workdir={folder} is a checkpoint; name it in --config.init_from, and another folder here")
    return int(found.name)


def saved_config(folder: Path) -> ml_collections.ConfigDict | None:
    """Returns the config of the run in a folder, None when there is none.

    Raises:
      ValueError: when the file is damaged, naming it.
    """
    path = folder / CONFIG_FILE
    if not path.exists():
        return None
    data = read_bytes(path)
    try:
        return from_dict(loads(data))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not the config of a run: {error}") from error


def check_same_config(config: ml_collections.ConfigDict) -> None:
    """Checks that all processes were given the same config, but for what may differ between hosts.

    Raises:
      ValueError: on every process, when one was not, naming the keys there.
    """
    own = {key: value for key, value in flatten(config).items() if key not in OF_THE_HOST}
    first = hosts.from_primary(own)
    differing = [
        f"{key} is {value}, there {first[key]}"
        for key, value in own.items()
        if json.dumps(value) != json.dumps(first[key])
    ]
    if hosts.total(bool(differing)):
        raise ValueError(
            f"not the config of process 0: {'; '.join(differing)}"
            if differing
            else "another process has another config"
        )


def started_from(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """Returns what a run starts from, JSON-able: `init_from` as it was given, and what tells a checkpoint there."""
    given = config.init_from
    return {"init_from": given, "checkpoint": checkpoints.identity(given) if given else None}


def origin_of(folder: Path) -> checkpoints.Identity | None:
    """Returns what tells the checkpoint that the run in a folder started from; None where that is not known."""
    stored = checkpoints.description(checkpoints.find(folder)).get("started_from") or {}
    found = stored.get("checkpoint")
    return checkpoints.Identity(*found) if found else None


def check_source(config: ml_collections.ConfigDict, folder: Path) -> None:
    """Checks that `init_from` is what the run in a folder started from; a run does not need that any more.

    It may be empty, have been moved, or be gone.

    Raises:
      ValueError: it is something else, naming both.
    """
    given = config.init_from
    if not given:
        return
    stored = checkpoints.description(checkpoints.find(folder))
    before = (stored.get("started_from") or stored["config"])["init_from"]
    if before and Path(given).resolve() == Path(before).resolve():
        return
    if not Path(given).exists():
        log.warning("init_from=%s does not exist; %s started from %s and goes on", given, folder, before or "scratch")
        return
    known, there = origin_of(folder), checkpoints.identity(given)
    if known is None or known != there:
        was = f"from {before}{f' ({known})' if known else ''}" if before else "from scratch, without init_from"
        raise ValueError(
            f"--workdir={folder} holds a run that started {was}, not from init_from={given}"
            f"{f' ({there})' if there else ''}: choose another --workdir, or leave init_from empty to go on"
        )


def text_of(data: Any) -> list[list[int]]:
    """What a saved data position refers to: records and words of each training corpus."""
    return [[corpus.stats.records, corpus.stats.words] for corpus in data.train]


def check_text(checkpoint: Path, objective: type[Objective], data: Any) -> None:
    """Checks that a run goes on with the vocabularies and the text it began with.

    Raises:
      ValueError: when they changed, naming both and the way out.
    """
    objective.check_vocab(checkpoint, data)
    stored = checkpoints.read_metadata(checkpoint, objective.families).get("train_text", text_of(data))
    if stored != text_of(data):
        raise ValueError(
            f"data.train changed since {checkpoint} was saved: [records, words] were {stored}, are {text_of(data)}; "
            "train on the new text in another --workdir, with --config.init_from set to this one"
        )
