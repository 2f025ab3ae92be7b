"""Using a trained model: vectors of texts, and the words that fit a gap.

    python -m charlm.predict encode --checkpoint=runs/hlm "A text." > vectors.jsonl
    python -m charlm.predict fill-mask --checkpoint=runs/hlm "The [MASK] of the list."

Texts are arguments, or lines of standard input. Every result is a JSON line.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from charlm.predictor import Encoding, Fill, Predictor
from charlm.text.wordlist import WordList

__all__ = ["Encoding", "Fill", "Predictor", "WordList", "main"]


def _texts(arguments: list[str]) -> Iterator[str]:
    yield from arguments or (line.rstrip("\n") for line in sys.stdin)


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m charlm.predict", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    encode = commands.add_parser("encode", help="word vectors with offsets, and a sentence vector")
    fill = commands.add_parser("fill-mask", help='words for each "[MASK]" (or "[MASK:5]" for five characters)')
    for command in (encode, fill):
        command.add_argument("--checkpoint", required=True, help="workdir of a run, or one of its checkpoints")
        command.add_argument("text", nargs="*", help="texts; none: lines of standard input")
    encode.add_argument("--sentence-only", action="store_true", help="leave the word vectors out")
    fill.add_argument("--top", type=int, default=5, help="number of words (default: %(default)s)")
    fill.add_argument("--words", help="file of words, one a line, to choose from; none: any spelling")
    fill.add_argument("--length", default="auto", help='characters of the word, or "auto" (default)')
    args = parser.parse_args(argv)
    try:
        if args.command == "encode":
            answer = functools.partial(_encode, sentence_only=args.sentence_only)
            predictor = Predictor.from_checkpoint(args.checkpoint)
        else:
            length = _length(args.length)
            if args.top < 1:
                raise ValueError(f"--top={args.top}: expected at least 1")
            predictor = Predictor.from_checkpoint(args.checkpoint)
            known = _known(args.words, predictor) if args.words else None
            answer = functools.partial(_fill, length=length, top=args.top, known=known)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    status = 0
    for text in _texts(args.text):
        try:
            result = answer(predictor, text)
        except ValueError as error:  # of this text alone: the others are answered
            print(f"error: {error}", file=sys.stderr)
            status = 1
        else:
            print(json.dumps({"text": text} | result, ensure_ascii=False), flush=True)
    return status


def _length(text: str) -> int | Literal["auto"]:
    if text != "auto" and not text.isdigit():
        raise ValueError(f'--length={text}: expected a number of characters or "auto"')
    return "auto" if text == "auto" else int(text)


def _known(path: str, predictor: Predictor) -> WordList:
    try:
        words = set(Path(path).read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--words={path} cannot be read: {error}") from error
    known = WordList((word for word in words if len(word) < predictor.config.model.char_slots), predictor.vocab)
    if len(known) < len(words):
        left_out = f"{len(words) - len(known)} of {len(words)} words are too long for the model or hold characters"
        print(f"--words={path}: {left_out} that it does not know; they are left out", file=sys.stderr)
    return known


def _encode(predictor: Predictor, text: str, *, sentence_only: bool) -> dict[str, Any]:
    (encoding,) = predictor.encode([text])
    result: dict[str, Any] = {"sentence": encoding.sentence_D.tolist()}
    if not sentence_only:
        rows = zip(encoding.words, encoding.offsets, encoding.vectors_WD.tolist(), strict=True)
        result["words"] = [{"word": w, "start": a, "end": b, "vector": v} for w, (a, b), v in rows]
    return result


def _fill(
    predictor: Predictor, text: str, *, length: int | Literal["auto"], top: int, known: WordList | None
) -> dict[str, Any]:
    gaps = predictor.fill_mask(text, length=length, top=top, known=known)
    return {"fills": [[{"word": fill.word, "score": round(fill.score, 6)} for fill in gap] for gap in gaps]}


if __name__ == "__main__":
    sys.exit(main())
