"""Makes the table of launch/README.md: python -m charlm.plan.table --out=launch/README.md

What the models of base size and larger in configs/ take on some machines, in bfloat16: whether they fit, with which
settings, and the bounds of speed and days. Text is the built-in one; a family that starts from another model, as
Char2Subword does, gets an empty BERT of multilingual BERT's size. Plans are kept in the cache, so the table is made
again in minutes, and goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from charlm.config import load_config_file, split_lists, validate
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.durable import write_text
from charlm.core.interrupts import terminable
from charlm.core.logs import start_logging
from charlm.core.reading import read_text
from charlm.families.family import family, pretrainable
from charlm.plan.backbone import write_bert
from charlm.plan.chips import GIB
from charlm.plan.topology import Topology, devices_of, parse, use_as_cpu

if TYPE_CHECKING:
    from charlm.plan.planning import Plan

SIZES = ("_base", "_large")  # smaller models need no machine of these
MACHINES = ("h100:1", "h100:8", "h100:64", "v5e-16", "v5p-128", "v6e-256")
BEGIN, END = "<!-- plans: begin -->", "<!-- plans: end -->"
HEAD = (
    "config",
    "machine",
    "fits",
    "settings beside bfloat16",
    "GiB a chip",
    "at most",
    "MFU",
    "days at least",
    "binds",
)

log = logging.getLogger("charlm")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m charlm.plan.table", description=__doc__)
    parser.add_argument(
        "--configs", default="", help="files of configs/, without .py; empty: those of every family that is pre-trained"
    )
    parser.add_argument("--machines", default=",".join(MACHINES), help="as --topology of python -m charlm.plan")
    parser.add_argument("--tries", type=int, default=3, help="settings that are compiled for each row, at most")
    parser.add_argument(
        "--out", default="", help=f"file in which the table goes between {BEGIN} and {END}; empty: print"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Makes the table; returns the exit status."""
    args = _parser().parse_args(argv)
    if args.out:
        _around_table(args.out)  # looked at before the hours of work
    configs = args.configs.split(",") if args.configs else base_configs()
    machines = [parse(name) for name in args.machines.split(",")]
    use_as_cpu(machines[0])
    start_logging()
    with terminable(), tempfile.TemporaryDirectory(prefix="charlm_plan_") as folder:
        rows = []
        for row in _rows(configs, machines, args.tries, Path(folder)):
            log.info("%s", " | ".join(row))
            rows.append(row)
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if not args.out:
        print(text)
        return 0
    before, after = _around_table(args.out)
    write_text(args.out, f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0


def base_configs() -> list[str]:
    """Returns the names of the files in configs/ that pre-train a model of some family, FAMILY_*.py.

    Raises:
      ValueError: there are none in the current folder.
    """
    found = [
        file.stem
        for name in pretrainable()
        for file in sorted(Path("configs").glob(f"{name}_*.py"))
        if file.stem.endswith(SIZES)
    ]
    if not found:
        raise ValueError("there are no configs/ here: run the command in the folder of charlm, or name --configs")
    return found


def _around_table(out: str) -> tuple[str, str]:
    """Returns the text of a file before and after its table; ValueError if the marks of a table are not there."""
    try:
        before, mark, rest = read_text(out).partition(BEGIN)
    except OSError as error:
        raise ValueError(f"--out={out} cannot be read: {error.strerror}") from error
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"--out={out} has no {BEGIN} and {END}")
    return before, after


def _rows(configs: Sequence[str], machines: Sequence[Topology], tries: int, folder: Path) -> Iterator[list[str]]:
    from charlm.plan.planning import Planning  # imported late, so that --help needs no JAX
    from charlm.plan.program import planner_of, stages_of

    for name in configs:
        config = load_config_file(f"configs/{name}.py")
        config.model.dtype = "bfloat16"
        config.data.encode_processes = 1
        if origin := family(config.family).starts_from:
            config.init_from = str(write_bert(folder / name, origin))
        split_lists(config)
        validate(config)
        for stage, own in stages_of(config):
            planner = planner_of(own)
            for machine in machines:
                try:
                    plan = Planning(own, planner, devices_of(machine), machine).plan(tries=tries)
                except ValueError as error:
                    log.warning("%s %s on %s: %s", name, stage, machine.name, error)
                    yield [f"{name} {stage}".strip(), machine.name, f"not planned: {error}", *[""] * (len(HEAD) - 3)]
                    continue
                yield _row(f"{name} {stage}".strip(), machine, plan)


def _row(name: str, machine: Topology, plan: Plan) -> list[str]:
    from charlm.plan.report import amount, days

    best = plan.best
    if best is None:
        return [name, machine.name, "no", "none found", *[""] * (len(HEAD) - 4)]
    flags = plan.found.setting.flags(plan.config) if plan.found is not None else []
    settings = " ".join(flag.removeprefix("--config.") for flag in flags) or "as configured"
    memory = f"{best.memory.needed / GIB:.1f} of {best.memory.usable / GIB:.1f}"
    mfu = f"{100 * best.mfu:.0f} %" if best.mfu else ""
    return [
        name, machine.name, "yes", settings, memory, f"{amount(best.speed)} {best.planned.unit}/s", mfu,
        days(best.seconds), best.binds,
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(run_command(lambda: main(sys.argv[1:]), "plan fewer machines at a time (--machines)"))
