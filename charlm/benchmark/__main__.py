"""Measures HLM beside BERT, CANINE, ByT5 and the authors' own HLM, and what XRayEmb and Char2Subword do to a BERT's
speed; prints one JSON line a figure, and tables.

    python -m charlm.benchmark                          # the usual cases, HLM-Base, built-in corpus, what is installed
    python -m charlm.benchmark --case inference --paths table cache_warm bert hf_bert --output speed.jsonl
    python -m charlm.benchmark --case inference --text corpus.txt --drawn   # texts of several topics and lengths
    python -m charlm.benchmark --case joined_words --case full_mode --case generator --text corpus.txt
    python -m charlm.benchmark --from speed.jsonl --plot speed.png

How it is measured. Every path runs in a process of its own with all processors; the processes stay loaded and take
turns, one run each, round after round, so that a change of the machine's speed meets all. Figures are medians with the
extremes; ratios are medians of each round's ratio. All read the same substrings of one corpus, by default consecutive
texts; words are those of charlm's rule splitter, [CLS] and [SEP] of every text included, whatever pieces a model makes
of them. Consecutive texts favour HLM: all have equally many of its words, so that it alone has no padding, and they
share a topic, so that fewer words are distinct. `--drawn` is the fairer view: texts from all over the corpus, from half
to one and a half times as long, and every model pads to the longest of the batch. Padding never counts as words.
Measured is the way from arrays on the host to vectors that are ready on the device; in inference HLM's search for
distinct words is part of it, and `cache_cold` begins every run with nothing kept. In training, where other threads
search while a step runs, the search is timed beside the step ("pack s"; `with_packing`: words/s were it not hidden).
Tokenisation, text to arrays, is a figure of its own (HLM's by an encoder that has met no word before). Weights are
random, shapes the published ones, nothing is downloaded. Peers get inference mode, PyTorch's own attention kernels
where the model has them, torch.compile where it works and is faster, and padding to the longest text of the batch
alone. Without `--bert-vocab`, BERT's vocabulary is trained on the very corpus, which favours BERT; BERT's table of
positions grows beyond 512 where `scaling` needs it.

Three cases measure the other families in the same way, two with BERT-base's shape. `joined_words`: XRayEmb's `encode`,
from texts to vectors of words, with the policy `all_multi`, which reads each word of several subwords as one position
(their vectors are cached before), beside the policy `none`, which reads subwords; figures say how many subwords a word
(between spaces) has, and the positions of a text under both. Joined words of consecutive texts, all of one length, need
hardly any padding: here as well `--drawn` is the fairer view. `full_mode`: a forward pass of Char2Subword in full mode,
one position a word, all spellings cached before, beside the same BERT with its table at as many positions
(`subword_table`: of each word the first subword alone) and on all subwords of the texts (`bert`). `generator`: loss and
gradients, of all parameters and of the vectors, of XRayEmb's generator, without an optimizer; --batch steps a run, each
of --words words from the 25,000 most frequent ones of the corpus that have up to 20 characters, drawn as training draws
words of cycles: all alike likely, one of each of as many equal parts of the words by length. Ours holds them in tables
of the lengths that training chooses (`generator_buckets`) or in one of 22 slots (`generator_slots`), PyTorch's LSTM
packs them (as the released code), pads them to 22, or cuts them to the longest; a text is a step, its tokens are
characters, both marks of a word included. Threads of PyTorch wait by spinning: where other work shares the processors,
`taskset -c 0` gives every path one.

Four cases stand behind single figures. `charbert`: a forward pass of CharBERT with the paper's fusion and with the
released code's, beside BERT-base on the same pieces. `calls`: the predictor of HLM reads 128 paragraphs, all words
cached before, some 1,024 positions a call (on processors) and 32 paragraphs a call. `pages`: a training step of HLM
with huge pages for its arrays (GLIBC_TUNABLES) and with usual ones. `counts`: nothing is timed; how many bits counts of
the training part need for a character of a held-out word, as a scale for what a model of `--config` needs.

Several runs may add to one `--output`: a figure says what was chosen for it, and only one alike in everything replaces
it in the tables. Ctrl-C and SIGTERM keep the rounds that all paths have finished.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from typing import TextIO

from charlm.benchmark import cases, checks, plot, report, standalone
from charlm.benchmark.counts import counts
from charlm.benchmark.figures import Figure, about_machine
from charlm.benchmark.paths import INFERENCE, PATHS, TRAINING
from charlm.benchmark.stopping import status_of, terminable
from charlm.config import get_config
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging

log = logging.getLogger("charlm")

ALONE = {
    "parameters": standalone.parameters,
    "startup": standalone.startup,
    "input_pipeline": standalone.input_pipeline,
    "collectives": standalone.collectives,
    "parity": standalone.parity,
    "counts": counts,
}
USUAL = ("parameters", "startup", "input_pipeline", INFERENCE, TRAINING)


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
    add("--batch", type=_positive, help=f"texts of a batch, steps of generator ({_defaults('batch')})")
    add(
        "--words",
        type=_positive,
        help=f"words of a text, [CLS] and [SEP] included, or of a step ({_defaults('words')})",
    )
    add("--drawn", action="store_true", help="texts from all over the corpus, of several lengths; --words: their mean")
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


def _defaults(field: str) -> str:
    return "default: " + ", ".join(f"{getattr(shape, field)} in {case}" for case, shape in cases.SHAPES.items())


def _positive(value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {value!r}")
    return number


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status.

    The status is 0, or 1 for a mistake or a path that died, 130 after Ctrl-C, 143 after SIGTERM.
    """
    made = parser()
    args = made.parse_args(argv)
    start_logging()
    try:
        check_options({"from" if name == "saved" else name: value for name, value in vars(args).items()})
        with terminable():
            return _show_saved(made, args) if args.saved else _measure(made, args)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        status, said = status_of(stop)
        print(f"{said}; every process has ended", file=sys.stderr)
        return status


