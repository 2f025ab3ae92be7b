"""Plans one run on one machine, and searches for settings that fit if the run's own do not.

`python -m charlm.plan` and `charlm.plan.table` call it; open it to change which settings are tried first, or how the
memory and time of a setting are guessed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
from jax.sharding import Mesh

from charlm.config import flatten
from charlm.core.optimizer import without_frozen
from charlm.core.sharding import make_mesh, state_sharding
from charlm.plan.analysis import compiling
from charlm.plan.chips import GIB
from charlm.plan.figures import Figures, figures, usable
from charlm.plan.network import reducing
from charlm.plan.program import Planned, Planner, bytes_on_chip
from charlm.plan.search import REMAT_COST, TRIES, Guess, Setting, Trial, first_try, search, setting_of, settings
from charlm.plan.topology import Device, Topology

log = logging.getLogger("charlm")

SCAN = "model.scan_layers"
UNSEEN = 0.9  # of the usable memory: what a guess may take while nothing is compiled; some take a tenth more
AT_ONCE = 2  # settings that are compiled at the same time; each takes a core and some gigabytes
HOPELESS = 1.5  # of the usable memory: a setting that is guessed to take more is not compiled
# What operations hand over to each other fits into the memory inside a TPU for one sequence, not for more: HLM-Large on
# v5e moves 200, 359 and 588 GB a step with 1, 2 and 8 sequences of a micro-batch on a chip.
SPILLED = 0.65  # of a step's traffic: what each doubling of these sequences adds on a TPU
MFU = 0.15  # the useful share of the peak that a guess expects while nothing is compiled; it only orders the settings
Found = Trial[Figures]


@dataclasses.dataclass
class Plan:
    """The plan of a run on a machine.

    Attributes:
      config: the run's config; keys that a run measures keep their given values.
      topology: the machine.
      asked: the figures of the config itself; None: the config cannot run on the machine.
      refused: why the config cannot run on the machine, else "".
      found: the fastest setting that fits, with its figures; None: no setting was searched for, or none was found.
      tried: all settings that were compiled.
      loop: flags that the plan adds to the config for all its figures; see `in_loops`.
    """

    config: ml_collections.ConfigDict
    topology: Topology
    asked: Figures | None
    refused: str = ""
    found: Found | None = None
    tried: Sequence[Found] = ()
    loop: Sequence[str] = ()

    @property
    def best(self) -> Figures | None:
        """The figures of the setting to run: the one found, or else the config if it fits; None: neither."""
        if self.found is not None:
            return self.found.result
        return self.asked if self.asked is not None and self.asked.fits else None


def in_loops(config: ml_collections.ConfigDict) -> tuple[ml_collections.ConfigDict, list[str]]:
    """Returns the config with its layers as loops, and the flags for that; [] if the config already has loops."""
    if flatten(config).get(SCAN, True):
        return config, []
    own = config.copy_and_resolve_references()
    own.update_from_flattened_dict({SCAN: True})
    return own, [f"--config.{SCAN}=True"]


class _Begun(NamedTuple):
    """A step that is being compiled, and the function that waits for its figures."""

    planned: Planned
    figures: Callable[[], Figures]


class _Base(NamedTuple):
    """What guesses start from.

    Attributes:
      setting: a setting.
      planned: its step.
      compute, transfer: seconds that the products and the memory traffic of its step take.
      rest: bytes of a chip that hold neither the state nor working memory.
    """

    setting: Setting
    planned: Planned
    compute: float
    transfer: float
    rest: float


class Planning:
    """Plans settings of one config on one machine.

    Args:
      config: the config.
      planner: builds the steps of the config.
      devices: the devices of the machine.
      topology: the machine.
      as_is: whether to plan the config as it is. Otherwise its layers run as one loop, which compiles much faster.
    """

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        planner: Planner,
        devices: Sequence[Device],
        topology: Topology,
        as_is: bool = False,
    ) -> None:
        self._config, self._loop = (config, []) if as_is else in_loops(config)
        self._planner, self._devices, self._topology = planner, devices, topology
        self._own = setting_of(config)
        self._saved: dict[bool, float] = {}  # bytes kept for a sequence on a chip, by remat
        self._refused: set[Setting] = set()  # by the run or by the compiler

    def figures(self, setting: Setting | None = None) -> Figures:
        """Returns the figures of the config with a setting; None: the config as it is.

        Raises:
          ValueError: the run or the compiler refuses the setting.
        """
        with self._begun(setting) as begun:
            return begun.figures()

    @contextlib.contextmanager
    def _begun(self, setting: Setting | None = None) -> Iterator[_Begun]:
        """Begins to compile a setting; ValueError if the run refuses it. Leaving the context ends the compiler."""
        config = self._config if setting is None else setting.on(self._config)
        planned = self._planner(config, self._devices)
        with compiling(planned, config, self._topology) as wait:
            saved = planned.saved()  # traces the model, while the compiler works
            self._saved.setdefault(config.model.remat, saved / _sequences(setting_of(config), planned.mesh))
            share = self._own.batch / config.data.batch_size
            yield _Begun(planned, lambda: figures(planned, wait(), self._topology, saved, share))

    def plan(self, look: bool = False, tries: int = TRIES) -> Plan:
        """Returns the plan of the config.

        Args:
          look: whether to search for faster settings even if the config fits. If not, a search takes place only if the
            config does not fit or cannot run.
          tries: how many settings a search compiles at most.
        """
        asked, refused = None, ""
        known: list[Found] = []
        other, begun, hopeless = None, None, False
        with contextlib.ExitStack() as others, contextlib.ExitStack() as itself:
            try:
                own = itself.enter_context(self._begun())
                needed, other = self._instead(own.planned) if tries else (0.0, None)
                if other is not None:
                    log.info("the config may not fit")
                    begun = self._begun_too(others, other)
                hopeless = begun is not None and needed > HOPELESS * usable(self._topology)
                if hopeless:
                    itself.close()
                    room = usable(self._topology) / GIB
                    refused = f"it would take some {needed / GIB:.0f} of {room:.0f} GiB a chip (a guess, not compiled)"
                else:
                    asked = own.figures()
            except ValueError as error:
                refused = str(error)
            plan = Plan(self._config, self._topology, asked, refused, loop=self._loop)
            if asked is not None and asked.fits and not look:
                return plan
            if asked is not None:
                known.append(_outcome(self._own, asked))
            if other is not None and begun is not None:
                tries -= 1
                try:
                    known.append(_outcome(other, begun.figures()))
                except ValueError as error:
                    self._leave_out(other, error)
        if hopeless and not known:
            with contextlib.suppress(ValueError):  # a config that the compiler refuses stays a guess
                plan.asked, plan.refused = self.figures(), ""
                known.append(_outcome(self._own, plan.asked))
        if refused and not known:
            log.info("%s", refused)
        plan.found, plan.tried = self._search(known, refused, tries)
        return plan

    def _leave_out(self, setting: Setting, error: ValueError) -> None:
        log.info("%s: %s", " ".join(setting.flags(self._config)), error)
        self._refused.add(setting)

    def _begun_too(self, stack: contextlib.ExitStack, setting: Setting) -> _Begun | None:
        """Begins to compile a setting beside others; None: the run refuses it."""
        try:
            begun = stack.enter_context(self._begun(setting))
        except ValueError as error:
            self._leave_out(setting, error)
            return None
        log.info("trying %s", " ".join(setting.flags(self._config)) or "the config itself")
        return begun

    def _instead(self, planned: Planned) -> tuple[float, Setting | None]:
        """Returns the bytes that the config is expected to take of a chip, and the setting to try if that is too much.

        What the config takes is guessed from its model alone, since nothing is compiled yet. 0 and None: nothing is
        known of the chip.
        """
        room = usable(self._topology)
        if self._topology.platform == "cpu" or not room or not self._topology.chip.peak:
            return 0.0, None
        base = _Base(self._own, planned, 0.0, self._expected(planned), bytes_on_chip(planned.batch))
        own = self._guess(self._own, base)
        needed = own.fixed + own.temporary()
        if needed <= room:
            return needed, None
        cheap = [one for one in self._candidates() if one.remat == self._own.remat]  # others are traced once more
        return needed, first_try(cheap, lambda one: self._guess(one, base), UNSEEN * room)

    def _candidates(self) -> list[Setting]:
        heads = flatten(self._config).get("model.heads", 1)
        chips, per_node = self._topology.chips, self._topology.chip.per_node
        # A config that gives mesh.data may be refused where its setting, in which that axis takes what is left, is not.
        left_out = self._refused if self._config.mesh.data != -1 else {self._own, *self._refused}
        return [one for one in settings(self._own, chips, heads, per_node) if one not in left_out]

    def _search(self, known: list[Found], refused: str, tries: int) -> tuple[Found | None, list[Found]]:
        while not known and tries > 0 and (candidates := self._candidates()):
            # Nothing is known yet: the two that change least, the batch or how the model is split.
            simplest = (
                min(candidates, key=lambda one: (one.batch, one.model, one.fsdp, one.remat, one.accumulation)),
                min(candidates, key=lambda one: (one.model, one.fsdp, one.batch, one.remat, one.accumulation)),
            )
            known = self._measure(list(dict.fromkeys(simplest))[: min(tries, self._at_once)])
            tries -= len(known)
        if not known:
            raise ValueError(refused)
        base = self._measured(next((one for one in known if one.seconds), known[0]))
        guess = lambda one: self._guess(one, base)
        return search(self._candidates(), guess, self._measure, usable(self._topology), tries, known, self._at_once)

    def _measured(self, trial: Found) -> _Base:
        """Returns what guesses start from once a setting was compiled; its time is not known if it does not fit."""
        found = trial.result
        transfer = found.transfer or self._expected(found.planned)
        return _Base(trial.setting, found.planned, found.compute, transfer, found.memory.batch + found.memory.code)

    def _expected(self, planned: Planned) -> float:
        """Returns the seconds of a step that are expected while nothing is compiled."""
        peak = self._topology.chips * self._topology.chip.peak
        return planned.useful / (MFU * peak) if peak else 0.0

    @property
    def _at_once(self) -> int:
        """How many settings are compiled at the same time; each has a process of its own, but for those of CPUs."""
        return 1 if self._topology.platform == "cpu" else min(AT_ONCE, len(os.sched_getaffinity(0)))

    def _measure(self, chosen: Sequence[Setting]) -> list[Found]:
        """Returns the outcomes of settings, which are compiled at the same time, without those that are refused."""
        found = []
        with contextlib.ExitStack() as stack:
            begun = [(setting, self._begun_too(stack, setting)) for setting in chosen]
            for setting, one in begun:
                try:
                    found += [] if one is None else [_outcome(setting, one.figures())]
                except ValueError as error:
                    self._leave_out(setting, error)
        return found

    def _guess(self, setting: Setting, base: _Base) -> Guess:
        """Guesses what a setting takes, from another setting and the size of the state on the setting's mesh."""
        planned = base.planned
        mesh = make_mesh(setting.on(self._config), self._devices)
        place = lambda tree: jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, state_sharding(tree, mesh)
        )
        state = place(planned.state)
        gradients = bytes_on_chip(without_frozen(state.params, planned.freeze))
        accumulated = gradients if setting.accumulation > 1 else 0.0

        def temporary() -> float:
            held = self._saved_for(setting.remat) * _sequences(setting, mesh)
            held *= 0.4 + 0.6 / setting.model  # the model axis splits what is as wide as heads or feed-forward layers
            return gradients + accumulated + held

        fixed = bytes_on_chip(state) + base.rest
        transfer = base.transfer
        if self._topology.platform == "tpu":
            transfer *= _spilled(_sequences(setting, mesh)) / _spilled(_sequences(base.setting, base.planned.mesh))
        work = max(base.compute, transfer) * setting.batch / base.setting.batch
        work *= (REMAT_COST if setting.remat else 1.0) / (REMAT_COST if base.setting.remat else 1.0)
        work *= 1 + 0.02 * (setting.accumulation > 1) + 0.25 * (setting.model.bit_length() - 1)
        # Gradients are summed in the type of the products, once for every micro-batch.
        whole = jax.tree.map(_replicated(mesh), planned.state.params)
        summed = bytes_on_chip(without_frozen(whole, planned.freeze))
        if setting.fsdp > 1:  # parameters are gathered for both passes: half of what a sum sends, each time
            summed = (summed + bytes_on_chip(whole) * (2 + setting.remat)) / 2
        summed *= setting.accumulation / setting.model * jnp.dtype(self._config.model.dtype).itemsize / 4
        network = summed * reducing(mesh, self._topology)
        return Guess(temporary, fixed, max(work, network))

    def _saved_for(self, remat: bool) -> float:
        """Returns the bytes that the forward pass of one sequence keeps on its chip for the backward pass."""
        if remat not in self._saved:
            setting = self._own._replace(remat=remat)
            try:
                planned: Planned = self._planner(setting.on(self._config), self._devices)
            except ValueError:  # the config's own mesh or batch does not fit the machine
                chips = self._topology.chips
                setting = setting._replace(fsdp=1, model=1, accumulation=1, batch=-(-self._own.batch // chips) * chips)
                planned = self._planner(setting.on(self._config), self._devices)
            self._saved[remat] = planned.saved() / _sequences(setting, planned.mesh)
        return self._saved[remat]


def _replicated(mesh: Mesh) -> Callable[[jax.ShapeDtypeStruct], jax.ShapeDtypeStruct]:
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere)


def _sequences(setting: Setting, mesh: Mesh) -> float:
    """Returns the number of sequences of a micro-batch on each chip."""
    return setting.batch / setting.accumulation / (mesh.shape["data"] * mesh.shape["fsdp"])


def _spilled(sequences: float) -> float:
    """Returns the memory traffic of a TPU, in that with a single sequence of each micro-batch on a chip."""
    return 1 + SPILLED * math.log2(max(sequences, 1.0))


def _outcome(setting: Setting, found: Figures) -> Found:
    working = found.memory.activations + found.memory.temporaries
    return Trial(setting, working, found.memory.needed, found.step, found.fits, found)
