"""Measures how long texts are in words and in subwords, and counts the parameters of a model and of its subword table.

    python -m charlm.statistics --model=bert-base-multilingual-cased --data dev.conllu notes.txt.gz
    python -m charlm.statistics --model=vocab.txt --lowercase=no --data 'wiki/*.jsonl' --json
    python -m charlm.statistics --model=runs/char2subword
    python -m charlm.statistics --model=gpt2 --table --splitter=spaces --sample=100000 --data tweets.txt wiki.txt
    python -m charlm.statistics --model=runs/xray --before=roberta-base

This is Table 5 of Char2Subword (Aguilar et al., 2021) for any text and any subword tokenizer, and the parameter counts
of its section 5. The model is a tokenizer's folder or file, a model's folder in the format of Hugging Face, a workdir
of a run, or one of its checkpoints; a tokenizer alone has no parameters to count. Files are plain text (one document
per line), JSON lines, Parquet, tables, or words in CoNLL columns; all but Parquet may be compressed (.gz).

With --table this is Table 3 of XRayEmb (Pinter et al., 2021), with one row per file: instances, words and distinct
words, the type/word ratio, the share of distinct words that are cut into several pieces, and how many tokens the cuts
add in all. The ratio depends on the length of a text: --sample draws sentences with the same number of words in all
from each file.

With --before it says how far training moved the parameters that both models have, as in Figure 2 of XRayEmb: the
Euclidean distance between the values before and after, by kind of parameter and layer.

All lengths are lengths of sentences. The words of CoNLL files are taken as they are, those of other files are cut by
the splitter. Subwords are the pieces of words, without special tokens. Standard deviations are those of the sentences
themselves (n in the denominator). A word is an entry of the vocabulary if it is one piece other than the unknown token,
as the tokenizer reads it: a tokenizer that lower-cases reads "The" as "the".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from charlm.core import extras
from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.data.files import matching_files
from charlm.statistics.lengths import (
    TEXT_FORMATS,
    Lengths,
    TextStatistics,
    read_sentences,
    sample,
    text_statistics,
)
from charlm.text.words import SPLITTERS, get_splitter

if TYPE_CHECKING:
    from charlm.statistics.parameters import Opened


TABLE_HEAD = "| text | instances | words | types | TTR | multitoks | token mass increase |\n|---" + "|---:" * 6 + "|"


def _parser() -> argparse.ArgumentParser:
    paragraphs = (__doc__ or "").split("\n\n")
    parser = Parser(prog=program("charlm.statistics"), description=paragraphs[0], epilog="\n\n".join(paragraphs[1:]))
    add, usual = parser.add_argument, "(default: %(default)s)"
    add("--model", required=True, metavar="PATH", help="tokenizer, model, workdir or checkpoint")
    add("--data", nargs="+", default=[], metavar="FILE", help='files or globs, "builtin", "tfds:NAME"')
    add("--format", choices=TEXT_FORMATS, default="auto", help=f"file format; auto: by the names of the files {usual}")
    add("--text", default="text", metavar="COLUMN", help=f"text column of tables, JSON lines and Parquet {usual}")
    add("--word", type=int, metavar="N", help="number of the words' column in CoNLL files (default: the usual one)")
    add("--splitter", default="rules", help=f"how text is cut into words: {', '.join(SPLITTERS)} {usual}")
    add("--language", default="en", help=f"language for the splitter spacy {usual}")
    add("--lowercase", choices=("yes", "no"), help="whether a vocab.txt of BERT lower-cases, if no file says so")
    add("--sample", type=int, metavar="N", help="draw sentences with N words in all from each file")
    add("--seed", type=int, default=0, help=f"seed of the sample {usual}")
    add("--before", metavar="PATH", help="the model before training: print how far its parameters moved")
    add("--table", action="store_true", help="print Table 3 of XRayEmb, as Markdown")
    add("--json", action="store_true", help="print one JSON object per line: the model, then each file")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    args = _parser().parse_args(argv)
    return run_command(lambda: _run(args), "set JAX_PLATFORMS=cpu, or lower --sample")


def _run(args: argparse.Namespace) -> int:
    check_options(vars(args), needed=("model",))
    if args.before is not None:
        return _show_moved(args)
    files = _files(args.data)  # check the arguments before the model, which loads slowly
    splitter = get_splitter(args.splitter, args.language)
    if args.sample is not None and args.sample < 1:
        raise ValueError(f"--sample={args.sample}: expected at least 1 word")
    if args.table and (args.json or not files):
        raise ValueError("--table: expected --data, and no --json, which has the same figures")
    from charlm.statistics.parameters import open_model  # imported late, so that --help needs no JAX

    model = open_model(args.model, {"yes": True, "no": False, None: None}[args.lowercase])
    if files and model.tokenizer is None:
        raise ValueError(f"--model={args.model} reads characters: it has no subwords to count")
    if not files and model.parameters is None:
        raise ValueError(f"--model={args.model} is a tokenizer alone: expected a model, or --data")
    print(TABLE_HEAD if args.table else _of_model(args.model, model, args.json), flush=True)
    show = _row if args.table else _as_json if args.json else _of_text
    for path in files:
        assert model.tokenizer is not None  # checked above
        sentences = read_sentences(path, splitter, format=args.format, text=args.text, word=args.word)
        try:
            drawn = sentences if args.sample is None else sample(sentences, args.sample, args.seed)
            found = text_statistics(drawn, model.tokenizer)
        except ValueError as error:
            raise ValueError(str(error) if path in str(error) else f"{path}: {error}") from error
        print(show(path, found), flush=True)
    return 0


def _show_moved(args: argparse.Namespace) -> int:
    """Prints how far parameters moved from --before to --model."""
    if args.data or args.table:
        raise ValueError("--before compares two models: leave --data and --table out")
    from charlm.statistics.movement import moved_between, table  # imported late, so that --help needs no JAX

    found = moved_between(args.before, args.model)
    print("\n".join(json.dumps(one.to_dict()) for one in found) if args.json else table(found), flush=True)
    return 0


def _files(specs: Iterable[str]) -> list[str]:
    """Returns the files of paths and globs; raises ValueError if a file, or the package that reads it, is missing."""
    found: list[str] = []
    for spec in specs:
        whole = spec == "builtin" or spec.startswith("tfds:")
        found += [spec] if whole else matching_files(spec, "--data")
    for path in found:
        if path.endswith(".parquet"):
            extras.load(f"{path} is Parquet", "pyarrow")
    return found


def _of_model(name: str, model: Opened, as_json: bool) -> str:
    """Returns the report on a model."""
    size = None if model.tokenizer is None else model.tokenizer.size
    if as_json:
        counted = None if model.parameters is None else model.parameters.to_dict()
        return json.dumps({"model": name, "vocabulary": size, "parameters": counted})
    lines = [name + ("" if size is None else f": a vocabulary of {size:,}")]
    if model.parameters is not None:
        lines.append(str(model.parameters))
    return "\n  ".join(lines)


def _as_json(name: str, found: TextStatistics) -> str:
    return json.dumps({"file": name} | found.to_dict())


def _row(name: str, found: TextStatistics) -> str:
    """Returns a row of `TABLE_HEAD`."""
    counts = f"{found.sentences:,} | {found.words:,} | {found.types:,} | {found.types_per_word:.3f}"
    return f"| {name} | {counts} | {found.cut_types:.2%} | {found.added_tokens:.2%} |"


def _of_text(name: str, found: TextStatistics) -> str:
    """Returns the report on a file."""
    shares = lambda kind: f"{getattr(found, kind):.1%} ({getattr(found, f'{kind}_types'):.1%} of the distinct words)"
    words, subwords = _lengths(found.words_per_sentence), _lengths(found.subwords_per_sentence)
    return "\n  ".join(
        [
            f"{name}: {found.sentences:,} sentences",
            f"{found.words:,} words, {words} a sentence; {found.types:,} distinct, {found.types_per_word:.3f} a word",
            f"{found.subwords:,} subwords, {subwords} a sentence, {found.subwords_per_word:.3f} a word: "
            f"{found.added_tokens:+.1%} tokens",
            f"words cut into several pieces: {shares('cut')}",
            f"words that are entries of the vocabulary: {shares('entries')}",
            f"words with the unknown token: {shares('unknown')}",
        ]
    )


def _lengths(of: Lengths) -> str:
    return f"{of.mean:.1f} ± {of.deviation:.1f} [{of.shortest}, {of.longest}]"


if __name__ == "__main__":
    sys.exit(main())
