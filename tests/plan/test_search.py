"""The search finds the fastest setting that fits, and compiles few, on made-up costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from charlm.config import get_config
from charlm.plan.search import SURE, Guess, Setting, Trial, search, setting_of, settings

OWN = Setting(remat=False, accumulation=1, batch=64, fsdp=1, model=1)


def cost(setting: Setting, factor: float = 1.0) -> tuple[float, float, float]:
    """Working memory, all other memory, and seconds of a made-up run on 8 chips."""
    kept = 100 * setting.batch / 64 / setting.accumulation / (5 if setting.remat else 1) / setting.model
    state = 40 / setting.fsdp / setting.model
    seconds = setting.batch / 64 * (4 / 3 if setting.remat else 1) * (1 + 0.02 * (setting.accumulation - 1))
    return factor * kept, state, seconds * (1 + 0.1 * (setting.fsdp > 1)) * (1 + 0.5 * (setting.model - 1))


def guessed(setting: Setting) -> Guess:
    temporary, fixed, seconds = cost(setting)
    return Guess(lambda: temporary, fixed, seconds)


class Compiler:
    """Measures settings of the made-up run, and remembers which."""

    def __init__(self, usable: float, factor: float = 1.0) -> None:
        self.usable, self.factor, self.compiled, self.together = usable, factor, [], []

    def __call__(self, chosen: Sequence[Setting]) -> list[Trial]:
        self.together.append(len(chosen))
        return [self.one(setting) for setting in chosen]

    def one(self, setting: Setting) -> Trial:
        self.compiled.append(setting)
        temporary, fixed, seconds = cost(setting, self.factor)
        return Trial(setting, temporary, temporary + fixed, seconds, temporary + fixed <= self.usable, None)


def look(usable: float, factor: float = 1.0, tries: int = 6, at_once: int = 1) -> tuple[Trial | None, Compiler]:
    compiler = Compiler(usable, factor)
    candidates = [one for one in settings(OWN, chips=8, heads=12, per_node=8) if one != OWN]
    known = [compiler.one(OWN)]
    best, _ = search(candidates, lambda one: guessed(one), compiler, usable, tries, known, at_once)
    return best, compiler


def fastest(usable: float, factor: float = 1.0) -> float:
    """Seconds of a sequence of the best of all settings that leave some memory free, as guesses must."""
    usable *= SURE
    found = [(*cost(one, factor), one.batch) for one in settings(OWN, chips=8, heads=12, per_node=8)]
    return min(s / batch for temporary, fixed, s, batch in found if temporary + fixed <= usable)


@pytest.mark.parametrize("usable", [200, 100, 60, 30])
def test_the_fastest_that_fits_is_found_where_guesses_are_right(usable):
    best, compiler = look(usable)
    assert best is not None
    assert best.fits
    assert best.seconds / best.setting.batch == pytest.approx(fastest(usable), rel=0.02)
    assert len(compiler.compiled) <= 3


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_guesses_are_corrected_by_what_was_compiled(factor):
    best, compiler = look(100, factor)
    assert best is not None
    assert best.seconds / best.setting.batch <= 1.1 * fastest(100, factor)
    assert len(compiler.compiled) <= 7


@pytest.mark.parametrize("usable", [100, 60])
def test_two_are_compiled_at_the_same_time(usable):
    alone, both = look(usable, factor=3.0), look(usable, factor=3.0, at_once=2)
    assert max(both[1].together) == 2
    assert both[0] == alone[0]
    tries = look(usable, factor=3.0, tries=3, at_once=2)[1]
    assert sum(tries.together) <= 3


def test_what_is_refused_is_left_out():
    class Refusing(Compiler):
        def __call__(self, chosen: Sequence[Setting]) -> list[Trial]:
            return [one for one in super().__call__(chosen) if one.setting.accumulation != 2]

    compiler = Refusing(60)
    candidates = list(settings(OWN, chips=8, heads=12, per_node=8))
    best, seen = search(candidates, lambda one: guessed(one), compiler, 60)
    assert best is not None
    assert {trial.setting for trial in seen} < set(compiler.compiled)
    assert all(trial.setting.accumulation != 2 for trial in seen)


def test_nothing_that_was_not_compiled_is_found():
    best, compiler = look(0.5)
    assert best is None
    assert len(compiler.compiled) == 7


def test_settings_divide_the_machine():
    for one in settings(OWN, chips=16, heads=12, per_node=4):
        assert 16 % (one.fsdp * one.model) == 0
        assert one.batch % (one.accumulation * 16 // one.model) == 0
        assert one.model in (1, 2, 4)
    assert {one.batch for one in settings(OWN, chips=256, heads=12, per_node=4)} == {64, 128, 256}


def test_a_setting_is_told_as_flags():
    config = get_config()
    setting = setting_of(config)._replace(remat=True, accumulation=2, fsdp=4)
    flags = ["--config.model.remat=True", "--config.data.accumulation=2", "--config.mesh.fsdp=4"]
    assert setting.flags(config) == flags
    assert setting_of(setting.on(config)) == setting
    assert setting_of(config).flags(config) == []
    config.mesh.data = 8
    assert setting_of(config).flags(config) == ["--config.mesh.data=-1"]
    assert setting_of(config)._replace(fsdp=8).flags(config) == ["--config.mesh.fsdp=8", "--config.mesh.data=-1"]
