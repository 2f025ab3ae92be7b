"""Counts what a compiled program does, from its text and with all loops: operations, bytes and collectives.

Open it when the counts of a plan differ from XLA's; `charlm.plan.hlo` reads the text. Each instruction of the optimized
program of one chip counts as follows, times the iterations of all loops around it:

  products    2 operations, a multiplication and an addition, for every pair of numbers that a dot or convolution
              multiplies; pairs with a zero that padding or dilation inserted do not count
  other       1 for every result of an elementwise instruction (for a reduction, 1 for every number it reads); exp, log,
              tanh, roots and similar functions count as `transcendental` instead; moving data does not count
  bytes       results and operands of every instruction outside a fusion, if they lie in the chip's main memory; an
              array that is sliced, gathered or updated in place counts with the size of the slice; the working memory
              of a library does not count
  collectives kind, groups, number, and the bytes that one chip contributes; the compiler for TPUs may split a
              collective that runs beside other work over several fusions, which share a channel: it counts once

XLA's own count follows the same rule, but counts the body of a loop once, and there is none for GPUs; tests compare
both.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from charlm.core.sharding import COLLECTIVES
from charlm.plan.bytes_moved import moved
from charlm.plan.hlo import NAME_PATTERN, HloModule, Instruction, bytes_of
from charlm.plan.products import product

TRANSCENDENTAL = {"exponential", "exponential-minus-one", "log", "log-plus-one", "tanh", "tan", "sqrt", "rsqrt", "cbrt",
                  "power", "sine", "cosine", "logistic", "erf", "atan2"}  # fmt: skip
ELEMENTWISE = {
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "and", "or", "xor", "not", "negate", "abs", "sign",
    "compare", "select", "clamp", "convert", "floor", "ceil", "round-nearest-even", "round-nearest-afz", "remainder",
    "shift-left", "shift-right-arithmetic", "shift-right-logical", "is-finite", "popcnt", "count-leading-zeros",
    "reduce-precision", "real", "imag", "complex",
}  # fmt: skip
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
        "opt-barrier", "optimization-barrier", "copy-done", "add-dependency", "domain"}  # fmt: skip
K = TypeVar("K")


class Collective(NamedTuple):
    """Collectives that are alike.

    Attributes:
      kind: the kind of collective, such as "all-reduce".
      attributes: the text of the instruction that states the groups.
      dtype: the dtype of the data sent.
      bytes: what one chip contributes to each collective: the size of its operands.
      times: how often a step runs the collective.
    """

    kind: str
    attributes: str
    dtype: str
    bytes: float
    times: float


class Count(NamedTuple):
    """What a program does on one chip.

    Attributes:
      products: FLOPs of products, by the dtype of the narrower factor.
      other: operations of elementwise instructions and reductions, without the transcendental ones.
      transcendental: operations such as exp and tanh.
      bytes: bytes read from main memory and written to it.
      collectives: the communication.
      unknown: the number of loops whose number of iterations is not known; they count once.
      calls: the number of calls of each library kernel whose work is not counted.
    """

    products: dict[str, float]
    other: float
    transcendental: float
    bytes: float
    collectives: list[Collective]
    unknown: int
    calls: dict[str, float]

    @property
    def flops(self) -> float:
        """Operations as XLA counts them: products and other, without the transcendental ones."""
        return sum(self.products.values()) + self.other


def count(program: HloModule, once: bool = False) -> Count:
    """Returns what a program does.

    Args:
      program: the compiled program of one chip.
      once: whether the body of a loop counts once, as in XLA's own count.
    """
    return _Counter(program, once).count()


def merged(collectives: Iterable[Collective]) -> Iterator[Collective]:
    """Merges collectives that differ only in size, and yields each group of them as one, with the mean size."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for one in collectives:
        total = sums.setdefault((one.kind, one.attributes, one.dtype), [0.0, 0.0])
        total[0] += one.bytes * one.times
        total[1] += one.times
    for (kind, attributes, dtype), (size, times) in sums.items():
        yield Collective(kind, attributes, dtype, size / times, times)


