"""Measures HLM beside BERT, CANINE, ByT5 and the authors' own HLM; prints one JSON line a figure, and tables.

    python -m charlm.benchmark                          # the usual cases, HLM-Base, built-in corpus, what is installed
    python -m charlm.benchmark --case inference --paths table cache_warm bert hf_bert --output speed.jsonl
    python -m charlm.benchmark --from speed.jsonl --plot speed.png

How it is measured. Every path runs in a process of its own with all processors; the processes stay loaded and take
turns, one run each, round after round, so that a change of the machine's speed meets all. Figures are medians with the
extremes; ratios are medians of each round's ratio. All read the same substrings of one corpus, consecutive words of it;
words are those of charlm's rule splitter, [CLS] and [SEP] of every text included, whatever pieces a model makes of
them. Measured is the way from arrays on the host to vectors that are ready on the device; HLM's search for distinct
words is part of it, and `cache_cold` begins every run with nothing kept. Tokenisation, text to arrays, is a figure of
its own (HLM's by an encoder that has met no word before). Weights are random, shapes the published ones, nothing is
downloaded. Peers get inference mode, PyTorch's own attention kernels where the model has them, torch.compile where it
works and is faster, and padding to the longest text of the batch alone. Without `--bert-vocab`, BERT's vocabulary is
trained on the very corpus, which favours BERT; BERT's table of positions grows beyond 512 where `scaling` needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import sys
from typing import TextIO

from charlm.benchmark import cases, plot, report, standalone
from charlm.benchmark.figures import Figure, about_machine
from charlm.benchmark.paths import INFERENCE, PATHS, TRAINING, check_asked
from charlm.logs import start_logging

log = logging.getLogger("charlm")

ALONE = {
    "parameters": standalone.parameters,
    "startup": standalone.startup,
    "input_pipeline": standalone.input_pipeline,
    "collectives": standalone.collectives,
    "parity": standalone.parity,
}
USUAL = ("parameters", "startup", "input_pipeline", INFERENCE, TRAINING)
_TIMED = (INFERENCE, TRAINING, cases.SCALING)
READ_BY = {  # which cases read an option; elsewhere it would be ignored, and is refused
    **dict.fromkeys(("paths", "dtype", "bert_vocab", "hlm_code", "smoke"), cases.CASES),
    **dict.fromkeys(("batch", "words"), (INFERENCE, TRAINING, cases.MEMORY)),
    **dict.fromkeys(("compile", "profile"), _TIMED),
    "lengths": (cases.SCALING,),
    "remat": (TRAINING, cases.MEMORY),
}


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m charlm.benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--case", choices=[*ALONE, *cases.CASES], action="append", help=f"repeatable; default: {', '.join(USUAL)}")
    add("--paths", nargs="+", default=[], metavar="PATH", help=f"default: all that run here, of {', '.join(PATHS)}")
    add("--config", default="configs/hlm_base.py", help="HLM to measure (default: %(default)s)")
    add("--text", default="builtin", help="corpus to read, as data.train (default: %(default)s)")
    add("--repeats", type=_positive, default=5, help="rounds, or runs of a case; memory has two (default: %(default)s)")
    add("--batch", type=_positive, help="texts of a batch (default: 32 in inference, 4 in training)")
    add("--words", type=_positive, help="words of a text, [CLS] and [SEP] included (default: 46, 128)")
    add("--lengths", type=_positive, nargs="+", default=list(cases.LENGTHS), metavar="WORDS", help="texts of scaling")
    add("--remat", action="store_true", help="training and memory: also HLM with activations recomputed")
    add("--dtype", choices=["float32", "bfloat16"], default="float32", help="of matrix products, for all paths")
    add("--bert-vocab", default="", metavar="PATH", help="BERT's vocabulary: folder, tokenizer.json or vocab.txt")
    add("--hlm-code", default="", metavar="PATH", help="checkout of github.com/lisun-ai/HLM, for authors_hlm")
    add("--no-compile", dest="compile", action="store_false", help="do not try torch.compile")
    add("--smoke", action="store_true", help="tiny models: shows that every path works, measures nothing")
    add("--profile", default="", metavar="DIR", help="trace a run of each JAX path; parts.txt says where time went")
    add("--output", metavar="FILE", help="add the JSON lines to this file; then the tables go to standard output")
    add("--plot", metavar="FILE", help="draw words/s by path and the scaling curve ([eval] extra)")
    add("--from", dest="saved", metavar="FILE", help="measure nothing: tables and plot of figures written before")
    return made


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise ValueError(value)
    return number


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status: 1 for a mistake or a path that died, 130 after Ctrl-C."""
    made = parser()
    args = made.parse_args(argv)
    start_logging()
    try:
        if args.plot:
            plot.check_installed()
        if args.saved:
            return _show_saved(made, args)
        return _measure(args)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; every process has ended", file=sys.stderr)
        return 130


def _show_saved(made: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    usual = vars(made.parse_args([]))
    other = [name for name, value in vars(args).items() if value != usual[name] and name not in ("saved", "plot")]
    if other:
        raise ValueError(f"--from measures nothing and goes with --plot alone, not with {', '.join(sorted(other))}")
    figures = report.read(args.saved)
    print(report.table(figures), end="")
    if args.plot:
        plot.plot(figures, args.plot)
    return 0


def _measure(args: argparse.Namespace) -> int:
    chosen = list(dict.fromkeys(args.case or USUAL))
    _check(args, chosen)
    names = {field.name for field in dataclasses.fields(cases.Settings)}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(args).items()}
    settings = cases.Settings(**{name: value for name, value in values.items() if name in names})
    figures: list[Figure] = []
    died: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stream: TextIO = sys.stdout
        if args.output:
            try:
                stream = stack.enter_context(open(args.output, "a", encoding="utf-8"))
            except OSError as error:
                raise ValueError(f"--output={args.output}: {error}") from None
        # Whatever stops a case: what was measured before it is shown.
        stack.callback(lambda: print(report.table(figures), end="", file=sys.stdout if args.output else sys.stderr))
        for case in chosen:
            if case in ALONE:
                config = cases.load_config(args.config, args.text)  # afresh: cases change it
                about = about_machine()
                made = [figure | about for figure in ALONE[case](config, args.repeats)]
            else:
                made, dead = cases.run(case, settings)
                died |= dead
            report.write(made, stream)
            figures += made
    if args.plot:
        plot.plot(figures, args.plot)
    return 1 if died else 0


def _check(args: argparse.Namespace, chosen: list[str]) -> None:
    """Raises ValueError for options that nothing chosen would read, and for paths that cannot run."""
    runners = {cases.RUNNERS_OF.get(case, case) for case in chosen if case in cases.CASES}
    check_asked(args.paths, runners, args.hlm_code)
    usual = vars(parser().parse_args([]))
    for option, readers in READ_BY.items():
        if getattr(args, option) != usual[option] and not set(readers) & set(chosen):
            flag = "no-compile" if option == "compile" else option.replace("_", "-")
            raise ValueError(f"--{flag} is read by {', '.join(readers)}: choose one of these with --case")


if __name__ == "__main__":
    sys.exit(main())
