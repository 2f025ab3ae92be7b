"""Finds, reads and checks checkpoints, and writes checkpoints that hold parameters only.

A checkpoint is written by orbax and holds the training state, the data position, the config and the vocabulary. It
describes itself: `read_metadata` returns the config and vocabulary that a model needs, without reading any array.
Checkpoints of a run are written by `charlm.core.checkpoint_store`; a compact one (`charlm.core.compact`) has parameters
alone, in one file. Orbax is imported where it is used: that takes a third of a second, and compact checkpoints do
without. Open this module to change what is checked before a checkpoint is used.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
from flax import traverse_util

from charlm.core import checksums, compact, hosts, spikes, trained
from charlm.core.checkpoint_parts import Position, Positioned
from charlm.core.sharding import path_name, place_state
from charlm.core.state import StoredState, TrainState
from charlm.core.types import JsonObject, Params, Tree

if TYPE_CHECKING:
    from orbax.checkpoint import v1 as ocp

FOLDER = "checkpoints"
STAGE = re.compile(r"\d+_[a-z]+")  # name of a stage's folder in the workdir of a run in stages, see `training.stages`
FILES = "vocab"  # folder in a checkpoint of a run with its vocabulary files, if it has any
# Bytes. Orbax cuts an array that several devices hold into a part for each, and compiles a program for every cut. That
# pays for large arrays alone, so a single process makes no smaller parts than this; several share the work as they are.
LEAST_PART = 1 << 20
SPIKES = "spikes"  # key of a run's `charlm.core.spikes.History` in a checkpoint's description
BEST_METRIC = "loss"  # held-out loss; the checkpoint with the lowest is kept


def files_of(checkpoint: Path) -> Path:
    """Returns the folder with a checkpoint's vocabulary files: its folder `FILES`, or else the checkpoint's own."""
    return checkpoint / FILES if (checkpoint / FILES).is_dir() else checkpoint


def reason(error: BaseException) -> str:
    """Returns why something failed, in the system's own words ("No space left on device") if the error has them."""
    chain, text = error, ""
    while chain is not None:
        if isinstance(chain, OSError) and chain.strerror:
            return chain.strerror
        text = text or str(chain)
        chain = chain.__cause__ or chain.__context__
    known = re.search(r"No space left on device|Permission denied|Read-only file system|Disk quota exceeded", text)
    return known[0] if known else " ".join(text.split())[:200]


def complete_steps(folder: Path) -> list[int]:
    """Returns the steps with a complete checkpoint in a folder of checkpoints."""
    return [int(p.name) for p in folder.glob("*") if p.name.isdigit() and complete(p)] if folder.is_dir() else []


def find_latest(folder: Path) -> int | None:
    """Returns the newest complete step in a folder of checkpoints; None if there is none."""
    return max(complete_steps(folder), default=None)


def find(path: str | os.PathLike[str], key: str = "checkpoint") -> Path:
    """Returns the folder of one complete checkpoint.

    Args:
      path: the checkpoint itself, or a workdir: then its newest checkpoint, or for a run in stages that of the last
        stage; or the name of a model that charlm carries (`charlm.core.trained`), if there is no such file or folder.
      key: the option or config key to name in errors.

    Raises:
      ValueError: there is no checkpoint, or the folder holds several runs.
    """
    root = trained.folder_of(path) or Path(path).absolute()
    for folder in (root / FOLDER, root):
        latest = find_latest(folder)
        if latest is not None:
            return folder / str(latest)
    if root.is_dir() and complete(root):
        return root
    runs = sorted(p.parent.name for p in root.glob(f"*/{FOLDER}") if complete_steps(p))
    if runs and all(STAGE.fullmatch(name) for name in runs):
        return find(root / max(runs, key=lambda name: int(name.split("_")[0])), key)
    if runs:
        raise ValueError(
            f"{key}: {path} holds several runs: name one of {', '.join(str(Path(path) / r) for r in runs)}"
        )
    if not root.exists():
        what = f"does not exist; expected a workdir or one of its {FOLDER}/STEP folders{trained.suggestion(path)}"
        raise ValueError(f"{key}: {path} {what}")
    raise ValueError(
        f"{key}: {path} holds no complete checkpoint; expected a workdir or one of its {FOLDER}/STEP folders"
    )


