"""Names for the types that Python cannot express, each with the reason why it is open.

Use these names in annotations instead of `Any`. They stand for `Any` to type checkers, fully or in part, and tell
readers what is meant. The module imports nothing but the standard library, so every part of charlm can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

# A pytree of JAX: any nesting of dicts, tuples and NamedTuples around arrays, descriptions of arrays or other values.
# JAX has no type for pytrees, and none for "the same structure with other leaves", which `jax.tree.map` returns.
Tree: TypeAlias = Any

# Parameters of a model, or a description of each: nested dicts by names of layers, with arrays as leaves. The names and
# the depth depend on the model, and `Mapping[str, Params | jax.Array]` would need a cast at every level.
Params: TypeAlias = Mapping[str, Any]

# An array that is a numpy.ndarray on the host and a jax.Array on the device, such as those of a batch. One NamedTuple
# is used for both. It cannot be generic in their type, because `jax.device_put` and `jax.tree.map` do not keep it.
Array: TypeAlias = Any

# A value that was read from JSON or will be written to it. The type of a value is known only after a check or from the
# name of its key; a recursive union would need a cast at every access.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Json]

# A keyword argument that is passed on to another function, which declares its type.
Option: TypeAlias = Any

# The config of a model: a frozen dataclass that differs from family to family. Code that is the same for all families
# passes it back to the family that made it.
ModelConfig: TypeAlias = Any

# A flax module of a class that the code does not know. `nn.Module.apply` returns "an output, or a pair of output and
# variables", so the type `nn.Module` would need a cast wherever an output is read; see also `charlm.nn.apply`.
AnyModel: TypeAlias = Any