class _Counter:
    def __init__(self, program: HloModule, once: bool) -> None:
        self.program, self.once = program, once
        self.products: dict[str, float] = collections.defaultdict(float)
        self.calls: dict[str, float] = collections.defaultdict(float)
        self.collectives: dict[tuple[str, str, str, float], float] = collections.defaultdict(float)
        self.other = self.transcendental = self.bytes = 0.0
        self.unknown = 0
        self.split: set[str] = set()  # channels of collectives that the compiler for TPUs split over several fusions

    def count(self) -> Count:
        self.walk(self.program.entry, 1.0, True)
        found = [Collective(*key, times=times) for key, times in self.collectives.items()]
        return Count(
            dict(self.products), self.other, self.transcendental, self.bytes, found, self.unknown, dict(self.calls)
        )

    def walk(self, name: str, times: float, outside: bool) -> None:
        """Adds what a computation does.

        Args:
          name: the computation.
          times: how often it runs.
          outside: whether the computation is not part of a fusion, so that its instructions read and write main memory.
        """
        body = self.program.computations.get(name, {})
        for one in body.values():
            self.visit(one, body, times, outside)

    def visit(self, one: Instruction, body: dict[str, Instruction], times: float, outside: bool) -> None:
        """Adds what an instruction does; `times` and `outside` as in `walk`."""
        opcode = one.opcode
        if opcode in FREE or opcode.endswith(("-done", "-update")):
            return
        if opcode == "while":
            trips = self.program.trips(one)
            self.unknown += trips is None
            again = times * (1 if self.once or trips is None else trips)
            for part in ("body", "condition"):
                self.walk(one.called(part) or "", again, outside)
            return
        if opcode in ("call", "async-start"):
            self.walk(one.called("to_apply") or one.called("calls") or "", times, outside)
            return
        if opcode == "conditional":
            self.largest(one, times, outside)
            return
        kind = opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            channel = re.search(r"channel_id=(\d+)", one.attributes)
            if not (channel and not outside and channel[1] in self.split):
                self.communicate(kind, one, body, times)
            if channel and not outside:
                self.split.add(channel[1])
        elif opcode == "fusion":
            self.walk(one.called("calls") or "", times, False)
        else:
            self.operate(one, body, times)
        if outside:
            self.bytes += times * moved(self.program, one, body)

    def largest(self, one: Instruction, times: float, outside: bool) -> None:
        """Adds the branch of a conditional that does the most work."""
        listed = re.search(r"branch_computations=\{([^}]*)\}", one.attributes)
        names = re.findall(NAME_PATTERN, listed[1]) if listed else [
            name for key in ("true_computation", "false_computation") if (name := one.called(key))
        ]  # fmt: skip
        best: _Counter | None = None
        for name in names:
            own = _Counter(self.program, self.once)
            own.walk(name, times, outside)
            if best is None or sum(own.products.values()) + own.bytes > sum(best.products.values()) + best.bytes:
                best = own
        if best is not None:
            _add(self.products, best.products)
            _add(self.calls, best.calls)
            _add(self.collectives, best.collectives)
            self.other += best.other
            self.transcendental += best.transcendental
            self.bytes += best.bytes
            self.unknown += best.unknown

    def communicate(self, kind: str, one: Instruction, body: dict[str, Instruction], times: float) -> None:
        sent = self.program.operands(one, body)
        groups = re.search(r"(replica_groups|source_target_pairs)=.*?(?=, (?!device_ids)[a-z_]+=|$)", one.attributes)
        dtype = max(sent, key=lambda x: x.bytes).dtype if sent else ""  # one may send arrays of several dtypes
        self.collectives[kind, groups[0] if groups else "", dtype, sum(x.bytes for x in sent)] += times
        if kind in ("all-reduce", "reduce-scatter"):
            self.other += times * sum(x.size for x in sent)

    def operate(self, one: Instruction, body: dict[str, Instruction], times: float) -> None:
        opcode, read = one.opcode, self.program.operands(one, body)
        size = sum(x.size for x in one.results)
        if opcode in ("dot", "convolution", "custom-call"):
            flops = product(one, read)
            if flops:
                factors = [x for x in read if x.dtype != "u32"]  # the seeds of our tiles come first
                narrow = min(factors[:2], key=lambda x: bytes_of(x.dtype)).dtype
                self.products[narrow] += times * flops
            elif opcode == "custom-call":
                self.calls[one.attributes.partition('custom_call_target="')[2].partition('"')[0]] += times
        elif opcode in TRANSCENDENTAL:
            self.transcendental += times * size
        elif opcode in ELEMENTWISE:
            self.other += times * size
        elif opcode == "reduce":
            inputs = len(one.results)
            self.other += times * max(sum(x.size for x in read[:inputs]) - size, 0) * self.applied(one) / inputs
        elif opcode == "reduce-window":
            self.other += times * size * max(math.prod(one.window("size", ())) - 1, 0)
        elif opcode == "scatter":
            self.other += times * (read[-1].size if read else 0) * self.applied(one)
        elif opcode == "map":
            self.other += times * size * self.applied(one)

    def applied(self, one: Instruction) -> float:
        """Returns the operations of the small computation that a reduction or scatter applies to pairs."""
        name = one.called("to_apply")
        inner = self.program.computations.get(name or "", {})
        return sum(1 for each in inner.values() if each.opcode in ELEMENTWISE)


def _add(sums: dict[K, float], more: dict[K, float]) -> None:
    for key, value in more.items():
        sums[key] += value