def complete(folder: Path) -> bool:
    """Returns whether a folder holds a whole checkpoint."""
    return (folder / checksums.ABOUT).is_file() and ((folder / "state").is_dir() or compact.is_compact(folder))


class Identity(NamedTuple):
    """Identifies a saved checkpoint: by its step, if it has one, and the time it was saved, in ns."""

    step: int | None
    saved: int

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.saved / 1e9))
        return f"saved {when}" if self.step is None else f"step {self.step}, saved {when}"


def identity(path: str | os.PathLike[str]) -> Identity | None:
    """Returns the identity of the checkpoint that `find` finds, the same wherever it is moved; None without one."""
    try:
        found = find(path)
        return Identity(int(found.name) if found.name.isdigit() else None, checksums.of_itself(found).saved)
    except (ValueError, OSError):
        return None


def read_metadata(checkpoint: Path) -> JsonObject:
    """Returns the `metadata` stored with a checkpoint of any family; see `charlm.families.stored.metadata_of`.

    The metadata of a run, or of parameters made for a run, have its `config`; those of an imported subword model have
    `family`, `model` (its shape), `head` and `hf_config`.

    Raises:
      ValueError: the folder is not a checkpoint of charlm.
    """
    metadata = description(checkpoint)
    if not metadata or not ("config" in metadata or metadata.keys() >= {"family", "model"}):
        raise ValueError(f"{checkpoint} is not a checkpoint of charlm: it stores no config")
    return metadata


def description(checkpoint: Path) -> JsonObject:
    """Returns the `metadata` stored with a checkpoint of any family; {} if there are none."""
    with clear_reads(checkpoint):
        return checksums.undescribed(checksums.of_itself(checkpoint).description)


def _stored_state(checkpoint: Path) -> Tree:
    """Returns the names, shapes and dtypes of the arrays that a checkpoint stores as its state.

    Checks the files against their checksums first, because damaged files make orbax's threads fill the log.
    """
    check_whole(checkpoint)
    with clear_reads(checkpoint):  # also silences orbax's expected warning that iterators have no metadata
        if compact.is_compact(checkpoint):
            return {"params": compact.stored(checkpoint)}
        from orbax.checkpoint import v1 as ocp

        state = ocp.checkpointables_metadata(str(checkpoint)).metadata["state"]
        if state is None:
            raise FileNotFoundError("the list of its arrays is missing or damaged")
        return state


@contextmanager
def clear_reads(checkpoint: Path) -> Iterator[None]:
    """Turns the errors and log lines that orbax's threads produce for a damaged checkpoint into one ValueError."""
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            raise
        if checkpoint.parent.is_dir() and not checkpoint.exists():
            raise ValueError(
                f"{checkpoint} was removed while it was read: its run goes on, and keeps few checkpoints; read it again"
            ) from error
        good = newest_whole(checkpoint.parent, int(checkpoint.name)) if checkpoint.name.isdigit() else None
        hint = "" if good is None else f"; the last good checkpoint before it is step {good}"
        raise ValueError(f"{checkpoint} is damaged or incomplete: {reason(error)}{hint}") from error
    finally:
        for log, level in zip(loggers, levels, strict=True):
            log.setLevel(level)


def check_state(checkpoint: Path, abstract_state: TrainState) -> None:
    """Checks that a checkpoint holds what was saved, and a state that this run can go on from.

    Raises:
      ValueError: when it is damaged; when parameters or the optimizer's arrays have other names or shapes.
    """
    _check_state(checkpoint, _stored_state(checkpoint), arrays_of(abstract_state))


def arrays_of(state: TrainState) -> StoredState:
    """Returns the arrays of a state, real or abstract, that a checkpoint stores."""
    return StoredState(*state[:3])


def with_history(checkpoint: Path, arrays: StoredState, abstract_state: TrainState) -> TrainState:
    """Returns the state of a checkpoint from its arrays, with the history of its spikes if `abstract_state` has one.

    Where the checkpoint stores none, because the run did not look for spikes, an empty one takes its place.
    """
    abstract = abstract_state.history
    if abstract is None:
        return TrainState(*arrays)
    history = spikes.from_json(description(checkpoint).get(SPIKES), abstract.losses.shape[0])
    return TrainState(*arrays, place_state(history, jax.tree.map(lambda x: x.sharding, abstract)))


