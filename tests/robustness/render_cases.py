"""Invented measurements in the form of `charlm.robustness`: three models, six kinds of noise, five levels."""

from __future__ import annotations

import copy
import math
from typing import Any

HLM, BERT, HOSTILE = "hlm_tiny", "bert_base", '<script>alert("x")</script>|b`*_[x](javascript:alert(1))'
KINDS = ("drop", "swap", "keyboard", "hlm", "case", "spaces")
LEVELS = (0.05, 0.1, 0.15, 0.2, 0.3)
SEEDS = (0, 1, 2)
NOTE = 'A note with a | pipe, <img src=x onerror="alert(1)">,\na new line, `ticks`, \u202etfel ot thgir and \udc80.'

_CLEAN = {HLM: 0.8912, BERT: 0.9134, HOSTILE: 0.9101}
_FALL = {HLM: 0.35, BERT: 0.95, HOSTILE: 0.7}  # how steeply each falls
_HARM = {"drop": 1.0, "swap": 0.9, "keyboard": 0.85, "hlm": 1.3, "case": 0.3, "spaces": 0.6}
_WIDTH = 0.008


def full() -> dict[str, Any]:
    """Returns measurements with nulls, a kind that one model was not measured with, and hostile names."""
    noise = [_row(model, kind, level) for kind in KINDS for level in LEVELS for model in _CLEAN]
    noise = [row for row in noise if (row["model"], row["kind"]) != (HOSTILE, "spaces")]
    lost = next(row for row in noise if (row["model"], row["kind"], row["level"]) == (BERT, "swap", 0.15))
    lost["scores"]["f1"] |= {"mean": None, "sd": None, "values": [None, None, None]}
    lost["drop"] = None
    return {
        "format": 1,
        "task": "tagging",
        "metric": "f1",
        "settings": {
            "command": "python -m charlm.robustness --models runs/tag_hlm runs/tag_bert 'runs/<b>' --data test.conll"
            " --levels 0.05 0.1 0.15 0.2 0.3 --seeds 3 --output runs/report",
            "data": ["shared/data/ner/test.conll"],
            "levels": list(LEVELS),
            "seeds": 3,
            "samples": 1000,
            "charlm": "0.1.0",
            "train_words": "",
        },
        "models": [
            {"name": HLM, "path": "runs/tag_hlm", "family": "hlm", "trained_with": ["hlm:0.1"], "seed": 7},
            {"name": BERT, "path": "runs/tag_bert", "family": "bert", "trained_with": [], "seed": 7},
            {"name": HOSTILE, "path": 'runs/<b>"&|', "family": "bert", "trained_with": [], "seed": None},
        ],
        "examples": 400,
        "clean": {
            model: {"f1": score, "precision": score + 0.004, "recall": score - 0.004, "accuracy": 0.97}
            for model, score in _CLEAN.items()
        },
        "noise": noise,
        "comparisons": _comparisons(noise),
        "groups": _groups(),
        "segmentation": _segmentation(),
        "sensitivity": _sensitivity(),
        "adversarial": [
            *({"model": HLM, "edits": n, "examples": 100, "clean": 0.889, "attacked": 0.889 - 0.17 * n,
               "flipped": 0.21 * n, "edits_used": 0.9 * n} for n in (1, 2)),
            {"model": BERT, "edits": 1, "examples": 100, "clean": 0.911, "attacked": 0.5, "flipped": 0.47,
             "edits_used": None},
        ],
        "answers": _answers(),
        "notes": ["misspelling is not measured: no list of misspellings was given (--misspellings)", NOTE],
    }  # fmt: skip


def empty() -> dict[str, Any]:
    """Returns measurements of nothing."""
    lists = ("models", "noise", "comparisons", "groups", "segmentation", "sensitivity", "adversarial", "notes")
    start = {"format": 1, "task": "classification", "metric": "accuracy", "settings": {}, "examples": 0, "clean": {}}
    return start | {key: [] for key in lists}


def of_models(results: dict[str, Any], *models: str) -> dict[str, Any]:
    """Returns what was measured of some models alone."""
    found = dict(results)
    found["models"] = [row for row in results["models"] if row["name"] in models]
    found["clean"] = {model: scores for model, scores in results["clean"].items() if model in models}
    for key in ("noise", "groups", "segmentation", "sensitivity", "adversarial"):
        found[key] = [row for row in results[key] if row["model"] in models]
    kept = {model: count for model, count in results["answers"]["better"].items() if model in models}
    found["answers"] = copy.deepcopy(results["answers"]) | {"better": kept}
    for example in found["answers"]["examples"]:
        for asked in example["asked"]:
            asked["answers"] = [answer for answer in asked["answers"] if answer["model"] in models]
    found["comparisons"] = [row for row in results["comparisons"] if row["a"] in models and row["b"] in models]
    return found


