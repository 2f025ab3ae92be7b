"""The options of `python -m charlm.predict`, and the checks that need no model.

Open it to add a command or an option, or to see why one is refused before a model is loaded. It needs no JAX.
"""

from __future__ import annotations

import argparse

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.reading import read_text
from charlm.families.corrections import THRESHOLD, check_threshold, counted_words
from charlm.families.gaps import LENGTH_DIGITS, Length
from charlm.families.predict_options import add_options
from charlm.text.words import SPLITTERS, get_splitter

MOST_ANSWERS = 10_000  # largest --top; free spellings are kept in memory while they are ranked


def make_parser(description: str) -> argparse.ArgumentParser:
    """Returns the parser of the command line; `args.command` is the name of the command."""
    parser = Parser(prog=program("charlm.predict"), description=description)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    encode = commands.add_parser("encode", help="word vectors with offsets, and a sentence vector")
    fill = commands.add_parser(
        "fill-mask",
        help='words for each "[MASK]" (or "[MASK:5]" for five characters)',
        description="Ranks words for each gap by their score, the geometric mean of the probabilities of a word's "
        "characters, or of its pieces: it compares words of any length, and does not add up to 1.",
    )
    mend = commands.add_parser("correct", help="misspelled words, mended, with offsets and probabilities")
    score = commands.add_parser(
        "score", help="log-probability (nats) of each piece after those before it; bits per character"
    )
    generate = commands.add_parser("generate", help="how each text goes on, written from left to right")
    near = commands.add_parser("neighbors", help="subwords whose rows are nearest to the vector made of a string")
    tag = commands.add_parser("tag", help="a tag for every word, with offsets")
    classify = commands.add_parser("classify", help="a class for each text, and the probability of each class")
    measure = commands.add_parser("measure", help="a number for each text")
    reply = commands.add_parser("answer", help="answers to questions, with their places in a context")
    rank = commands.add_parser("rank", help="how well each passage answers a query")
    whole = commands.add_parser(
        "predict", help="what any fine-tuned model predicts for files of examples in the format of its task"
    )
    of_texts = (encode, fill, mend, score, generate, near, tag, classify, measure, reply, rank)
    for command in (*of_texts, whole):
        command.add_argument(
            "--checkpoint",
            "--model",
            required=True,
            help="workdir of a run, a checkpoint, a model's folder, or the name of a trained model",
        )
    for command in of_texts:
        command.add_argument("text", nargs="*", help="texts; none: lines of standard input")
    whole.add_argument("file", nargs="+", help="files of examples, as data.test of fine-tuning; labels are not used")
    for command in (classify, measure):
        command.add_argument("--pair", help="second text of each pair; default: single texts, or lines TEXT<tab>PAIR")
    reply.add_argument("--context", required=True, help="file of the text that holds the answers")
    reply.add_argument("--top", type=int, default=1, help="number of answers (default: %(default)s)")
    rank.add_argument("--query", required=True, help="the query that the passages are to answer")
    for command in (*(one for one in of_texts if one is not near), whole):
        command.add_argument("--batch-size", type=int, default=32, help="texts at a time (default: %(default)s)")
    for command in (encode, fill, mend, tag, classify, measure, reply, rank, whole):
        add_options(command)
    for command in of_texts:
        _add_format(command, "; conll: a word and its tag a line, as fine-tuning reads them" * (command is tag))
    _add_encode(encode)
    _add_fill_mask(fill)
    _add_correct(mend)
    _add_tag(tag)
    _add_writing(score, generate)
    near.add_argument("--top", type=int, default=5, help="number of subwords (default: %(default)s)")
    return parser


