"""Reads and writes state dicts on disk: safetensors, single or sharded, and PyTorch's own files (reading only).

PyTorch's files are read without running any code from them. Open this module to see which files of a folder are read,
or to support another format.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from charlm.convert.hub import find_cached
from charlm.convert.pickles import OF_MEMORY, check_tensors, globals_of, is_zip
from charlm.core import extras, interrupts
from charlm.core.durable import rename, replacing
from charlm.core.local_paths import check_path
from charlm.core.reading import TooLarge, loads, read_object
from charlm.core.types import JsonObject

LONE_FILES = ("model.safetensors", "pytorch_model.bin")  # in a folder, the first that exists is read
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")

_HEADER_SIZE = 8  # bytes of the little-endian number that a safetensors file begins with
_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip


class Tensor(Protocol):
    """An array in memory, or one that is read from disk when it is converted to a NumPy array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements."""
        ...

    # `dtype` is open, because NumPy declares the method with several signatures.
    def __array__(self, dtype: Any = None, /, *, copy: bool | None = None) -> np.ndarray:
        """Returns the tensor as a NumPy array."""
        ...


@dataclasses.dataclass(frozen=True)
class Stored:
    """A tensor of a safetensors file, read from disk at every conversion; a memory-mapped file would stay in memory."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Reads the tensor into a new array; `copy` is ignored."""
        count = int(np.prod(self.shape))
        value = np.fromfile(self.path, self.dtype, count, offset=self.offset) if count else np.empty(0, self.dtype)
        return value.reshape(self.shape).astype(dtype or self.dtype, copy=False)


