"""Rules that map their tensor names and layouts to our parameter paths; used for both import and export.

The rules and the abstract parameters of our model determine a complete one-to-one table. Import reports all mismatches
with the table at once; export is its exact inverse, byte for byte. Open it to write the table of a new model, or when
an import reports missing or unexpected tensors.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from flax import traverse_util

from charlm.convert.files import Tensor
from charlm.core.types import Params


@dataclasses.dataclass(frozen=True)
class Rule:
    """The names of one parameter on both sides; a placeholder such as `{n}` is a number, the same in both names.

    Attributes:
      theirs: name in the state dict, e.g. "encoder.layer.{n}.output.dense.weight".
      ours: path in our tree, e.g. "encoder/layer_{n}/ffn_out/kernel".
      transpose: True for matrices: PyTorch stores [out, in], Flax [in, out].
      parts: values for "{part}" in `ours`: their tensor is the concatenation of these parameters along our last axis.
      roll: number of rows by which ours are rotated (`np.roll`) relative to theirs: XRayEmb's padding is its last row.
    """

    theirs: str
    ours: str
    transpose: bool = False
    parts: tuple[str, ...] = ()
    roll: int = 0


def dense_rules(theirs: str, ours: str) -> list[Rule]:
    """Returns the rules of a Linear layer."""
    return [Rule(f"{theirs}.weight", f"{ours}/kernel", transpose=True), Rule(f"{theirs}.bias", f"{ours}/bias")]


def norm_rules(theirs: str, ours: str) -> list[Rule]:
    """Returns the rules of a LayerNorm."""
    return [Rule(f"{theirs}.weight", f"{ours}/scale"), Rule(f"{theirs}.bias", f"{ours}/bias")]


@dataclasses.dataclass(frozen=True)
class Leave:
    """A tensor that is deliberately not imported: the reason, and the tensor it must equal if it is an alias."""

    theirs: str
    reason: str
    same_as: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant of the model, with which nothing is lost."""
        return self.reason.startswith("a constant")


class Entry(NamedTuple):
    """How a tensor of theirs maps to ours; see `Rule` for `transpose` and `roll`.

    Attributes:
      ours: our paths, each with the size of its last axis.
      shape: the shape of their tensor.
      rows: for each row of theirs the index of our row, -1 for a row of zeros; every row of ours occurs, possibly
        several times. (): both have the same rows.
    """

    ours: dict[str, int]
    shape: tuple[int, ...]
    transpose: bool
    roll: int = 0
    rows: tuple[int, ...] = ()


def _pattern(name: str) -> re.Pattern[str]:
    """Compiles a name with placeholders for numbers to a regular expression."""
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(name)))


def build_table(rules: Iterable[Rule], params: Params) -> dict[str, Entry]:
    """Returns their name -> `Entry` for every parameter of a tree (arrays or `jax.ShapeDtypeStruct`).

    Raises:
      ValueError: the rules are wrong: a parameter has no rule or several, or two parameters get the same name.
    """
    compiled = [(rule, part, _pattern(_named(rule.ours, part))) for rule in rules for part in rule.parts or ("",)]
    found: dict[tuple[str, Rule], dict[str, tuple[str, tuple[int, ...]]]] = {}
    for ours, leaf in sorted(traverse_util.flatten_dict(params, sep="/").items()):
        matches = [(rule, part, match) for rule, part, pattern in compiled if (match := pattern.fullmatch(ours))]
        if len(matches) != 1:
            raise ValueError(f"{len(matches)} rules name the parameter {ours}; exactly one must")
        rule, part, match = matches[0]
        held = found.setdefault((rule.theirs.format(**match.groupdict()), rule), {})
        if part in held:
            raise ValueError(f"two parameters are named {rule.theirs}: {held[part][0]} and {ours}")
        held[part] = ours, tuple(leaf.shape)
    table: dict[str, Entry] = {}
    for (theirs, rule), held in found.items():
        if theirs in table:
            other, mine = next(iter(table[theirs].ours)), next(iter(held.values()))[0]
            raise ValueError(f"two parameters are named {theirs}: {other} and {mine}")
        if missing := [part for part in rule.parts if part not in held]:
            raise ValueError(f"there is no {', '.join(missing)} for {theirs}")
        ordered = [held[part] for part in rule.parts or ("",)]
        shape = (*ordered[0][1][:-1], sum(shape[-1] for _, shape in ordered))
        sizes = {ours: shape[-1] for ours, shape in ordered}
        table[theirs] = Entry(sizes, shape[::-1] if rule.transpose else shape, rule.transpose, rule.roll)
    return table


