"""Uses a trained model: vectors of texts, words for gaps, how likely a text is, how it goes on, labels and answers.

    python -m charlm.predict encode --checkpoint=runs/hlm "A text." > vectors.jsonl
    python -m charlm.predict fill-mask --checkpoint=runs/hlm "The [MASK] of the list."
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
exit status is 1. On a terminal, fill-mask shows a table instead.

predict reads whole files in the format of the data that the model was fine-tuned on, with or without labels, and works
for every task, also for one that a package adds and that has no command of its own. Its output has one JSON line for
each example, with its id and what is predicted.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from charlm.core.commands import fail, run_command
from charlm.core.local_paths import check_options
from charlm.core.reading import LINE, read_text, scaled, too_large
from charlm.core.stores import here
from charlm.core.types import JsonObject
from charlm.families.predict_options import add_options, load_with_options
from charlm.families.predictor import (
    LENGTH_DIGITS,
    Encoding,
    Fill,
    Generation,
    KnownWords,
    Predictor,
    Score,
    check_seeds,
)
from charlm.text.wordlist import WordList

if TYPE_CHECKING:
    from charlm.finetune.predictor import FineTuned

__all__ = ["Encoding", "Fill", "Generation", "Predictor", "Score", "WordList", "main"]

CUT = 80  # number of characters shown of a text that is too long
MOST_ANSWERS = 10_000  # largest --top; free spellings are kept in memory while they are ranked
BATCHES_AT_A_TIME = 4  # batches of texts read before they are answered, so that texts of similar length share a batch


class _Asked(NamedTuple):
    """An input text: where it comes from ("text 2", "line 2"), how often it came before, and whether it was cut."""

    text: str
    where: str
    before: int
    cut: bool = False


Answerer = Callable[[list[_Asked]], list[JsonObject]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m charlm.predict", description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    encode = commands.add_parser("encode", help="word vectors with offsets, and a sentence vector")
    fill = commands.add_parser("fill-mask", help='words for each "[MASK]" (or "[MASK:5]" for five characters)')
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
    of_texts = (encode, fill, score, generate, near, tag, classify, measure, reply, rank)
    for command in (*of_texts, whole):
        command.add_argument("--checkpoint", required=True, help="workdir of a run, a checkpoint, or a model's folder")
    for command in of_texts:
        command.add_argument("text", nargs="*", help="texts; none: lines of standard input")
    whole.add_argument("file", nargs="+", help="files of examples, as data.test of fine-tuning; labels are not used")
    for command in (classify, measure):
        command.add_argument("--pair", help="second text of each pair; default: single texts, or lines TEXT<tab>PAIR")
    reply.add_argument("--context", required=True, help="file of the text that holds the answers")
    reply.add_argument("--top", type=int, default=1, help="number of answers (default: %(default)s)")
    rank.add_argument("--query", required=True, help="the query that the passages are to answer")
    for command in (encode, score, generate, tag, classify, measure, reply, rank, whole):
        command.add_argument("--batch-size", type=int, default=32, help="texts at a time (default: %(default)s)")
    for command in (encode, fill, tag, classify, measure, reply, rank, whole):
        add_options(command)
    encode.add_argument("--sentence-only", action="store_true", help="leave the word vectors out")
    encode.add_argument(
        "--unit", choices=("words", "pieces"), default="words", help="what the vectors are of (default: %(default)s)"
    )
    encode.add_argument(
        "--stats",
        action="store_true",
        help="say at the end how many words were in the cache, for a model that reads words from their characters",
    )
    fill.add_argument("--top", type=int, default=5, help="number of words (default: %(default)s)")
    near.add_argument("--top", type=int, default=5, help="number of subwords (default: %(default)s)")
    among = fill.add_mutually_exclusive_group()
    among.add_argument(
        "--words",
        help="file of words, one a line, to choose from; none: the frequent ones of the training text that lie "
        "beside the model, or all that it can write",
    )
    among.add_argument("--any", action="store_true", help="choose among all spellings, if the model spells words")
    fill.add_argument("--length", default="auto", help='characters of the word, or "auto" (default)')
    score.add_argument("--no-start", action="store_true", help="do not score the first piece, as the usual loss")
    score.add_argument("--total-only", action="store_true", help="leave the pieces out")
    generate.add_argument("--max-new", type=int, default=40, help="most tokens to add (default: %(default)s)")
    generate.add_argument("--temperature", type=float, default=0.0, help="0: always the likeliest token (default)")
    generate.add_argument("--top-k", type=int, default=0, help="draw only among this many tokens; 0: all (default)")
    generate.add_argument("--top-p", type=float, default=1.0, help="draw among tokens of this probability (default: 1)")
    generate.add_argument("--seed", type=int, default=0, help="seed of the draws (default: %(default)s)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status: 1 if any text could not be answered."""
    args = _parser().parse_args(argv)
    size = getattr(args, "batch_size", 1)
    smaller = f"lower --batch-size (now {size})" if size > 1 else "give shorter texts, or set JAX_PLATFORMS=cpu"
    return run_command(lambda: _answer_all(args), smaller)


