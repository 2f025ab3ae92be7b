"""Calls models with types: flax's `Module.apply` has no useful type, because it may return two kinds of things.

Use `applied` instead of `Module.apply` in new code that calls a model. Open it when a type checker rejects such a call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import flax.linen as nn
from flax.typing import RNGSequences, VariableDict

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


@overload
def applied(
    model: Callable[Inputs, Output], variables: VariableDict, rngs: RNGSequences | None = None
) -> Callable[Inputs, Output]: ...
@overload
def applied(
    model: nn.Module,
    variables: VariableDict,
    rngs: RNGSequences | None = None,
    *,
    method: Callable[Concatenate[Any, Inputs], Output],  # its first argument is the module, of a subclass
) -> Callable[Inputs, Output]: ...
@overload
def applied(
    model: nn.Module, variables: VariableDict, rngs: RNGSequences | None = None, *, method: str | None = None
) -> Callable[..., Any]: ...  # a name does not tell the type of the method
def applied(
    model: Any,  # a module, which the first overload takes as a callable to read the type of its `__call__`
    variables: VariableDict,
    rngs: RNGSequences | None = None,
    *,
    method: str | Callable[..., object] | None = None,
) -> Callable[..., Any]:  # typed by the overloads
    """Returns a model with its parameters as a function of the model's inputs, typed as the model's `__call__`.

    Args:
      variables: `{"params": params}`.
      rngs: random keys by name, such as "dropout".
      method: called in place of `__call__`; a method given by its name has no type.
    """
    instead = {} if method is None else {"method": method}
    return functools.partial(model.apply, variables, rngs=rngs, **instead)
