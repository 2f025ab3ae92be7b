"""Makes packages of charlm callable, where a function for users has the name of a package: `charlm.finetune(...)`.

Python binds `charlm.finetune` to the package as soon as a module of it is imported, which hides a function of that
name. So the package itself can be called, and calls the function that `charlm/__init__.py` gives here. Open it to make
another package callable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_FUNCTIONS: dict[str, Callable[..., Any]] = {}  # each of a signature of its own


class _Called(ModuleType):
    """A package that is called like the function of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # those of the function
        return _FUNCTIONS[self.__name__](*args, **kwargs)


def give(package: str, function: Callable[..., Any]) -> None:  # of a signature of its own
    """Sets the function that a call of a package calls, such as that of "charlm.finetune"."""
    _FUNCTIONS[package] = function


def make_callable(package: str) -> None:
    """Makes a package callable; its `__init__.py` calls this with its own name."""
    sys.modules[package].__class__ = _Called
