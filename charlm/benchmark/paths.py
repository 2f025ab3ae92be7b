"""The paths that are measured side by side, the job file of a worker, and the base class of runners.

A path is one way to compute something, such as a model in one library. This module imports nothing heavy, so that the
parent process never loads JAX or PyTorch for a path. Open it to add a path.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import os
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from charlm.core import extras
from charlm.core.durable import write_json
from charlm.core.nearest import did_you_mean
from charlm.core.reading import read_json
from charlm.core.types import JsonObject, Tree

INFERENCE, TRAINING = "inference", "training_step"
JOINED, FULL_MODE, GENERATOR = "joined_words", "full_mode", "generator"
CHARBERT, CALLS, PAGES = "charbert", "calls", "pages"
ATTENTION = "attention"
PRODUCT_RUNS = 10
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # read by glibc when a process starts; see launch/local.sh
CLONE = "git clone https://github.com/lisun-ai/HLM and --hlm-code PATH"


@dataclasses.dataclass(frozen=True)
class PathInfo:
    """The properties of a path.

    Attributes:
      module: the module of `charlm.benchmark` with its runners.
      cases: the cases that measure it.
      packages: the packages that it needs in addition to those of charlm.
      ours: whether it is compared with every path that is not `ours`.
      rival: whether the other paths of `ours` are compared with it, too.
      under: a command through which its worker is started.
      compiles: whether torch.compile is tried.
    """

    module: str
    cases: tuple[str, ...]
    packages: tuple[str, ...] = ()
    ours: bool = False
    rival: bool = False
    under: tuple[str, ...] = ()
    compiles: bool = False


_BOTH = (INFERENCE, TRAINING)
_TORCH = ("torch", "transformers")
_ONNX = (*_TORCH, "onnx", "onnxscript", "onnxruntime")
REMAT = "_remat"  # the ending of training paths that recompute activations
PRODUCT = (
    1472,
    768,
    3072,
)  # rows, width, columns of a product: 32 x 46 words through BERT-base's feed-forward
UNPADDED = "_unpadded"  # the ending of inference paths that lay texts end to end, as predictors do
PATHS = {
    "reshape": PathInfo("hlm", _BOTH),
    "table": PathInfo("hlm", _BOTH, ours=True),
    "cache_cold": PathInfo("hlm", (INFERENCE,), ours=True),
    "cache_warm": PathInfo("hlm", (INFERENCE,), ours=True),
    "cache_cold_unpadded": PathInfo("hlm", (INFERENCE,), ours=True),
    "cache_warm_unpadded": PathInfo("hlm", (INFERENCE,), ours=True),
    "reshape_remat": PathInfo("hlm", (TRAINING,)),
    "table_remat": PathInfo("hlm", (TRAINING,), ours=True),
    "bert": PathInfo("bert", (*_BOTH, FULL_MODE, CHARBERT)),
    "bert_unpadded": PathInfo("bert", (INFERENCE,)),
    "characterbert": PathInfo("characterbert", (INFERENCE,)),
    "hf_bert": PathInfo("peers", _BOTH, _TORCH, compiles=True),
    "hf_bert_sorted": PathInfo("peers", (INFERENCE,), _TORCH),
    "onnx_bert": PathInfo("onnx_peers", (INFERENCE,), _ONNX),
    "onnx_bert_sorted": PathInfo("onnx_peers", (INFERENCE,), _ONNX),
    "onnx_bert_int8": PathInfo("onnx_peers", (INFERENCE,), _ONNX),
    "onnx_minilm": PathInfo("onnx_peers", (INFERENCE,), _ONNX),
    "onnx_minilm_int8": PathInfo("onnx_peers", (INFERENCE,), _ONNX),
    "canine": PathInfo("peers", (INFERENCE,), _TORCH, compiles=True),
    "byt5": PathInfo("peers", (INFERENCE,), _TORCH, compiles=True),
    "authors_hlm": PathInfo("authors", _BOTH, _TORCH, compiles=True),
    "policy_all_multi": PathInfo("spelled", (JOINED,), ours=True),
    "policy_none": PathInfo("spelled", (JOINED,)),
    "full_cached": PathInfo("spelled", (FULL_MODE,), ours=True),
    "subword_table": PathInfo("spelled", (FULL_MODE,)),
    "charbert_paper": PathInfo("charbert", (CHARBERT,), ours=True),
    "charbert_reference": PathInfo("charbert", (CHARBERT,), ours=True),
    "short_calls": PathInfo("hlm_settings", (CALLS,), ours=True),
    "calls_of_32": PathInfo("hlm_settings", (CALLS,)),
    "huge_pages": PathInfo("hlm_settings", (PAGES,), ours=True, under=("env", f"GLIBC_TUNABLES={HUGE_PAGES}")),
    "usual_pages": PathInfo("hlm_settings", (PAGES,), under=("env", "-u", "GLIBC_TUNABLES")),
    "generator_buckets": PathInfo("generator", (GENERATOR,), ours=True),
    "generator_slots": PathInfo("generator", (GENERATOR,), ours=True, rival=True),
    "einsum": PathInfo("attention", (ATTENTION,)),
    "pallas": PathInfo("attention", (ATTENTION,), ours=True),
    "cudnn": PathInfo("attention", (ATTENTION,)),
    "torch_packed": PathInfo("torch_generator", (GENERATOR,), ("torch",)),
    "torch_padded": PathInfo("torch_generator", (GENERATOR,), ("torch",)),
    "torch_cut": PathInfo("torch_generator", (GENERATOR,), ("torch",)),
}


@dataclasses.dataclass
class Job:
    """The instructions for a worker.

    Attributes:
      path, case: determine the runner.
      texts: the texts of each batch; for the generator, a batch has a text for each step: its words, joined by spaces.
        For attention, a batch has a text for each row, which says what is computed.
      words: for each batch, the words of its longest text, including [CLS] and [SEP].
      drawn: whether texts vary in length, so that shorter ones are padded.
      chars: character ids of HLM and of Char2Subword.
      tokenizer: folder of BERT's tokenizer.
      budget_texts: texts on which training budgets are measured: a list for each batch if drawn, else one long text
        that is cut into batches.
      config: the config of HLM, as in `--config`.
      dtype: the dtype of matrix products.
      smoke: whether models are tiny.
      compile: whether PyTorch may try torch.compile.
      hlm_code: the checkout of the authors' HLM.
      attention_kernel: how HLM and charlm's BERT compute attention; "": as the config says.
    """

    path: str
    case: str
    texts: list[list[str]]
    words: list[int]
    drawn: bool
    chars: dict[str, int]
    tokenizer: str
    budget_texts: list[list[str]]
    config: str
    dtype: str
    smoke: bool
    compile: bool
    hlm_code: str
    attention_kernel: str = ""

    def save(self, path: Path) -> None:
        """Writes the file that `load` reads."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str) -> Job:
        """Reads a job file that `save` wrote."""
        return cls(**read_json(path))


