"""Calls models with types: flax's `Module.apply` has no useful type, because it may return two kinds of things."""

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
    """Returns a model with its parameters as a function of the model's inputs, typed as the model's `__call__`.

    Args:
      variables: `{"params": params}`.
      rngs: random keys by name, such as "dropout".
      method: called in place of `__call__`; a method given by its name has no type.
    """
    instead = {} if method is None else {"method": method}
    return functools.partial(model.apply, variables, rngs=rngs, **instead)
