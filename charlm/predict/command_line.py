"""Uses a trained model: vectors of texts, words for gaps, typos mended, scores and continuations, labels and answers.

    python -m charlm.predict encode --checkpoint=runs/hlm "A text." > vectors.jsonl
    python -m charlm.predict fill-mask --checkpoint=runs/hlm "The [MASK] of the list."
    python -m charlm.predict correct --checkpoint=runs/speller "A tpyo in a sentense."
    python -m charlm.predict score --checkpoint=gpt2 < lines.txt
    python -m charlm.predict generate --checkpoint=gpt2 --max-new=20 "Once upon a time"
    python -m charlm.predict neighbors --checkpoint=runs/c2s business BUSINESS bssinesssses
    python -m charlm.predict tag --checkpoint=runs/ner "Ada Lovelace lived in London."
    python -m charlm.predict classify --checkpoint=runs/mnli --pair="It rained." "The street was wet."
    python -m charlm.predict answer --checkpoint=runs/squad --context=article.txt "Who wrote it?"
    python -m charlm.predict predict --checkpoint=runs/mnli test.tsv > predictions.jsonl

The checkpoint is a workdir of a run, one of its checkpoints, or a model's folder in Hugging Face's format; tag,
classify, measure, answer, rank and predict need a fine-tuned model. Texts are arguments, or lines of standard input.
The output has one JSON line for each text, in the same order. A text that cannot be answered gets a JSON line with only
the keys "text" and "error", and a line on standard error that names it; all other texts are still answered, and the
exit status is 1. On a terminal, all but predict show text for people instead, of vectors the first numbers;
`--format=json` or `--format=text` asks for one of them. `tag --format=conll` writes words and tags in the columns that
fine-tuning reads. As text or in columns, there is only the line on standard error of a text that cannot be answered.

predict reads whole files in the format of the data that the model was fine-tuned on, with or without labels, and works
for every task, also for one that a package adds and that has no command of its own. Its output has one JSON line for
each example, with its id and what is predicted.
"""

from __future__ import annotations

import argparse
import sys

from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.stores import here
from charlm.families.predict_options import load_with_options
from charlm.families.predictor import Predictor
from charlm.predict.options import check, make_parser
from charlm.predict.pretrained import COMMANDS
from charlm.predict.shown import printed
from charlm.predict.stream import answer_stream


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status: 1 if any text could not be answered."""
    args = make_parser((__doc__ or "").split("\n\n")[0]).parse_args(argv)
    size = getattr(args, "batch_size", 1)
    smaller = f"lower --batch-size (now {size})" if size > 1 else "give shorter texts, or set JAX_PLATFORMS=cpu"
    return run_command(lambda: _answer_all(args), smaller)


def _answer_all(args: argparse.Namespace) -> int:
    texts, needed = ("text", "pair", "query"), ("checkpoint", "context")
    check_options(vars(args), texts, needed, stored=("checkpoint",))
    args.checkpoint = here(args.checkpoint)
    check(args)  # before the model is loaded, which is slow
    predictor = None
    if args.command in COMMANDS:
        predictor = load_with_options(Predictor.from_checkpoint, args)
        predictor.require(args.command.replace("-", "_"))
        answer, size = COMMANDS[args.command](predictor, args)
    else:
        from charlm.predict import fine_tuned  # imported late, so that --help does not import jax

        if args.command == "predict":
            return fine_tuned.predict_files(args)
        answer, size = fine_tuned.ask_fine_tuned(args)
    answer([])  # reports errors in the options once, not for every text
    written = printed(args.command, getattr(args, "format", "json"), sys.stdout.isatty())
    from charlm.core.progress_bar import counter  # as above

    status = answer_stream(answer, args.text, size, written, counter)
    if getattr(args, "stats", False) and predictor is not None and predictor.cache is not None:
        print(predictor.cache.stats, file=sys.stderr)
    return status
