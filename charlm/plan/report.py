"""Formats plans: as lines of text for people, and as a dictionary for JSON.

Open it to add a figure to the output of `python -m charlm.plan`, or to change how it is written.
"""

from __future__ import annotations

import shlex

import ml_collections

from charlm.core.types import JsonObject
from charlm.plan.analysis import Analysis
from charlm.plan.chips import GIB
from charlm.plan.figures import DAY, Figures
from charlm.plan.planning import Plan
from charlm.plan.search import Setting, Trial, setting_of

_UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHOWN = 8  # kinds of collectives that are shown


def amount(value: float, unit: str = "") -> str:
    """Returns a number with three digits and a decimal prefix: "1.23 T"."""
    for size, prefix in _UNITS:
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def gib(value: float) -> str:
    """Returns bytes in GiB, with two digits after the point."""
    return f"{value / GIB:.2f}"


def seconds(value: float) -> str:
    """Returns a short time: "1.2 s", "3.4 ms" or "56 us"."""
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def days(value: float) -> str:
    """Returns a long time in days, or in hours below two days."""
    return f"{value / DAY:.3g} days" if value >= 2 * DAY else f"{value / 3600:.3g} hours"


def lines(plan: Plan, price: float = 0.0, command: str = "") -> list[str]:
    """Returns a plan as lines of text.

    Args:
      plan: the plan.
      price: the price of an hour of one chip; 0: the lines state no cost.
      command: the command that starts the run, without the settings that were found.
    """
    own = setting_of(plan.config)
    if plan.asked is None:
        found = [f"on {plan.topology.described()}: the config does not run there: {plan.refused}"]
    else:
        found = _lines_of(plan.asked, own, plan.config, price)
    if plan.loop:
        found.append(
            f"  note        planned with {' '.join(plan.loop)}, which compiles faster; --as_is plans without it"
        )
    if not plan.tried:
        return found
    for trial in plan.tried:
        if plan.asked is None or trial.setting != own:
            found.append(_tried(trial, plan.config))
    if plan.found is None:
        return [*found, "no setting was found that fits; more may be tried with --tries"]
    if plan.asked is not None and plan.found.setting == own:
        return [*found, "no other setting was found to be faster"]
    found += [
        "",
        "the fastest setting found that fits:",
        *_lines_of(plan.found.result, plan.found.setting, plan.config, price),
    ]
    if plan.found.setting.batch != own.batch:
        found.append(
            f"  note        {plan.found.setting.batch} sequences a step, not {own.batch}, change what is learned; the "
            f"same text takes {own.batch / plan.found.setting.batch:.3g} times the steps, as counted here"
        )
    return [*found, "", " ".join([command, shlex.join([*plan.loop, *plan.found.setting.flags(plan.config)])])]


def _tried(trial: Trial[Figures], config: ml_collections.ConfigDict) -> str:
    flags = " ".join(flag.removeprefix("--config.") for flag in trial.setting.flags(config)) or "as configured"
    fits = "fits" if trial.fits else "does not fit"
    time = f", {seconds(trial.seconds)} a step at least" if trial.seconds else ""
    return f"  tried       {flags}: {gib(trial.memory)} GiB, {fits}{time}"