def _row(model: str, kind: str, level: float) -> dict[str, Any]:
    fall = round(_FALL[model] * _HARM[kind] * level * (1.4 - level), 5)
    mean = _CLEAN[model] - fall
    sd = 0.002 + 0.02 * level
    return {
        "model": model,
        "kind": kind,
        "spec": f"{kind}:{level}",
        "level": level,
        "seen": model == HLM and kind == "hlm",
        "seeds": list(SEEDS),
        "scores": {
            "f1": {"mean": mean, "sd": sd, "values": [mean - sd, mean, mean + sd]},
            "accuracy": {"mean": 0.97 - fall / 3, "sd": 0.001, "values": [0.97 - fall / 3] * 3},
        },
        "drop": {"difference": fall, "low": fall - _WIDTH, "high": fall + _WIDTH},
        "changed": 1 - math.pow(1 - level, 4.7) if kind != "spaces" else level,
    }


def _comparisons(noise: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pairs = ((HLM, BERT), (HLM, HOSTILE), (BERT, HOSTILE))
    found = [_gap(None, 0, a, b, _CLEAN[a] - _CLEAN[b]) for a, b in pairs]
    means = {(row["model"], row["kind"], row["level"]): row["scores"]["f1"]["mean"] for row in noise}
    for kind in KINDS:
        for level in LEVELS:
            for a, b in pairs:
                x, y = means.get((a, kind, level)), means.get((b, kind, level))
                if x is not None and y is not None:
                    found.append(_gap(kind, level, a, b, x - y))
    return found


def _gap(kind: str | None, level: float, a: str, b: str, difference: float) -> dict[str, Any]:
    interval = {"difference": difference, "low": difference - _WIDTH, "high": difference + _WIDTH}
    return {"kind": kind, "level": level, "a": a, "b": b, "metric": "f1", **interval}


def _groups() -> list[dict[str, Any]]:
    shares = {"all": 0.0, "in vocabulary": 0.01, "split": -0.09, "unseen in training": -0.12, "changed": -0.2}
    found = []
    for kind, level in ((None, 0), ("drop", 0.1), ("keyboard", 0.2)):
        for model, score in _CLEAN.items():
            for i, (group, better) in enumerate(shares.items()):
                known = bool(level) or group != "changed"
                value = score + better - _FALL[model] * level if known else None
                row = {"model": model, "kind": kind, "level": level, "group": group, "score": value}
                found.append(row | {"count": 9012 // (i + 1) if known else 0})
    return found


def _segmentation() -> list[dict[str, Any]]:
    found = []
    for kind, level in [(None, 0), *((kind, level) for kind in KINDS for level in LEVELS)]:
        place = {"kind": kind, "level": level}
        found.append({"model": HLM, **place, "units_per_word": 1.0, "split": 0.0, "unknown": 0.001, "cut": 0.0})
        units = {"units_per_word": 1.31 + 2 * level, "split": 0.2 + level, "unknown": level / 40, "cut": None}
        found.append({"model": BERT, **place, **units})
    return found


def _answers() -> dict[str, Any]:
    """Returns two sentences: one with a typo, and a hostile one that noise has merged."""
    words, gold = ["Angela", "Merkel", "visited", "Paris", "on", "Monday"], ["B-PER", "I-PER", "O", "B-LOC", "O", "O"]
    typo = "Angela Mrekel visited Paris on Monday"
    tags = {HLM: gold, BERT: ["B-PER", "O", "O", "B-LOC", "O", "O"], HOSTILE: ["O"] * 6}
    asked = [
        {
            "what": word,
            "gold": tag,
            "answers": [
                {"model": model, "clean": tag, "noisy": found[n], "right": found[n] == tag}
                for model, found in tags.items()
            ],
        }
        for n, (word, tag) in enumerate(zip(words, gold, strict=True))
    ]
    place = {"place": "test.conll:7", "kind": "swap", "level": 0.1, "spec": "swap:0.1"}
    first = place | {"texts": [{"field": "words", "clean": " ".join(words), "noisy": typo}], "asked": asked}
    answers = [{"model": HLM, "clean": "<i>a</i>", "noisy": "<i>b</i>", "right": False}]
    text = {"field": "words", "clean": "<b> bold | text", "noisy": "<b>bold | text"}
    second = place | {
        "place": "<i>|x",
        "kind": "spaces",
        "texts": [text],
        "asked": [{"what": "<b>", "gold": "<i>a</i>", "answers": answers}],
    }
    better = {HLM: 812, BERT: 340, HOSTILE: 12}
    counts = {"level": 0.1, "words": 30, "by": "right tags", "pairs": 2400, "better": better, "worse": 0}
    return counts | {"examples": [first, second]}


def _sensitivity() -> list[dict[str, Any]]:
    found = []
    for kind in KINDS:
        for model, fall in _FALL.items():
            moved = {"all": 0.02 * fall, "changed": None if kind == "case" else 0.1 * fall}
            found.append({"model": model, "kind": kind, "level": 0.1, **moved})
    return found
