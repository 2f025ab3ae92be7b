"""Measures how well pre-trained models guess left-out words of sentences with typos, beside spelling correction.

    python -m charlm.evaluate_cloze --models runs/hlm runs/bert --data heldout.txt --out runs/cloze
    python -m charlm.evaluate_cloze --models hlm-small-en --data heldout.txt --noise keyboard:0.1 charbert:0.5 \\
        --defence symspell --out runs/cloze

No labels are needed, so it tells what typos cost a model before any fine-tuning. One word of each sentence is left out,
the others get the noise, and the model chooses from the 5,000 commonest words of the text, or those of --words, that
have as many characters. All models choose from the same words, those that all of them can write, whether they read
characters or pieces of words; so another model in --models may change what is asked. Beside them stands whoever always
says the commonest word of that length.

The folder gets report.html, report.md and report.json: how often the first guess, and one of the first five, is the
right word, clean and under every noise, with intervals by sentence and paired comparisons. What was measured before is
not measured again, but a report holds only what its command asks for.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from pathlib import Path

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.help_text import table
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.core.types import JsonObject
from charlm.evaluate_cloze.settings import SENTENCES, ClozeSettings
from charlm.text.noise.levels import ALL, kinds_of_noise, planned
from charlm.wordrec.defences import KNOWN

log = logging.getLogger("charlm")


def _parser() -> argparse.ArgumentParser:
    first, *rest = (__doc__ or "").split("\n\n")
    parser = Parser(
        prog=program("charlm.evaluate_cloze"),
        description=first,
        epilog="\n\n".join([*rest, kinds_of_noise(), table("defences", KNOWN)]),
    )
    add, usual = parser.add_argument, "(default: %(default)s)"
    add("--models", nargs="+", required=True, metavar="MODEL", help="models that fill gaps: workdirs, folders, names")
    add("--data", nargs="+", required=True, metavar="FILE", help="text that they were not trained on, as data.train")
    add("--out", required=True, metavar="FOLDER", help="folder of the report; its measurements are used again")
    add("--words", default="", metavar="FILE", help="the words to choose from, one a line; default: the commonest")
    add("--noise", nargs="+", default=[ALL], metavar="SPEC", help='kind[:rate[:shortest word]][@language]; "all"')
    add("--seeds", type=int, default=1, help=f"number of draws of each noise {usual}")
    add("--misspellings", default="", metavar="FILE", help='list for the kind "misspelling"')
    add("--defence", nargs="+", default=[], metavar="NAME", help="also measure each model behind these; several: a+b")
    add("--sentences", type=int, default=SENTENCES, metavar="N", help=f"ask about the first N; 0: all {usual}")
    add("--seed", type=int, default=0, help=f"decides which words are left out {usual}")
    add("--samples", type=int, default=1000, help=f"number of resamples for each interval {usual}")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    argv = sys.argv[1:] if argv is None else argv
    options = vars(_parser().parse_args(argv))
    options["command"] = shlex.join(["python", "-m", "charlm.evaluate_cloze", *argv])
    return run_command(
        lambda: _run(options),
        "name fewer --models at a time: all are kept in memory",
        interrupted="the same command goes on with what is in --out",
    )


def _run(options: JsonObject) -> int:
    texts = ("noise", "defence", "command")
    check_options(options, texts=texts, needed=("models", "data", "out"), stored=("models",))
    settings = ClozeSettings(**options)
    planned(settings.noise, settings.misspellings)  # check the noises before the models, which load slowly
    from charlm.evaluate_cloze.measure import measure  # imported late, so that --help needs no JAX
    from charlm.evaluate_cloze.report import write_report

    start_logging()
    *_, page = write_report(measure(settings), Path(settings.out))
    log.info("report: %s", page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