def _lines_of(found: Figures, setting: Setting, config: ml_collections.ConfigDict, price: float) -> list[str]:
    planned, analysis, memory = found.planned, found.analysis, found.memory
    mesh = ", ".join(f"{name} {size}" for name, size in planned.mesh.shape.items() if size > 1) or "one chip"
    verdict = "fits" if found.fits else "DOES NOT FIT"
    room = f" of {gib(memory.usable)}" if memory.usable else ""
    of_chip = f" (the chip has {gib(memory.total)})" if memory.usable and memory.usable < memory.total else ""
    chips = found.topology.chips
    text = [
        f"on {found.topology.described()}: {verdict}" if memory.usable else f"on {found.topology.described()}:",
        f"  step        {setting.batch} sequences in {setting.accumulation} micro-batches, mesh {mesh}, "
        f"{config.model.dtype}{', remat' if setting.remat else ''}; {planned.units:,.0f} {planned.unit}",
        f"  memory      {gib(memory.needed)}{room} GiB a chip{of_chip}: parameters {gib(memory.parameters)}, optimizer "
        f"{gib(memory.optimizer)}, batch {gib(memory.batch)}, activations {gib(memory.activations)}, temporaries "
        f"{gib(memory.temporaries)}{f', program {gib(memory.code)}' if memory.code else ''}",
    ]
    if analysis.beyond:
        return [*text, f"  compiler    {analysis.beyond}"]
    products = " + ".join(f"{amount(flops * chips)} in {dtype}" for dtype, flops in sorted(analysis.products.items()))
    useful = f"{amount(planned.useful)} useful; " if planned.useful else ""
    text.append(f"  FLOPs       {useful}executed {products}, {amount(analysis.other * chips)} beside products")
    text.append(f"  bytes       {amount(analysis.bytes, 'B')} of memory traffic a chip")
    text += [
        f"  collectives {line.kind} of {line.dtype} over {line.axes} ({line.members} chips): {line.times:,.0f} a step, "
        f"{amount(line.bytes, 'B')}{f', {seconds(line.seconds)}' if line.seconds else ''}"
        for line in found.traffic[:SHOWN]
    ]
    if found.step:
        text.append(
            f"  time        of a step at least: products {seconds(found.compute)}, memory {seconds(found.transfer)}, "
            f"network {seconds(found.network)}: {found.binds} binds"
        )
        mfu = f", MFU {100 * found.mfu:.1f} %" if found.mfu else ""
        text.append(f"  speed       at most {found.speed:,.0f} {planned.unit}/s{mfu}")
        cost = f", {found.chip_hours * price:,.0f} at {price:g} an hour" if price else ""
        text.append(
            f"  run         {found.steps:,.0f} steps: at least {days(found.seconds)}, {found.chip_hours:,.0f} "
            f"chip-hours{cost}"
        )
    compiled = f"in {analysis.seconds:.0f} s{' earlier, kept since' if analysis.kept else ''}"
    if analysis.xla.get("flops"):
        compiled += f"; its own count of FLOPs is {100 * analysis.xla['flops'] / analysis.once - 100:+.1f} % from ours"
    text.append(f"  compiled    {compiled}")
    text += [f"  note        {note}" for note in planned.notes]
    if analysis.unknown:
        text.append(f"  note        {analysis.unknown:.0f} loops of unknown length are counted once")
    if uncounted := _uncounted(analysis):
        text.append(f"  note        not counted: {', '.join(uncounted[:5])}")
    return text


def _uncounted(analysis: Analysis) -> list[str]:
    """Returns the names of the library kernels whose work is not counted."""
    return sorted(name for name in analysis.calls if "Async" not in name and "Allocate" not in name)


def as_json(plan: Plan, price: float = 0.0) -> JsonObject:
    """Returns a plan as values for JSON."""
    own = setting_of(plan.config)
    asked = None if plan.asked is None else _values(plan.asked, own, price)
    best = None if plan.found is None else _values(plan.found.result, plan.found.setting, price)
    return {
        "topology": plan.topology._asdict() | {"chips": plan.topology.chips},
        "planned_with": list(plan.loop),
        "asked": asked,
        "refused": plan.refused,
        "found": best and best | {"flags": [*plan.loop, *plan.found.setting.flags(plan.config)]}
        if plan.found
        else None,
        "tried": [
            trial.setting._asdict() | {"memory": trial.memory, "seconds": trial.seconds, "fits": trial.fits}
            for trial in plan.tried
        ],
    }


def _values(found: Figures, setting: Setting, price: float) -> JsonObject:
    planned, analysis = found.planned, found.analysis
    return {
        "setting": setting._asdict(),
        "fits": found.fits,
        "memory": found.memory._asdict(),
        "flops": {
            "useful": planned.useful,
            "products_a_chip": analysis.products,
            "other_a_chip": analysis.other,
            "transcendental_a_chip": analysis.transcendental,
            "of_the_compiler_a_chip": analysis.xla.get("flops"),
            "loops_once_a_chip": analysis.once,
        },
        "bytes_a_chip": analysis.bytes,
        "collectives": [line._asdict() for line in found.traffic],
        "step_seconds": {
            "compute": found.compute,
            "memory": found.transfer,
            "network": found.network,
            "at_least": found.step,
            "binds": found.binds,
        },
        "unit": planned.unit,
        "units_a_step": planned.units,
        "units_a_second": found.speed,
        "mfu": found.mfu,
        "run": {
            "steps": found.steps,
            "days": found.seconds / DAY,
            "chip_hours": found.chip_hours,
            "cost": found.chip_hours * price if price else None,
        },
        "compiled_in": analysis.seconds,
        "compiled_earlier": analysis.kept,
        "unknown_loops": analysis.unknown,
        "uncounted_calls": _uncounted(analysis),
        "compiler": analysis.beyond,
        "notes": list(planned.notes),
    }