def _answer_all(args: argparse.Namespace) -> int:
    texts, needed = ("text", "pair", "query"), ("checkpoint", "context")
    check_options(vars(args), texts, needed, stored=("checkpoint",))
    args.checkpoint = here(args.checkpoint)
    makers = {"encode": _encode, "fill-mask": _fill, "score": _score, "generate": _generate, "neighbors": _near}
    _check(args)  # before the model is loaded, which is slow
    if args.command == "predict":
        return _predict_files(args)
    predictor = None
    if args.command in makers:
        length = _length(args.length) if args.command == "fill-mask" else "auto"
        predictor = load_with_options(Predictor.from_checkpoint, args)
        predictor.require(args.command.replace("-", "_"))
        answer, size = makers[args.command](predictor, args, length)
    else:
        answer, size = _ask_fine_tuned(args)
    answer([])  # reports errors in the options once, not for every text
    readable = args.command == "fill-mask" and sys.stdout.isatty()
    status, texts = 0, _texts(args.text)
    if not args.text and sys.stdin.isatty():
        size = 1  # interactive input: answer every line at once
    while chunk := list(itertools.islice(texts, size)):
        for asked, result in zip(chunk, _answers(answer, chunk), strict=True):
            if isinstance(result, str):
                status = fail(f"{asked.where}: {result}")
                result = {"error": result}
            if not readable:
                print(json.dumps({"text": asked.text} | result, ensure_ascii=False))
            elif "error" not in result:
                print(for_people(asked.text, result))
        sys.stdout.flush()
    if getattr(args, "stats", False) and predictor is not None and predictor.cache is not None:
        print(predictor.cache.stats, file=sys.stderr)
    return status


def for_people(text: str, result: JsonObject) -> str:
    """Returns the result of `fill-mask` as a table: the text, then for each gap one line per word with its score."""
    lines, several = [text], len(result["fills"]) > 1
    for number, gap in enumerate(result["fills"], start=1):
        lines += [f"  gap {number}"] * several
        width = max((len(fill["word"]) for fill in gap), default=0)
        lines += [f"  {fill['score']:.3f}  {fill['word']:<{width}}".rstrip() for fill in gap]
        lines += ["  no word that is known fits"] * (not gap)
    return "\n".join(lines)


def _check(args: argparse.Namespace) -> None:
    """Raises ValueError for options that are wrong for any model."""
    for name in ("top", "batch_size"):
        if getattr(args, name, 1) < 1:
            raise ValueError(f"--{name.replace('_', '-')}={getattr(args, name)}: expected at least 1")
    if getattr(args, "top", 1) > MOST_ANSWERS:
        raise ValueError(f"--top={args.top}: expected at most {MOST_ANSWERS}")
    if getattr(args, "words", None):
        _read_words(args.words)


def _answers(answer: Answerer, chunk: list[_Asked]) -> list[JsonObject | str]:
    """Answers texts together; if that fails, one by one, so that one bad text does not affect the others.

    Returns:
      For each text its answer, or an error message. No exception ends the stream.
    """
    try:
        for asked in chunk:
            if asked.cut:
                raise too_large("the text", f"longer than {scaled(LINE):,} characters")
            if any("\ud800" <= char <= "\udfff" for char in asked.text):
                raise ValueError("expected a text in UTF-8")
        return [*answer(chunk)]
    except Exception as error:
        if len(chunk) > 1:
            return [_answers(answer, [asked])[0] for asked in chunk]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return [" ".join(f"{kind}{error}".split())]


