"""The arrays of a compact checkpoint: one safetensors file of parameters, two bytes each, where others have a folder.

A model that is shipped has this form: no optimizer, no position in the data, half the bytes, one file of arrays.
`charlm.core.checkpoint` reads and writes it; the description and the checksums are those of any checkpoint. Open it to
change how the arrays are stored.
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


def is_compact(folder: Path) -> bool:
    """Returns whether a checkpoint has this form."""
    return (folder / ARRAYS).is_file()


def write(folder: Path, params: Params, metadata: JsonObject, dtype: str) -> None:
    """Writes parameters, rounded to one of `charlm.core.trained.DTYPES`, and a description; OSError if that fails."""
    flat = traverse_util.flatten_dict(params, sep="/")
    rounded = {name: np.asarray(value).astype(jnp.dtype(dtype)) for name, value in flat.items()}
    (folder / ARRAYS).touch()
    mode = (folder / ARRAYS).stat().st_mode  # safetensors would make the file readable by its owner only
    save_file(rounded, folder / ARRAYS)
    (folder / ARRAYS).chmod(mode)
    about = {"custom_metadata": described(metadata), "commit_timestamp_nsecs": time.time_ns()}  # as orbax has it
    write_text(folder / ABOUT, json.dumps(about, ensure_ascii=False, indent=1) + "\n")


def stored(folder: Path) -> Params:
    """Returns names and shapes of the parameters, as the float32 that `read` makes of them."""
    with safe_open(folder / ARRAYS, "numpy") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no dict)
    return _nested({name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()})


def read(folder: Path, abstract: Params) -> Params:
    """Returns parameters in the dtypes and on the devices that `abstract` says, only those that it has."""
    wanted: dict[str, Tree] = traverse_util.flatten_dict(abstract, sep="/")  # each an abstract array
    with safe_open(folder / ARRAYS, "numpy") as file:
        return _nested({name: _placed(file.get_tensor(name), like) for name, like in wanted.items()})


def _placed(value: np.ndarray, like: jax.ShapeDtypeStruct) -> jax.Array:
    value = value.astype(like.dtype)
    if like.sharding is None:
        return jnp.asarray(value)
    return jax.make_array_from_callback(value.shape, like.sharding, lambda part: value[part])


def _nested(flat: dict[str, jax.Array] | dict[str, jax.ShapeDtypeStruct]) -> Params:
    return traverse_util.unflatten_dict(flat, sep="/")
