"""Jobs and figures that are small enough for tests of the benchmark."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from small_run import ROOT, write_text

from charlm.benchmark import cases
from charlm.benchmark.paths import Job
from charlm.benchmark.text import Corpus, TextShape

CONFIG = f"{ROOT}/configs/hlm_base.py"
NO_JOB = Job("", "", [["a text"]], [4], False, {}, "", [], CONFIG, "float32", True, True, "")


@functools.cache
def corpus(folder: Path) -> Corpus:
    """Returns a corpus of 400 short lines, the words of which are no benchmark's business."""
    return Corpus(cases.load_config(CONFIG, str(write_text(folder / "text.txt"))))


def small_job(folder: Path, path: str, case: str = "inference", shape: TextShape | None = None, **fields: Any) -> Job:
    """Returns the job of a tiny model on a batch of the small corpus; a WordPiece tokenizer is trained for it."""
    found, shape = corpus(folder), shape or TextShape(3, 14)
    found.wordpiece().save(folder / "wordpiece")
    drawn = fields.get("drawn", False)
    stretch = found.stretch(24 * shape.batch * shape.words)
    job = Job(
        path=path, case=case, texts=[found.drawn(shape)[0] if drawn else found.texts(shape)],
        words=[max(shape.drawn_lengths()) if drawn else shape.words], drawn=drawn, chars=found.chars().to_dict(),
        tokenizer=str(folder / "wordpiece"), budget_texts=found.drawn(shape, 24) if drawn else [[stretch]],
        config=CONFIG, dtype="float32", smoke=True, compile=False, hlm_code="",
    )  # fmt: skip
    return dataclasses.replace(job, **fields)


def figure(case: str, path: str, value: float, **about: Any) -> dict[str, Any]:
    """Returns a figure in words/s as the benchmark writes it."""
    made = {
        "case": case, "path": path, "value": value, "low": value - 1, "high": value + 1, "spread": 0.1,
        "unit": "words/s", "texts_per_second": value / 8, "microseconds_a_word": 1e6 / value, "seconds": 1.0,
        "cpu_seconds": 1.5, "tokens": 9.0, "batch": "4 x 8 words", "words": 8, "texts_a_batch": 4, "padded_to": 11,
        "distinct_words": 0.3, "dtype": "float32", "text": "builtin", "texts": "consecutive", "config": "base.py",
        "models": "published shapes", "threads": 2, "processor": "abacus", "load": 0.1, "date": "2026-11-20",
        "peak_mib": 77,
    }  # fmt: skip
    return made | about


class Clock:
    """A clock that stands still but when it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return 2 * self.now
