"""The arrays of a compact checkpoint: one safetensors file of parameters, where others have a folder.

A model that is shipped has this form: no optimizer, no position in the data, half the bytes of float32 or a quarter,
one file of arrays. `charlm.core.checkpoint` reads and writes it; the description and the checksums are those of any
checkpoint. In "int8" matrices are whole numbers from -127 to 127 with a scale for each output of a layer, or each row
of a table of embeddings; vectors, which are few, are bfloat16. Models compute with the float32 that `read` makes of
them. Open it to change how the arrays are stored.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from safetensors import safe_open
from safetensors.numpy import save_file

from charlm.core.checksums import ABOUT, described
from charlm.core.durable import write_text
from charlm.core.types import JsonObject, Params, Tree

ARRAYS = "state.safetensors"  # parameters by their names, "hlm/embed/norm/scale"
_SCALE = "@scale"  # ends the name of the float32 that the whole numbers of a parameter are multiplied by
_DEEPEST = 64  # levels of a parameter's name; flax and JAX walk them by recursion
_MOST = 127  # of a whole number; -128 is not used, so that a matrix and its negative are equally near


def is_compact(folder: Path) -> bool:
    """Returns whether a checkpoint has this form."""
    return (folder / ARRAYS).is_file()


def write(folder: Path, params: Params, metadata: JsonObject, dtype: str) -> None:
    """Writes parameters, rounded to one of `charlm.core.trained.PACKED`, and a description; OSError if that fails."""
    flat = traverse_util.flatten_dict(params, sep="/")
    rounded: dict[str, np.ndarray] = {}
    for name, value in flat.items():
        if dtype == "int8":
            rounded |= _whole_numbers(name, np.asarray(value, np.float32))
        else:
            rounded[name] = np.asarray(value).astype(jnp.dtype(dtype))
    (folder / ARRAYS).touch()
    mode = (folder / ARRAYS).stat().st_mode  # safetensors would make the file readable by its owner only
    save_file(rounded, folder / ARRAYS)
    (folder / ARRAYS).chmod(mode)
    about = {"custom_metadata": described(metadata), "commit_timestamp_nsecs": time.time_ns()}  # as orbax has it
    write_text(folder / ABOUT, json.dumps(about, ensure_ascii=False, indent=1) + "\n")


def _whole_numbers(name: str, value: np.ndarray) -> dict[str, np.ndarray]:
    """Returns what is stored of a float32 parameter: whole numbers and their scales, or bfloat16 if that is smaller."""
    if value.ndim > 1:
        most = np.abs(value).max(_axis(name), keepdims=True)
        scale = np.where(most > 0, most / _MOST, 1).astype(np.float32)
        if value.size + scale.nbytes < 2 * value.size:
            return {name: np.rint(value / scale).astype(np.int8), f"{name}{_SCALE}": scale}
    return {name: value.astype(jnp.bfloat16)}


def _axis(name: str) -> int:
    """Returns over which axis whole numbers share a scale: what a row has, or the inputs of a layer."""
    return -1 if name.endswith("embedding") else -2


def _scales_of(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the scales of a parameter; () of one that has none."""
    if len(shape) < 2:
        return ()
    axis = _axis(name) % len(shape)
    return (*shape[:axis], 1, *shape[axis + 1 :])


def stored(folder: Path) -> Params:
    """Returns names and shapes of the parameters, as the float32 that `read` makes of them."""
    with safe_open(folder / ARRAYS, "numpy") as file:
        names = [name for name in file.keys() if not name.endswith(_SCALE)]  # noqa: SIM118 (no dict)
        if deep := [name for name in names if name.count("/") > _DEEPEST]:
            raise ValueError(f"{folder}: a parameter's name has {deep[0].count('/')} levels, more than {_DEEPEST}")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    return _nested({name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()})


def read(folder: Path, abstract: Params) -> Params:
    """Returns parameters in the dtypes and on the devices that `abstract` says, only those that it has."""
    wanted: dict[str, Tree] = traverse_util.flatten_dict(abstract, sep="/")  # each an abstract array
    with safe_open(folder / ARRAYS, "numpy") as file:
        scaled = {name for name in file.keys() if name.endswith(_SCALE)}  # noqa: SIM118 (no dict)

        def value(name: str) -> np.ndarray:
            found, scale = file.get_tensor(name), f"{name}{_SCALE}"
            if scale not in scaled:
                return found
            scales = file.get_tensor(scale)
            expected = _scales_of(name, found.shape)
            if scales.shape != expected:  # others could make a small file fill the memory
                raise ValueError(f"{folder}: {scale} has the shape {scales.shape}, expected {expected or 'none'}")
            return found.astype(np.float32) * scales.astype(np.float32)

        return _nested({name: _placed(value(name), like) for name, like in wanted.items()})


def _placed(value: np.ndarray, like: jax.ShapeDtypeStruct) -> jax.Array:
    value = value.astype(like.dtype)
    if like.sharding is None:
        return jnp.asarray(value)
    return jax.make_array_from_callback(value.shape, like.sharding, lambda part: value[part])


def _nested(flat: dict[str, jax.Array] | dict[str, jax.ShapeDtypeStruct]) -> Params:
    return traverse_util.unflatten_dict(flat, sep="/")
