"""Finds the settings of a run that fit a machine, and of these the fastest.

Open it to add a setting that a plan may change. Compiling takes minutes, so only few settings are compiled. A guess
orders all settings, and each compiled setting corrects the guesses of similar ones. The search ends when no other
setting is guessed to be faster than the best compiled one. A setting is only said to fit if it was compiled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import ml_collections

from charlm.config import flatten, is_fine_tuning
from charlm.config.pretraining import set_by

TRIES = 4  # settings that are compiled
SURE = 0.95  # of the usable memory: what a guess must leave free, since guesses are off by a few percent
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
        """Returns the flags for those keys of the setting whose value differs from the config's."""
        wanted = {
            "model.remat": self.remat,
            "data.accumulation": self.accumulation,
            "data.batch_size": self.batch,
            "mesh.fsdp": self.fsdp,
            "mesh.model": self.model,
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
      temporary: bytes of working memory of a chip.
      fixed: bytes of all other memory of a chip.
      seconds: the time of a step.
    """

    temporary: float
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
        rated = [(one, *_corrected(one, guesses, seen)) for one in left]
        hopeful = [(seconds / one.batch, one) for one, memory, seconds in rated if _likely(memory, usable)]
        if best is not None:
            hopeful = [(seconds, one) for seconds, one in hopeful if seconds < 0.98 * best.seconds / best.setting.batch]
            if not hopeful:
                break
        if hopeful:
            chosen = _fastest(hopeful, min(at_once, tries))
        elif rated:  # none is thought to fit: the guesses may be wrong
            chosen = [min(rated, key=lambda one: (one[1], one[2]))[0]]
        else:
            break
        left = [one for one in left if one not in chosen]
        measured = list(measure(chosen))
        seen.extend(measured)
        tries -= len(measured)
    return _best(seen), seen


def first_try(candidates: Iterable[Setting], guess: Callable[[Setting], Guess], usable: float) -> Setting | None:
    """Returns the setting that `search` would try first if nothing had been compiled; None: none is expected to fit."""
    guesses = [(one, guess(one)) for one in dict.fromkeys(candidates)]
    hopeful = [(own.seconds / one.batch, one) for one, own in guesses if _likely(own.fixed + own.temporary, usable)]
    return _fastest(hopeful, 1)[0] if hopeful else None


def _fastest(hopeful: Iterable[tuple[float, Setting]], count: int) -> list[Setting]:
    """Returns the `count` settings that take the fewest seconds, the simplest of equally fast ones first."""
    ordered = sorted(hopeful, key=lambda pair: (pair[0], _rank(pair[1])))
    return [setting for _, setting in ordered[:count]]


def _best(seen: Iterable[Trial[Result]]) -> Trial[Result] | None:
    """Returns the trial that fits and takes the least time for each sequence; None if none fits."""
    return min((one for one in seen if one.fits), key=lambda one: one.seconds / one.setting.batch, default=None)


def _likely(memory: float, usable: float) -> bool:
    """Returns whether a setting is expected to fit, by a guess of its memory."""
    return not usable or memory <= SURE * usable


def _rank(setting: Setting) -> tuple[int, ...]:
    """Returns a sort key for equally fast settings: simpler settings and those that change less come first."""
    return (setting.batch, setting.model, setting.fsdp, setting.remat, setting.accumulation)


def _corrected(one: Setting, guesses: dict[Setting, Guess], seen: list[Trial[Result]]) -> tuple[float, float]:
    """Returns the guessed memory and time of a setting, corrected by the most similar measured setting."""
    own = guesses[one]
    if not seen:
        return own.fixed + own.temporary, own.seconds
    likeness = lambda trial: (
        sum(a == b for a, b in zip(one, trial.setting, strict=True)) + (2 * (one.remat == trial.setting.remat))
    )
    near = max(seen, key=likeness)
    guessed = guesses[near.setting].temporary
    scale = near.temporary / guessed if near.temporary and guessed else 1.0
    memory = own.fixed + own.temporary * scale
    # What does not fit has no time.
    timed = [trial for trial in seen if trial.seconds and guesses[trial.setting].seconds]
    if not timed:
        return memory, own.seconds
    near = max(timed, key=likeness)
    return memory, own.seconds * near.seconds / guesses[near.setting].seconds