def _add_encode(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sentence-only", action="store_true", help="leave the word vectors out")
    command.add_argument(
        "--unit", choices=("words", "pieces"), default="words", help="what the vectors are of (default: %(default)s)"
    )
    command.add_argument(
        "--stats",
        action="store_true",
        help="say at the end how many words were in the cache, for a model that reads words from their characters",
    )


def _add_fill_mask(command: argparse.ArgumentParser) -> None:
    command.add_argument("--top", type=int, default=5, help="number of words (default: %(default)s)")
    among = command.add_mutually_exclusive_group()
    among.add_argument(
        "--words",
        help="file of words, one a line, to choose from; none: the frequent ones of the training text that lie "
        "beside the model, or all that it can write",
    )
    among.add_argument("--any", action="store_true", help="choose among all spellings, if the model spells words")
    command.add_argument("--length", default="auto", help='characters of the word, or "auto" (default)')


def _add_correct(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--threshold",
        type=float,
        default=THRESHOLD,
        help="probability from which on a word is corrected; higher: fewer corrections (default: %(default)s)",
    )
    command.add_argument(
        "--words",
        help="file of further known words, one a line, perhaps with a count behind it, beside the frequent ones of the "
        "training text that lie beside the model",
    )


def _add_format(command: argparse.ArgumentParser, columns: str) -> None:
    command.add_argument(
        "--format",
        choices=("auto", "json", "text", *["conll"] * bool(columns)),
        default="auto",
        help=f"json: a line a text; text: for people{columns}; auto: text on a terminal, else json (default)",
    )


def _add_tag(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--splitter", choices=SPLITTERS, default="rules", help="how texts become words (default: %(default)s)"
    )
    command.add_argument("--language", default="en", help="of the splitter spacy (default: %(default)s)")


def _add_writing(score: argparse.ArgumentParser, generate: argparse.ArgumentParser) -> None:
    score.add_argument("--no-start", action="store_true", help="do not score the first piece, as the usual loss")
    score.add_argument("--total-only", action="store_true", help="leave the pieces out")
    generate.add_argument(
        "--max-new", type=int, default=40, help="tokens to add; words of an HLM (default: %(default)s)"
    )
    generate.add_argument("--temperature", type=float, default=0.0, help="0: always the likeliest (default)")
    generate.add_argument("--top-k", type=int, default=0, help="draw only among this many of them; 0: all (default)")
    generate.add_argument("--top-p", type=float, default=1.0, help="draw among those of this probability (default: 1)")
    generate.add_argument("--seed", type=int, default=0, help="seed of the draws (default: %(default)s)")


def check(args: argparse.Namespace) -> None:
    """Raises ValueError for options that are wrong for any model."""
    for name in ("top", "batch_size"):
        if getattr(args, name, 1) < 1:
            raise ValueError(f"--{name.replace('_', '-')}={getattr(args, name)}: expected at least 1")
    if getattr(args, "top", 1) > MOST_ANSWERS:
        raise ValueError(f"--top={args.top}: expected at most {MOST_ANSWERS}")
    if getattr(args, "words", None):
        read_counts(args.words) if args.command == "correct" else read_words(args.words)
    if args.command == "correct":
        check_threshold(args.threshold)
    if args.command == "fill-mask":
        word_length(args.length)
    if args.command == "tag":
        get_splitter(args.splitter, args.language)
    if args.command == "answer":
        read_text(args.context)


def word_length(text: str) -> Length:
    """Returns the number of characters that --length asks for; ValueError unless it is positive or "auto"."""
    digits = text.isascii() and text.isdigit() and len(text) <= LENGTH_DIGITS
    if text != "auto" and not (digits and int(text) > 0):
        raise ValueError(f'--length={text}: expected a positive number of characters or "auto"')
    return "auto" if text == "auto" else int(text)


def read_counts(path: str) -> dict[str, float]:
    """Returns the words of the file that --words of `correct` names, with their counts; ValueError if it is none."""
    try:
        return counted_words(read_text(path).splitlines(), f"--words={path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--words={path} cannot be read: {error}") from error


def read_words(path: str) -> set[str]:
    """Returns the words of the file that --words names; ValueError if it cannot be read."""
    try:
        return set(read_text(path).removeprefix("\ufeff").split())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--words={path} cannot be read: {error}") from error
