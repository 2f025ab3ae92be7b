"""Measures the speed of HLM beside BERT, CharacterBERT, CANINE, ByT5 and the authors' own HLM, and other families'.

It prints one JSON line for each figure, and tables.

    python -m charlm.benchmark                          # the usual cases, HLM-Base, built-in corpus, what is installed
    python -m charlm.benchmark --case inference --paths table cache_warm bert hf_bert --output speed.jsonl
    python -m charlm.benchmark --case inference --text corpus.txt --drawn   # texts of several topics and lengths
    python -m charlm.benchmark --case joined_words --case full_mode --case generator --text corpus.txt
    python -m charlm.benchmark --from speed.jsonl --plot speed.png

How it is measured. Every path runs in a process of its own with all processors. The processes stay loaded and take
turns, one run each, round after round, so that a change in the machine's speed affects all of them. Figures are medians
with the extremes; ratios are medians of the ratios of the rounds. All paths read the same substrings of one corpus, by
default consecutive texts. Words are those of charlm's rule splitter, including [CLS] and [SEP] of every text, whatever
pieces a model cuts them into. Consecutive texts favour HLM: they have equally many of its words, so that HLM alone has
no padding, and they share a topic, so that fewer words are distinct. `--drawn` is fairer: its texts come from all over
the corpus and are half to one and a half times as long, and every model pads to the longest text of the batch. Padding
never counts as words. With `--pairs`, drawn texts are pairs of sentences with the lengths of MRPC's, on which HLM's
paper measures (section 4.5).

What is timed is the way from arrays on the host to vectors that are ready on the device. In inference this includes
HLM's search for distinct words, and `cache_cold` begins every run with an empty cache. In training, where other threads
search while a step runs, the search is timed beside the step ("pack s"; `with_packing`: words/s if it were not hidden).
Tokenisation, from text to arrays, is a figure of its own (HLM's encoder has not seen any word before). Weights are
random, shapes are the published ones, and nothing is downloaded. Peers get inference mode, PyTorch's own attention
kernels where the model has them, torch.compile where it works and is faster, and padding only to the longest text of
the batch. Without `--bert-vocab`, BERT's vocabulary is trained on the very corpus, which favours BERT; BERT's table of
positions grows beyond 512 where `scaling` needs it.

Three cases measure the other families in the same way, the first two with BERT-base's shape. `joined_words`: XRayEmb's
`encode`, from texts to vectors of words, with the policy `all_multi`, which reads each word of several subwords as one
position (the vectors of these words are cached before), beside the policy `none`, which reads subwords. The figures say
how many subwords a word (between spaces) has, and how many positions a text has under both policies. Consecutive texts
with joined words, all of one length, need hardly any padding, so `--drawn` is fairer here as well. `full_mode`: a
forward pass of Char2Subword in full mode, with one position for each word and all spellings cached before. Beside it
run the same BERT with its table at as many positions (`subword_table`: only the first subword of each word) and on all
subwords of the texts (`bert`). `generator`: the loss of XRayEmb's generator, and its gradients for all parameters and
for the vectors, without an optimizer. A run has --batch steps of --words words each. They come from the 25,000 most
frequent words of the corpus with up to 20 characters, and are drawn as training draws words of cycles: all are equally
likely, and one comes from each of as many equal parts of the words by length. charlm holds them in tables of the
lengths that training chooses (`generator_buckets`) or in one table of 22 slots (`generator_slots`); PyTorch's LSTM
packs them (as the released code does), pads them to 22, or cuts them to the longest. Here a text is a step, and its
tokens are characters, including both marks of a word. PyTorch's threads wait by spinning: if other work shares the
processors, `taskset -c 0` gives every path one of them.

Four cases explain single figures. `charbert`: a forward pass of CharBERT with the paper's fusion and with the released
code's, beside BERT-base on the same pieces. `calls`: HLM's predictor reads 128 paragraphs, all words cached before, in
calls of some 1,024 positions (its choice on processors) and in calls of 32 paragraphs. `pages`: a training step of HLM
with huge pages for its arrays (GLIBC_TUNABLES) and with usual ones. `counts`: nothing is timed; how many bits per
character held-out words cost if only counts of the training part are used, as a scale for what a model of `--config`
needs.

`first_batch` times what a new process waits for its first vectors, from 32 texts of 23 to 69 words to the vectors of
their words, when the most frequent words of the corpus lie in a table beside the model (`charlm export
--format=words`), and when they do not. Programs are compiled before. The words of the texts do not count among the
corpus's.

`noises` times every kind of noise at its usual rate: sentences of 22 words per second of one processor's time, read one
after the other, and `misspelling` where `--misspellings` has a list. There is no model.

`attention` times attention between words alone, without projections, by every kernel that can run on the device:
HLM's with relative positions and BERT's without, forward, and the gradient with dropout. TFLOP/s count the products of
scores, positions and mixing, three times for a gradient; what a kernel computes again does not count. Beside the times
stand the temporaries of a call by the compiler, the error of values and gradients beside `einsum` in float32 (without
dropout, on two rows; the largest difference as a share of the largest value), and whether two runs had the same bits.

`accelerator` measures HLM-Base on a GPU in bfloat16, one measurement after another: attention, training at 512 and
2,048 words, inference beside both BERTs. It needs a corpus of some 50,000 words; `--minutes 10` ends it in time.

Several runs may add to one `--output`: each figure records its settings, and in the tables only a later figure with the
same settings replaces it. Ctrl-C and SIGTERM keep the rounds that all paths have finished.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from charlm.benchmark import accelerator, attention_case, cases, checks, plot, report, standalone
from charlm.benchmark.accelerator import ACCELERATOR
from charlm.benchmark.counts import counts
from charlm.benchmark.figures import Figure, about_machine
from charlm.benchmark.first_batch import first_batch
from charlm.benchmark.noises import noises
from charlm.benchmark.paths import ATTENTION, INFERENCE, PATHS, TRAINING
from charlm.config import get_config
from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.interrupts import limited, status_of, terminable
from charlm.core.local_paths import check_options
from charlm.core.logs import print_error, start_logging
from charlm.nn.choices import KERNELS

log = logging.getLogger("charlm")

ALONE = {
    "parameters": standalone.parameters,
    "startup": standalone.startup,
    "input_pipeline": standalone.input_pipeline,
    "collectives": standalone.collectives,
    "parity": standalone.parity,
    "counts": counts,
    "noises": noises,
    "first_batch": first_batch,
}
USUAL = ("parameters", "startup", "input_pipeline", INFERENCE, TRAINING)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = Parser(prog=program("charlm.benchmark"), description=__doc__)
    add = made.add_argument
    known = [*ALONE, *cases.CASES, ATTENTION, ACCELERATOR]
    listed = f"may be repeated; default: {', '.join(USUAL)}; of {', '.join(known)}"
    add("--case", choices=known, metavar="CASE", action="append", help=listed)
    add("--paths", nargs="+", default=[], metavar="PATH", help=f"default: all that run here, of {', '.join(PATHS)}")
    add("--config", default="configs/hlm_base.py", help="HLM to measure (default: %(default)s)")
    add("--text", default="builtin", help="corpus to read, as data.train (default: %(default)s)")
    add("--repeats", type=_positive, default=5, help="rounds, or runs of a case; two in memory (default: %(default)s)")
    add("--batch", type=_positive, help=f"texts per batch, or steps of generator ({_defaults('batch')})")
    add(
        "--words",
        type=_positive,
        help=f"words per text, including [CLS] and [SEP], or words per step ({_defaults('words')})",
    )
    add("--drawn", action="store_true", help="texts from all over the corpus, of several lengths (--words: mean)")
    add("--pairs", action="store_true", help="inference: texts are pairs of sentences, as MRPC's; they are drawn, too")
    add("--misspellings", default="", metavar="FILE", help='list for the kind "misspelling" in noises')
    add("--lengths", type=_positive, nargs="+", default=list(cases.LENGTHS), metavar="WORDS", help="words in scaling")
    add("--remat", action="store_true", help="training and memory: also HLM with activations recomputed")
    add("--dtype", choices=["float32", "bfloat16"], default="float32", help="dtype of matrix products in all paths")
    add("--attention-kernel", choices=KERNELS, default="", help="of HLM and our BERT (default: as --config says; auto)")
    add("--bert-vocab", default="", metavar="PATH", help="BERT's vocabulary: folder, tokenizer.json or vocab.txt")
    add("--hlm-code", default="", metavar="PATH", help="checkout of github.com/lisun-ai/HLM, for authors_hlm")
    add("--no-compile", dest="compile", action="store_false", help="do not try torch.compile")
    add("--smoke", action="store_true", help="tiny models: shows that every path works, measures nothing")
    add("--minutes", type=_positive, help="stop after so many minutes; what was measured until then is kept")
    add("--profile", default="", metavar="DIR", help="trace a run of each JAX path; parts.txt says where the time went")
    add("--output", metavar="FILE", help="append the JSON lines to this file, and print only the tables")
    add("--plot", metavar="FILE", help="draw words/s by path and the scaling curve ([eval] extra)")
    add("--from", dest="saved", metavar="FILE", help="measure nothing; show the figures of this file")
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

    The status is 0, or 1 for a mistake or a path that died, 130 after Ctrl-C, 143 after SIGTERM, 124 after --minutes.
    """
    made = parser()
    args = made.parse_args(argv)
    start_logging()
    try:
        check_options({"from" if name == "saved" else name: value for name, value in vars(args).items()})
        with terminable(), limited(60 * args.minutes if args.minutes else None):
            return _show_saved(made, args) if args.saved else _measure(made, args)
    except ValueError as error:
        print_error(str(error))
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
        for found in _outcomes(chosen, args):
            died |= found.died
            report.write(found.figures, stream)
            figures += found.figures
            if found.stopped:
                raise found.stopped
    if args.plot:
        plot.plot(figures, args.plot)
    return 1 if died else 0


def _outcomes(chosen: Sequence[str], args: argparse.Namespace) -> Iterator[cases.Outcome]:
    """Yields what the cases find, measurement by measurement."""
    settings = cases.settings_of(args)
    for case in chosen:
        if case in ALONE:
            yield _alone(case, args)
        elif case == ACCELERATOR:
            yield from accelerator.run(settings)
        else:
            yield attention_case.run(settings) if case == ATTENTION else cases.run(case, settings)


def _alone(case: str, args: argparse.Namespace) -> cases.Outcome:
    reads = {option: case in checks.READ_BY[option] for option in ("config", "text")}
    # Load the config for each case anew, since cases change it. A case that reads no config needs no file.
    spec = args.config if reads["config"] else ""
    config = cases.load_config(spec, args.text) if any(reads.values()) else get_config()
    about = {"config": spec} | ({"text": args.text} if reads["text"] else {})
    about |= about_machine()
    own = {"misspellings": args.misspellings} if case in checks.READ_BY["misspellings"] else {}
    return cases.Outcome([figure | about for figure in ALONE[case](config, args.repeats, **own)], {})


if __name__ == "__main__":
    sys.exit(main())
