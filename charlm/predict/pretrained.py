"""The commands of pre-trained models: encode, fill-mask, correct, score, generate and neighbors.

`charlm.predict.command_line` calls them. Open it to change what one of them asks a `Predictor` for, or the fields of
its answers.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from charlm.core.types import JsonObject
from charlm.families.arguments import KnownWords, check_seeds
from charlm.families.corrections import Correction
from charlm.families.predictor import Encoding, Fill, Generation, Predictor, Score
from charlm.predict.options import read_counts, read_words, word_length
from charlm.predict.stream import BATCHES_AT_A_TIME, Answerer, Asked


def _known(path: str, predictor: Predictor) -> KnownWords:
    words = read_words(path)
    known = predictor.known_words(words)
    if len(known) < len(words):
        left_out = f"{len(words) - len(known)} of {len(words)} words {predictor.unknown_words}"
        print(f"--words={path}: {left_out}; they are left out", file=sys.stderr)
    return known


def _encode(predictor: Predictor, args: argparse.Namespace) -> tuple[Answerer, int]:
    if args.stats and predictor.cache is None:
        raise ValueError(f"--stats: a {predictor.name} keeps no words in a cache")
    name = args.unit.removesuffix("s")

    def result(encoding: Encoding) -> JsonObject:
        sentence = {"sentence": encoding.sentence_D.tolist()}
        if args.sentence_only:
            return sentence
        rows = zip(encoding.words, encoding.offsets, encoding.vectors_WD.tolist(), strict=True)
        return sentence | {args.unit: [{name: w, "start": a, "end": b, "vector": v} for w, (a, b), v in rows]}

    def answer(chunk: list[Asked]) -> list[JsonObject]:
        return [*map(result, predictor.encode([asked.text for asked in chunk], args.batch_size, args.unit))]

    return answer, BATCHES_AT_A_TIME * args.batch_size


def _fill(predictor: Predictor, args: argparse.Namespace) -> tuple[Answerer, int]:
    length = word_length(args.length)
    known = _known(args.words, predictor) if args.words else None
    if args.any and not predictor.spells:
        raise ValueError(f"--any: a {predictor.name} spells no words; it ranks all that it can write without it")
    if predictor.spells and not (args.any or args.words or predictor.words):
        print(
            f"{args.checkpoint} keeps no known words: any spelling is ranked; --words=FILE names some", file=sys.stderr
        )

    def result(gaps: Sequence[Sequence[Fill]]) -> JsonObject:
        return {"fills": [[{"word": fill.word, "score": round(fill.score, 6)} for fill in gap] for gap in gaps]}

    def answer(chunk: list[Asked]) -> list[JsonObject]:
        texts = [asked.text for asked in chunk]
        found = predictor.fill_masks(
            texts, args.batch_size, length=length, top=args.top, known=known, any_spelling=args.any
        )
        return [*map(result, found)]

    return answer, BATCHES_AT_A_TIME * args.batch_size


def _correct(predictor: Predictor, args: argparse.Namespace) -> tuple[Answerer, int]:
    words = read_counts(args.words) if args.words else None

    def result(found: Correction) -> JsonObject:
        edits = [edit._asdict() | {"probability": round(edit.probability, 6)} for edit in found.edits]
        return {"corrected": found.corrected, "edits": edits}

    def answer(chunk: list[Asked]) -> list[JsonObject]:
        texts = [asked.text for asked in chunk]
        return [*map(result, predictor.correct(texts, args.batch_size, threshold=args.threshold, words=words))]

    return answer, BATCHES_AT_A_TIME * args.batch_size


def _near(predictor: Predictor, args: argparse.Namespace) -> tuple[Answerer, int]:
    def result(asked: Asked) -> JsonObject:
        found = predictor.neighbors(asked.text, args.top)
        return {"neighbors": [{"subword": near.subword, "cosine": round(near.cosine, 6)} for near in found]}

    return lambda chunk: [*map(result, chunk)], 1


def _score(predictor: Predictor, args: argparse.Namespace) -> tuple[Answerer, int]:
    def result(score: Score) -> JsonObject:
        total = {"log_prob": round(score.log_prob, 6), "bits_per_char": round(score.bits_per_char, 6)}
        if args.total_only:
            return total
        log_probs = [None if math.isnan(value) else round(value, 6) for value in score.log_probs_P.tolist()]
        rows = zip(score.pieces, score.offsets, log_probs, strict=True)
        return total | {"pieces": [{"piece": p, "start": a, "end": b, "log_prob": v} for p, (a, b), v in rows]}

    def answer(chunk: list[Asked]) -> list[JsonObject]:
        texts = [asked.text for asked in chunk]
        return [*map(result, predictor.score(texts, args.batch_size, start=not args.no_start))]

    return answer, BATCHES_AT_A_TIME * args.batch_size


def _generate(predictor: Predictor, args: argparse.Namespace) -> tuple[Answerer, int]:
    check_seeds(args.seed)  # reported once here; the seeds of the texts are derived from it

    def result(found: Generation) -> JsonObject:
        total = round(float(found.log_probs_T.sum()), 6)
        return {"generated": found.text, "finished": found.finished, "log_prob": total}

    def answer(chunk: list[Asked]) -> list[JsonObject]:
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


# What each command asks the model: makes the function that answers texts, and says how many are read at a time.
COMMANDS = {
    "encode": _encode,
    "fill-mask": _fill,
    "correct": _correct,
    "score": _score,
    "generate": _generate,
    "neighbors": _near,
}
