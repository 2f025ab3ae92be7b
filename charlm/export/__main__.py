"""Writes a model for programs that do not have charlm.

    python -m charlm.export --model=runs/hlm --output=exported
    python -m charlm.export --model=runs/tags --output=exported --platforms=cpu

The folder has a program for JAX (StableHLO, any batch and length), its weights, the vocabularies, an example, and a
page that says how it is used. PyTorch's formats are written by `charlm convert export`.
"""

from __future__ import annotations

import argparse
import sys

from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.core.stores import here

PLATFORMS = "cpu,cuda,tpu"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m charlm.export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="what charlm.load reads: a workdir, a folder of weights, or a model's name")
    add("--output", default="", help="folder to create")
    add("--platforms", default=PLATFORMS, help="what the program may run on, with commas (default: %(default)s)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = _parser().parse_args(argv)
    start_logging()
    return run_command(lambda: _run(args), "set JAX_PLATFORMS=cpu: exporting needs memory, no accelerator")


def _run(args: argparse.Namespace) -> int:
    check_options(vars(args), needed=("model", "output"), stored=("model",))
    platforms = args.platforms.split(",")
    if unknown := [name for name in platforms if name not in PLATFORMS.split(",")]:
        raise ValueError(f"--platforms={args.platforms}: {unknown[0]!r} is none of {PLATFORMS}")
    from charlm.export.writing import write_stablehlo  # imported late, so that --help and mistakes need no JAX

    print(write_stablehlo(here(args.model), args.output, platforms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