def _texts(arguments: list[str]) -> Iterator[_Asked]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    _write_utf8()
    seen: Counter[str] = Counter()
    kind, lines = ("text", ((text, False) for text in arguments)) if arguments else ("line", _lines())
    for number, (text, cut) in enumerate(lines, start=1):
        yield _Asked(text, f"{kind} {number}", seen[text], cut)
        seen[text] += 1


def _write_utf8() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):  # bytes that were not UTF-8 are written as JSON escapes like "\udcff"
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _lines() -> Iterator[tuple[str, bool]]:
    """Yields (line, False) for each line of standard input; (its beginning, True) for a line that is too long."""
    most = scaled(LINE)
    while line := sys.stdin.readline(most + 1):
        if not (cut := len(line) > most):
            yield line.rstrip("\r\n"), cut
            continue
        shown = line[:CUT]
        while line and not line.endswith("\n"):
            line = sys.stdin.readline(most)
        yield shown, cut


def _length(text: str) -> int | Literal["auto"]:
    digits = text.isascii() and text.isdigit() and len(text) <= LENGTH_DIGITS
    if text != "auto" and not (digits and int(text) > 0):
        raise ValueError(f'--length={text}: expected a positive number of characters or "auto"')
    return "auto" if text == "auto" else int(text)


def _read_words(path: str) -> set[str]:
    try:
        return set(read_text(path).split())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--words={path} cannot be read: {error}") from error


def _known(path: str, predictor: Predictor) -> KnownWords:
    words = _read_words(path)
    known = predictor.known_words(words)
    if len(known) < len(words):
        left_out = f"{len(words) - len(known)} of {len(words)} words {predictor.unknown_words}"
        print(f"--words={path}: {left_out}; they are left out", file=sys.stderr)
    return known


def _encode(predictor: Predictor, args: argparse.Namespace, _: object) -> tuple[Answerer, int]:
    if args.stats and predictor.cache is None:
        raise ValueError(f"--stats: a {predictor.name} keeps no words in a cache")
    name = args.unit.removesuffix("s")

    def result(encoding: Encoding) -> JsonObject:
        sentence = {"sentence": encoding.sentence_D.tolist()}
        if args.sentence_only:
            return sentence
        rows = zip(encoding.words, encoding.offsets, encoding.vectors_WD.tolist(), strict=True)
        return sentence | {args.unit: [{name: w, "start": a, "end": b, "vector": v} for w, (a, b), v in rows]}

    def answer(chunk: list[_Asked]) -> list[JsonObject]:
        return [*map(result, predictor.encode([asked.text for asked in chunk], args.batch_size, args.unit))]

    return answer, BATCHES_AT_A_TIME * args.batch_size


def _fill(predictor: Predictor, args: argparse.Namespace, length: int | Literal["auto"]) -> tuple[Answerer, int]:
    known, options = _known(args.words, predictor) if args.words else None, {}
    if predictor.spells:
        options = {"any_spelling": args.any}
        if not (args.any or args.words or predictor.words):
            print(
                f"{args.checkpoint} keeps no known words: any spelling is ranked; --words=FILE names some",
                file=sys.stderr,
            )
    elif args.any:
        raise ValueError(f"--any: a {predictor.name} spells no words; it ranks all that it can write without it")

    def result(asked: _Asked) -> JsonObject:
        gaps = predictor.fill_mask(asked.text, length=length, top=args.top, known=known, **options)
        return {"fills": [[{"word": fill.word, "score": round(fill.score, 6)} for fill in gap] for gap in gaps]}

    return lambda chunk: [*map(result, chunk)], 1


def _near(predictor: Predictor, args: argparse.Namespace, _: object) -> tuple[Answerer, int]:
    def result(asked: _Asked) -> JsonObject:
        found = predictor.neighbors(asked.text, args.top)
        return {"neighbors": [{"subword": near.subword, "cosine": round(near.cosine, 6)} for near in found]}

    return lambda chunk: [*map(result, chunk)], 1


