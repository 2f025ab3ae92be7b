"""The commands of fine-tuned models: tag, classify, measure, answer, rank, and predict, which reads whole files.

`charlm.predict.command_line` calls them; the module needs JAX. Open it to change what one of them asks a `FineTuned`
for, or the fields of its answers.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from charlm.core.reading import read_text
from charlm.core.types import JsonObject
from charlm.families.predict_options import load_with_options
from charlm.finetune.predictor import FineTuned
from charlm.predict.stream import BATCHES_AT_A_TIME, Answerer, write_utf8


def predict_files(args: argparse.Namespace) -> int:
    """Prints the predictions for all examples of `args.file`; returns 0, and raises ValueError for a bad file."""
    model = _fine_tuned(args)
    write_utf8()
    for name, prediction in model.predict_files(args.file):
        print(json.dumps({"id": name, "prediction": prediction}, ensure_ascii=False))
    return 0


def _fine_tuned(args: argparse.Namespace) -> FineTuned:
    return load_with_options(FineTuned.from_checkpoint, args, args.batch_size)


def ask_fine_tuned(args: argparse.Namespace) -> tuple[Answerer, int]:
    """Returns the function that answers texts for the command `args.command`, and how many texts are read at a time.

    Raises:
      ValueError: the context cannot be read, or there is no model that was fine-tuned for such a task.
    """
    context = read_text(args.context) if args.command == "answer" else ""
    model = _fine_tuned(args)
    model.require(args.command)

    def tag(texts: list[str]) -> list[JsonObject]:
        found = model.tag(texts, args.language, args.splitter)
        rows = (zip(t.words, t.offsets, t.tags, t.probabilities, strict=True) for t in found)
        return [{"words": [word(*row) for row in of_text]} for of_text in rows]

    def word(text: str, offsets: tuple[int, int], label: str, probability: float) -> JsonObject:
        known = None if math.isnan(probability) else round(probability, 6)  # NaN, which JSON lacks: it was not read
        return {"word": text, "start": offsets[0], "end": offsets[1], "label": label, "probability": known}

    def split(texts: list[str]) -> tuple[list[str], list[str | None]]:
        if args.pair is not None:
            return texts, [args.pair] * len(texts)
        if not model.reads_pairs:  # then a tab is a character as any other
            return texts, [None] * len(texts)
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