def _show_saved(made: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    usual = vars(made.parse_args([]))
    other = [name for name, value in vars(args).items() if value != usual[name] and name not in ("saved", "plot")]
    if other:
        raise ValueError(f"--from measures nothing and goes with --plot alone, not with {', '.join(sorted(other))}")
    if args.plot:
        plot.check(args.plot)
    figures = report.read(args.saved)
    print(report.table(figures), end="")
    if args.plot:
        plot.plot(figures, args.plot)
    return 0


def _measure(made: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    chosen = list(dict.fromkeys(args.case or USUAL))
    checks.check(args, made.parse_args([]), chosen)
    # Some cases run in this process, which must leave the memory of an accelerator to the processes that it starts.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    figures: list[Figure] = []
    died: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stream: TextIO = sys.stdout
        if args.output:
            try:
                stream = stack.enter_context(open(args.output, "a", encoding="utf-8"))
            except OSError as error:
                raise ValueError(f"--output={args.output}: {error}") from None
        # Whatever stops a case, show the figures that were measured before.
        stack.callback(lambda: print(report.table(figures), end="", file=sys.stdout if args.output else sys.stderr))
        for case in chosen:
            found = _alone(case, args) if case in ALONE else cases.run(case, cases.settings_of(args))
            died |= found.died
            report.write(found.figures, stream)
            figures += found.figures
            if found.stopped:
                raise found.stopped
    if args.plot:
        plot.plot(figures, args.plot)
    return 1 if died else 0


def _alone(case: str, args: argparse.Namespace) -> cases.Outcome:
    reads = {option: case in checks.READ_BY[option] for option in ("config", "text")}
    # Load the config for each case anew, since cases change it. A case that reads no config needs no file.
    config = cases.load_config(args.config, args.text) if reads["config"] else get_config()
    about = {"config": args.config if reads["config"] else ""} | ({"text": args.text} if reads["text"] else {})
    about |= about_machine()
    return cases.Outcome([figure | about for figure in ALONE[case](config, args.repeats)], {})


if __name__ == "__main__":
    sys.exit(main())
