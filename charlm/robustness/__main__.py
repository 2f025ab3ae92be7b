"""Measures how much typos cost fine-tuned models, and writes a report.

    python -m charlm.robustness --models runs/tag_hlm runs/tag_bert --data test.conll --out runs/report
    python -m charlm.robustness --models runs/bert --data test.conll --defence symspell nfkc+symspell --out runs/report
    python -m charlm.robustness --models runs/tag_hlm --data test.conll --noise keyboard spaces:0.1 --levels 0,.1 \\
        --adversarial 2 --out runs/report

A kind of noise without a rate is measured at all levels, but a kind that usually changes everything it may (charbert,
hlm_case) is measured at that rate only, and KIND:RATE at RATE only. What was measured before is not measured again.
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
from charlm.robustness.recipes import RECIPES
from charlm.robustness.settings import ALL, LEVELS, ReportSettings, planned
from charlm.text.noise.levels import kinds_of_noise
from charlm.wordrec.defences import KNOWN

log = logging.getLogger("charlm")


def _parser() -> argparse.ArgumentParser:
    paragraphs = (__doc__ or "").split("\n\n")
    parser = Parser(
        prog=program("charlm.robustness"),
        description=paragraphs[0],
        epilog="\n\n".join([*paragraphs[1:], kinds_of_noise(), table("defences", KNOWN), table("attacks", RECIPES)]),
    )
    add, usual = parser.add_argument, "(default: %(default)s)"
    add("--models", nargs="+", required=True, metavar="FOLDER", help="workdirs of models fine-tuned for the same task")
    add("--data", nargs="+", required=True, metavar="FILE", help="labelled examples, in the format of training data")
    add("--out", required=True, metavar="FOLDER", help="folder of the report; its measurements are used again")
    add("--noise", nargs="+", default=[ALL], metavar="SPEC", help='kinds, kind:rate[:shortest word][@language]; "all"')
    add("--levels", default=",".join(f"{x:g}" for x in LEVELS), help=f"rates of noise; 0: no noise {usual}")
    add("--seeds", type=int, default=3, help=f"number of draws of each noise {usual}")
    add("--misspellings", default="", metavar="FILE", help='list for the kind "misspelling"')
    add("--language", default="auto", help=f"language of the keyboards; auto: by script {usual}")
    add("--columns", nargs="+", default=[], metavar="NAME=COLUMN", help="columns of --data: text, label, group ...")
    add("--task", default="", help="stop unless the models were fine-tuned for this task")
    add("--defence", nargs="+", default=[], metavar="NAME", help="also measure each model behind these; several: a+b")
    add("--adversarial", type=int, default=0, metavar="EDITS", help=f"most typos per example; 0: no attack {usual}")
    add("--adversarial-examples", type=int, default=100, metavar="N", help=f"number of attacked examples {usual}")
    add("--attack", nargs="+", default=[], metavar="NAME", help="published attacks on the same examples")
    add("--train-words", default="", metavar="FILE", help="words seen in training; default: of the training files")
    add("--tokenizer", default="", metavar="FOLDER", help="decides which words are split; default: the first model's")
    add("--batch-size", type=int, default=32, help=f"rows predicted at a time {usual}")
    add("--examples", type=int, default=0, metavar="N", help="use only the first N examples; 0: all (default)")
    add("--samples", type=int, default=1000, help=f"number of resamples for each interval {usual}")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    argv = sys.argv[1:] if argv is None else argv
    options = vars(_parser().parse_args(argv))
    options["command"] = shlex.join(["python", "-m", "charlm.robustness", *argv])
    smaller = f"lower --batch-size (now {options['batch_size']})"
    return run_command(lambda: _run(options), smaller, interrupted="the same command goes on with what is in --out")


def _run(options: JsonObject) -> int:
    check_options(options, texts=("defence",), needed=("models", "data", "out"))
    options["levels"] = _levels(options["levels"])
    planned(ReportSettings(**options))  # check the settings before the models, which load slowly
    from charlm.robustness.measure import measure  # imported late, so that --help needs no JAX
    from charlm.robustness.render import write_report

    start_logging()
    *_, page = write_report(measure(**options), Path(options["out"]))
    log.info("report: %s", page)
    return 0


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"--levels={text}: expected rates between commas, such as 0,.05,.1") from None


if __name__ == "__main__":
    sys.exit(main())
