"""Counts the bytes that one instruction of a compiled program reads from a chip's main memory and writes to it.

Open it when the bytes of a plan differ from XLA's. `charlm.plan.counting` states the rule.
"""

from __future__ import annotations

import collections

from charlm.plan.hlo import HloModule, Instruction


def moved(program: HloModule, one: Instruction, body: dict[str, Instruction]) -> float:
    """Returns the bytes that an instruction reads from main memory and writes to it.

    Args:
      program: the program.
      one: an instruction of it that is not part of a fusion.
      body: the computation that the instruction is in, by the names of its instructions.
    """
    opcode = one.opcode
    read = program.operands(one, body)
    results = [x for x in one.results if x.main]
    if opcode == "fusion":
        return _moved_by_fusion(program, one, body)
    if opcode == "custom-call" and len(results) > 1:  # without the room that a library asks for, bytes of its own
        results = [x for x in results if x.dtype != "s8"]
    if opcode.endswith("-start"):  # the results name the operands again, and contexts
        results = [x for x in one.results[len(read) :][: len(read)] if x.main]
    if opcode in ("dynamic-slice", "slice", "gather"):
        indices = read[1:]
        return sum(x.bytes for x in (*results, *[y for y in indices if y.main])) + sum(
            x.bytes for x in one.results if read and read[0].main
        )
    if opcode == "dynamic-update-slice" and len(read) > 1:
        return 2 * read[1].bytes if read[0].main or read[1].main else 0.0
    if opcode == "scatter" and len(read) > 2:
        return sum(x.bytes for x in read[1:] if x.main) + 2 * read[-1].bytes
    return sum(x.bytes for x in results) + sum(x.bytes for x in read if x.main)


def _moved_by_fusion(program: HloModule, one: Instruction, body: dict[str, Instruction]) -> float:
    name = one.called("calls") or ""
    inner = program.computations.get(name, {})
    total = 0.0
    in_place: set[str] = set()
    root = program.root(name) if inner else None
    last = [inner[x] for x in root.operands if x in inner] if root and root.opcode == "tuple" else [root]
    for result, maker in zip(one.results, [*last, *[None] * len(one.results)], strict=False):
        written = result.bytes if result.main else 0.0
        update = _through_bitcasts(maker, inner)
        if update is not None and update.opcode == "dynamic-update-slice":
            slice_read = program.operands(update, inner)
            written = slice_read[1].bytes if result.main and len(slice_read) > 1 else 0.0
            in_place.add(update.operands[0])
        total += written
    for place, operand in enumerate(one.operands):
        given = body.get(operand)
        if given is None or any(x.main for x in given.results):
            total += _read_inside(program, name, place, in_place)
    return total


def _read_inside(program: HloModule, name: str, place: int, in_place: set[str]) -> float:
    """Returns how many bytes of one of its parameters a fusion reads: all, or those of the slices that it takes.

    Args:
      program: the program.
      name: the computation of the fusion.
      place: the position of the parameter.
      in_place: arrays that the fusion updates in place and therefore does not read.
    """
    inner = program.computations.get(name, {})
    parameters = (x for x in inner.values() if x.opcode == "parameter" and x.inside == str(place))
    parameter = next(parameters, None)
    if parameter is None:
        return 0.0
    whole = sum(x.bytes for x in parameter.results)
    users: dict[str, list[Instruction]] = collections.defaultdict(list)
    for each in inner.values():
        for operand in dict.fromkeys(each.operands):
            users[operand].append(each)
    taken, names = 0.0, [parameter.name]
    while names:
        read = names.pop()
        for user in users[read]:
            if user.opcode == "bitcast":
                names.append(user.name)
            elif user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == read:
                taken += sum(x.bytes for x in user.results)
            elif user.opcode == "dynamic-update-slice" and user.operands[0] == read and read in in_place:
                continue
            elif user.opcode == "fusion":
                called = user.called("calls") or ""
                taken += sum(
                    _read_inside(program, called, at, set()) for at, given in enumerate(user.operands) if given == read
                )
            else:
                return whole
    return min(taken, whole)


def _through_bitcasts(one: Instruction | None, inner: dict[str, Instruction]) -> Instruction | None:
    while one is not None and one.opcode in ("bitcast", "copy", "convert", "reshape") and one.operands[0] in inner:
        one = inner[one.operands[0]]
    return one
