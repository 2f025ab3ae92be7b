"""Measures speed and memory; prints one JSON line a figure.

    python -m charlm.benchmark                          # every case, HLM-Base, built-in corpus
    python -m charlm.benchmark --case inference --config configs/hlm_base.py:tiny

Timed paths alternate (A B A B ...) in one process, so a change of the machine's speed meets both; the median is the
figure, `low` and `high` are the extremes. Peak memory is that of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from charlm.benchmark import cases
from charlm.benchmark.bert import bert
from charlm.logs import start_logging

TIMED = {
    "parameters": cases.parameters,
    "input_pipeline": cases.input_pipeline,
    "inference": cases.inference,
    "training_step": cases.training_step,
}
# Of interest with several devices; with PyTorch and transformers installed.
ON_DEMAND = {"collectives": cases.collectives, "bert": bert}
PEAK = "peak"  # hidden case: one path of `memory`, in a process of its own


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m charlm.benchmark", description=__doc__.split("\n\n")[0])
    names = [*TIMED, "memory", "startup"]
    choices = [*names, *ON_DEMAND, PEAK]
    parser.add_argument("--case", choices=choices, action="append", help="default: all but collectives, bert and peak")
    parser.add_argument("--config", default="configs/hlm_base.py", help="model to measure (default: %(default)s)")
    parser.add_argument("--text", default="builtin", help="corpus to read, as data.train (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each path (default: %(default)s)")
    parser.add_argument("--path", choices=cases.PATHS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    start_logging()
    try:
        for case in args.case or names:
            config = cases.load_config(args.config, args.text)  # afresh: cases change it
            if case == "memory":
                _memory(args)
            elif case == "startup":
                _emit(cases.startup(args.repeats))
            elif case == PEAK:
                _emit([cases.peak(config, args.path or cases.PATHS[0])])
            else:
                _emit((TIMED | ON_DEMAND)[case](config, args.repeats))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _emit(figures: list[dict[str, Any]]) -> None:
    for figure in figures:
        print(json.dumps(figure), flush=True)


def _memory(args: argparse.Namespace) -> None:
    command = [
        sys.executable,
        "-m",
        "charlm.benchmark",
        f"--case={PEAK}",
        f"--config={args.config}",
        f"--text={args.text}",
    ]
    for path in cases.PATHS:
        done = subprocess.run([*command, f"--path={path}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"memory of {path}: {done.stderr.strip().splitlines()[-1]}")
        print(done.stdout, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
