"""Remembers what asking again would take long to say: conftest.py has all tests do so.

Whenever a module reads a parameter, flax traces the initializer to compare shapes: half the time of tracing a layer.
XLA takes a tenth of a second to say how much memory a small training step needs, and many runs train the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import jax
from jax._src import stages

_known: dict[Any, Any] = {}  # what a function is made of -> what it returns, as shapes


def remember_shapes() -> None:
    """Has flax compare each parameter with a shape that is kept; all else that calls `jax.eval_shape` traces anew."""
    trace = jax.eval_shape

    def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if getattr(fun, "__module__", None) != "flax.core.scope" or args or kwargs:
            return trace(fun, *args, **kwargs)
        try:
            key = made_of(fun)
            known = key in _known
        except TypeError:  # holds what has no hash, such as an array
            return trace(fun)
        if not known:
            _known[key] = trace(fun)
        return _known[key]

    jax.eval_shape = eval_shape


def remember_memory() -> None:
    """Has XLA say once for each compiled program how much memory it needs."""
    analyse = stages.Executable.memory_analysis
    said: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def memory_analysis(self: Any) -> Any:
        if self not in said:
            said[self] = analyse(self)
        return said[self]

    stages.Executable.memory_analysis = memory_analysis


def made_of(value: Any) -> Any:
    """Returns what tells functions apart: code, globals, defaults and what they hold; other values as they are."""
    if isinstance(value, FunctionType):
        held = tuple(cell.cell_contents for cell in value.__closure__ or ())
        parts = value.__defaults__, value.__kwdefaults__, held
        return FunctionType, value.__code__, value.__globals__["__name__"], *map(made_of, parts)
    if isinstance(value, tuple | list):
        return type(value), *map(made_of, value)
    if isinstance(value, dict):
        return dict, *((name, made_of(x)) for name, x in value.items())
    return value
