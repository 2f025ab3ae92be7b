"""Tests which configs the table of plans reads, and what families say that their runs start from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from charlm.config import load_config_file
from charlm.families.family import FAMILIES, family, own_families, pretrainable
from charlm.plan.backbone import write_bert
from charlm.plan.program import stages_of
from charlm.plan.table import base_configs

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_has_the_configs_of_every_family(monkeypatch):
    monkeypatch.chdir(ROOT)
    configs = base_configs()
    assert {"hlm_base", "hlm_large"} < set(configs)
    assert "hlm_small" not in configs
    assert {load_config_file(f"configs/{name}.py").family for name in configs} == set(pretrainable())


def test_the_table_says_where_its_configs_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^there are no configs/ here: .* or name --configs$"):
        base_configs()


def test_stages_are_those_of_the_family():
    for one in own_families():
        if one.objectives:
            config = load_config_file(f"{ROOT}/configs/{one.name}_base.py")
            names = [name for name, _ in stages_of(config)]
            assert names == (list(dict.fromkeys(config.stages)) if one.has_stages else [""])
            assert not one.has_stages or set(names) <= set(one.objectives)


@pytest.mark.slow
def test_a_model_to_start_from_is_of_the_family_that_is_named(tmp_path):
    (origin,) = {one.starts_from for one in own_families()} - {""}
    folder = write_bert(tmp_path / "start", origin, rows=60, hidden=64, layers=1)
    theirs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert origin in FAMILIES
    assert family(origin).get_converter().recognises(theirs)
