"""Finds the settings of a run that fit a machine, and of these the fastest.

Open it to add a setting that a plan may change. Compiling takes minutes, so only few settings are compiled. A guess
orders all settings, and each compiled setting corrects the guesses of similar ones. The search ends when no other
setting is guessed to be faster than the best compiled one. A setting is only said to fit if it was compiled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import ml_collections

from charlm.config import flatten, is_fine_tuning
from charlm.config.pretraining import set_by

TRIES = 4  # settings that are compiled
SURE = 0.95  # of the usable memory: what a guess must leave free, since guesses are off by a few percent
WORTH = 0.98  # of the best time: what another setting must be guessed to take to be compiled
REMAT_COST = 4 / 3  # of a step that computes the forward pass twice


class Setting(NamedTuple):
    """The keys that a plan may change so that a run fits. Of these, only `batch` changes how the run learns.

    Attributes:
      remat: whether the backward pass computes activations again.
      accumulation: the number of micro-batches of a step.
      batch: the number of sequences of a step.
      fsdp, model: the sizes of these axes of the mesh.
    """

    remat: bool
    accumulation: int
    batch: int
    fsdp: int
    model: int

    def on(self, config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
        """Returns the config with this setting."""
        own = config.copy_and_resolve_references()
        own.model.remat = self.remat
        own.data.accumulation, own.data.batch_size = self.accumulation, self.batch
        own.mesh.data, own.mesh.fsdp, own.mesh.model = -1, self.fsdp, self.model
        return own

    def flags(self, config: ml_collections.ConfigDict) -> list[str]:
        """Returns the flags for those keys of the setting whose value differs from the config's.

        A config that gives `mesh.data` always gets a flag for it, since the axis takes the chips that are left.
        """
        wanted = {
            "model.remat": self.remat,
            "data.accumulation": self.accumulation,
            "data.batch_size": self.batch,
            "mesh.fsdp": self.fsdp,
            "mesh.model": self.model,
            "mesh.data": -1,
        }
        flat = flatten(config)
        named = lambda key: key if is_fine_tuning(config) else set_by(config, key)
        return [f"--config.{named(key)}={value}" for key, value in wanted.items() if flat[key] != value]


def setting_of(config: ml_collections.ConfigDict) -> Setting:
    """Returns the setting that a config has."""
    mesh, data = config.mesh, config.data
    return Setting(config.model.remat, data.accumulation, data.batch_size, max(mesh.fsdp, 1), max(mesh.model, 1))


Result = TypeVar("Result")


class Guess(NamedTuple):
    """A guess of what a setting takes.

    Attributes:
      temporary: returns the bytes of working memory of a chip. It may have to trace the model, which takes seconds, so
        it is only called for settings that are fast enough.
      fixed: bytes of all other memory of a chip.
      seconds: the time of a step.
    """

    temporary: Callable[[], float]
    fixed: float
    seconds: float


class Trial(NamedTuple, Generic[Result]):
    """A setting that was compiled, and what it takes.

    Attributes:
      setting: the setting.
      temporary: bytes of working memory of a chip.
      memory: bytes of all memory that a chip needs.
      seconds: the time of a step.
      fits: whether the step fits into a chip.
      result: all that was measured, such as `charlm.plan.figures.Figures`.
    """

    setting: Setting
    temporary: float
    memory: float
    seconds: float
    fits: bool
    result: Result


def settings(own: Setting, chips: int, heads: int, per_node: int) -> Iterator[Setting]:
    """Yields the settings that a machine can run.

    The batch is the config's, rounded up to a multiple of the number of chips that share its rows (chips / model).

    Args:
      own: the setting of the config.
      chips: the number of chips of the machine.
      heads: the number of attention heads, which the size of the model axis must divide.
      per_node: the number of chips of a node, the largest size of the model axis.
    """
    models = [m for m in (1, 2, 4, 8) if heads % m == 0 and chips % m == 0 and m <= per_node]
    for model, fsdp in itertools.product(models, _powers(chips)):
        if chips % (model * fsdp):
            continue
        spread = chips // model
        batch = own.batch if own.batch % spread == 0 else math.ceil(own.batch / spread) * spread
        parts = batch // spread
        for accumulation, remat in itertools.product((a for a in _powers(parts) if parts % a == 0), (False, True)):
            yield Setting(remat, accumulation, batch, fsdp, model)


def _powers(most: int) -> list[int]:
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def search(
    candidates: Iterable[Setting],
    guess: Callable[[Setting], Guess],
    measure: Callable[[Sequence[Setting]], Iterable[Trial[Result]]],
    usable: float,
    tries: int = TRIES,
    known: Iterable[Trial[Result]] = (),
    at_once: int = 1,
) -> tuple[Trial[Result] | None, list[Trial[Result]]]:
    """Returns the fastest setting that fits, None if none was found, and all settings that were measured.

    Args:
      candidates: the settings to choose from.
      guess: guesses what a setting takes.
      measure: compiles settings at the same time; those that are refused are left out of what it returns.
      usable: bytes of a chip that programs can use; 0: not known, so that everything fits.
      tries: how many settings are measured at most; those that are refused do not count.
      known: outcomes of settings that were measured before.
      at_once: how many settings are measured at the same time, at most.
    """
    left, seen = list(dict.fromkeys(candidates)), list(known)
    guesses = {one: guess(one) for one in {*left, *(trial.setting for trial in seen)}}
    left = [one for one in left if one not in {trial.setting for trial in seen}]
    while tries > 0:
        best = _best(seen)
        timed = [(_seconds(one, guesses, seen) / one.batch, one) for one in left]
        if best is not None:
            timed = [(seconds, one) for seconds, one in timed if seconds < WORTH * best.seconds / best.setting.batch]
        memory = lambda one: _memory(one, guesses, seen)
        chosen = _fastest(timed, memory, usable, min(at_once, tries))
        if not chosen and timed and best is None:  # none is thought to fit: the guesses may be wrong
            chosen = [min(left, key=lambda one: (memory(one), guesses[one].seconds))]
        if not chosen:
            break
        left = [one for one in left if one not in chosen]
        measured = list(measure(chosen))
        seen.extend(measured)
        tries -= len(measured)
    return _best(seen), seen


def first_try(candidates: Iterable[Setting], guess: Callable[[Setting], Guess], usable: float) -> Setting | None:
    """Returns the setting that `search` would try first if nothing had been compiled; None: none is expected to fit."""
    guesses = {one: guess(one) for one in dict.fromkeys(candidates)}
    timed = [(own.seconds / one.batch, one) for one, own in guesses.items()]
    chosen = _fastest(timed, lambda one: _memory(one, guesses, []), usable, 1)
    return chosen[0] if chosen else None


def _fastest(
    timed: Iterable[tuple[float, Setting]], memory: Callable[[Setting], float], usable: float, count: int
) -> list[Setting]:
    """Returns up to `count` settings that are expected to fit and take the fewest seconds, simple ones first."""
    ordered = sorted(timed, key=lambda pair: (pair[0], _rank(pair[1])))
    fitting = (one for _, one in ordered if not usable or memory(one) <= SURE * usable)
    return list(itertools.islice(fitting, count))


def _best(seen: Iterable[Trial[Result]]) -> Trial[Result] | None:
    """Returns the trial that fits and takes the least time for each sequence; None if none fits."""
    return min((one for one in seen if one.fits), key=lambda one: one.seconds / one.setting.batch, default=None)


def _rank(setting: Setting) -> tuple[int, ...]:
    """Returns a sort key for equally fast settings: simpler settings and those that change less come first."""
    return (setting.batch, setting.model, setting.fsdp, setting.remat, setting.accumulation)


def _memory(one: Setting, guesses: Mapping[Setting, Guess], seen: Sequence[Trial[Result]]) -> float:
    """Returns the guessed memory of a setting, corrected by the most similar measured setting."""
    own = guesses[one]
    temporary = own.temporary()
    if seen:
        near = _nearest(one, seen)
        guessed = guesses[near.setting].temporary()
        temporary *= near.temporary / guessed if near.temporary and guessed else 1.0
    return own.fixed + temporary


def _seconds(one: Setting, guesses: Mapping[Setting, Guess], seen: Sequence[Trial[Result]]) -> float:
    """Returns the guessed time of a setting, corrected by the most similar measured setting that has a time."""
    # What does not fit has no time.
    timed = [trial for trial in seen if trial.seconds and guesses[trial.setting].seconds]
    if not timed:
        return guesses[one].seconds
    near = _nearest(one, timed)
    return guesses[one].seconds * near.seconds / guesses[near.setting].seconds


def _nearest(one: Setting, seen: Sequence[Trial[Result]]) -> Trial[Result]:
    """Returns the measured setting that has most in common with a setting; remat counts three times."""
    return max(
        seen,
        key=lambda trial: (
            sum(a == b for a, b in zip(one, trial.setting, strict=True)) + 2 * (one.remat == trial.setting.remat)
        ),
    )
