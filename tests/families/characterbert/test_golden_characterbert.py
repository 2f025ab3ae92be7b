"""Tests `check` of CharacterBERT: all arrays of the NumPy equations agree, and small mistakes are detected."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from characterbert_equations import CONFIG, TEXTS, char_ids, make

from charlm.convert.__main__ import main
from charlm.convert.golden import Ours, compare, find_cases
from charlm.convert.heads import MASKED_LM
from charlm.families.characterbert import characters, cnn
from charlm.families.characterbert import golden as golden_module

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "characterbert"


def test_every_array_is_within_the_tolerance(capsys):
    assert main(["check", "--family=characterbert", f"--golden-dir={GOLDENS}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith("9 arrays compared: 9 pass, 0 FAIL")
    left = printed[printed.index("not compared:") + 1 : -1]
    assert [line.split()[1:] for line in left] == [["char_ids", "input"], ["mask", "input"], ["types", "input"]]


def test_the_case_is_what_the_equations_give(tmp_path):
    make(tmp_path)
    (made,), (kept,) = find_cases(tmp_path), find_cases(GOLDENS)
    assert made.meta == kept.meta
    assert made.meta["config"] == CONFIG
    for name, value in (made.state | made.arrays).items():
        np.testing.assert_allclose((kept.state | kept.arrays)[name], value, atol=1e-6)


def test_words_are_spelled_as_elmo_spells_them():
    words = [word for words, _ in TEXTS for word in words]
    named = {"[CLS]": characters.CLS_WORD, "[SEP]": characters.SEP_WORD, "[MASK]": characters.MASK_WORD}
    rows = characters.spell_rows([named.get(word, word) for word in words], characters.ELMO_SLOTS)
    theirs = np.array([char_ids(word) for word in words])
    np.testing.assert_array_equal(np.where(rows == 0, characters.PAD, rows), theirs)
    assert [characters.shown(row[row != 0].tolist()) for row in rows] == [word[:48] for word in words]


def no_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows end with the word: padding takes no part in the maximum."""
    monkeypatch.setattr(cnn, "PAD", 0)


def other_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gate and change of the highways change places."""
    right = jnp.split
    monkeypatch.setattr(cnn.jnp, "split", lambda x, n, axis: right(x, n, axis=axis)[::-1])


def one_window_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window of padding alone."""
    right = cnn.Convolution.__call__
    monkeypatch.setattr(cnn.Convolution, "__call__", lambda self, x: right(self, x)[:, :-1])


@pytest.mark.parametrize("mistake", [None, no_padding, other_gates, one_window_less])
def test_mistakes_are_seen(monkeypatch, mistake):
    if mistake:
        mistake(monkeypatch)
    (case,) = find_cases(GOLDENS)
    model, params = golden_module.ours_of(case, MASKED_LM)
    batch = golden_module.batch_of(case.arrays, whole=False)
    run = jax.jit(lambda params, batch: model.apply({"params": params}, batch, method="input_vectors"))
    with jax.default_matmul_precision("highest"):
        vectors = Ours(run(params, batch), case.arrays["mask"])
    assert compare(vectors, case.arrays["word_vectors"], golden_module.ATOL).passed == (mistake is None)