def find_state(path: str | os.PathLike[str]) -> Path:
    """Returns the file to read: `path` itself, or in a folder the first of `LONE_FILES`, `INDEXES` and any other index.

    Args:
      path: file or folder; if neither exists, the name of a model, see `charlm.convert.hub.find_cached`.

    Raises:
      ValueError: there is no state dict.
    """
    path = Path(path)
    try:
        if path.is_file():
            return path
        if not path.is_dir():
            path = find_cached(str(path))
        found = [path / name for name in (*LONE_FILES, *INDEXES) if (path / name).is_file()]
        found += sorted(path.glob("*.index.json"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise ValueError(f"{path} holds no state dict: expected {', '.join(LONE_FILES)} or a *.index.json there")
    return found[0]


def state_files(path: str | os.PathLike[str]) -> list[Path]:
    """Returns the files that `read_state` reads: one file, or an index and its shards.

    Raises:
      ValueError: there is no state dict, or its index is damaged; shards may be missing.
    """
    first = find_state(path)
    if first.suffix != ".json":
        return [first]
    return [first, *(first.parent / shard for shard in _shards(first, _weight_map(first)))]


def read_state(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns the tensors of a file or folder by name, in their stored order and dtype.

    Raises:
      ValueError: the file is missing, truncated, not a state dict, or needs code to be run; or PyTorch is needed but
        not installed.
    """
    return {name: np.asarray(tensor) for name, tensor in open_state(path).items()}


def open_state(path: str | os.PathLike[str], mapped: bool = True) -> dict[str, Tensor]:
    """Returns tensors as `read_state` does, but those of safetensors files as `Stored`, so that they are read lazily.

    Args:
      mapped: memory-map PyTorch's zip files instead of reading them: only tensors that are used are read, but they stay
        in memory until all tensors of the file are released.

    Raises:
      ValueError: as in `read_state`.
    """
    path = find_state(path)
    if path.suffix == ".json":
        return _open_shards(path, mapped)
    return _open_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path, mapped)


def _open_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "numpy") as file:  # checks that the file is complete and its header is valid
            names = list(file.keys())
        with open(path, "rb") as opened:
            size = int.from_bytes(opened.read(_HEADER_SIZE), "little")
            header = loads(opened.read(size))
        return {name: _stored(path, _HEADER_SIZE + size, name, header[name]) for name in names}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no safetensors file, or a truncated one: {_one_line(error)}") from error


def _stored(path: Path, start: int, name: str, about: JsonObject) -> Stored:
    if about["dtype"] not in _DTYPES:
        raise ValueError(f"{path}: {name} holds {about['dtype']}, expected one of {', '.join(_DTYPES)}")
    dtype = np.dtype(_DTYPES[about["dtype"]]).newbyteorder("<")
    return Stored(path, start + about["data_offsets"][0], tuple(about["shape"]), dtype)


def _open_shards(index: Path, mapped: bool) -> dict[str, Tensor]:
    names = _weight_map(index)
    state: dict[str, Tensor] = {}
    for shard in _shards(index, names):
        try:
            present = (index.parent / shard).is_file()
        except OSError as error:
            raise ValueError(f"{index}: the shard {_shortened(shard)} cannot be read: {error.strerror}") from error
        if not present:
            raise ValueError(f"{index}: the shard {_shortened(shard)} is missing")
        tensors = open_state(index.parent / shard, mapped)
        if double := sorted(state.keys() & tensors.keys()):
            raise ValueError(f"{index}: {', '.join(double)} in {shard} and in an earlier shard")
        state |= tensors
    if missing := sorted(names.keys() - state.keys()):
        raise ValueError(f"{index}: in none of its shards: {', '.join(missing)}")
    return state


def _weight_map(index: Path) -> dict[str, str]:
    """Returns the file of each tensor that an index lists; ValueError if the file is not an index."""
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{index}: expected an object with weight_map: {{tensor: file}}")
    return names


def _shards(index: Path, names: Mapping[str, str]) -> list[str]:
    """Returns the names of the shards in order; ValueError for one that cannot be a shard beside the index."""
    found = sorted(set(names.values()))
    for shard in found:
        if Path(shard).name != shard or shard.endswith(".json"):
            raise ValueError(f"{index}: the shard {_shortened(shard)!r} is not a file beside it")
    return found


def _read_torch(path: Path, mapped: bool) -> dict[str, Tensor]:
    """Reads a file of torch.save that holds only tensors; anything else in the pickle is refused, never run."""
    torch = extras.load(f"{path} is read with PyTorch", "torch")
    asked: list[str] = []
    try:
        asked = globals_of(path)
        if wanted := [name for name in asked if name in OF_MEMORY]:
            raise pickle.UnpicklingError(f"GLOBAL {wanted[0]}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about a pickle that is about to be refused
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and is_zip(path))
    except TooLarge:
        raise
    except Exception as error:  # a damaged file may raise KeyError, EOFError, UnpicklingError, RuntimeError, ...
        if isinstance(error, pickle.UnpicklingError) and (wanted := _refused_global(str(error), asked)):
            raise ValueError(
                f"{path} is refused: its pickle asks for {wanted}, which is not a tensor and could run code; "
                "save the state dict alone"
            ) from None
        reason = "the file ends too early" if isinstance(error, EOFError) else _one_line(error)
        raise ValueError(f"{path} is no PyTorch state dict, or a truncated one: {reason[:200]}") from None
    if not isinstance(state, Mapping):
        raise ValueError(f"{path} holds a {type(state).__name__}, expected a state dict: names and tensors")
    for name, value in state.items():
        if not (isinstance(name, str) and isinstance(value, torch.Tensor)):
            raise ValueError(f"{path}: {name!r} is a {type(value).__name__}, expected a state dict: names and tensors")
    try:
        check_tensors(path, (value.numel() * value.element_size() for value in state.values()))
        return {name: _to_numpy(value, torch) for name, value in state.items()}
    except (TypeError, RuntimeError, NotImplementedError) as error:  # tensors that are quantised, 8-bit, without data
        raise ValueError(f"{path} holds tensors that NumPy cannot: {_one_line(error)[:200]}") from None


def _to_numpy(tensor: Any, torch: ModuleType) -> np.ndarray:  # a tensor of PyTorch, which has no types here
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:  # NumPy itself has no bfloat16; ml_dtypes has
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.to_dense().numpy()


def _refused_global(message: str, asked: Sequence[str]) -> str:
    """Returns the refused global, e.g. "posix.system": from PyTorch's message, else the first one of the pickle."""
    named = re.search(r"GLOBAL\s+([\w.]+)", message)
    return named[1].rstrip(".") if named else next(iter(asked), "")


def write_safetensors(path: str | os.PathLike[str], state: Mapping[str, np.ndarray]) -> None:
    """Writes a safetensors file atomically, with the metadata entry format="pt", which PyTorch's readers require."""
    arrays = {name: np.ascontiguousarray(value) for name, value in state.items()}
    try:
        with replacing(path) as partial:
            Path(partial).touch()
            mode = os.stat(partial).st_mode  # safetensors would make the file readable by its owner only
            save_file(arrays, partial, {"format": "pt"})
            os.chmod(partial, mode)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be written: {_one_line(error)}") from error


PARTIAL = ".partial"  # how the names of folders end that `new_folder` has not finished; they begin with a dot


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str], key: str = "--output=") -> Iterator[Path]:
    """Yields a temporary folder beside `path` that is renamed to `path` on success and removed on any failure.

    Args:
      key: prefix of the path in error messages.

    Raises:
      ValueError: `path` exists and is not an empty folder, or it cannot be written.
    """
    check_path(key.removesuffix("=") or "path", os.fspath(path), needed=True)
    target = Path(path).absolute()
    partial = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}{PARTIAL}")
    made: list[Path] = []
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise ValueError(f"{key}{path} exists already and is not empty")
        made = [folder for folder in target.parents if not folder.exists()]
        with interrupts.unfinished(partial):
            partial.mkdir(parents=True)
            yield partial
            rename(partial, target)
    except OSError as error:
        failed = target if error.filename is None else Path(os.fsdecode(error.filename))
        # An error about a path in the new folder, or about one above it, is an error of writing; else of reading.
        if not (failed.is_relative_to(partial) or target.is_relative_to(failed)):
            raise ValueError(f"{error.filename} cannot be read: {error.strerror}") from error
        raise ValueError(f"{key}{path} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):  # the folder holds the output
                folder.rmdir()


def _shortened(name: str) -> str:
    return name if len(name) <= 255 else f"{name[:40]}... ({len(name):,} characters)"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
