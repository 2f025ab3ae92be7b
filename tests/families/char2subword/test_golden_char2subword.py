"""Tests `check` of Char2Subword: all golden values agree, and every small mistake is detected."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from charlm.convert.__main__ import main
from charlm.convert.golden import NotCompared, compare
from charlm.families.char2subword import golden as char2subword_golden
from charlm.families.char2subword import imitation
from charlm.families.char2subword import module as char2subword
from charlm.families.char2subword.golden import find_cases

TESTS = Path(__file__).resolve().parents[2]
GOLDENS = TESTS / "goldens" / "char2subword"
SHARED = TESTS.parents[1] / "shared" / "golden" / "char2subword"
SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}


@pytest.fixture
def with_vocabulary(tmp_path):
    """The cases with a vocabulary of the entries that their sentences have, under the ids of BERT's."""
    folder = tmp_path / "cases"
    shutil.copytree(GOLDENS, folder)
    meta = json.loads((folder / "module_meta.json").read_text(encoding="utf-8"))
    vocab = dict(SPECIAL)
    for about in meta["modes"]:
        vocab |= {place["word"]: place["id"] for place in about["hybrid"] if place["src"] == "table"}
    free = iter(set(range(30_522)) - set(vocab.values()))
    pieces = [piece for about in meta["modes"] for piece in about["wordpieces"] if piece not in vocab]
    vocab |= {piece: next(free) for piece in dict.fromkeys(pieces)}
    rows = [f"[unused{n}]" for n in range(max(vocab.values()) + 1)]
    for token, index in vocab.items():
        rows[index] = token
    (folder / "vocab.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}), encoding="utf-8")
    return folder


def check(folder, *more):
    return main(["check", "--family=char2subword", f"--golden-dir={folder}", *more])


def test_every_array_is_within_1e_5(capsys, with_vocabulary):
    assert check(with_vocabulary) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "56 arrays compared: 56 pass, 0 FAIL; 5 not compared"
    assert all(" 1.00e-05 " in line or " 0.00e+00  pass" in line for line in lines[: lines.index("not compared:")])
    left = [line.split(None, 2) for line in lines[lines.index("not compared:") + 1 : -1]]
    assert [(case, name) for case, name, _ in left] == [*(("losses", name) for name in ("E", "y", "pred", "k")),
                                                       ("noise", "all")]  # fmt: skip


def test_nothing_is_left_out_in_silence(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(char2subword_golden, "TOKENIZER_PACKAGE", "no_such_package_anywhere")
    assert check(GOLDENS) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "24 arrays compared: 24 pass, 0 FAIL; 37 not compared"
    assert sum("no vocabulary: put a tokenizer.json beside the cases" in line for line in lines) == 32
    shutil.copytree(GOLDENS, tmp_path / "cases")
    (tmp_path / "cases" / "module_a.safetensors").unlink()
    np.savez(tmp_path / "cases" / "module_b.npz", char_ids=np.zeros((1, 2)))
    meta = json.loads((GOLDENS / "module_meta.json").read_text(encoding="utf-8"))
    (tmp_path / "cases" / "module_meta.json").write_text(json.dumps(meta | {"later": 1}), encoding="utf-8")
    assert check(tmp_path / "cases") == 0
    printed = capsys.readouterr().out
    assert "module_a: no case, for module_a.safetensors is missing" in printed
    assert "module_b: no case, for module_b.safetensors, module_meta.json: module_b is missing" in printed
    assert "later      all                          no comparison is written for it" in printed


def test_the_larger_cases(capsys):
    if not SHARED.is_dir():
        pytest.skip(f"the larger golden cases are not there: {SHARED}")
    assert check(SHARED) == 0
    assert " 0 FAIL" in capsys.readouterr().out.splitlines()[-1]


def failing(folder):
    found = set()
    for case in find_cases(folder):
        for name, ours in char2subword_golden.outputs(case).items():
            if not isinstance(ours, NotCompared) and not compare(ours, case.arrays[name], 1e-5).passed:
                found.add(f"{case.name}:{name}")
    return found


def other_root(monkeypatch):
    monkeypatch.setattr(imitation, "unit", lambda x: x / (1e-3 + jnp.linalg.norm(x, axis=-1, keepdims=True)))


def no_positions(monkeypatch):
    monkeypatch.setattr(char2subword, "sinusoids", lambda length, width: np.zeros((length, width), np.float32))


def marks_turned(monkeypatch):
    monkeypatch.setattr(
        char2subword_golden, "spell_piece", lambda look: ("" if look.starts_word else "##") + look.chars
    )


def words_cased(monkeypatch):
    monkeypatch.setattr(char2subword_golden.SpelledWords, "normalized", lambda self, word: word.upper())


@pytest.mark.parametrize(
    ("mistake", "seen", "unseen"),
    [
        (other_root, "losses:cos", "losses:ce"),
        (no_positions, "module_a:out_scale_d_model", "losses:cos"),
        (marks_turned, "module_a:spelled", "module_a:out_scale_d_model"),
        (words_cased, "modes:0/full", "module_a:spelled"),
    ],
)
def test_mistakes_are_seen(monkeypatch, with_vocabulary, mistake, seen, unseen):
    mistake(monkeypatch)
    failed = failing(with_vocabulary)
    assert seen in failed
    assert unseen not in failed


def test_what_cannot_be_read_is_said_in_a_line(capsys, tmp_path):
    assert check(tmp_path) == 1
    assert "module_meta.json: expected this file, found none" in capsys.readouterr().err
    assert check(tmp_path / "none") == 1
    assert "is not a folder" in capsys.readouterr().err
