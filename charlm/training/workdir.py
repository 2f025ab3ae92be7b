"""The workdir of a run: creating and locking it, reading what it holds, and checking that a run may resume in it.

Open it to see what must stay the same for a run to resume, and when a workdir is refused.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import ml_collections

from charlm.config import check_resumable, flatten, from_dict
from charlm.core import checkpoint as checkpoints
from charlm.core import followers, hosts, run_log
from charlm.core.local_paths import check_path
from charlm.core.reading import loads, read_bytes
from charlm.core.types import Json, JsonObject
from charlm.families.objective import Objective, RunData
from charlm.families.origin import Origin, Weights, described, origin_at, stored_origin
from charlm.families.stored import metadata_of

log = logging.getLogger("charlm")

RUN_CONFIG_FILE = "config.json"
OF_THE_HOST = ("data.cache_dir", "data.encode_processes", "data.reader_threads", "data.prefetch", "train.local_dir")


def folder_of(workdir: str | os.PathLike[str]) -> Path:
    """Returns the folder that `--workdir` names.

    Raises:
      ValueError: the name is empty, or an address such as gs://bucket/run.
    """
    check_path("--workdir", os.fspath(workdir), needed=True)
    return Path(workdir)


def create(folder: Path, key: str = "--workdir") -> None:
    """Creates the folder of a run if it does not exist; `key` names it in errors.

    Raises:
      ValueError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{key}={folder} cannot be written: {error.strerror}") from error


def check_writable(folder: Path, key: str = "--workdir") -> None:
    """Checks that a run can write to its folder. Not needed for a finished run, which may lie on a read-only disk.

    Args:
      key: the option that names the folder, for messages.

    Raises:
      ValueError: the folder cannot be written.
    """
    try:
        probe = folder / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)  # a process with the same id on another host may have removed it
    except OSError as error:
        raise ValueError(f"{key}={folder} cannot be written: {error.strerror}") from error


def check_shared(folder: Path, key: str = "--workdir") -> None:
    """Checks that all processes see the same folder; all must call it.

    Raises:
      ValueError: the processes see different folders; raised on every process.
    """
    if not hosts.shares(folder):
        raise ValueError(f"{key}={folder} must be one folder that all hosts share; not all see what process 0 writes")


def check_usable(folder: Path, finished: bool) -> None:
    """Checks that an unfinished run can write to its workdir, and that all processes see the same; all must call it.

    Where the workdir is in an object store, each process has a folder of its own, and need not see the same.

    Args:
      finished: whether the folder holds a finished run, as far as this process sees. It may lie on a read-only disk.

    Raises:
      ValueError: as in `check_writable` and `check_shared`.
    """
    if hosts.total(not finished):  # unfinished on any host
        hosts.primary_first(lambda: check_writable(folder))
        if not followers.following():
            check_shared(folder)


