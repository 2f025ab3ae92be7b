"""Checks the entries that packages add to the tables of charlm: texts for users, places of code, types and methods.

Each table (`charlm.core.registry`) says what its entries must have. This module checks that they have it, and says in
one line what is wrong. Open it to check another part of an entry.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec

_KINDS = {str: "a text", bool: "True or False", int: "a number", float: "a number", tuple: "a tuple", Mapping: "a dict"}


def is_line(value: object) -> bool:
    """Returns whether a value is a text for users that fills one line: not empty, and without a line break."""
    return isinstance(value, str) and bool(value.strip()) and value.splitlines() == [value]


def problem_of(reference: object) -> str:
    """Returns what is wrong with a place "module:name"; "": nothing that is seen without importing it."""
    module, _, name = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    return _problem_of(module, name) if module and name else f"expected a place, module:name, got {reference!r}"


def problem_of_module(module: object) -> str:
    """Returns what is wrong with the name of a module; "": nothing that is seen without importing it."""
    if not (isinstance(module, str) and module and ":" not in module):
        return f"expected a module, got {module!r}"
    return _problem_of(module, "")


def _problem_of(module: str, name: str) -> str:
    try:
        spec = importlib.util.find_spec(module)  # imports the packages that the module is in
        if spec is None:
            return f"there is no module {module}"
        if name and not (name.isidentifier() and _defines(spec, name)):
            return f"the module {module} has no {name}"
    except (ImportError, ValueError):
        return f"there is no module {module}"
    except (Exception, SystemExit) as error:  # a third-party package may raise anything
        return f"{module} cannot be imported: {reason(error)}"
    return ""


def _defines(spec: ModuleSpec, name: str) -> bool:
    """Returns whether a module defines a name; True if that cannot be told from its source, or it has none."""
    source = getattr(spec.loader, "get_source", lambda _: None)(spec.name)
    if source is None or "globals()" in source:
        return True
    bound, todo = set(), list[ast.AST](ast.parse(source).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
            continue  # what it binds is its own
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        todo += ast.iter_child_nodes(node)
    return bool(bound & {name, "*", "__getattr__"})


def check_fields(what: str, thing: object, kinds: Mapping[str, type | tuple[type, ...]]) -> None:
    """Checks the types of an object's fields; True and False are no numbers.

    Args:
      what: the entry, for messages.
      kinds: the allowed types of each field.

    Raises:
      ValueError: a field has another type; names it, the expected types and what was found.
    """
    for field, kind in kinds.items():
        value, allowed = getattr(thing, field), kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            expected = " or ".join(dict.fromkeys(_KINDS.get(one, one.__name__) for one in allowed))
            raise ValueError(f"{what}: {field}={value!r}, expected {expected}")


def takes(function: Callable[..., object], count: int) -> bool:
    """Returns whether a function can be called with so many arguments; True if its signature is not known."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def problem_of_methods(made: type, base: type) -> str:
    """Returns what is wrong with how a subclass redefines the public methods of its base class; "": nothing.

    A method must take the arguments of the base class's, in their order and by their names, and require no others;
    where the base class has a property, the subclass may not have a method.
    """
    for name, told in vars(base).items():
        own = inspect.getattr_static(made, name)
        if name.startswith("_") or own is told:
            continue
        if isinstance(told, property) and inspect.isroutine(own):
            return f"{made.__name__}.{name} is a method, expected a property"
        of_class = isinstance(told, classmethod | staticmethod)  # called without an instance
        if not (of_class or inspect.isfunction(told)):
            continue
        found = getattr(made, name)
        if not callable(found):
            return f"{made.__name__}.{name}={found!r}, expected a method"
        expected = list(inspect.signature(getattr(base, name)).parameters.values())[not of_class :]
        takes_self = not of_class and not isinstance(own, classmethod | staticmethod) and hasattr(own, "__get__")
        if not _takes_like(found, expected, [None] * takes_self):
            named = ", ".join(one.name for one in expected) or "no arguments"
            said = "a class method or static method that takes" if of_class else "to take"
            return f"{made.__name__}.{name}, expected {said} {named}"
    return ""


def _takes_like(function: Callable[..., object], expected: list[inspect.Parameter], first: list[None]) -> bool:
    """Returns whether a function takes `first` and the expected arguments, these both in their order and by name."""
    by_place = [one for one in expected if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_name = {one.name: None for one in expected if one.kind is one.KEYWORD_ONLY}
    try:
        signature = inspect.signature(function)
        signature.bind(*first, *[None] * len(by_place), **by_name)
        signature.bind(*first, **{one.name: None for one in by_place}, **by_name)
    except TypeError:
        return False
    except ValueError:  # it has no signature that Python knows
        return True
    return True


def reason(error: BaseException) -> str:
    """Returns the class and the message of an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
