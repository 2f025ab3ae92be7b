"""Compares our models with arrays that the authors' code computed (golden cases), and prints a line for each array.

A case NAME consists of NAME.json (its config), NAME.safetensors (the state dict) and NAME.npz (inputs and arrays), and
optionally NAME_mlm_grads.safetensors (gradients). Each family provides one function, `Outputs`: it converts the weights
with its table of rules, runs our model and returns its results under the names of the golden arrays. Open it when
`python -m charlm.convert check` reports a difference, or to add a case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from charlm.convert.files import read_state
from charlm.convert.heads import QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.core.reading import TooLarge, check_zip, read_object
from charlm.core.types import Array, JsonObject

GRADIENTS_FILE = "{}_mlm_grads.safetensors"
GRADIENT = "gradient of "
HEAD_OF_CASE = {"seqcls": SEQUENCE_CLASSIFICATION, "tokcls": TOKEN_CLASSIFICATION, "qa": QUESTION_ANSWERING}
HEADS_PREFIX = "head."  # prefix of the tensors of fine-tuned heads, which are named head.NAME.*
GRADIENT_TOLERANCE = 1e-4  # relative to a tensor's largest value


@dataclasses.dataclass(frozen=True)
class Case:
    """A golden case: its name, description and state dict, and its arrays; gradients are `GRADIENT` + tensor name."""

    name: str
    meta: JsonObject
    state: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Ours:
    """The result of our model for one golden array.

    Attributes:
      value: the array, in the shape of the golden one; integers and booleans must be equal.
      valid: bool, in the shape of the leading axes of `value`: the positions to compare; None: all.
      scale: divisor of the errors.
      tolerance: largest allowed error; None: that of the command line.
    """

    value: Array
    valid: np.ndarray | None = None
    scale: float = 1.0
    tolerance: float | None = None


class NotCompared(NamedTuple):
    """The reason why a golden array is not compared."""

    reason: str


NamedOutputs = Iterator[tuple[str, Ours | NotCompared]]  # results with the names of their golden arrays
Outputs = Callable[[Case], Mapping[str, Ours | NotCompared]]


class Comparison(NamedTuple):
    """One comparison: the error (nan if shapes differ or a value is not finite), its tolerance, and a remark."""

    error: float
    tolerance: float
    remark: str = ""

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance  # False for nan

    def __str__(self) -> str:
        verdict = "pass" if self.passed else "FAIL"
        return f"{self.error:9.2e} {self.tolerance:9.2e}  {verdict}  {self.remark}".rstrip()


def find_cases(folder: str | Path) -> Iterator[Case]:
    """Yields the complete cases of a folder in order of name.

    Raises:
      ValueError: the folder is missing, or a file of a case cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"--golden-dir={folder} is not a folder")
    for description in sorted(folder.glob("*.json")):
        weights, arrays = description.with_suffix(".safetensors"), description.with_suffix(".npz")
        present = [file.is_file() for file in (weights, arrays)]
        if not all(present):
            if any(present):
                print(f"{description.stem}: no case, for {(weights, arrays)[present.index(False)].name} is missing")
            continue
        gradients = folder / GRADIENTS_FILE.format(description.stem)
        loaded = read_arrays(arrays)
        if gradients.is_file():
            loaded |= {GRADIENT + name: value for name, value in read_state(gradients).items()}
        yield Case(description.stem, read_object(description), read_state(weights), loaded)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file; ValueError if it cannot be read."""
    try:
        check_zip(path)
        with np.load(path) as opened:
            return dict(opened)
    except TooLarge:
        raise
    except Exception as error:  # NumPy raises exceptions of many classes for a damaged file
        raise ValueError(f"{path} cannot be read: {error}") from error


def compare(ours: Ours, golden: np.ndarray, atol: float) -> Comparison:
    """Returns the largest error of an array at its valid positions."""
    value = np.asarray(ours.value)
    exact = golden.dtype.kind not in "fc"
    tolerance = 0.0 if exact else ours.tolerance if ours.tolerance is not None else atol
    if value.shape != golden.shape:
        return Comparison(np.nan, tolerance, f"ours is {value.shape}, theirs {golden.shape}")
    if ours.valid is not None:
        value, golden = value[ours.valid], golden[ours.valid]
    if not value.size:
        return Comparison(np.nan, tolerance, "there is no valid position")
    error = np.abs(value.astype(np.float64) - golden.astype(np.float64)).max() / ours.scale
    return Comparison(float(error), tolerance, "" if ours.scale == 1 else "relative to the largest value")


def check(
    outputs: Outputs,
    folder: str | Path,
    atol: float,
    cases: Callable[[str | Path], Iterator[Case]] = find_cases,
) -> int:
    """Prints every comparison of every case, the arrays that were not compared, and a summary; returns the exit status.

    A case that cannot be computed counts as a failure, and so does one that has weights but no array that depends on
    them.

    Args:
      atol: largest absolute error.
      cases: finds the cases of a folder.

    Raises:
      ValueError: `atol` is not positive, or a case cannot be read.
    """
    if not 0 < atol < np.inf:
        raise ValueError(f"--atol={atol}: expected a positive number")
    passed, failed, left = 0, 0, []
    for case in cases(folder):
        passes, fails, skipped = _check_case(outputs, case, atol)
        passed, failed, left = passed + passes, failed + fails, left + skipped
    if left:
        print("not compared:", *left, sep="\n")
    if not passed + failed:
        print(f"nothing was compared: {folder} holds no case (NAME.json, NAME.safetensors and NAME.npz)")
        return 1
    print(f"{passed + failed} arrays compared: {passed} pass, {failed} FAIL; {len(left)} not compared")
    return 1 if failed else 0


def _check_case(outputs: Outputs, case: Case, atol: float) -> tuple[int, int, list[str]]:
    """Prints the comparisons of a case; returns how many pass and fail, and a line for each array not compared."""
    try:
        with jax.default_matmul_precision("highest"):
            computed = outputs(case)
    except Exception as error:  # a case may be wrong in any way; the other cases are still compared
        print(f"{case.name:<10} FAIL  it cannot be computed: {' '.join(str(error).split()) or type(error).__name__}")
        return 0, 1, []
    passed, failed, numbers, left = 0, 0, 0, []
    for name, golden in case.arrays.items():
        ours = computed.get(name)
        if ours is None and golden.dtype.kind != "f":
            ours = NotCompared("no comparison is written for it")
        if isinstance(ours, NotCompared):
            left.append(f"{case.name:<10} {name:<28} {ours.reason}")
            continue
        unknown = Comparison(
            np.nan, atol, "the case lacks what it is computed from, or no comparison is written for it"
        )
        result = unknown if ours is None else compare(ours, golden, atol)
        numbers += golden.dtype.kind == "f"
        passed, failed = passed + result.passed, failed + (not result.passed)
        print(f"{case.name:<10} {name:<{_widest(case)}} {result}", flush=True)
    if case.state and not numbers:
        print(f"{case.name:<10} FAIL  it holds no array that depends on the weights")
        failed += 1
    absent = [name for name, ours in computed.items() if name not in case.arrays and isinstance(ours, Ours)]
    return passed, failed, [*left, *(f"{case.name:<10} {name:<28} the case has no such array" for name in absent)]


def _widest(case: Case) -> int:
    return max(map(len, case.arrays))
