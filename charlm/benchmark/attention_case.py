"""The case `attention`: its shapes, the kernels that can run here, and its figures; without JAX.

The kernels take turns as other paths do, each in a process of its own (`attention` has what these compute). Open it to
change the shapes, or what a figure of a kernel contains.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from charlm.benchmark.cases import PUBLISHED, SMOKE, BenchmarkSettings, Outcome, load_config
from charlm.benchmark.figures import Figure, about_machine, ratios, spread
from charlm.benchmark.paths import ATTENTION, PATHS, Job
from charlm.benchmark.rounds import Worker, WorkerAnswers, WorkerDied, measure
from charlm.benchmark.text import TextShape

log = logging.getLogger("charlm")

ON_ACCELERATORS = (TextShape(64, 512), TextShape(16, 2048))
ON_CPUS = (TextShape(2, 128), TextShape(1, 512))
TINY = (TextShape(2, 130),)  # no multiple of a tile, and just longer than the shortest window that tiles take
DISENTANGLED, PLAIN = "disentangled", "plain"  # with relative positions, as HLM; without, as BERT
FORWARD, GRADIENT = "forward", "gradient"
SAID = {FORWARD: "forward", GRADIENT: "gradient with dropout"}
FORWARD_ONLY = ("cudnn",)  # kernels without a gradient: `charlm.nn.kernels` says why
INTERPRETED = "CPUs only interpret it, which says nothing about its speed; --smoke checks it on a tiny shape"
CHECKED_UNIT, NOT_FINITE = "error beside einsum in float32", "values not finite"  # of a figure without a time


class Checks(NamedTuple):
    """What a process found out about one batch.

    Attributes:
      timed: whether its times mean anything.
      temporaries_mib: MiB of temporaries of one call, by the compiler; None where it does not say.
      same_bits: whether two runs gave the same values and gradients, bit by bit.
      errors: by array, how far values and gradients are from `einsum` in float32, as a share of the largest; None: not
        finite.
      calls: the calls of a run.
    """

    timed: bool
    temporaries_mib: float | None
    same_bits: bool
    errors: dict[str, float | None]
    calls: int


class KernelsHere(NamedTuple):
    """The kernels that run on this machine's device: its platform, and why others are left out."""

    platform: str
    left_out: dict[str, str]

    def chosen(self, asked: Iterable[str]) -> list[str]:
        """Returns the kernels to measure: those asked for, or all that can run.

        Raises:
          ValueError: one that was asked for cannot run.
        """
        asked = set(asked)
        if not asked:
            return [name for name in of_case() if name not in self.left_out]
        chosen = [name for name in of_case() if name in asked]
        for name in chosen:
            if name in self.left_out:
                raise ValueError(f"--paths: {name}: {self.left_out[name]}")
        return chosen


def of_case() -> list[str]:
    """Returns the paths of the case."""
    return [name for name, info in PATHS.items() if ATTENTION in info.cases]


def shapes_of(settings: BenchmarkSettings, platform: str) -> tuple[TextShape, ...]:
    """Returns the shapes to measure: the usual ones of the platform, or the one that the user gave."""
    usual = TINY if settings.smoke else ON_CPUS if platform == "cpu" else ON_ACCELERATORS
    if not (settings.batch or settings.words):
        return usual
    return (TextShape(settings.batch or usual[0].batch, settings.words or usual[0].words),)


@functools.cache
def kernels_here(settings: BenchmarkSettings) -> KernelsHere:
    """Asks a process that loads JAX.

    Raises:
      ValueError: the config is no model's, or JAX finds no device.
    """
    load_config(settings.config)  # a mistake in its name is this process's to report
    # The usual shapes of all platforms are within the limits of all kernels, so that one of them can stand for all.
    job = _job("einsum", settings, shapes_of(settings, "cpu")[:1], ())
    with tempfile.TemporaryDirectory() as folder:
        job.save(Path(folder) / "job.json")
        command = [sys.executable, "-m", "charlm.benchmark.attention", f"{folder}/job.json"]
        worker = Worker(ATTENTION, command)
        try:
            return KernelsHere(**worker.ask(""))
        except WorkerDied as error:
            raise ValueError(f"--case={ATTENTION}: {error}") from None
        finally:
            worker.end()


def run(settings: BenchmarkSettings) -> Outcome:
    """Measures the kernels: those that have gradients forward and backward, the others forward alone.

    Raises:
      ValueError: a kernel that was asked for cannot run here, or the config is no model's.
    """
    here = kernels_here(settings)
    names = here.chosen(settings.paths)
    for name, reason in here.left_out.items():
        log.info("%s: %s is left out: %s", ATTENTION, name, reason)
    shapes = shapes_of(settings, here.platform)
    about = {
        "models": SMOKE if settings.smoke else PUBLISHED, "config": settings.config, "dtype": settings.dtype,
    } | about_machine()  # fmt: skip
    whole = Outcome([], {})
    # A round has the same batches for all paths, so a kernel that has no gradient gets rounds of its own.
    for directions in ((FORWARD,), (GRADIENT,)) if set(names) & set(FORWARD_ONLY) else ((FORWARD, GRADIENT),):
        able = [name for name in names if GRADIENT not in directions or name not in FORWARD_ONLY]
        parts = [(s, positions, d) for d in directions for s in shapes for positions in (DISENTANGLED, PLAIN)]
        measured = _measured(able, parts, settings)
        of = [about | {"of": f"{positions}, {SAID[direction]}"} for _, positions, direction in parts]
        figures = figures_of(measured, [shape for shape, *_ in parts], of)
        whole = Outcome(whole.figures + figures, whole.died | measured.died, measured.stopped)
        if whole.stopped:
            break
    return whole


