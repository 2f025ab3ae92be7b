"""Measures how well spellers mend misspelled words in context, beside SymSpell, Hunspell, Aspell and others.

    python -m charlm.evaluate_spelling --models runs/speller --data wiki.txt --lists wikipedia.dat codespell.txt \\
        --rivals symspell hunspell aspell --out runs/spelling
    python -m charlm.evaluate_spelling --models runs/speller --typos en_ewt-ud-dev.conllu --out runs/written
    python -m charlm.evaluate_spelling --models runs/speller --fit --data news.txt --lists wikipedia.dat \\
        --out runs/fitted

The first puts listed misspellings into half of the sentences; the others stay clean. Only misspellings of words that
training keeps apart (spelling.heldout_words) are used. The second reads misspellings as people wrote them, from a
CoNLL-U file with CorrectForm in MISC. --rewritten reads them from sentences with rewrites by other people, as JFLEG has
them: a word counts as misspelled if most rewrites have the same other one there, and no rewrite of the whole file has
the word as it was written. The folder gets report.md, report.json and sentences.md: precision, recall and F0.5 of
corrections, false alarms in a thousand right words and sentences a second, with intervals by sentence.

--fit changes nothing that the model has learned, only how its probabilities, the frequency of words and the cost of
typing errors are weighed. Of --lists it takes words that neither training nor an evaluation uses; text and sentences
should be others than those that are evaluated on, and about as often misspelled as the texts to correct.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.help_text import table
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.core.types import JsonObject
from charlm.evaluate_spelling.settings import RIVALS, SpellingSettings
from charlm.families.corrections import THRESHOLD

log = logging.getLogger("charlm")


def _parser() -> argparse.ArgumentParser:
    first, *rest = (__doc__ or "").split("\n\n")
    parser = Parser(
        prog=program("charlm.evaluate_spelling"),
        description=first,
        epilog="\n\n".join([*rest, table("rivals", RIVALS)]),
    )
    add, usual = parser.add_argument, "(default: %(default)s)"
    add("--models", nargs="+", default=[], metavar="FOLDER", help="spellers of charlm")
    add("--data", nargs="+", default=[], metavar="FILE", help="text without misspellings, as data.train reads it")
    add("--lists", nargs="+", default=[], metavar="FILE", help="lists of misspellings that are put into --data")
    add("--typos", nargs="+", default=[], metavar="FILE", help="CoNLL-U files with CorrectForm, misspelled as written")
    rewritten = "a file of sentences, a line each, and one or more files of rewrites of them, line by line"
    add("--rewritten", nargs="+", default=[], metavar="FILE", help=rewritten)
    add("--rivals", nargs="+", default=[], metavar="NAME", help="other systems, see below")
    add("--words", default="", metavar="FILE", help="further known words of the models: a word and its count a line")
    add("--threshold", nargs="+", type=float, default=[THRESHOLD], metavar="P", help=f"of the models {usual}")
    add("--rate", type=float, default=0.5, help=f"share of the words with listed misspellings that get one {usual}")
    add("--clean", type=float, default=0.5, help=f"share of the sentences that stay clean {usual}")
    add("--no-real-words", action="store_true", help="put in no misspelling that is another word of the lists")
    share = "share of the listed words, those that training keeps apart, whose misspellings are put in; 1: all"
    add("--heldout-words", type=float, default=0.1, metavar="SHARE", help=f"{share} {usual}")
    add("--sentences", type=int, default=0, metavar="N", help=f"at most so many sentences of --data; 0: all {usual}")
    add("--seed", type=int, default=0, help=f"of the misspellings {usual}")
    add("--samples", type=int, default=1000, help=f"resamples for each interval of a report {usual}")
    add("--batch-size", type=int, default=32, help=f"sentences that a model reads at a time {usual}")
    fit = "write a copy of the model to --out, whose weights of candidates fit these sentences, instead of a report"
    add("--fit", action="store_true", help=fit)
    add("--out", required=True, metavar="FOLDER", help="folder of the report, or of the fitted model")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    argv = sys.argv[1:] if argv is None else argv
    options = vars(_parser().parse_args(argv))
    options["command"] = shlex.join(["python", "-m", "charlm.evaluate_spelling", *argv])
    return run_command(lambda: _run(options), f"lower --batch-size (now {options['batch_size']})")


def _run(options: JsonObject) -> int:
    check_options(options, texts=("rivals", "command"), needed=("out",), stored=("models",))
    settings = SpellingSettings(**options)
    # imported late, so that --help needs no JAX
    from charlm.evaluate_spelling.evaluation import evaluate
    from charlm.evaluate_spelling.fitting import fit

    start_logging()
    if settings.fit:
        folder = fit(settings)
        log.info("fitted: %s; try it: charlm predict correct --checkpoint=%s 'A tpyo in a sentense.'", folder, folder)
        return 0
    files = evaluate(settings)
    log.info("report: %s", files[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