def _named(ours: str, part: str) -> str:
    return ours.replace("{part}", part)


def import_state(
    table: Mapping[str, Entry], leave: Sequence[Leave], state: dict[str, Tensor] | dict[str, np.ndarray], where: str
) -> Params:
    """Returns our nested parameters, float32, from their state dict.

    Args:
      table: from `build_table`.
      leave: tensors that are not imported.
      state: their tensors, floating point of any width, in memory or `files.Stored`. Each imported tensor is read and
        removed from the dict in turn, so that its memory can be freed.
      where: the name of the state dict in errors, for example its path.

    Raises:
      ValueError: tensors do not fit; one line names every missing, unexpected, misshapen and otherwise unfit tensor.
    """
    left = {
        name: rule for name in state for rule in leave if name not in table and _pattern(rule.theirs).fullmatch(name)
    }
    shapes: dict[str, list[str]] = {}
    for name, entry in table.items():
        if name in state and state[name].shape != entry.shape:
            shapes.setdefault(f"is {state[name].shape}, expected {entry.shape}", []).append(name)
    missing, unexpected = table.keys() - state.keys(), state.keys() - table.keys() - left.keys()
    problems = [
        *(["missing " + ", ".join(group(missing))] if missing else []),
        *(["unexpected " + ", ".join(group(unexpected))] if unexpected else []),
        *(f"{name} {shape}" for shape, names in sorted(shapes.items()) for name in group(names)),
        *(f"{name} holds {state[name].dtype}, expected floats" for name in sorted(table) if not _is_float(state, name)),
        *(f"{name} differs from {rule.same_as}" for name, rule in left.items() if not _same(state, name, rule.same_as)),
    ]
    if problems:
        raise ValueError(f"{where} does not hold the parameters of this model: " + "; ".join(problems))
    flat, infinite = {}, []
    for name, entry in table.items():
        with np.errstate(over="ignore"):
            value = np.asarray(state.pop(name), np.float32)
        if not np.isfinite(value).all():
            infinite.append(name)
        value = value.T if entry.transpose else value
        value = np.roll(value, entry.roll, axis=0) if entry.roll else value
        value = _rows_of_ours(value, entry.rows) if entry.rows else value
        edges = np.cumsum(list(entry.ours.values()))[:-1]
        for ours, part in zip(entry.ours, np.split(value, edges, axis=-1), strict=True):
            flat[ours] = np.ascontiguousarray(part)
    if infinite:
        raise ValueError(f"{where} holds NaN, infinite or too large numbers in {', '.join(group(infinite))}")
    return traverse_util.unflatten_dict(flat, sep="/")


def check_constants(
    constants: Mapping[str, np.ndarray], state: Mapping[str, Tensor] | Mapping[str, np.ndarray], where: str
) -> None:
    """Checks that tensors of a state dict that are no parameters are what our model computes in their place.

    Args:
      constants: what our model computes, by name; a state dict may lack them.

    Raises:
      ValueError: naming the first one with another shape, or with values that differ by more than bfloat16 rounds.
    """
    for name in constants.keys() & state.keys():
        ours, theirs = constants[name], np.asarray(state[name], np.float32)
        if theirs.shape != ours.shape:
            raise ValueError(f"{where}: the constant {name} is {theirs.shape}, expected {ours.shape}")
        if not np.allclose(theirs, ours, rtol=2.0**-7, atol=2.0**-7):
            apart = float(np.abs(theirs - ours).max())
            raise ValueError(f"{where}: the constant {name} is not what our model computes: up to {apart:.2g} apart")


