"""Tests `check` of BERT, RoBERTa, RoFormer and GPT-2: all arrays of transformers agree, small mistakes are detected."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from subword_cases import GOLDENS, case

from charlm.convert.__main__ import main
from charlm.convert.golden import Case, NotCompared, compare
from charlm.families.subword import bert, gpt2
from charlm.families.subword import golden as hf_golden
from charlm.families.subword.conversion import TABLES
from charlm.families.subword.golden import ATOL
from charlm.nn import blocks, kernels

FEW = ("ids", "mask", "types", "hidden_1", "hidden_2", "logits")  # one program


@pytest.mark.parametrize(("family", "arrays"), [("bert", 20), ("roberta", 10), ("roformer", 8), ("gpt2", 12)])
def test_every_array_is_within_the_tolerance(family, arrays, capsys):
    assert main(["check", f"--family={family}", f"--golden-dir={GOLDENS / family}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith(f"{arrays} arrays compared: {arrays} pass, 0 FAIL")
    left = printed[printed.index("not compared:") + 1 : -1]
    assert all(line.endswith("  input") for line in left)


def failed(family: str, **arrays: np.ndarray) -> set[str]:
    """Returns which arrays of a family's first case, cut to `FEW`, are not ours."""
    whole = case(family)
    few = {name: array for name, array in whole.arrays.items() if name in FEW} | arrays
    computed = hf_golden.outputs(Case(whole.name, whole.meta, whole.state, few))
    compared = {name: found for name, found in computed.items() if name in few and not isinstance(found, NotCompared)}
    return {name for name, found in compared.items() if not compare(found, few[name], ATOL).passed}


def wrong_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    right = blocks.layer_norm
    other = lambda epsilon, *more, **named: right(1e-5 if epsilon == 1e-12 else 1e-12, *more, **named)
    for module in (blocks, bert, gpt2):
        monkeypatch.setattr(module, "layer_norm", other)


def wrong_epsilon_of_the_layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = blocks.layer_norm
    other = lambda epsilon, *more, **named: right(1e-5 if epsilon == 1e-12 else 1e-12, *more, **named)
    monkeypatch.setattr(blocks, "layer_norm", other)


def other_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, tanh = blocks.ACTIVATION_FUNCTIONS["gelu"], blocks.ACTIVATION_FUNCTIONS["gelu_new"]
    monkeypatch.setitem(blocks.ACTIVATION_FUNCTIONS, "gelu", tanh)
    monkeypatch.setitem(blocks.ACTIVATION_FUNCTIONS, "gelu_new", exact)


def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MASKED_SCORE", 0.0)


def weak_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MASKED_SCORE", -8.0)


def offset_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(TABLES["roberta"], derive=lambda theirs, ours: ours)
    monkeypatch.setitem(TABLES, "roberta", other)


def offset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TABLES["roberta"]
    derive = lambda theirs, ours: right.derive(theirs, ours) | {"position_offset": 1}
    monkeypatch.setitem(TABLES, "roberta", dataclasses.replace(right, derive=derive))


def halves_turned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    right = blocks.rotated
    monkeypatch.setattr(blocks, "rotated", lambda x, base, neighbours: right(x, base, neighbours=False))


def turned_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROTARY_BASE", 1000.0)


def only_queries_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = blocks.rotated, itertools.count()
    turned = lambda x, base, neighbours: right(x, base, neighbours=neighbours) if next(calls) % 2 == 0 else x
    monkeypatch.setattr(blocks, "rotated", turned)


def other_norm_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for config in (bert.BertConfig, gpt2.GPT2Config):
        right = config.block.fget
        turned = lambda self, right=right: dataclasses.replace(right(self), pre_norm=not right(self).pre_norm)
        monkeypatch.setattr(config, "block", property(turned))


def query_and_key_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"query": "key", "key": "query"}

    def swapped(rule):
        ours = "/".join(parts.get(part, part) for part in rule.ours.split("/"))
        return dataclasses.replace(rule, ours=ours, parts=tuple(parts.get(part, part) for part in rule.parts))

    for name, family in TABLES.items():
        heads = {
            key: dataclasses.replace(head, rules=[swapped(rule) for rule in head.rules])
            for key, head in family.heads.items()
        }
        monkeypatch.setitem(TABLES, name, dataclasses.replace(family, heads=heads))


MISTAKES = [
    *((family, mistake) for mistake in (wrong_epsilon, other_gelu, no_mask) for family in ("bert", "roberta", "gpt2")),
    ("bert", wrong_epsilon_of_the_layers_alone),
    ("bert", weak_mask),
    ("bert", other_norm_order),
    ("gpt2", other_norm_order),
    ("bert", query_and_key_swapped),
    ("gpt2", query_and_key_swapped),
    ("roberta", offset_zero),
    ("roberta", offset_one),
    ("roformer", halves_turned_together),
    ("roformer", turned_faster),
    ("roformer", only_queries_turned),
]


@pytest.mark.parametrize(("family", "mistake"), MISTAKES)
def test_a_mistake_in_the_model_fails(family, mistake, monkeypatch):
    mistake(monkeypatch)
    assert failed(family) & {"hidden_1", "hidden_2", "logits"}


@pytest.mark.parametrize("family", ["bert", "roberta", "roformer", "gpt2"])
def test_without_a_mistake_nothing_fails(family):
    assert failed(family) == set()


def test_a_mistake_in_the_segments_fails():
    assert "logits" in failed("bert", types=1 - case("bert").arrays["types"])


def test_a_case_of_no_known_model_is_refused():
    whole = case("bert")
    with pytest.raises(ValueError, match=r"x\.json: config\.model_type is none of bert, roberta, roformer, gpt2"):
        hf_golden.outputs(Case("x", {"config": {"model_type": "t5"}}, whole.state, whole.arrays))
