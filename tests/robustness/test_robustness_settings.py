"""Tests which noise is measured at which rate, and which settings are refused."""

from __future__ import annotations

import pytest

from charlm.robustness.settings import ReportSettings, planned
from charlm.text.noise import KINDS, Noise


def plan(*noise, **options):
    levels, notes = planned(ReportSettings(("m",), ("d",), "o", noise=noise, **options))
    return [(level.kind, level.level) for level in levels], notes


def test_kinds_take_the_levels_and_specs_their_own_rate():
    found, notes = plan("drop", "keyboard:0.3", levels=(0.2, 0, 0.1, 0.1))
    assert found == [("drop", 0), ("drop", 0.1), ("drop", 0.2), ("keyboard", 0.3)]
    assert notes == []
    levels, _ = planned(ReportSettings(("m",), ("d",), "o", noise=("drop", "swap:0.25"), levels=(0, 0.1)))
    assert [level.noise for level in levels] == [None, Noise("drop", 0.1), Noise("swap", 0.25)]
    assert [level.spec for level in levels] == ["drop:0.0", "drop:0.1", "swap:0.25"]


def test_kinds_that_change_all_they_may_are_measured_so():
    assert plan("charbert", "hlm_case", levels=(0, 0.1))[0] == [("charbert", 1), ("hlm_case", 1)]
    assert plan("charbert:0.1", "char2subword", levels=(0.2,))[0] == [("charbert", 0.1), ("char2subword", 0.2)]


def test_all_is_every_kind_but_misspelling_without_a_list():
    found, notes = plan("all", levels=(0.1,))
    assert [kind for kind, _ in found] == [kind for kind in KINDS if kind != "misspelling"]
    assert notes == ["misspelling is not measured: no list of misspellings was given (--misspellings)"]
    found, notes = plan("all", levels=(0.1,), misspellings="list.txt")
    assert [kind for kind, _ in found] == list(KINDS)
    assert notes == []
    with pytest.raises(ValueError, match=r"noise 'misspelling:0\.5' needs a list of misspellings: --misspellings FILE"):
        plan("misspelling:0.5")


def test_levels_that_a_kind_does_not_have_are_left_out_and_said():
    found, notes = plan("swap", "drop", levels=(0.5, 0.75))
    assert found == [("swap", 0.5), ("drop", 0.5), ("drop", 0.75)]
    assert notes == ["swap: no level 0.75, the highest is 0.5"]


def test_unusual_settings_are_part_of_the_name_and_nothing_is_measured_twice():
    found, _ = plan("keyboard", "keyboard@de", "keyboard:0.1:4", "keyboard:0.1", "all", levels=(0.1,), language="fr")
    assert found[:3] == [("keyboard", 0.1), ("keyboard@de", 0.1), ("keyboard:4", 0.1)]
    assert len(found) == len(set(found)) == len(KINDS) - 1 + 2
    levels, _ = planned(
        ReportSettings(("m",), ("d",), "o", noise=("keyboard", "drop:0.2@de"), levels=(0.1,), language="fr")
    )
    assert [str(level.noise) for level in levels] == ["keyboard:0.1@fr", "drop:0.2@de"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ()}, r"models=\(\): expected a sequence of at least one"),
        ({"data": "file"}, "data='file': expected a sequence"),
        ({"levels": (0.1, 1.5)}, "levels: expected rates from 0 to 1, got 1.5"),
        ({"levels": (float("nan"),)}, "levels: expected rates from 0 to 1, got nan"),
        ({"seeds": 0}, "seeds=0: expected a whole number of at least 1"),
        ({"seeds": 1.5}, "seeds=1.5: expected a whole number"),
        ({"adversarial": -1}, "adversarial=-1: expected a whole number of at least 0"),
        ({"samples": 0}, "samples=0: expected a whole number of at least 1"),
        ({"batch_size": True}, "batch_size=True: expected a whole number"),
        ({"noise": ("keybord",)}, "noise 'keybord' is not one of .*did you mean keyboard"),
        ({"noise": ("drop:2",)}, "noise 'drop': expected a rate from 0 to 1, got 2.0"),
        ({"language": "xx"}, "xx"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        planned(ReportSettings(**({"models": ("m",), "data": ("d",), "out": "o"} | options)))


def test_settings_are_json():
    found = ReportSettings(["m"], ["d"], "o", levels=[0.1, 0]).to_dict()
    assert (found["models"], found["levels"], found["seeds"]) == (["m"], [0.0, 0.1], 3)