def _check_state(checkpoint: Path, stored: Tree, abstract_state: StoredState) -> None:
    check_fits(checkpoint, stored["params"], abstract_state.params)
    found, wanted = _shapes(stored), _shapes(abstract_state)
    if found != wanted:
        first = min(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        shown = lambda shapes: shapes.get(first, "no such array")
        raise ValueError(
            f"{checkpoint} was saved with another optim.freeze or by another version of charlm: its optimizer keeps "
            f"other arrays ({first}: {shown(found)}, expected {shown(wanted)}), so the run cannot continue; start it "
            "in another workdir"
        )


def check_whole(checkpoint: Path) -> None:
    """Checks that a checkpoint holds byte for byte what was saved; one without checksums passes, with a log line.

    Raises:
      ValueError: the checkpoint is damaged; names the last good one before it.
    """
    with clear_reads(checkpoint):
        checksums.check(checkpoint)


def newest_whole(folder: Path, below: int) -> int | None:
    """Returns the newest step before `below` whose checkpoint is undamaged; None if there is none."""
    for step in sorted((step for step in complete_steps(folder) if step < below), reverse=True):
        try:
            checksums.check(folder / str(step))
            return step
        except (ValueError, OSError):
            continue
    return None


def load(checkpoint: Path, abstract_state: TrainState, data: Positioned) -> TrainState:
    """Returns the whole state of a checkpoint in any folder, and moves the iterator `data` to its saved position.

    Raises:
      ValueError: the checkpoint is damaged; it holds only parameters; or names or shapes of parameters differ (the
        message lists every missing, unexpected and misshapen one).
    """
    stored = _stored_state(checkpoint)
    if set(stored) == {"params"}:
        raise ValueError(f"resume: {checkpoint} holds parameters alone, no run to go on with; init_from takes them")
    abstract = arrays_of(abstract_state)
    _check_state(checkpoint, stored, abstract)
    from orbax.checkpoint import v1 as ocp

    with clear_reads(checkpoint):
        arrays = ocp.load_checkpointables(str(checkpoint), {"state": abstract, "data": Position(data)})["state"]
    return with_history(checkpoint, arrays, abstract_state)


def stored_params(checkpoint: Path) -> Params:
    """Returns the names, shapes and dtypes of a checkpoint's parameters, without reading the arrays."""
    return _stored_state(checkpoint)["params"]


def parameter_shapes(checkpoint: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a checkpoint's parameters by name ("bert/embed/token/embedding"), without reading them.

    Raises:
      ValueError: the checkpoint is damaged.
    """
    return _shapes(stored_params(checkpoint))


def unreported(checkpoint: Path) -> list[float]:
    """Returns the sums saved with a checkpoint for the next progress line."""
    return list(description(checkpoint).get("unreported", []))


def load_params(checkpoint: Path, abstract_params: Params, names: Collection[str] | None = None) -> Params:
    """Returns only the parameters of a checkpoint, placed on devices as `abstract_params` says.

    Args:
      abstract_params: shapes and placement of all parameters.
      names: the parameters to load, such as "hlm/embed/norm/scale"; None: all.

    Raises:
      ValueError: the checkpoint is damaged, or names or shapes differ (the message lists every missing, unexpected and
        misshapen parameter).
    """
    stored = stored_params(checkpoint)
    check_fits(checkpoint, stored, abstract_params)
    if names is not None:
        flat = traverse_util.flatten_dict(abstract_params, sep="/")
        abstract_params = traverse_util.unflatten_dict({name: flat[name] for name in names}, sep="/")
    if compact.is_compact(checkpoint):
        with clear_reads(checkpoint):
            return compact.read(checkpoint, abstract_params)
    from orbax.checkpoint import v1 as ocp

    context = ocp.Context()
    context.pytree_options.loading.partial_load = True
    placed = [x.sharding for x in jax.tree.leaves(abstract_params)]
    if not hosts.alone() and all(where is None or where.is_fully_addressable for where in placed):
        _without_others(context)  # other processes may not be loading now, and orbax would wait for them
    with clear_reads(checkpoint), context:
        loaded = ocp.load_checkpointables(str(checkpoint), {"state": {"params": abstract_params}})
    return loaded["state"]["params"]


def _without_others(context: ocp.Context) -> None:
    this = jax.process_index()
    options = context.multiprocessing
    options.primary_host, options.active_processes, options.barrier_sync_key_prefix = this, {this}, f"process_{this}"


def on_one_device(abstract: Params) -> Params:
    """Returns abstract arrays that `load_params` places on the first device."""
    place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), abstract)


def save_params(folder: Path, params: Params, metadata: JsonObject) -> None:
    """Writes a checkpoint that holds only parameters and metadata: models can be loaded from it, but no run resumed.

    Args:
      folder: becomes the checkpoint itself; its previous content is replaced.
      params: whole on this host. With several processes, the first one calls this function while all others call
        `save_beside`.
      metadata: JSON-able, in the form that `read_metadata` expects.

    Raises:
      ValueError: the checkpoint cannot be written.
    """
    from orbax.checkpoint import v1 as ocp

    context = ocp.Context()
    # Parameters may nearly fill the memory. So they are not copied (nothing changes them during the write), and not
    # compressed: compression would hold them in memory a second time to save a tenth of the disk space.
    context.memory.deepcopy_host_arrays = False
    context.array.saving.use_compression = False
    context.array.saving.min_slice_bytes_for_replica_parallel = LEAST_PART if hosts.alone() else None
    if (
        hosts.is_primary() and not hosts.alone()
    ):  # with orbax's own overwriting, one process may look at the folder after another has removed it
        shutil.rmtree(folder, ignore_errors=True)
    folder = Path(hosts.from_primary(os.fspath(folder)))
    try:
        with context:
            stored, parts = checksums.described(metadata), {"state": {"params": params}}
            ocp.save_checkpointables(str(folder), parts, overwrite=hosts.alone(), custom_metadata=stored)
        if hosts.is_primary():
            checksums.write(folder)
    except Exception as error:  # orbax raises exceptions of many classes
        raise ValueError(f"a checkpoint could not be written to {folder}: {reason(error)}") from error


def save_compact(folder: Path, params: Params, metadata: JsonObject, dtype: str = "bfloat16") -> None:
    """Writes a compact checkpoint, see `charlm.core.compact`; its checksums cover what lies in the folder by then.

    Args:
      folder: an existing folder; the vocabulary files of the model may lie there.
      params: whole on this host.
      metadata: as in `save_params`.
      dtype: what the parameters are rounded to, one of `charlm.core.trained.PACKED`.

    Raises:
      ValueError: the checkpoint cannot be written.
    """
    try:
        compact.write(folder, params, metadata, dtype)
        checksums.write(folder)
    except OSError as error:
        raise ValueError(f"a checkpoint could not be written to {folder}: {reason(error)}") from error


def save_beside(params: Params) -> None:
    """Takes part in the `save_params` of process 0; every other process must call it, because orbax waits for all."""
    save_params(Path(), params, {})


def _shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    return {path_name(path): tuple(leaf.shape) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def check_fits(where: str | os.PathLike[str], params: Params, wanted_params: Params) -> None:
    """Checks that parameters (arrays or their descriptions) have the names and shapes of `wanted_params`.

    Raises:
      ValueError: they differ; names `where` and every missing, unexpected and misshapen parameter.
    """
    stored, wanted = _shapes(params), _shapes(wanted_params)
    problems = [f"missing {name} {wanted[name]}" for name in sorted(wanted.keys() - stored.keys())]
    problems += [f"unexpected {name} {stored[name]}" for name in sorted(stored.keys() - wanted.keys())]
    problems += [
        f"{name} is {stored[name]}, expected {wanted[name]}"
        for name in sorted(wanted.keys() & stored.keys())
        if stored[name] != wanted[name]
    ]
    if problems:
        raise ValueError(f"{where} does not hold the parameters of this config: " + "; ".join(problems))
