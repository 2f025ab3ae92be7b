"""The case `accelerator`: all that is to be known of HLM on a GPU, one measurement after another, in bfloat16.

Each measurement is a usual case with paths and a shape of its own, so its figures stand in the usual tables. The first
ones matter most: what `--minutes` cuts off is at the end. Open it to change what is measured.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from charlm.benchmark import attention_case, cases
from charlm.benchmark.cases import BenchmarkSettings, Outcome
from charlm.benchmark.paths import ATTENTION, INFERENCE, TRAINING, missing
from charlm.benchmark.text import Corpus, TextShape

log = logging.getLogger("charlm")

ACCELERATOR = "accelerator"


class Step(NamedTuple):
    """One measurement: a case, its paths, its shape (None: the usual ones), and the kernel of attention ("": auto)."""

    case: str
    paths: tuple[str, ...] = ()
    shape: TextShape | None = None
    kernel: str = ""

    def __str__(self) -> str:
        said = [str(self.shape) if self.shape else "", f"attention by {self.kernel}" if self.kernel else ""]
        return ", ".join(filter(None, [self.case, *said]))


# HLM trains alone, since BERT and HLM together would not fit into the memory of one GPU. The paper's reshape is left
# out for the same reason, and einsum at 2,048 words, where one layer takes gigabytes (docs/benchmarks.md).
_BESIDE = ("table", "cache_warm", "bert", "hf_bert")
STEPS = (
    Step(ATTENTION),
    Step(TRAINING, ("table",), TextShape(64, 512), "pallas"),
    Step(INFERENCE, _BESIDE, TextShape(32, 46)),
    Step(INFERENCE, _BESIDE, TextShape(8, 512)),
    Step(TRAINING, ("table",), TextShape(16, 2048), "pallas"),
    Step(TRAINING, ("table",), TextShape(64, 512), "einsum"),
)
TINY = TextShape(2, 12)  # texts of --smoke
NVIDIA = Path("/dev/nvidiactl")  # is there where NVIDIA's driver runs
# By default XLA tries many kernels for each product, and many tilings for each softmax and LayerNorm: HLM-Base's
# training step was not compiled after 130 s on 16 cores. With these flags it takes 61 to 67, and products are cuBLAS'.
QUICK_TO_COMPILE = (
    "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false --xla_disable_hlo_passes=triton-softmax-rewriter"
)


def _runnable(step: Step) -> tuple[str, ...]:
    """Returns the paths of a step that can run here; says why others cannot."""
    reasons = {name: missing(name, "") for name in step.paths}
    for name, reason in reasons.items():
        if reason:
            log.info("%s: %s is left out: %s", step.case, name, reason)
    return tuple(name for name, reason in reasons.items() if not reason)


def settings_of(step: Step, settings: BenchmarkSettings) -> BenchmarkSettings:
    """Returns the settings of a step."""
    shape = TINY if settings.smoke and step.shape else step.shape
    return dataclasses.replace(
        settings,
        paths=_runnable(step),
        batch=shape.batch if shape else None,
        words=shape.words if shape else None,
        dtype="bfloat16",
        attention_kernel=step.kernel,
    )


def check(settings: BenchmarkSettings) -> None:
    """Raises ValueError if the corpus has too few words for a step, which would show only after other steps."""
    corpus = Corpus(cases.load_config(settings.config, settings.text))
    for step in STEPS:
        if step.shape:
            corpus.texts(TINY if settings.smoke else step.shape)


def run(settings: BenchmarkSettings) -> Iterator[Outcome]:
    """Yields the outcome of each step as soon as it is measured; those that follow need no earlier one.

    On an NVIDIA GPU the programs are compiled with `QUICK_TO_COMPILE`, unless XLA_FLAGS says otherwise.
    """
    if NVIDIA.exists():
        os.environ["XLA_FLAGS"] = f"{QUICK_TO_COMPILE} {os.environ.get('XLA_FLAGS', '')}".strip()  # the last one counts
        log.info("XLA_FLAGS=%s", os.environ["XLA_FLAGS"])
    for number, step in enumerate(STEPS, 1):
        log.info("step %s of %s: %s", number, len(STEPS), step)
        measure = attention_case.run if step.case == ATTENTION else lambda given, of=step.case: cases.run(of, given)
        outcome = measure(settings_of(step, settings))
        if outcome.stopped:
            left = "; ".join(map(str, STEPS[number:])) or "nothing"
            log.info("stopped in step %s; not begun: %s", number, left)
        yield outcome
