"""Measures retrieval by vectors under typos, beside spelling correction in front of it.

    python -m charlm.evaluate_retrieval --models all-MiniLM-L6-v2 --beir scifact --out runs/retrieval
    python -m charlm.evaluate_retrieval --models all-MiniLM-L6-v2 runs/student --documents all-MiniLM-L6-v2 \\
        --squad dev-v1.1.json --noise charbert:0.5 keyboard:0.1 --defence symspell symspell-index --out runs/retrieval

The folder gets report.html, report.md and report.json: nDCG@10, MRR@10, recall@10, recall@100 and MAP of the queries,
clean and under every noise, with intervals by query and paired comparisons. Vectors of documents are kept in the cache
folder of charlm, by content and model; what was measured before is not measured again. With --documents, one model
embeds the documents and the others only queries: an index that exists stays as it is.

    python -m charlm.evaluate_retrieval --models all-MiniLM-L6-v2 --intents train.tsv dev.tsv --text query \\
        --label intent --defence symspell-index --out runs/intents

--intents classifies the texts of DEV by the nearest class: each is the mean of the vectors of its texts in TRAIN. The
score is accuracy, and symspell-index and speller-index know the words of TRAIN.

--write-beir only writes the data of --squad in BEIR's layout.
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
from charlm.core.local_paths import check_options, check_path
from charlm.core.logs import start_logging
from charlm.core.types import JsonObject
from charlm.evaluate_retrieval.data import read_squad_index, write_beir
from charlm.evaluate_retrieval.settings import (
    COLUMNS,
    INTENT_SCORES,
    RIVALS,
    SCORES,
    SPLIT,
    RetrievalSettings,
)
from charlm.text.noise.levels import ALL, kinds_of_noise, planned

log = logging.getLogger("charlm")


def _parser() -> argparse.ArgumentParser:
    first, *rest = (__doc__ or "").split("\n\n")
    parser = Parser(
        prog=program("charlm.evaluate_retrieval"),
        description=first,
        epilog="\n\n".join([*rest, kinds_of_noise(), table("defences", RIVALS)]),
    )
    add, usual = parser.add_argument, "(default: %(default)s)"
    add("--models", nargs="+", default=[], metavar="FOLDER", help="models that embed queries")
    add("--documents", default="", metavar="FOLDER", help="the model that embeds all documents; default: each its own")
    add("--beir", default="", metavar="FOLDER", help="data in BEIR's layout: corpus.jsonl, queries.jsonl, qrels")
    add("--split", default="", help=f"the split of its qrels (default: {SPLIT})")
    add("--squad", nargs="+", default=[], metavar="FILE", help="files of SQuAD; their paragraphs are the documents")
    files = "labelled texts: those that make the classes, and the queries; tables as fine-tuning reads them"
    add("--intents", nargs=2, default=[], metavar=("TRAIN", "DEV"), help=files)
    add("--text", default="", metavar="COLUMN", help=f"their column of texts (default: {COLUMNS['text']})")
    add("--label", default="", metavar="COLUMN", help=f"their column of classes (default: {COLUMNS['label']})")
    add("--out", default="", metavar="FOLDER", help="folder of the report; its measurements are used again")
    add("--noise", nargs="+", default=[ALL], metavar="SPEC", help='kind[:rate[:shortest word]][@language]; "all"')
    add("--seeds", type=int, default=1, help=f"number of draws of each noise {usual}")
    add("--first-seed", type=int, default=0, metavar="SEED", help=f"the first of these seeds {usual}")
    add("--misspellings", default="", metavar="FILE", help='list for the kind "misspelling"')
    add("--defence", nargs="+", default=[], metavar="NAME", help="also measure each model behind these; several: a+b")
    add("--defended", nargs="+", default=[], metavar="FOLDER", help="of --models, those behind --defence; default: all")
    add("--queries", type=int, default=0, metavar="N", help="draw N of the queries; 0: all (default)")
    add("--query-seed", type=int, default=0, metavar="SEED", help=f"the seed of that draw {usual}")
    add("--query-prompt", default="", metavar="NAME", help="the prompt in front of queries, of the model's files")
    add("--document-prompt", default="", metavar="NAME", help="the same for documents")
    scores = f"{', '.join(SCORES)} (default: mrr@10); of --intents {', '.join(INTENT_SCORES)} (default: accuracy)"
    add("--metric", default="", help=f"the main score: {scores}")
    add("--samples", type=int, default=1000, help=f"number of resamples for each interval {usual}")
    add("--batch-size", type=int, default=32, help=f"texts embedded at a time {usual}")
    add("--write-beir", default="", metavar="FOLDER", help="write the data of --squad there and stop")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    argv = sys.argv[1:] if argv is None else argv
    options = vars(_parser().parse_args(argv))
    options["command"] = shlex.join(["python", "-m", "charlm.evaluate_retrieval", *argv])
    smaller = f"lower --batch-size (now {options['batch_size']})"
    return run_command(lambda: _run(options), smaller, interrupted="the same command goes on with what is in --out")


def _run(options: JsonObject) -> int:
    converted = options.pop("write_beir")
    if converted:
        check_path("--write-beir", converted)
        if not options["squad"]:
            raise ValueError(f"--write-beir {converted}: expected --squad FILE, whose data it writes")
        data = read_squad_index(options["squad"])
        write_beir(data, Path(converted))
        print(f"{converted}: {len(data.documents)} documents, {len(data.queries)} queries", flush=True)
        return 0
    texts = ("split", "text", "label", "defence", "query_prompt", "document_prompt", "metric", "command")
    check_options(options, texts=texts, needed=("models", "out"), stored=("models", "documents"))
    settings = RetrievalSettings(**options)
    planned(settings.noise, settings.misspellings)  # check the noises before the models, which load slowly
    from charlm.evaluate_retrieval.measure import measure  # imported late, so that --help needs no JAX
    from charlm.evaluate_retrieval.report import write_report

    start_logging()
    *_, page = write_report(measure(settings), Path(settings.out))
    log.info("report: %s", page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
