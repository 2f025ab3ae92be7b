"""Tests the average of models: its numbers, what is kept of the first, and what has no average."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from tiny_models import release

from charlm.convert.__main__ import main
from charlm.families.averaging import average, check_alike
from charlm.families.pretrained import from_pretrained
from charlm.finetune.predictor import FineTuned

TAGGER = "hlm-small-en-pos"


def saved(folder, factor, **changes):
    """Saves the tagger with its parameters multiplied by a factor; returns the folder."""
    model = from_pretrained(TAGGER)
    params = jax.tree.map(lambda x: np.asarray(x, np.float32) * np.float32(factor), model.params)
    dataclasses.replace(model, params=params, **changes).save_pretrained(folder)
    return folder


def test_the_mean_of_three_is_a_model_of_its_own(tmp_path, capsys):
    folders = [saved(tmp_path / str(n), factor) for n, factor in enumerate((0.5, 1.0, 1.5))]
    given = [*map(str, folders)]
    assert main(["average", "--checkpoint", *given, f"--output={tmp_path / 'mean'}"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mean'}: HLM, the mean of 3 models\n"
    whole, mean = from_pretrained(TAGGER), from_pretrained(tmp_path / "mean")
    for wanted, found in zip(jax.tree.leaves(whole.params), jax.tree.leaves(mean.params), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted, np.float32), rtol=1e-6)
    tags = FineTuned.from_checkpoint(tmp_path / "mean").tag(["teh cat sat"])[0].tags
    assert tags == FineTuned.from_checkpoint(TAGGER).tag(["teh cat sat"])[0].tags

    assert main(["average", "--checkpoint", *given[:2], f"--output={tmp_path / 'mean'}"]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'mean'} exists already and is not empty\n"


def test_what_is_not_alike_has_no_average(tmp_path):
    model = from_pretrained(TAGGER)
    task = {**model.metadata["task"], "labels": [*reversed(model.metadata["task"]["labels"])]}
    turned = saved(tmp_path / "turned", 1, metadata={**model.metadata, "task": task})
    for others, says in (
        (["hlm-small-en"], "their heads are token_classification and masked_lm"),
        ([release("bert")], "their families are hlm and bert"),
        ([TAGGER, turned], "their labels are .'ADJ'.* and .'X'"),
        ([], "1 model: an average takes two or more"),
        ([tmp_path / "gone"], "gone does not exist"),
    ):
        with pytest.raises(ValueError, match=says):
            average([TAGGER, *others], tmp_path / "mean")
    chars = {**model.metadata["char_vocab"]}
    first, second = [*chars][:2]
    chars[first], chars[second] = chars[second], chars[first]
    other = dataclasses.replace(model, metadata={**model.metadata, "char_vocab": chars})
    with pytest.raises(ValueError, match="their vocabularies differ"):
        check_alike("a", model, "b", other)
    assert not (tmp_path / "mean").exists()


def test_models_of_other_sizes_have_no_average(tmp_path):
    model = from_pretrained(TAGGER)
    wide, others = (
        dataclasses.replace(model, config=dataclasses.replace(model.config, **changes))
        for changes in ({}, {"dropout": 0.5})
    )
    with pytest.raises(ValueError, match="the configs of the models differ"):
        check_alike("a", wide, "b", others)
    flat = dict(wide.params)
    name = sorted(flat)[0]
    del flat[name]
    with pytest.raises(ValueError, match=rf"{name}/.* is not there in the first and \("):
        check_alike("a", dataclasses.replace(wide, params=flat), "b", wide)
