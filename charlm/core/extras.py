"""Loads optional packages, which only some uses of charlm need, and says in one line how to install a missing one.

Code that reads, scores or draws with such a package loads it here. A command that needs one only at its end also loads
it at its start, so that a missing package is reported before any work is done. Open it to add an optional package.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import NamedTuple


class _Package(NamedTuple):
    """The name under which a package is installed, and the extra of charlm that includes it; "": none does."""

    name: str
    extra: str


_PACKAGES = {
    "apache_beam": _Package("apache-beam", "beam"),
    "datasketch": _Package("datasketch", "beam"),
    "faiss": _Package("faiss-cpu", "search"),
    "flatbuffers": _Package("flatbuffers", "export"),
    "icu4py": _Package("icu4py", "text"),
    "jamspell": _Package("jamspell", ""),
    "matplotlib": _Package("matplotlib", "eval"),
    "onnx": _Package("onnx", ""),
    "onnxruntime": _Package("onnxruntime", ""),
    "onnxscript": _Package("onnxscript", ""),
    "pandas": _Package("pandas", ""),
    "pyarrow": _Package("pyarrow", ""),
    "prometheus_client": _Package("prometheus-client", "serve"),
    "scipy": _Package("scipy", "eval"),
    "sentence_transformers": _Package("sentence-transformers", ""),
    "sklearn": _Package("scikit-learn", "eval"),
    "spacy": _Package("spacy", "text"),
    "starlette": _Package("starlette", "serve"),
    "symspellpy": _Package("symspellpy", "defence"),
    "tensorflow_datasets": _Package("tensorflow-datasets", ""),
    "torch": _Package("torch", "torch"),
    "transformers": _Package("transformers", ""),
    "uvicorn": _Package("uvicorn", "serve"),
    "warcio": _Package("warcio", "beam"),
}


def load(what: str, module: str) -> ModuleType:
    """Imports a module of an optional package.

    Args:
      what: what needs the module, for the message, such as "--plot".
      module: such as "scipy.stats".

    Raises:
      ValueError: the package is not installed or cannot be imported; the message says how to install it.
    """
    package = module.partition(".")[0]
    check(what, package)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module:  # perhaps an older release of the package
            error.msg = f"it has no {module}"
        raise ValueError(
            f"{what}: {_package(package).name} cannot be imported ({error.msg}): {_install([package])}"
        ) from error


def check(what: str, *packages: str) -> None:
    """Raises ValueError, as `load` does, if packages are not installed; imports none of them."""
    if reason := missing(*packages):
        raise ValueError(f"{what}: {reason}")


def missing(*packages: str) -> str:
    """Returns a text that names the packages that are not installed, and how to install them; "" if all are.

    Args:
      packages: names of their modules.
    """
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if not absent:
        return ""
    names = " and ".join(_package(package).name for package in absent)
    return f"{names} {'is' if len(absent) == 1 else 'are'} not installed: {_install(absent)}"


def _package(module: str) -> _Package:
    """Returns the package of a module; for a module not in the table, a package of the same name."""
    return _PACKAGES.get(module, _Package(module, ""))


def is_checkout() -> bool:
    """Returns whether charlm runs from its repository, whose extras pip can install; an installed wheel has none."""
    return (Path(__file__).resolve().parents[2] / "setup.py").is_file()


def _install(packages: list[str]) -> str:
    found = [_package(package) for package in packages]
    if not is_checkout():
        return " ".join(["pip install", *dict.fromkeys(package.name for package in found)])
    extras = ",".join(dict.fromkeys(package.extra for package in found if package.extra))
    names = [package.name for package in found if not package.extra]
    return " ".join(["pip install", *([f'-e ".[{extras}]"'] if extras else []), *names])


def folders_of(package: str) -> list[Path]:
    """Returns the folders of an installed package, which is not imported; [] if there is none.

    Args:
      package: a name without dots, since a package inside another is found by importing that.
    """
    try:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
    except (ImportError, ValueError):  # ValueError: there is a module of that name that says not where it is from
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
