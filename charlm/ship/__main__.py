"""Packs a trained model into one folder, with a model card; in charlm/trained, that folder is a model with a name.

    python -m charlm.ship --checkpoint=runs/hlm --output=charlm/trained/hlm-small-en --about=about.json --max-mb=8
    python -m charlm.ship --checkpoint=runs/pos --output=charlm/trained/hlm-small-en-pos --about=about.json \\
        --report=runs/report/report.json

The weights are rounded to bfloat16, or with --dtype=int8 to a quarter of float32's bytes; a loaded model computes with
the float32 of them. The card is made from the files of the run, a report of charlm.robustness or
charlm.evaluate_retrieval (of a pre-trained model charlm.evaluate_cloze), and what only its maker knows, which --about
names as JSON: "title" (one line), "license", "language" (a list), "limits" (a list of sentences), "corpora" ({file of
the training data: {"name": ..., "license": ..., "url": ...}}; every file of the run has to be there), and if wanted
"tags", "datasets" (names on the Hugging Face hub), "base_model" and "made": how it was made, if not by training, or by
this run alone; "corpora" may then have files of the runs before it.
"""

from __future__ import annotations

import argparse
import sys

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.core.trained import PACKED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=program("charlm.ship"), description=__doc__)
    add = parser.add_argument
    add("--checkpoint", required=True, help="workdir of a run, or one checkpoint")
    add("--output", required=True, help="folder to create")
    add("--about", required=True, metavar="FILE", help="JSON with what the run does not tell, see above")
    add(
        "--report",
        default="",
        metavar="FILE",
        help="report.json of charlm.robustness, evaluate_retrieval or evaluate_cloze, for the scores",
    )
    add("--dtype", choices=PACKED, default=PACKED[0], help="what the weights are stored as (default: %(default)s)")
    add("--rest", default="", metavar="PACKAGE:FOLDER", help="leave out what the model of an installed package has")
    add("--rest-install", default="", metavar="NAME", help="what pip installs that package by; default: its own name")
    add("--max-mb", type=float, default=25.0, help="refuse more millions of bytes (default: %(default)s)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = _parser().parse_args(argv)
    start_logging()
    return run_command(lambda: _run(args), "set JAX_PLATFORMS=cpu: packing needs memory, no accelerator")


def _run(args: argparse.Namespace) -> int:
    check_options(vars(args), needed=("checkpoint", "output", "about"))
    if not args.max_mb > 0:
        raise ValueError(f"--max-mb={args.max_mb:g}: expected a positive number")
    from charlm.ship.packing import pack  # imported late, so that --help and wrong options do not import jax

    install = args.rest_install or args.rest.partition(":")[0]
    most = int(1e6 * args.max_mb)
    print(pack(args.checkpoint, args.output, args.about, args.report, args.dtype, most, args.rest, install))
    return 0


if __name__ == "__main__":
    sys.exit(main())
