"""Computes figures from the rounds of a measurement: medians, extremes, and ratios of paths.

Open it to change what a figure contains, or which paths are compared with which.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence

from charlm.benchmark.paths import PATHS, REMAT, threads
from charlm.benchmark.rounds import WorkerAnswers
from charlm.benchmark.text import TextShape
from charlm.core.processor import instruction_sets, model_name
from charlm.core.types import JsonObject

Figure = JsonObject
Round = dict[str, float]
SHARED_FIELDS = ("device", "subwords_a_word")  # fields of a path's set-up that are copied to its ratios


# Vector units that products use, as Linux names them: of x86 and, from "asimd" on, of ARM.
VECTOR_UNITS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")


def about_machine() -> Figure:
    """Returns the fields that every figure has: versions, processor, vector units, threads, load, date, XLA's flags."""
    versions = {}
    for package in ("jax", "torch", "transformers"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    processor = model_name() or platform.processor() or platform.machine()
    units = ", ".join(name for name in VECTOR_UNITS if name in instruction_sets())
    return {
        "versions": versions, "processor": processor, "vector_units": units, "threads": threads(), "load": load,
        "date": date, "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }  # fmt: skip


def spread(values: Sequence[float], digits: int = 1) -> Figure:
    """Returns the median, the extremes, and the difference of the extremes as a share of the median."""
    middle = statistics.median(values)
    low, high = min(values), max(values)
    share = round((high - low) / middle, 3) if middle else 0.0
    return {"value": round(middle, digits), "low": round(low, digits), "high": round(high, digits), "spread": share}


def _seconds(rounds: list[Round], prefix: str = "") -> list[float]:
    return [r[f"{prefix}seconds"] for r in rounds]


def speeds(case: str, measured: WorkerAnswers, shapes: list[TextShape], about: list[Figure]) -> list[Figure]:
    """Returns the speed of every path and batch, and the speed of tokenisation if it was timed.

    Args:
      about: for each batch, further fields of its figures.
    """
    figures = []
    for number, shape in enumerate(shapes):
        for path, batches in measured.rounds.items():
            rounds, tokens = batches[number], measured.tokens[path][number]
            setup = measured.ready[path] | {"tokens": round(tokens[0], 1), "padded_to": tokens[1]}
            if isinstance(setup.get("torch_compile"), list):
                setup["torch_compile"] = setup["torch_compile"][number]
            setup |= about[number] | {"batch": str(shape), "words": shape.words, "texts_a_batch": shape.batch}
            setup |= measured.work[path][number]
            peaks = measured.peaks.get(path, {})  # missing if the measurement was stopped
            figures += _speed(case, path, rounds, "", shape, setup | {name: peaks[name] for name in peaks})
            if "tokenise_seconds" in rounds[0]:
                figures += _speed("tokenisation", path, rounds, "tokenise_", shape, setup | {"of": case})
    return figures


def _speed(case: str, path: str, rounds: list[Round], prefix: str, shape: TextShape, about: Figure) -> list[Figure]:
    seconds = _seconds(rounds, prefix)
    words = shape.batch * shape.words
    figure = {"case": case, "path": path} | spread([words / s for s in seconds]) | {"unit": "words/s"}
    figure["value"] = round(words / statistics.median(seconds), 1)  # differs from the median of speeds for two rounds
    figure["texts_per_second"] = round(shape.batch / statistics.median(seconds), 2)
    figure["microseconds_a_word"] = round(statistics.median(seconds) / words * 1e6, 2)
    figure["seconds"] = round(statistics.median(seconds), 5)
    figure["cpu_seconds"] = round(statistics.median(_seconds(rounds, f"{prefix}cpu_")), 5)
    if not prefix and "tokenise_seconds" in rounds[0]:
        whole = [a + b for a, b in zip(seconds, _seconds(rounds, "tokenise_"), strict=True)]
        figure["with_tokenisation"] = round(words / statistics.median(whole), 1)
    if not prefix and "pack_seconds" in rounds[0]:
        whole = [a + b for a, b in zip(seconds, _seconds(rounds, "pack_"), strict=True)]
        figure["pack_seconds"] = round(statistics.median(_seconds(rounds, "pack_")), 6)
        figure["with_packing"] = round(words / statistics.median(whole), 1)
    if not prefix and "useful_gflop" in about:
        rate = about["useful_gflop"] / statistics.median(seconds)
        figure["gflop_per_second"] = round(rate, 2)
        if "peak_gflop" in about:
            figure["mfu"] = round(rate / about["peak_gflop"], 4)
            if "padded_gflop" in about:
                executed = about["padded_gflop"] / statistics.median(seconds)
                figure["executed_mfu"] = round(executed / about["peak_gflop"], 4)
    return [figure | {"rounds": len(rounds)} | about]


def ratios(case: str, measured: WorkerAnswers, shapes: list[TextShape], about: list[Figure]) -> list[Figure]:
    """Returns how many times as fast each path of charlm is as the paths that it is compared with.

    A figure is the median of the ratios of each round; it has the tokens per text of both paths.
    """
    figures = []
    for number, shape in enumerate(shapes):
        for ours in (name for name in measured.rounds if PATHS[name].ours):
            for other in (name for name in measured.rounds if _compared(ours, name)):
                mine, theirs = (_seconds(measured.rounds[name][number]) for name in (ours, other))
                values = [b / a for a, b in zip(mine, theirs, strict=True)]
                figure = {"case": case, "path": f"{ours} / {other}"} | spread(values, 3) | {"unit": "x"}
                ready = measured.ready[ours]
                setup = {"device": ""} | {name: ready[name] for name in SHARED_FIELDS if name in ready}
                setup["tokens_of"] = {name: round(measured.tokens[name][number][0], 1) for name in (ours, other)}
                figures.append(figure | {"rounds": len(values)} | setup | about[number] | {"batch": str(shape)})
    return figures


def _compared(ours: str, other: str) -> bool:
    if PATHS[other].module == "hlm" and ours.endswith(REMAT) != other.endswith(REMAT):
        # HLM paths are compared with each other only if both recompute activations or neither does. Other models are
        # compared with both, since recomputing is a real cost.
        return False
    return ours != other and (not PATHS[other].ours or PATHS[other].rival)
