"""Tiny tasks that a tiny model can learn, and the models that learn them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from small_char2subword import spelled
from tiny_models import release

FAMILIES = ("hlm", "bert", "roberta", "gpt2", "charbert", "char2subword")
ANIMALS = ("cat", "dog", "cow", "hen", "ant")
PLACES = ("house", "town", "mat", "tree", "room")
OTHERS = ("the", "sat", "on", "a", "ran", "to", "every", "in", "we", "slept", "near", "old")


def source(family: str, trained_hlm: Path, **changes: int) -> Path:
    """Returns the folder of a pre-trained model: of an HLM the workdir that is given."""
    if family == "char2subword":
        return spelled()
    return trained_hlm if family == "hlm" else release(family, **changes)


def sentences(count: int, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Returns sentences of words with tags: an animal is an entity of one or two words."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        words: list[tuple[str, str]] = []
        for _ in range(rng.integers(2, 8)):
            kind = rng.integers(4)
            if kind == 0:
                words.append((str(rng.choice(ANIMALS)), "B-ANIMAL"))
            elif kind == 1:
                words += [("old", "B-PLACE"), (str(rng.choice(PLACES)), "I-PLACE")]
            else:
                words.append((str(rng.choice(OTHERS[:-1])), "O"))
        found.append(words)
    return found


def write_conll(path: Path, count: int, seed: int = 0) -> Path:
    """Writes sentences as CoNLL columns."""
    lines = ("\n".join(f"{word} {tag}" for word, tag in sentence) for sentence in sentences(count, seed))
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_table(path: Path, count: int, seed: int = 0, numbers: bool = False) -> Path:
    """Writes texts whose class is the animal or place they speak of; or the number of animals, with a second text."""
    rng, rows = np.random.default_rng(seed), ["sentence\tsecond\tlabel"]
    for _ in range(count):
        words = [str(rng.choice(OTHERS)) for _ in range(rng.integers(2, 6))]
        if numbers:
            animals = int(rng.integers(0, 4))
            words += [str(rng.choice(ANIMALS)) for _ in range(animals)]
            label = f"{animals / 2}"
        else:
            label = str(rng.choice(["animal", "place"]))
            words.append(str(rng.choice(ANIMALS if label == "animal" else PLACES)))
        rng.shuffle(words)
        rows.append(f"{' '.join(words)}\tin the town\t{label}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def write_questions(path: Path, count: int, seed: int = 0, impossible: bool = False) -> Path:
    """Writes questions about which animal is in a sentence, as SQuAD's JSON; some without answer."""
    rng, paragraphs = np.random.default_rng(seed), []
    for n in range(count):
        words = [str(rng.choice(OTHERS)) for _ in range(rng.integers(3, 9))]
        none = impossible and n % 3 == 0
        at = int(rng.integers(len(words)))
        if not none:
            words[at] = str(rng.choice(ANIMALS))
        context = " ".join(words)
        answers = [] if none else [{"text": words[at], "answer_start": len(" ".join(words[:at])) + (at > 0)}]
        question = {"id": f"q{seed}-{n}", "question": "the cat or dog ?", "answers": answers}
        if impossible:
            question["is_impossible"] = none
        paragraphs.append({"context": context, "qas": [question]})
    data = {"version": "v2.0", "data": [{"title": "animals", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def write_passages(path: Path, count: int, seed: int = 0) -> Path:
    """Writes queries with three passages, of which the one with an animal answers."""
    rng, lines = np.random.default_rng(seed), []
    for n in range(count):
        right = int(rng.integers(3))
        passages = [
            {
                "passage_text": f"the {rng.choice(ANIMALS if place == right else PLACES)} in a town",
                "is_selected": int(place == right),
            }
            for place in range(3)
        ]
        lines.append(json.dumps({"query_id": f"{seed}-{n}", "query": "which animal", "passages": passages}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
