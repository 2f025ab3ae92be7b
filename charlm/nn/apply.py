"""Models as functions with types: what flax's `Module.apply` returns may be two things, so its type says nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import flax.linen as nn

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


@overload
def applied(model: Callable[Inputs, Output], variables: Any, rngs: Any = None) -> Callable[Inputs, Output]: ...
@overload
def applied(
    model: nn.Module, variables: Any, rngs: Any = None, *, method: Callable[Concatenate[Any, Inputs], Output]
) -> Callable[Inputs, Output]: ...
@overload
def applied(model: nn.Module, variables: Any, rngs: Any = None, *, method: str | None = None) -> Callable[..., Any]: ...
def applied(
    model: Any, variables: Any, rngs: Mapping[str, Any] | None = None, *, method: str | Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Returns a model with its parameters as a function of its inputs, which returns what the model's `__call__` does.

    Args:
      variables: `{"params": params}`. rngs: by name, such as "dropout".
      method: what is called in place of `__call__`; one that is named has no type.
    """
    instead = {} if method is None else {"method": method}
    return functools.partial(model.apply, variables, rngs=rngs, **instead)
