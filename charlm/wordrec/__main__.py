"""Trains a word recogniser, and measures how many misspelled words it brings back beside other defences.

    python -m charlm.wordrec train wordrec:tiny --workdir runs/wordrec
    python -m charlm.wordrec train wordrec:mixed --set data.train='wiki/*.txt.gz' --workdir runs/wordrec
    python -m charlm.wordrec measure --data 'wiki/*.txt.gz' --heldout .02 --defence symspell wordrec:runs/wordrec

The same training command goes on where the run stopped. `--defence wordrec:FOLDER` of charlm.robustness and
charlm.evaluate_retrieval puts the recogniser in front of models.
"""

from __future__ import annotations

import argparse
import logging
import sys

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.text.defences import defence_of, parsed
from charlm.text.noise import Noise
from charlm.wordrec.config import KEYS, load
from charlm.wordrec.defences import KNOWN
from charlm.wordrec.measure import NONE, measure, sentences_of, table

log = logging.getLogger("charlm")


def _parser() -> argparse.ArgumentParser:
    paragraphs = (__doc__ or "").split("\n\n")
    keys = [f"  {name:<30}  {key.meaning} (default {key.default!r})" for name, key in KEYS.items() if name != "task"]
    known = "\n".join(["defences:", *(f"  {name:<16} {entry.line}" for name, entry in KNOWN.items())])
    parser = Parser(
        prog=program("charlm.wordrec"),
        description=paragraphs[0],
        epilog="\n\n".join([*paragraphs[1:], known, "\n".join(["keys for train --set:", *keys])]),
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    usual = "(default: %(default)s)"
    add = commands.add_parser("train", help="train a recogniser, or go on with one").add_argument
    add("config", metavar="CONFIG[:VARIANT]", help="wordrec, or path/to/file.py with a get_config()")
    add("--workdir", required=True, metavar="FOLDER", help="folder of the run")
    add("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="keys of the config, see --help")
    add("--skip-damaged", action="store_true", help="set the newest checkpoint aside if it is damaged")
    add = commands.add_parser("measure", help="measure how many misspelled words defences bring back").add_argument
    add("--data", nargs="+", required=True, metavar="FILE", help="text, as data.train reads it")
    add("--heldout", type=float, default=0.0, metavar="SHARE", help="only what training held out of it; 0: all of it")
    add("--noise", nargs="+", default=["charbert:1"], metavar="SPEC", help=f"kind[:rate] {usual}")
    add("--defence", nargs="+", default=["symspell"], metavar="NAME", help=f"the defences; several: a+b {usual}")
    add("--words", type=int, default=100_000, metavar="N", help=f"read at most so many words of a file; 0: all {usual}")
    add("--seed", type=int, default=0, help=f"of the noise {usual}")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    start_logging()
    smaller = "lower data.batch_size (--set data.batch_size=16) or, to measure, --words"
    return run_command(lambda: _run(args), smaller, interrupted="the same command goes on from the last checkpoint")


def _run(args: argparse.Namespace) -> int:
    check_options(vars(args), texts=("command", "set", "defence", "noise"), needed=("workdir", "config"))
    return _train(args) if args.command == "train" else _measure(args)


def _train(args: argparse.Namespace) -> int:
    config = load(args.config, args.set)
    from charlm.wordrec.run import train  # imported late, so that --help and mistakes need no JAX

    train(config, args.workdir, args.skip_damaged)
    return 0


def _measure(args: argparse.Namespace) -> int:
    if not 0 <= args.heldout < 1:
        raise ValueError(f"--heldout={args.heldout}: expected a share of at least 0 and below 1")
    if args.words < 0:
        raise ValueError(f"--words={args.words}: expected a number of words, or 0 for all")
    noises = list(map(Noise.parse, args.noise))
    chains = {"+".join(parts): parts for parts in (parsed(spec, KNOWN) for spec in args.defence)}
    sentences = [words for spec in args.data for words in sentences_of(spec, args.heldout, args.words)]
    if not sentences:
        more = f" in the share --heldout={args.heldout:g}: expected a larger one" if args.heldout else ""
        raise ValueError(f"--data={' '.join(args.data)}: no sentence{more}")
    defences = {NONE: []} | {name: [defence_of(part, KNOWN) for part in parts] for name, parts in chains.items()}
    for noise in noises:
        print("\n".join(table(measure(sentences, noise, defences, args.seed), noise)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