def export_state(table: Mapping[str, Entry], leave: Sequence[Leave], params: Params) -> dict[str, np.ndarray]:
    """Returns their state dict, float32 and contiguous, from our parameters; includes the aliases in `leave`."""
    flat = traverse_util.flatten_dict(params, sep="/")
    state = {}
    for name, entry in table.items():
        parts = [np.asarray(flat[ours], np.float32) for ours in entry.ours]
        value = np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]
        value = np.roll(value, -entry.roll, axis=0) if entry.roll else value
        value = _rows_of_theirs(value, entry.rows) if entry.rows else value
        state[name] = np.ascontiguousarray(value.T if entry.transpose else value)
    for rule in leave:
        if rule.same_as in state:
            state[rule.theirs] = state[rule.same_as].copy()
    return state


def _rows_of_theirs(value: np.ndarray, rows: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([value, np.zeros_like(value[:1])])[list(rows)]


def _rows_of_ours(value: np.ndarray, rows: tuple[int, ...]) -> np.ndarray:
    ours, first = np.unique(rows, return_index=True)
    return value[first[ours >= 0]]


def same_rows(value: np.ndarray, rows: tuple[int, ...]) -> bool:
    """Returns whether their tensor agrees with `Entry.rows`: rows mapped to one row of ours are equal, -1 are zeros."""
    return np.array_equal(_rows_of_theirs(_rows_of_ours(value, rows), rows), value)


def in_parts(table: Mapping[str, Entry], size: int) -> Iterator[dict[str, Entry]]:
    """Yields the table in parts of at most `size` bytes of float32 parameters, each with at least one tensor."""
    part: dict[str, Entry] = {}
    held = 0
    for name, entry in table.items():
        own = 4 * math.prod(entry.shape)
        if part and held + own > size:
            yield part
            part, held = {}, 0
        part[name] = entry
        held += own
    if part:
        yield part


def names_any(rules: Iterable[Rule], names: Iterable[str]) -> bool:
    """Returns whether any of their names matches a rule, for any number of layers."""
    patterns = [_pattern(rule.theirs) for rule in rules]
    return any(pattern.fullmatch(name) for name in names for pattern in patterns)


def matches_any(theirs: Iterable[str], name: str) -> bool:
    """Returns whether a name is one of those of rules, for any number of layers."""
    return any(_pattern(one).fullmatch(name) for one in theirs)


def describe(rules: Iterable[Rule], leave: Sequence[Leave], name: str) -> str:
    """Returns readable text on how a tensor of theirs is imported, or why it is not, for any number of layers."""
    for rule in rules:
        if match := _pattern(rule.theirs).fullmatch(name):
            ours = _named(rule.ours, f"[{' '.join(rule.parts)}]").format(**match.groupdict())
            return ours + (" (transposed)" if rule.transpose else "")
    for rule in leave:
        if _pattern(rule.theirs).fullmatch(name):
            return f"not imported: {rule.reason}"
    return "not known: an import would refuse it"


def _is_float(state: Mapping[str, Tensor], name: str) -> bool:
    # bfloat16 is not of NumPy's kind "f".
    return name not in state or state[name].dtype.kind == "f" or state[name].dtype.name == "bfloat16"


def _same(state: Mapping[str, Tensor], name: str, other: str) -> bool:
    return not other or other not in state or np.array_equal(state[name], state[other])


def group(names: Iterable[str]) -> list[str]:
    """Returns the names in order, with names that differ only in the layer merged: "layer.[0-2,5].bias"."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(re.sub(r"\.\d+\.", ".{}.", name), []).append(name)
    lines = []
    for pattern, members in groups.items():
        if len(members) == 1 or pattern.count("{}") != 1:
            lines += members
        else:
            numbers = [int(number) for name in members for number in re.findall(r"\.(\d+)\.", name)[:1]]
            lines.append(pattern.format(f"[{_ranges(numbers)}]"))
    return lines


def _ranges(numbers: Iterable[int]) -> str:
    """Returns [0, 1, 2, 5] as "0-2,5"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
