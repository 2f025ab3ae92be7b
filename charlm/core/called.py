"""Makes packages of charlm callable, where a function for users has the name of a package: `charlm.finetune(...)`.

Python binds `charlm.finetune` to the package as soon as a module of it is imported, which hides a function of that
name. So the package itself can be called, and calls the function that `charlm/__init__.py` gives here. Open it to make
another package callable.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

Function = Callable[..., Any]  # each of a signature of its own
_FINDERS: dict[str, Callable[[], Function]] = {}  # of each package, what imports its function


class _Called(ModuleType):
    """A package that is called like the function of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # those of the function
        return _function(self.__name__)(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the function, for `inspect.signature` and for editors."""
        return inspect.signature(_function(self.__name__))

    @property
    def __doc__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # what `help` shows
        function = _function(self.__name__)
        said = f"{self.__name__}{inspect.signature(function)}\n\n{inspect.getdoc(function)}"
        return f"{said}\n\n{vars(self).get('__doc__') or ''}"


def give(package: str, find: Callable[[], Function]) -> None:
    """Sets the function that a call of a package calls, such as that of "charlm.finetune".

    Args:
      find: imports and returns the function; not called before that is needed.
    """
    _FINDERS[package] = find


def _function(package: str) -> Function:
    return _FINDERS[package]()


def make_callable(package: str) -> None:
    """Makes a package callable; its `__init__.py` calls this with its own name."""
    sys.modules[package].__class__ = _Called