@contextmanager
def created(folder: Path, key: str = "--workdir") -> Iterator[None]:
    """Creates a folder as `create` does; removes it after the block if it is new and still empty."""
    new = not folder.exists()
    create(folder, key)
    try:
        yield
    finally:
        if new:
            with suppress(OSError):  # the folder is not empty
                folder.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks the workdir against a second run; the lock is released when the process ends, however it ends.

    Raises:
      ValueError: another process holds the lock.
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


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Creates the folder of a run, locks it and keeps its log during the block; all processes must enter it.

    If the run could not begin, so that the folder is new and still empty after the block, it is removed.

    Raises:
      ValueError: it cannot be created, or another process holds the lock.
    """
    new = not folder.exists()
    hosts.primary_first(lambda: create(folder))
    try:
        with ExitStack() as stack:
            hosts.primary_first(lambda: stack.enter_context(locked(folder)) if hosts.is_primary() else None)
            if hosts.is_primary():
                stack.enter_context(run_log.kept(folder))
            yield
    finally:
        if new and hosts.is_primary():
            for empty in (folder / checkpoints.FOLDER, folder):
                with suppress(OSError):  # it is not empty
                    empty.rmdir()


def newest_step(folder: Path) -> int | None:
    """Returns the step of the newest complete checkpoint of a run; None if there is none.

    Raises:
      ValueError: the folder is a checkpoint itself.
    """
    try:
        found = checkpoints.find(folder)
    except ValueError:
        return None
    if found == folder.absolute():
        raise ValueError(f"--workdir={folder} is a checkpoint; name it in --config.init_from, and another folder here")
    return int(found.name)


def saved_config(folder: Path) -> ml_collections.ConfigDict | None:
    """Returns the config of the run in a folder, from its newest checkpoint if its file is gone; None without a run.

    Raises:
      ValueError: the config file is damaged; names it.
    """
    path = folder / RUN_CONFIG_FILE
    if not path.exists():
        return _config_of_checkpoint(folder)
    data = read_bytes(path)
    try:
        return from_dict(loads(data))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not the config of a run: {error}") from error


def _config_of_checkpoint(folder: Path) -> ml_collections.ConfigDict | None:
    try:
        checkpoint = checkpoints.find(folder)
        stored = checkpoints.description(checkpoint).get("config")
        config = from_dict(stored) if isinstance(stored, dict) else None
    except (ValueError, TypeError, AttributeError):  # no checkpoint, or a damaged one, which is reported elsewhere
        return None
    if config is not None:
        log.warning("%s is gone: the config in %s is that of the run", folder / RUN_CONFIG_FILE, checkpoint)
    return config


def check_same_run(config: ml_collections.ConfigDict, folder: Path, where: str = "") -> None:
    """Checks that a run found in a folder can be resumed with a config, and copies its measured values to the config.

    Args:
      where: the folder as the user named it, for messages; "": `folder`.

    Raises:
      ValueError: the configs differ; names the keys.
    """
    saved = saved_config(folder)
    if saved is not None:
        check_resumable(config, saved, where or str(folder))


def check_same_config(config: ml_collections.ConfigDict) -> None:
    """Checks that all processes were given the same config, except for the keys `OF_THE_HOST`.

    Raises:
      ValueError: a config differs; raised on every process, and names the keys on the process where they differ.
    """
    own = {key: followers.without_folder(value) for key, value in flatten(config).items() if key not in OF_THE_HOST}
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


def started_from(config: ml_collections.ConfigDict) -> JsonObject:
    """Returns `init_from` as it was given and the identity of the model there, JSON-able."""
    given = config.init_from
    return {"init_from": given, **described(origin_at(given) if given else None)}


def origin_of(folder: Path) -> Origin | None:
    """Returns the identity of the model that the run in a folder started from; None if it is not known."""
    return stored_origin(checkpoints.description(checkpoints.find(folder)).get("started_from") or {})


def check_source(config: ml_collections.ConfigDict, folder: Path) -> None:
    """Checks that `init_from` is the source that the pre-training run in a folder started from.

    A resumed run does not read its source again, so `init_from` may be empty, and the source may have been moved,
    removed, or trained on in its place, which the log says.

    Raises:
      ValueError: `init_from` is another source; names both.
    """
    given = config.init_from
    if not given:
        return
    stored = checkpoints.description(checkpoints.find(folder))
    before = (stored.get("started_from") or stored["config"])["init_from"]
    known, there = origin_of(folder), origin_at(given)
    if before and Path(given).resolve() == Path(before).resolve():
        if known and there and known != there:
            log.warning("%s; the run goes on from its own", _exchanged(given, there, folder, known))
        return
    if there is None and not Path(given).exists():
        log.warning("init_from=%s does not exist; %s started from %s and goes on", given, folder, before or "scratch")
        return
    if known is None or known != there:
        was = f"from {before}{f' ({known})' if known else ''}" if before else "from scratch, without init_from"
        raise ValueError(
            f"--workdir={folder} holds a run that started {was}, not from init_from={given}"
            f"{f' ({there})' if there else ''}: choose another --workdir, or leave init_from empty to go on"
        )


def check_source_kept(config: ml_collections.ConfigDict, folder: Path) -> None:
    """Checks that `init_from` still holds the model that the fine-tuning run in a folder started from.

    Unlike pre-training, fine-tuning reads its source whenever it is resumed.

    Args:
      folder: a folder of checkpoints, or one that holds it; it may hold none.

    Raises:
      ValueError: `init_from` holds another model.
    """
    try:
        stored = checkpoints.description(checkpoints.find(folder)).get("started_from") or {}
        known = origin_of(folder)
        there = origin_at(config.init_from) if known else None
    except ValueError:  # there is none, or it is damaged, which is reported where the run is resumed
        return
    if stored.get("init_from") == config.init_from and known and there and known != there:
        raise ValueError(f"{_exchanged(config.init_from, there, folder, known)}: choose another --workdir")


def _exchanged(given: str, there: Origin, folder: Path, known: Origin) -> str:
    other = "other weights" if isinstance(there, Weights) else "another checkpoint"
    return f"init_from={given} holds {other} now ({there}) than {folder} started from ({known})"


def text_of(data: RunData) -> JsonObject:
    """Returns what a checkpoint keeps of its text: a saved data position is valid only for the same training text.

    "train_text" is the [records, words] of each training corpus, "train_content" and "heldout_content" are hashes.
    """
    counts: Json = [[corpus.stats.records, corpus.stats.words] for corpus in data.train]
    contents = {f"{part}_content": [corpus.content for corpus in getattr(data, part)] for part in ("train", "heldout")}
    return {"train_text": counts, **contents}


def check_same_text(checkpoint: Path, stored: JsonObject, data: RunData, advice: str) -> None:
    """Checks that a run resumes with the training text that it began with, and warns of other held-out text.

    Args:
      stored: the metadata of the checkpoint; one from before there were hashes is known by its counts alone.
      advice: what to do with other text.

    Raises:
      ValueError: the training text changed.
    """
    now = text_of(data)
    before = {key: stored.get(key, value) for key, value in now.items()}
    if before["train_text"] != now["train_text"]:
        was = f"[records, words] were {before['train_text']}, are {now['train_text']}"
        raise ValueError(f"data.train changed since {checkpoint} was saved: {was}; {advice}")
    if before["train_content"] != now["train_content"]:
        other = "as many records and words, but other text, or its files in another order"
        raise ValueError(f"data.train changed since {checkpoint} was saved: {other}; {advice}")
    if before["heldout_content"] != now["heldout_content"]:
        log.warning(
            "data.heldout changed since %s was saved: held-out losses from here on are not to be compared with those "
            "before, nor are the best checkpoints", checkpoint,
        )  # fmt: skip


def check_text(checkpoint: Path, objective: type[Objective], data: RunData) -> None:
    """Checks that a run resumes with the vocabularies and the training text that it began with.

    Raises:
      ValueError: they changed; names the difference and what to do.
    """
    objective.check_vocab(checkpoint, data)
    advice = "train on the new text in another --workdir, with --config.init_from set to this one"
    check_same_text(checkpoint, metadata_of(checkpoint, objective.families), data, advice)