def _score(predictor: Predictor, args: argparse.Namespace, _: object) -> tuple[Answerer, int]:
    def result(score: Score) -> JsonObject:
        total = {"log_prob": round(score.log_prob, 6), "bits_per_char": round(score.bits_per_char, 6)}
        if args.total_only:
            return total
        log_probs = [None if math.isnan(value) else round(value, 6) for value in score.log_probs_P.tolist()]
        rows = zip(score.pieces, score.offsets, log_probs, strict=True)
        return total | {"pieces": [{"piece": p, "start": a, "end": b, "log_prob": v} for p, (a, b), v in rows]}

    def answer(chunk: list[_Asked]) -> list[JsonObject]:
        texts = [asked.text for asked in chunk]
        return [*map(result, predictor.score(texts, args.batch_size, start=not args.no_start))]

    return answer, BATCHES_AT_A_TIME * args.batch_size


def _predict_files(args: argparse.Namespace) -> int:
    """Prints the predictions for all examples of files; returns the exit status."""
    model = _fine_tuned(args)
    _write_utf8()
    for name, prediction in model.predict_files(args.file):
        print(json.dumps({"id": name, "prediction": prediction}, ensure_ascii=False))
    return 0


def _fine_tuned(args: argparse.Namespace) -> FineTuned:
    from charlm.finetune.predictor import FineTuned  # imported late, so that --help does not import jax

    return load_with_options(FineTuned.from_checkpoint, args, args.batch_size)


def _ask_fine_tuned(args: argparse.Namespace) -> tuple[Answerer, int]:
    context = read_text(args.context) if args.command == "answer" else ""
    model = _fine_tuned(args)
    model.require(args.command)

    def tag(texts: list[str]) -> list[JsonObject]:
        rows = ((t, zip(t.words, t.offsets, t.tags, strict=True)) for t in model.tag(texts))
        return [{"words": [{"word": w, "start": a, "end": b, "tag": tag} for w, (a, b), tag in row]} for _, row in rows]

    def split(texts: list[str]) -> tuple[list[str], list[str | None]]:
        if args.pair is not None:
            return texts, [args.pair] * len(texts)
        parts = [text.partition("\t") for text in texts]
        return [first for first, _, _ in parts], [second if tab else None for _, tab, second in parts]

    def classify(texts: list[str]) -> list[JsonObject]:
        names = model.task.labels
        found = model.classify(*split(texts))
        return [
            {"label": p.label, "probabilities": {n: round(x, 6) for n, x in zip(names, p.probabilities, strict=True)}}
            for p in found
        ]

    def measure(texts: list[str]) -> list[JsonObject]:
        return [{"value": round(value, 6)} for value in model.measure(*split(texts))]

    def reply(texts: list[str]) -> list[JsonObject]:
        found = model.answer(texts, [context] * len(texts))
        keep = [[c._asdict() for c in p.candidates[: args.top]] for p in found]
        task: Any = model.task  # a question-answering task, as `require` has checked
        return [{"answer": task.answer(p), "candidates": best} for p, best in zip(found, keep, strict=True)]

    def rank(texts: list[str]) -> list[JsonObject]:
        return [{"score": round(score, 6)} for score in model.rank(args.query, texts)]

    how = {"tag": tag, "classify": classify, "measure": measure, "answer": reply, "rank": rank}[args.command]
    return lambda chunk: how([asked.text for asked in chunk]), BATCHES_AT_A_TIME * args.batch_size


def _generate(predictor: Predictor, args: argparse.Namespace, _: object) -> tuple[Answerer, int]:
    check_seeds(args.seed)  # reported once here; the seeds of the texts are derived from it

    def result(found: Generation) -> JsonObject:
        total = round(float(found.log_probs_T.sum()), 6)
        return {"generated": found.text, "finished": found.finished, "log_prob": total}

    def answer(chunk: list[_Asked]) -> list[JsonObject]:
        found = predictor.generate(
            [asked.text for asked in chunk],
            args.max_new,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            seed=[args.seed + asked.before for asked in chunk],
            batch_size=args.batch_size,
        )
        return [*map(result, found)]

    return answer, args.batch_size


if __name__ == "__main__":
    sys.exit(main())