def _measured(names: list[str], parts: list[tuple[TextShape, str, str]], settings: BenchmarkSettings) -> WorkerAnswers:
    """Runs the kernels in turn; a part, which is a batch, has a shape, positions and a direction."""
    shapes, texts = tuple(shape for shape, *_ in parts), tuple(f"{positions} {d}" for _, positions, d in parts)
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for name in names:
            path = Path(folder) / f"{name}.json"
            _job(name, settings, shapes, texts).save(path)
            commands[name] = [sys.executable, "-m", "charlm.benchmark.worker", str(path)]
        return measure(commands, len(parts), settings.repeats)


def _job(name: str, settings: BenchmarkSettings, shapes: tuple[TextShape, ...], texts: tuple[str, ...]) -> Job:
    """Returns the job of a path; a batch has the same text for each of its rows."""
    return Job(
        path=name,
        case=ATTENTION,
        texts=[[text] * shape.batch for text, shape in zip(texts, shapes, strict=bool(texts))],
        words=[shape.words for shape in shapes],
        drawn=False,
        chars={},
        tokenizer="",
        budget_texts=[],
        config=settings.config,
        dtype=settings.dtype,
        smoke=settings.smoke,
        compile=False,
        hlm_code="",
    )


def figures_of(measured: WorkerAnswers, shapes: list[TextShape], about: list[Figure]) -> list[Figure]:
    """Returns a figure for each kernel and batch, and how many times as fast the kernels of charlm are as the others.

    Args:
      about: for each batch, further fields of its figures.
    """
    figures, checks = [], {name: ready["checks"] for name, ready in measured.ready.items()}
    rounds = {
        name: [_of_calls(one, checks[name][number]["calls"]) for number, one in enumerate(batches)]
        for name, batches in measured.rounds.items()
    }
    for number, shape in enumerate(shapes):
        for name, batches in rounds.items():
            found = Checks(**checks[name][number])
            figure = _figure(name, batches[number], found, measured.work[name][number])
            ready = {key: value for key, value in measured.ready[name].items() if key != "checks"}
            peaks = measured.peaks.get(name, {})  # missing if the measurement was stopped
            figures.append(figure | ready | peaks | about[number] | {"batch": str(shape), "words": shape.words})
    untimed = {name for name, batches in checks.items() if not all(batch["timed"] for batch in batches)}
    timed = dataclasses.replace(measured, rounds={n: one for n, one in rounds.items() if n not in untimed})
    return figures + ratios(ATTENTION, timed, shapes, about)


def _of_calls(rounds: list[dict[str, float]], calls: int) -> list[dict[str, float]]:
    """Returns the rounds with the times of a call in place of those of a run, which has several."""
    return [{clock: seconds / calls for clock, seconds in one.items()} for one in rounds]


def _figure(name: str, rounds: list[dict[str, float]], checks: Checks, work: dict[str, float]) -> Figure:
    """Returns milliseconds a call and the speed, or only the error if the times mean nothing."""
    worst = _worst(checks.errors)
    if checks.timed:
        times = [1000 * one["seconds"] for one in rounds]
        figure = {"case": ATTENTION, "path": name} | spread(times, 4) | {"unit": "ms"}
        rate = 1000 * work["useful_gflop"] / statistics.median(times)
        figure["tflop_per_second"] = round(rate / 1000, 3)
        if "peak_gflop" in work:
            figure["mfu"] = round(rate / work["peak_gflop"], 4)
    else:
        value, unit = (0.0, NOT_FINITE) if worst is None else (worst, CHECKED_UNIT)
        figure = {"case": ATTENTION, "path": name, "value": value, "unit": unit}
    gradients = {array: error for array, error in checks.errors.items() if array != "values"}
    figure |= {"error": checks.errors["values"], "errors": checks.errors, "same_bits": checks.same_bits}
    figure |= {"gradient_error": _worst(gradients)} if gradients else {}
    figure |= {"temporaries_mib": checks.temporaries_mib, "calls_a_run": checks.calls, "rounds": len(rounds)}
    return figure | work


def _worst(errors: dict[str, float | None]) -> float | None:
    """Returns the largest error; None if one is not finite."""
    finite = [error for error in errors.values() if error is not None]
    return max(finite) if len(finite) == len(errors) else None
