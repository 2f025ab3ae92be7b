"""Measures how much typos cost fine-tuned models, and writes a report.

    python -m charlm.robustness --models runs/tag_hlm runs/tag_bert --data test.conll --out runs/report
    python -m charlm.robustness --models runs/tag_hlm --data test.conll --noise keyboard spaces:0.1 --levels 0,.1 \\
        --adversarial 2 --out runs/report

A kind of noise without a rate is measured at the levels, one that usually changes all it may (charbert, hlm_case) at
that rate; KIND:RATE at RATE alone. What was measured before is not measured again.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.robustness.settings import ALL, LEVELS, Settings, planned
from charlm.text.noise import KINDS


def _parser() -> argparse.ArgumentParser:
    paragraphs = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m charlm.robustness",
        description=paragraphs[0],
        epilog="\n\n".join([*paragraphs[1:], _kinds()]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, usual = parser.add_argument, "(default: %(default)s)"
    add("--models", nargs="+", required=True, metavar="FOLDER", help="workdirs of models fine-tuned for the same task")
    add("--data", nargs="+", required=True, metavar="FILE", help="examples with labels, as the models were trained on")
    add("--out", required=True, metavar="FOLDER", help="where the report goes; what is there is used again")
    add("--noise", nargs="+", default=[ALL], metavar="SPEC", help='kinds, kind:rate[:shortest word][@language]; "all"')
    add("--levels", default=",".join(f"{x:g}" for x in LEVELS), help=f"rates, 0 for the text as it is {usual}")
    add("--seeds", type=int, default=3, help=f"draws of each noise {usual}")
    add("--misspellings", default="", metavar="FILE", help='list for the kind "misspelling"')
    add("--language", default="auto", help=f"of keyboards; auto: by script {usual}")
    add("--task", default="", help="stop unless the models were fine-tuned for this one")
    add("--adversarial", type=int, default=0, metavar="EDITS", help=f"most typos of an adversary; 0: off {usual}")
    add("--adversarial-examples", type=int, default=100, metavar="N", help=f"examples that are attacked {usual}")
    add("--train-words", default="", metavar="FILE", help="words seen in training; none: those of its files")
    add("--tokenizer", default="", metavar="FOLDER", help="tells split words; none: that of the first model with one")
    add("--batch-size", type=int, default=32, help=f"rows predicted at a time {usual}")
    add("--examples", type=int, default=0, metavar="N", help="only the first so many; 0: all (default)")
    add("--samples", type=int, default=1000, help=f"resamples behind each interval {usual}")
    return parser


def _kinds() -> str:
    lines = (f"  {name:<16} {kind.line} (usual rate {kind.rate:g})" for name, kind in KINDS.usable())
    return "\n".join(["kinds of noise:", *lines])


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    argv = sys.argv[1:] if argv is None else argv
    options = vars(_parser().parse_args(argv))
    options["command"] = shlex.join(["python", "-m", "charlm.robustness", *argv])
    smaller = f"lower --batch-size (now {options['batch_size']})"
    return run_command(lambda: _run(options), smaller, interrupted="the same command goes on with what is in --out")


def _run(options: dict[str, Any]) -> int:
    check_options(options, needed=("models", "data", "out"))
    options["levels"] = _levels(options["levels"])
    planned(Settings(**options))  # check the settings before the models, which load slowly
    from charlm.core.logs import start_logging
    from charlm.robustness.measure import measure  # imported late, so that --help needs no JAX
    from charlm.robustness.render import write_report

    start_logging()
    write_report(measure(**options), Path(options["out"]))
    return 0


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"--levels={text}: expected rates between commas, such as 0,.05,.1") from None


if __name__ == "__main__":
    sys.exit(main())
