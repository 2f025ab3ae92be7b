"""Shows where a model looks as it reads a text: inside words, and between them.

    python -m charlm.show --model runs/hlm "I didn't see teh cat." --out attention.html
    python -m charlm.show --model runs/tags "I didn't see teh cat." --out attention.svg

A page (.html) is one file that needs no network; it has every layer and head to choose from. A figure (.svg, .png,
.pdf) shows their mean, and needs matplotlib. The weights are those of a real call of the model: HLM shows the
attention of [WORD_CLS] over the characters of each word and that between words, Char2Subword its module's over the
characters, CharBERT both channels, the others what reads each other in their Transformer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_path
from charlm.core.logs import start_logging
from charlm.core.stores import here
from charlm.families.predictor import Predictor
from charlm.families.views import MOST_SHOWN
from charlm.show.shown import PAGES, Shown, check_ending


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=program("charlm.show"), description=__doc__)
    add = parser.add_argument
    add("text", help="what the model reads")
    add("--model", "--checkpoint", required=True, help="workdir of a run, a checkpoint, or a Hugging Face folder")
    add("--out", default="attention.html", metavar="FILE", help="the page or figure (default: %(default)s)")
    add(
        "--most",
        type=int,
        default=MOST_SHOWN,
        metavar="WORDS",
        help="most words or pieces that are read and shown (default: %(default)s)",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = _parser().parse_args(argv)
    start_logging()
    return run_command(lambda: _show(args), f"lower --most (now {args.most})")


def _show(args: argparse.Namespace) -> int:
    check_path("--model", args.model, needed=True, stored=True)
    check_path("--out", args.out, needed=True)
    out = Path(args.out)
    check_ending(out)  # before the model is loaded, which is slow
    predictor = Predictor.from_checkpoint(here(args.model))
    shown = Shown(f"{predictor.name} from {args.model}", predictor.views(args.text, args.most))
    shown.save(out)
    seen = shown.seen
    left = f", the first of {seen.read + seen.left:,}" if seen.left else ""
    print(f"{out}: {predictor.name} reads {seen.read:,} {seen.unit}{left}", flush=True)
    if out.suffix.removeprefix(".").lower() in PAGES:
        print(f"open it in a browser: {out.resolve().as_uri()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
