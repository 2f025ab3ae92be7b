"""Trains a student whose vectors of noisy text are those that a teacher gives the clean text.

    python -m charlm.align student:tiny --set init_from=runs/hlm teacher=all-MiniLM-L6-v2 --workdir runs/student
    python -m charlm.align student:frozen --set init_from=runs/xrayemb teacher=runs/bert data.train='text/*.txt.gz' \\
        --workdir runs/student

The same command goes on where the run stopped. The best student is a model like any other: --checkpoint=runs/student of
charlm.predict, --model runs/student of charlm.search.
"""

from __future__ import annotations

import argparse
import sys

from charlm.align.config import KEYS, load
from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging


def _parser() -> argparse.ArgumentParser:
    paragraphs = (__doc__ or "").split("\n\n")
    keys = [f"  {name:<30}  {key.meaning} (default {key.default!r})" for name, key in KEYS.items() if name != "task"]
    parser = Parser(
        prog=program("charlm.align"),
        description=paragraphs[0],
        epilog="\n\n".join([*paragraphs[1:], "\n".join(["keys for --set:", *keys])]),
    )
    add = parser.add_argument
    add("config", metavar="CONFIG[:VARIANT]", help="student, or path/to/file.py with a get_config()")
    add("--workdir", required=True, metavar="FOLDER", help="folder of the run")
    add("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="keys of the config, see below")
    add("--skip-damaged", action="store_true", help="set the newest checkpoint aside if it is damaged")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    start_logging()
    smaller = "lower data.batch_size (--set data.batch_size=16)"
    return run_command(lambda: _run(args), smaller, interrupted="the same command goes on from the last checkpoint")


def _run(args: argparse.Namespace) -> int:
    check_options(vars(args), texts=("set",), needed=("workdir", "config"))
    config = load(args.config, args.set)
    from charlm.align.run import align  # imported late, so that --help and mistakes need no JAX

    align(config, args.workdir, args.skip_damaged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
