"""Tests the golden policies of XRayEmb: all agree, and the check detects a policy that does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from charlm.convert.golden import check
from charlm.families.xrayemb import policies as xray_policies
from charlm.families.xrayemb import policy_golden as golden_policies

GOLDENS = Path(__file__).parents[2] / "goldens" / "xrayemb"


def cases(folder):
    yield golden_policies.policy_case(folder)


def run(capsys, folder=GOLDENS):
    status = check(golden_policies.outputs, str(folder), 1e-5, cases)
    return status, capsys.readouterr().out


def test_every_sentence_and_policy_is_equal(capsys):
    status, printed = run(capsys)
    assert status == 0
    for style in golden_policies.STYLES:
        for policy in golden_policies.OURS:
            assert printed.count(f"{style}/{policy}/") == 3
    assert "48 arrays compared: 48 pass, 0 FAIL" in printed


@pytest.mark.parametrize("broken", ["suffixes", "draws", "more draws"])
def test_a_policy_that_differs_shows(capsys, monkeypatch, broken):
    if broken == "suffixes":
        monkeypatch.setattr(xray_policies, "SUFFIXES", ("s",))
    elif broken == "more draws":
        draw = xray_policies.Stochastic.__call__
        monkeypatch.setattr(xray_policies.Stochastic, "__call__", lambda *a: [draw(*a), a[2].random()][0])
    else:
        policy = lambda self, words, rng: [rng.random() < self.p for _ in range(len(words))]
        monkeypatch.setattr(xray_policies.Stochastic, "__call__", lambda *a: xray_policies.np.array(policy(*a), bool))
    status, printed = run(capsys)
    assert status == 1
    assert "0 FAIL" not in printed


def test_folders_without_and_unknown_policies(tmp_path):
    assert golden_policies.policy_case(tmp_path) is None
    meta = {"bert": [{"tokens": ["a"], "policies": {"some": {}}}], "gpt2_style": []}
    (tmp_path / golden_policies.FILE).write_text(json.dumps(meta), encoding="utf-8")
    with pytest.raises(ValueError, match="policy 'some' is not one of none"):
        golden_policies.policy_case(tmp_path)