def product_speed(multiply: Callable[[], object]) -> float:
    """Returns the speed of a bare product of the shape `PRODUCT` in GFLOP/s: the fastest of a few runs.

    Args:
      multiply: computes the product, and waits for it.
    """
    seconds = []
    multiply()
    while len(seconds) < PRODUCT_RUNS:
        started = time.perf_counter()
        multiply()
        seconds.append(time.perf_counter() - started)
    return round(2 * math.prod(PRODUCT) / min(seconds) / 1e9, 1)


def threads() -> int:
    """Returns the number of processors that this process may use; every path uses as many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def missing(name: str, hlm_code: str) -> str:
    """Returns why a path cannot run here and what to do about it; "" if it can run."""
    if reason := extras.missing(*PATHS[name].packages):
        return reason
    if PATHS[name].under and platform.libc_ver()[0] != "glibc":
        return "only the C library glibc, of Linux, has huge pages to ask for"
    if name == "authors_hlm" and not hlm_code:
        return f"needs the authors' code: {CLONE}"
    if name == "authors_hlm" and not (Path(hlm_code) / "model" / "hlm.py").is_file():
        return f"--hlm-code={hlm_code}: no model/hlm.py there; expected a checkout of lisun-ai/HLM"
    return ""


def check_asked(asked: Iterable[str], cases: Iterable[str], hlm_code: str) -> None:
    """Raises ValueError if a path that the user asked for is unknown, is in none of the cases, or cannot run here."""
    cases = set(cases)
    for name in asked:
        if name not in PATHS:
            raise ValueError(f"--paths: {name!r} is not one of {', '.join(PATHS)}{did_you_mean(name, PATHS)}")
        if not cases & set(PATHS[name].cases):
            raise ValueError(f"--paths: {name} is a path of {' and '.join(PATHS[name].cases)} only")
        if reason := missing(name, hlm_code):
            raise ValueError(f"--paths: {name}: {reason}")


def choose(case: str, asked: Iterable[str], remat: bool, hlm_code: str) -> tuple[list[str], dict[str, str]]:
    """Returns the paths of a case to run (all that can run, or those asked for), and why others are left out."""
    asked = list(asked)
    of_case = [name for name, info in PATHS.items() if case in info.cases]
    if asked:
        return [name for name in of_case if name in asked], {}
    of_case = [name for name in of_case if remat or not name.endswith(REMAT)]
    reasons = {name: missing(name, hlm_code) for name in of_case}
    return [name for name in of_case if not reasons[name]], {name: why for name, why in reasons.items() if why}


class Runner(abc.ABC):
    """The base class of runners, which a worker drives: texts -> arrays on the host -> result on the device.

    Attributes:
      about: fields on the set-up, for the figures.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.about: JsonObject = {}

    @abc.abstractmethod
    def tokenise(self, texts: list[str], words: int) -> Tree:
        """Returns the host arrays of a batch; in training, with some tokens masked."""

    def pack(self, host: Tree) -> Tree:
        """Returns the host arrays of a batch in the form that `run` reads.

        In training, packing is timed separately, since threads do it while a step runs. In inference, `run` itself
        packs, so packing is part of the measured work.
        """
        return host

    @abc.abstractmethod
    def run(self, host: Tree) -> object:
        """Does the measured work, waits for it, and returns the result.

        Args:
          host: the result of `pack`, as in all methods below.
        """

    def warm(self, host: Tree) -> None:
        """Prepares for a batch: compiles the programs that it needs."""
        self.run(host)

    def forget(self) -> None:  # noqa: B027  # most paths keep nothing between runs
        """Clears caches that earlier runs filled; called before each run, and not timed."""

    @abc.abstractmethod
    def tokens(self, host: Tree) -> tuple[float, int]:
        """Returns the mean number of tokens of a text as this model counts them, and the padded length of texts."""

    def program(self, host: Tree) -> str:
        """Returns the text of the compiled JAX program in which `run` spends its time; "" if there is none."""
        return ""

    def work(self, host: Tree) -> dict[str, float]:
        """Returns the number of operations of a run (`charlm.core.flops`) in units of 10^9, as far as known.

        These are `useful_gflop`, `padded_gflop`, and `peak_gflop`, which is how many the devices can do in a second.
        """
        return {}

    def device_peak(self) -> int | None:
        """Returns the peak memory of the accelerator in bytes; None if there is no accelerator."""
        return None
