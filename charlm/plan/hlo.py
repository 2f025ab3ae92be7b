"""Reads the text of a compiled program: its computations, their instructions, and the arrays that these return.

Open it when a compiler writes an instruction in a new form. `charlm.plan.counting` counts what a program does.
"""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16, "token": 0, "opaque": 0}
NAME_PATTERN = r"%?([\w.\-]+)"  # of a computation or an instruction
_HEADER = re.compile(rf"^(?:ENTRY )?{NAME_PATTERN} \(.*\{{$")
_PARENTHESIS = re.compile(r"[()]")
_ARRAY = re.compile(r"(\w+)\[([\d,<=]*)\](\{[^}]*\})?")


class HloArray(NamedTuple):
    """An array of a program, without its values.

    Attributes:
      dtype: in XLA's words, such as "bf16".
      shape: its sizes.
      main: whether it lies in the chip's main memory.
    """

    dtype: str
    shape: tuple[int, ...]
    main: bool = True

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """The size of the array in bytes."""
        return self.size * bytes_of(self.dtype)


class Instruction(NamedTuple):
    """An instruction of a program.

    Attributes:
      name: its name, unique in its computation.
      opcode: what it does, such as "dot".
      results: the arrays that it makes.
      operands: the names of its operands.
      attributes: the text after the operands.
      inside: the text of the operands.
      root: whether its results are those of its computation (XLA's ROOT).
    """

    name: str
    opcode: str
    results: tuple[HloArray, ...]
    operands: tuple[str, ...]
    attributes: str
    inside: str = ""
    root: bool = False

    def called(self, key: str) -> str | None:
        """Returns the computation that an attribute names, None if it has no such attribute."""
        found = re.search(rf"\b{key}={NAME_PATTERN}", self.attributes)
        return found[1] if found else None

    def window(self, key: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        """Returns what the window of a convolution or reduction states under a key, such as its "size" on each axis."""
        found = re.search(rf"window=\{{[^}}]*\b{key}=([\dx]+)", self.attributes)
        return tuple(map(int, found[1].split("x"))) if found else otherwise


@functools.cache
def bytes_of(dtype: str) -> float:
    """Returns the size of a number in bytes, by its dtype in XLA's words."""
    if dtype in BYTES:
        return BYTES[dtype]
    bits = re.match(r"[a-z]+(\d+)", dtype)
    return int(bits[1]) / 8 if bits else 0


@functools.lru_cache(maxsize=2**16)  # a program has far fewer types than instructions
def _arrays(text: str) -> tuple[HloArray, ...]:
    found = []
    for dtype, sizes, layout in _ARRAY.findall(text):
        space = re.search(r"S\((\d+)\)", layout)
        shape = tuple(int(size.lstrip("<=")) for size in sizes.split(",") if size)
        found.append(HloArray(dtype, shape, space is None or space[1] == "0"))
    return tuple(found)


def _closing(text: str, start: int) -> int:
    """Returns the position of the parenthesis that closes the one at `start`."""
    depth = 0
    for found in _PARENTHESIS.finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.start()
    raise ValueError(f"unbalanced parentheses in the program: {text[:200]}")


def _instruction(line: str) -> Instruction | None:
    found = re.match(rf"\s+(ROOT )?{NAME_PATTERN} = ", line)
    if found is None:
        return None
    at = found.end()
    end = _closing(line, at) + 1 if line[at] == "(" else line.index(" ", at)
    opening = line.index("(", end)
    closing = _closing(line, opening)
    inside = line[opening + 1 : closing]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    opcode = line[end:opening].strip()
    return Instruction(found[2], opcode, _arrays(line[at:end]), operands, line[closing + 1 :], inside, bool(found[1]))


class HloModule:
    """A compiled program, read from its text.

    Attributes:
      computations: the instructions of each computation, by their names.
      entry: the name of the computation that runs first.

    Raises:
      ValueError: the text is not that of a compiled program.
    """

    def __init__(self, text: str) -> None:
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ""
        body: dict[str, Instruction] | None = None
        for line in text.splitlines():
            if body is None:
                if (header := _HEADER.match(line)) and " -> " in line:
                    body = self.computations.setdefault(header[1], {})
                    if line.startswith("ENTRY"):
                        self.entry = header[1]
            elif line.startswith("}"):
                body = None
            elif instruction := _instruction(line):
                body[instruction.name] = instruction
        if not self.entry:
            raise ValueError("this is not the text of a compiled program: it has no ENTRY")

    def root(self, name: str) -> Instruction:
        """Returns the last instruction of a computation."""
        body = self.computations[name]
        return next((one for one in body.values() if one.root), list(body.values())[-1])

    def operands(self, instruction: Instruction, body: dict[str, Instruction]) -> list[HloArray]:
        """Returns the arrays that an instruction reads."""
        return [array for name in instruction.operands if name in body for array in body[name].results]

    def trips(self, loop: Instruction) -> int | None:
        """Returns the number of iterations of a loop; None if it is not known."""
        if found := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(found[1])
        condition = loop.called("condition")
        if condition not in self.computations:
            return None
        # JAX's loops count from 0 by 1: the limit is the constant that the counter is compared with.
        compared = [one for one in self.computations[condition].values() if one.opcode == "compare"]
        compared += [
            one
            for fusion in self.computations[condition].values()
            if fusion.opcode == "fusion" and (called := fusion.called("calls"))
            for one in self.computations[called].values()
            if one.opcode == "compare"
        ]
        constants = [
            int(one.inside)
            for one in self.computations[condition].values()
            if one.opcode == "constant" and re.fullmatch(r"-?\d+", one.inside) and not one.results[0].shape
        ]
        one_test = len(compared) == 1 and "direction=LT" in compared[0].attributes
        return constants[0] if one_test and len(constants) == 1 else None
