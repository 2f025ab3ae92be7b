"""Tests `check` of CharBERT: all arrays of the authors' code agree, and every small mistake is detected."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from charlm.convert.__main__ import main
from charlm.convert.golden import NotCompared, compare, find_cases
from charlm.families.charbert import golden as charbert_golden
from charlm.nn import fusions, recurrent

TESTS = Path(__file__).resolve().parents[2]
GOLDENS = TESTS / "goldens" / "charbert"
SHARED = TESTS.parents[1] / "shared" / "golden" / "charbert"  # the larger cases these were cut down from
ATOL = 1e-4


def test_every_array_is_within_the_tolerance(capsys):
    assert main(["check", f"--golden-dir={GOLDENS}", f"--atol={ATOL}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith("21 arrays compared: 21 pass, 0 FAIL")
    left = printed[printed.index("not compared:") + 1 : -1]
    assert all(line.endswith(("  input", "  the case has no such array")) for line in left)


def test_every_array_of_the_larger_cases_is_within_the_tolerance(capsys):
    if not SHARED.is_dir():
        pytest.skip(f"the larger golden cases are not there: {SHARED}")
    assert main(["check", "--family=charbert", f"--golden-dir={SHARED}", f"--atol={ATOL}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith("149 arrays compared: 149 pass, 0 FAIL")
    assert all(line.endswith("  input") for line in printed[printed.index("not compared:") + 1 : -1])


def other_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Update and reset gate change places."""
    right = recurrent._gates
    swap = lambda x: jnp.concatenate([*jnp.split(x, 3, axis=-1)[1::-1], jnp.split(x, 3, axis=-1)[2]], axis=-1)
    monkeypatch.setattr(recurrent, "_gates", lambda input_G, state_G: right(swap(input_G), swap(state_G)))


def activated(monkeypatch: pytest.MonkeyPatch) -> None:
    convolution = fusions._convolution
    monkeypatch.setattr(fusions, "_convolution", lambda *a: lambda x: jnp.tanh(convolution(*a)(x)))


@pytest.mark.parametrize(
    ("mistake", "seen"),
    [
        (other_gates, "char_gru_all_hiddens"),
        (activated, "layer0_fusion"),
    ],
)
def test_mistakes_are_seen(monkeypatch, mistake, seen):
    mistake(monkeypatch)
    case = next(find_cases(GOLDENS))
    with jax.default_matmul_precision("highest"):
        computed = charbert_golden.outputs(case)
    compared = {n: ours for n, ours in computed.items() if n in case.arrays and not isinstance(ours, NotCompared)}
    failed = {name for name, ours in compared.items() if not compare(ours, case.arrays[name], ATOL).passed}
    assert seen in failed
    assert "embeddings_out" not in failed


def test_a_case_without_mask_is_another_one():
    case = next(find_cases(GOLDENS))
    assert np.abs(case.arrays["layer0_word"] - case.arrays["nomask/layer0_word"]).max() > 0.1
