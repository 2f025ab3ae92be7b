"""Tests `check` of XRayEmb: all golden values agree, and small mistakes are detected."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from again import again

from charlm.convert.__main__ import main
from charlm.convert.golden import NotCompared, compare
from charlm.families.xrayemb import golden as xrayemb_golden
from charlm.families.xrayemb.decoder import XRDecoder
from charlm.families.xrayemb.golden import find_cases
from charlm.nn import lstm

TESTS = Path(__file__).resolve().parents[2]
GOLDENS = TESTS / "goldens" / "xrayemb"
SHARED = TESTS.parents[1] / "shared" / "golden" / "xrayemb"


def check(folder, *more):
    return main(["check", "--family=xrayemb", f"--golden-dir={folder}", *more])


def test_every_array_is_within_its_tolerance(capsys):
    assert check(GOLDENS) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " pass, 0 FAIL" in lines[-1]
    compared = [line.split() for line in lines[: lines.index("not compared:")]]
    names = {case: {name for other, name, *_ in compared if other == case} for case, *_ in compared}
    for kind in ("conv_a", "lstm", "transformer"):
        assert {"char_ids", "lengths", "out_batched_padded", "out_each_alone"} <= names[f"enc_{kind}"]
    assert {"logits_correct", "loss_sum_correct", "gen_ids_alone_padded", "gen_probs_author_batched"} <= names["dec_a"]
    assert {"encode_embs", "learn_preds", "replaced_alone"} <= names["embedder"]
    assert len(names["policies"]) == 2 * 8 * 3  # styles, policies; groups, words, draws
    for case, name, _, tolerance, *_ in compared:
        most = 1e-4 if name.startswith(("logits", "loss", "gen_probs")) else 1e-5
        assert float(tolerance) <= most, (case, name)


def test_the_authors_cases(capsys):
    if not SHARED.is_dir():
        pytest.skip(f"the authors' golden cases are not there: {SHARED}")
    assert check(SHARED) == 0
    assert " 0 FAIL" in capsys.readouterr().out.splitlines()[-1]


def failing():
    found = set()
    for case in find_cases(GOLDENS):
        for name, ours in xrayemb_golden.outputs(case).items():
            if not isinstance(ours, NotCompared) and not compare(ours, case.arrays[name], 1e-5).passed:
                found.add(f"{case.name}:{name}")
    return found


def gates_turned(monkeypatch):
    step = lstm._step
    turned = lambda x: jnp.concatenate([x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], axis=-1)
    monkeypatch.setattr(lstm, "_step", lambda x, kernel, state: step(turned(x), kernel, state))


def layers_turned(monkeypatch):
    states = XRDecoder.start_states
    monkeypatch.setattr(XRDecoder, "start_states", lambda self, x: states(self, x)[::-1])


@pytest.mark.parametrize(
    ("mistake", "seen", "unseen"),
    [
        again(gates_turned, {"enc_lstm:out_each_alone", "dec_a:logits_correct"}, {"enc_conv_a:out_each_alone"}),
        (layers_turned, {"dec_a:h0_correct", "dec_a:gen_ids_alone_padded"}, {"enc_lstm:out_each_alone"}),
    ],
)
def test_mistakes_are_seen(monkeypatch, mistake, seen, unseen):
    mistake(monkeypatch)
    failed = failing()
    assert seen <= failed
    assert not unseen & failed


def test_what_is_missing_is_said(capsys, tmp_path):
    assert check(tmp_path) == 1
    assert "modules_meta.json: expected this file, found none" in capsys.readouterr().err
    assert check(tmp_path / "none") == 1
    assert "is not a folder" in capsys.readouterr().err
    for file in GOLDENS.glob("enc_*"):
        shutil.copyfile(file, tmp_path / file.name)
    meta = json.loads((GOLDENS / "modules_meta.json").read_text(encoding="utf-8"))
    (tmp_path / "modules_meta.json").write_text(json.dumps({"enc_lstm": meta["enc_lstm"]}), encoding="utf-8")
    (tmp_path / "enc_transformer.npz").unlink()
    np.savez(tmp_path / "enc_lstm.npz", **{**np.load(tmp_path / "enc_lstm.npz"), "later": np.zeros(2)})
    assert check(tmp_path) == 1
    printed = capsys.readouterr().out
    assert "enc_conv_a: no case, for modules_meta.json: enc_conv_a is missing" in printed
    assert "later" in printed
    assert "1 FAIL" in printed
