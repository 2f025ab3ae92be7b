"""Writes a model for programs that do not have charlm, or that have it behind another library.

    python -m charlm.export --model=runs/hlm --output=exported
    python -m charlm.export --model=runs/tags --output=exported --platforms=cpu
    python -m charlm.export --model=runs/hlm --format=words
    python -m charlm.export --model=hlm-small-en --format=words --output=warm
    python -m charlm.export --model=runs/reader --format=sentence-transformers --output=exported

The folder has a program for JAX (StableHLO, any batch, any length up to that of the model), its weights, the
vocabularies, an example, and a page that says how it is used. PyTorch's formats are written by `charlm convert export`.

--format=words writes no program: it puts the vectors of frequent words beside the model, where `charlm.load`,
predictors and the server read them before they encode, so that a new process starts warm. With --output it leaves the
model as it is and writes a copy with the table.

--format=sentence-transformers writes a folder that this library loads where charlm is installed, too: charlm makes the
vectors, also those of a reader or of a family that the library does not have.
"""

from __future__ import annotations

import argparse
import sys

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options, is_address
from charlm.core.logs import start_logging
from charlm.core.stores import here

PLATFORMS = "cpu,cuda,tpu"
SENTENCES = "sentence-transformers"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=program("charlm.export"), description=__doc__)
    add = parser.add_argument
    add("--model", required=True, help="what charlm.load reads: a workdir, a folder of weights, or a model's name")
    add(
        "--format",
        choices=("stablehlo", "words", SENTENCES),
        default="stablehlo",
        help="see above (default: %(default)s)",
    )
    add("--output", default="", help="folder to create; words: none puts them beside the model")
    add(
        "--platforms",
        default=PLATFORMS,
        help="stablehlo: what the program may run on, with commas (default: %(default)s)",
    )
    add("--words", default="", metavar="FILE", help="words: most frequent first (default: the list beside the model)")
    add("--size", type=int, default=0, help="words: how many of them at most, beside [CLS] and [SEP] (default: all)")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="words: of the vectors (%(default)s)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = _parser().parse_args(argv)
    start_logging()
    return run_command(lambda: _run(args), "set JAX_PLATFORMS=cpu: exporting needs memory, no accelerator")


def _run(args: argparse.Namespace) -> int:
    of_words = args.format == "words"
    check_options(vars(args), needed=("model",) if of_words else ("model", "output"), stored=("model",))
    if of_words:
        if args.platforms != PLATFORMS:
            raise ValueError("--format=words takes no --platforms")
        if args.size < 0:
            raise ValueError(f"--size={args.size}: expected a number of words; 0: all")
        if is_address(args.model) and not args.output:
            raise ValueError(f"--model={args.model} is an address; --output=FOLDER writes a copy with the table")
        from charlm.export.words import write  # as below

        print(write(here(args.model), args.words, args.size, args.dtype, args.output))
        return 0
    if args.words or args.size or args.dtype != "float32":
        raise ValueError("--words, --size and --dtype are of --format=words")
    if args.format == SENTENCES:
        if args.platforms != PLATFORMS:
            raise ValueError(f"--format={SENTENCES} takes no --platforms")
        from charlm.export.sentence_folder import write_sentence_folder  # as below

        print(write_sentence_folder(here(args.model), args.output))
        return 0
    platforms = args.platforms.split(",")
    if unknown := [name for name in platforms if name not in PLATFORMS.split(",")]:
        raise ValueError(f"--platforms={args.platforms}: {unknown[0]!r} is none of {PLATFORMS}")
    from charlm.export.writing import write_stablehlo  # imported late, so that --help and mistakes need no JAX

    print(write_stablehlo(here(args.model), args.output, platforms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
