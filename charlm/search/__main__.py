"""Searches texts by the vectors of an encoder: an index of documents, and queries.

    python -m charlm.search index docs.txt --model all-MiniLM-L6-v2 --output runs/index
    python -m charlm.search query --model all-MiniLM-L6-v2 --index runs/index "where did the cat sit"
    python -m charlm.search index docs.txt --model all-MiniLM-L6-v2 --output runs/index --kind hnsw
    python -m charlm.search speller --model all-MiniLM-L6-v2 --texts docs.txt --output runs/reader
    python -m charlm.search query --model runs/reader --index runs/index --same-space "wher did teh cat sti"
    python -m charlm.search context --model all-MiniLM-L6-v2 --texts corpus/*.txt.gz --output runs/context

docs.txt has one text per line, or is JSON lines with the key `text`; it may be gzipped. The index holds vectors and
texts, and says which model made them: another model is refused, unless --same-space says that it makes vectors in the
same space (a student that was trained to). Without queries on the command line, they are read from standard input.
The search is exact; --kind hnsw makes a graph for large indexes (FAISS, extra [search]), whose recall against the exact
search is printed.

`speller` makes a copy of an encoder that reads misspelled words as the words that they may mean. Nothing is trained,
and texts whose words stay keep their vectors, so the copy can ask an index of the encoder. It knows the whole words of
the encoder's table, and those of --texts, which should be the documents. The encoder is a BERT whose tokenizer
lowercases text. `context` trains, in minutes, what the words around a misspelled one say about it, on any texts of the
language; `speller --context` puts it into the copy.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_path
from charlm.core.logs import start_logging
from charlm.search.index import KINDS, Index, check_free, check_installed, write_index
from charlm.search.texts import read_texts
from charlm.text.speller.channel import LARGEST
from charlm.text.speller.settings import SpellerSettings, with_words

if TYPE_CHECKING:
    from charlm.api.model import Model

log = logging.getLogger("charlm")

_ASKED = 200  # texts of the index whose nearest texts say what recall the graph has
_NEAREST = 10


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=program("charlm.search"), description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    default = "(default: %(default)s)"
    made = commands.add_parser("index", help="embed texts and write an index")
    made.add_argument("texts", help="a file: one text per line, or JSON lines with the key `text`")
    made.add_argument("--output", required=True, metavar="FOLDER", help="where the index is to be")
    made.add_argument("--kind", choices=KINDS, default="exact", help=f"hnsw: a graph, for large indexes {default}")
    made.add_argument("--replace", action="store_true", help="replace an index that lies there")
    spelled = commands.add_parser("speller", help="copy an encoder, to read misspelled words as known ones")
    spelled.add_argument("--output", required=True, metavar="FOLDER", help="where the copy is to be")
    spelled.add_argument(
        "--texts",
        nargs="+",
        default=[],
        metavar="FILE",
        help="texts whose words are known, too, in files as for `index`",
    )
    usual = SpellerSettings()
    spelled.add_argument(
        "--context", metavar="FOLDER", help="what `context` trained on this encoder (default: the model's own, if any)"
    )
    spelled.add_argument(
        "--kept",
        type=int,
        default=usual.kept,
        metavar="N",
        help="as how many words a misspelled one is read at most; 1 decides for the likeliest (default: %(default)s)",
    )
    spelled.add_argument(
        "--unknown",
        type=float,
        metavar="NATS",
        help="cost of a word that is not known: with more, more words are read as others; with less, more names stay "
        f"(default: {usual.unknown:g}, with --texts {with_words(usual).unknown:g})",
    )
    spelled.add_argument(
        "--language", default=usual.language, help="whose keyboard is typed on (default: %(default)s, by the script)"
    )
    _add_context(commands.add_parser("context", help="train what words say about the words beside them"))
    asked = commands.add_parser("query", help="search an index")
    asked.add_argument("queries", nargs="*", help="texts; none: each line of standard input")
    asked.add_argument("--index", required=True, metavar="FOLDER", help="what `index` wrote")
    asked.add_argument("--top", type=int, default=5, help=f"texts for each query {default}")
    asked.add_argument("--exact", action="store_true", help="search exactly, whatever the kind of the index")
    asked.add_argument("--same-space", action="store_true", help="the model makes vectors in the space of the index")
    asked.add_argument("--json", action="store_true", help="print a JSON object for each query, blank ones too")
    for one in (made, spelled, asked, commands.choices["context"]):
        one.add_argument("--model", required=True, help="an encoder: a folder, a workdir, the name of a model")
    for one in (made, asked):
        one.add_argument("--prompt", default="", metavar="NAME", help="a prompt of the model's files")
        one.add_argument("--batch-size", type=int, default=32, help=f"texts embedded at a time {default}")
    return parser


def _add_context(parser: argparse.ArgumentParser) -> None:
    default = "(default: %(default)s)"
    parser.add_argument("--output", required=True, metavar="FOLDER", help="where the context is to be")
    parser.add_argument("--texts", required=True, nargs="+", metavar="FILE", help="texts, in files as for `index`")
    parser.add_argument("--passes", type=float, default=1.0, help=f"how often the texts are read {default}")
    parser.add_argument("--width", type=int, default=128, help=f"numbers by which words are compared {default}")
    parser.add_argument("--batch-size", type=int, default=2048, help=f"words told from each other at a time {default}")
    parser.add_argument("--seed", type=int, default=0, help=f"of all random draws {default}")


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    args = _parser().parse_args(argv)
    start_logging()
    if args.command == "speller":
        return run_command(lambda: _speller(args), "set JAX_PLATFORMS=cpu: this needs no accelerator")
    if args.command == "context":
        return run_command(lambda: _context(args), f"lower --batch-size (now {args.batch_size})")
    run = _index if args.command == "index" else _query
    return run_command(lambda: run(args), f"lower --batch-size (now {args.batch_size})")


def _speller(args: argparse.Namespace) -> int:
    check_path("--model", args.model, needed=True, stored=True)
    usual = with_words(SpellerSettings()) if args.texts else SpellerSettings()
    unknown = usual.unknown if args.unknown is None else args.unknown
    if args.kept < 1:
        raise ValueError(f"--kept={args.kept}: expected at least 1")
    if not 0 < unknown <= LARGEST:
        raise ValueError(f"--unknown={unknown:g}: expected a positive number of at most {LARGEST:g}")
    settings = dataclasses.replace(usual, kept=args.kept, unknown=unknown, language=args.language)
    from charlm.search.reader import make_reader  # imported late, so that --help needs no JAX

    print(make_reader(args.model, args.output, args.texts, settings, args.context))
    return 0


def _context(args: argparse.Namespace) -> int:
    check_path("--model", args.model, needed=True, stored=True)
    from charlm.search.context import ContextSettings, make_context  # imported late, so that --help needs no JAX

    settings = ContextSettings(args.passes, args.width, args.batch_size, args.seed)
    print(make_context(args.model, args.output, args.texts, settings))
    return 0


def _index(args: argparse.Namespace) -> int:
    check_path("--output", args.output, needed=True)
    check_path("--model", args.model, needed=True, stored=True)
    from charlm.api.model import load  # imported late, so that --help needs no JAX
    from charlm.search.vectors import identity, vectors_of

    folder = Path(args.output)
    check_free(folder, args.replace)  # before the texts are embedded, which is slow
    if args.kind == "hnsw":
        check_installed()
    texts = read_texts("docs", args.texts)
    model = load(args.model, batch_size=args.batch_size)
    made_by, start = identity(model), time.perf_counter()
    vectors_ND = vectors_of(model, texts, made_by, prompt_name=args.prompt or None)
    took = time.perf_counter() - start
    write_index(folder, texts, vectors_ND, made_by, args.model, args.kind, args.replace)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(
        f"{folder}: {len(texts):,} texts, {vectors_ND.shape[1]} numbers each, {size:.1f} MB, embedded in {took:.1f} s"
    )
    if args.kind == "hnsw":
        print(_recall(Index(folder)), flush=True)
    return 0


def _query(args: argparse.Namespace) -> int:
    check_path("--index", args.index, needed=True)
    check_path("--model", args.model, needed=True, stored=True)
    from charlm.api.model import load  # imported late, so that --help needs no JAX
    from charlm.search.vectors import identity

    index = Index(Path(args.index))
    if args.top < 1:
        raise ValueError(f"--top={args.top}: expected at least 1")
    model = load(args.model, batch_size=args.batch_size)
    index.check(identity(model), args.model, args.same_space)
    queries = args.queries or [line.rstrip("\r\n") for line in sys.stdin]
    asked = [query for query in queries if query.strip()]
    if not asked:
        raise ValueError("no queries: expected texts on the command line or lines on standard input")
    embedding = searching = 0.0
    model.encode(asked[0], normalize=True, prompt_name=args.prompt or None)  # compiles, which is not the search's time
    for query in queries:
        if query.strip():
            spent = _answer(args, model, index, query)
            embedding, searching = embedding + spent[0], searching + spent[1]
        elif args.json:  # a line for each line, so that a program can count them
            print(json.dumps({"query": query, "results": []}), flush=True)
    each = 1000 / len(asked)
    log.info("a query took %.1f ms to embed and %.2f ms to search", embedding * each, searching * each)
    return 0


def _answer(args: argparse.Namespace, model: Model, index: Index, query: str) -> tuple[float, float]:
    """Prints what a query finds; returns the seconds of embedding and of searching."""
    start = time.perf_counter()
    vector_D = model.encode(query, normalize=True, prompt_name=args.prompt or None)
    embedded = time.perf_counter()
    scores_1K, rows_1K = index.search(vector_D[None], args.top, args.exact)
    found = time.perf_counter()
    results = [
        {"row": row, "cosine": round(score, 6), "text": index.text(row)}
        for score, row in zip(scores_1K[0].tolist(), rows_1K[0].tolist(), strict=True)
        if row >= 0
    ]
    if args.json:
        print(json.dumps({"query": query, "results": results}), flush=True)
    else:
        print(query)
        for one in results:
            print(f"  {one['cosine']:.3f}  {' '.join(one['text'].split())}")
        sys.stdout.flush()
    return embedded - start, found - embedded


def _recall(index: Index) -> str:
    """Returns what share of the nearest texts the graph finds, of texts of the index, and both latencies."""
    asked = index.vectors_ND[:: max(1, len(index) // _ASKED)]
    found, seconds = [], []
    for exact in (False, True):
        start = time.perf_counter()
        found.append(index.search(asked, _NEAREST, exact)[1])
        seconds.append(1000 * (time.perf_counter() - start) / len(asked))
    shares = [len({*a} & {*b}) / len(b) for a, b in zip(found[0].tolist(), found[1].tolist(), strict=True)]
    recall = 100 * sum(shares) / len(shares)
    return (
        f"of the {found[1].shape[1]} nearest texts of {len(asked)} texts the graph finds {recall:.1f} %, "
        f"in {seconds[0]:.2f} ms each; the exact search takes {seconds[1]:.2f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
