"""Tests the setups of the tasks' configs: they change what the paper says, for every family."""

from __future__ import annotations

import dataclasses

import jax
import pytest
from finetune.tiny_tasks import FAMILIES, source
from flax import traverse_util
from small_characterbert import characterbert
from small_xrayemb import xrayemb

from charlm.config.finetuning import get_config
from charlm.core.optimizer import frozen
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb import setups
from charlm.families.xrayemb.policies import get_policy, is_random
from charlm.finetune.model import held_params, with_task
from charlm.tasks.create import task_of


def begins(family, trained):
    """Returns a model to fine-tune."""
    if family == "characterbert":
        return from_pretrained(characterbert())
    if family != "xrayemb":
        return from_pretrained(source(family, trained.workdir))
    model = xrayemb("gpt2")
    return dataclasses.replace(model, metadata={**model.metadata, "model": config_to_dict(model.config)})


@pytest.mark.parametrize("family", [*FAMILIES, "characterbert", "xrayemb"])
def test_frozen_leaves_the_head_alone_to_be_trained(family, trained):
    begin = begins(family, trained)
    config = get_config("classification")
    setups.frozen(config)
    task = task_of(config)
    task.labels = ("a", "b")
    _, target = with_task(begin, task)
    stays = traverse_util.flatten_dict(frozen(target.params, config.optim.freeze), sep="/")
    held = held_params(begin)
    assert {name for name, is_frozen in stays.items() if is_frozen} == {
        name for name in stays if name in held and "pooler" not in name and not name.startswith("head/")
    }
    assert any(not is_frozen for is_frozen in stays.values())
    assert jax.tree.structure(target.params) == jax.tree.structure(frozen(target.params, config.optim.freeze))


def test_policies_are_those_of_the_paper():
    found = {}
    for name, change in setups.POLICY_SETUPS.items():
        config = get_config("tagging")
        change(config)
        found[name] = config.model.policy
    assert found == {"scaffolding": "none", "stochastic": "stochastic:0.1", "no_suffix": "no_suffix"}
    assert [is_random(get_policy(spec)) for spec in found.values()] == [False, True, False]
