"""Plans one run on one machine, and searches for settings that fit if the run's own do not.

`python -m charlm.plan` and `charlm.plan.table` call it; open it to change which settings are tried first, or how the
memory and time of a setting are guessed.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

import jax
import ml_collections
from jax.sharding import Mesh

from charlm.config import flatten
from charlm.core.optimizer import without_frozen
from charlm.core.sharding import make_mesh, state_sharding
from charlm.plan.analysis import compiled
from charlm.plan.figures import Figures, figures, usable
from charlm.plan.program import Planned, Planner, bytes_on_chip
from charlm.plan.search import REMAT_COST, TRIES, Guess, Setting, Trial, search, setting_of, settings
from charlm.plan.topology import Device, Topology

log = logging.getLogger("charlm")

SCAN, KERNEL = "model.scan_layers", "model.attention_kernel"
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


def without_cudnn(config: ml_collections.ConfigDict, topology: Topology) -> ml_collections.ConfigDict:
    """Returns the config with attention by the reference kernel, where "auto" could take cuDNN's on the machine.

    That kernel is a call of a library that is not here, so no compiler here can plan it. The step itself takes it only
    on one chip, but what is traced beside it does so on any (`charlm.nn.kernels.choose`).
    """
    if topology.platform != "gpu" or flatten(config).get(KERNEL) != "auto":
        return config
    own = config.copy_and_resolve_references()
    own.update_from_flattened_dict({KERNEL: "einsum"})
    return own


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
        config = without_cudnn(config, topology)
        self._config, self._loop = (config, []) if as_is else in_loops(config)
        self._planner, self._devices, self._topology = planner, devices, topology
        self._own = setting_of(config)
        self._saved: dict[bool, float] = {}  # bytes kept for a sequence on a chip, by remat

    def figures(self, setting: Setting | None = None) -> Figures:
        """Returns the figures of the config with a setting; None: the config as it is.

        Raises:
          ValueError: the run or the compiler refuses the setting.
        """
        config = self._config if setting is None else setting.on(self._config)
        planned = self._planner(config, self._devices)
        analysis = compiled(planned, config, self._topology)
        saved = planned.saved()
        self._saved.setdefault(config.model.remat, saved / _sequences(setting_of(config), planned.mesh))
        share = self._own.batch / config.data.batch_size
        return figures(planned, analysis, self._topology, saved, share)

    def plan(self, look: bool = False, tries: int = TRIES) -> Plan:
        """Returns the plan of the config.

        Args:
          look: whether to search for faster settings even if the config fits. If not, a search takes place only if the
            config does not fit or cannot run.
          tries: how many settings a search compiles at most.
        """
        asked, refused = None, ""
        try:
            asked = self.figures()
        except ValueError as error:
            refused = str(error)
        plan = Plan(self._config, self._topology, asked, refused, loop=self._loop)
        if asked is not None and asked.fits and not look:
            return plan
        plan.found, plan.tried = self._search(asked, refused, tries)
        return plan

    def _search(self, asked: Figures | None, refused: str, tries: int) -> tuple[Found | None, list[Found]]:
        heads = flatten(self._config).get("model.heads", 1)
        chips, per_node = self._topology.chips, self._topology.chip.per_node
        candidates = [one for one in settings(self._own, chips, heads, per_node) if one != self._own]
        known: list[Found] = []
        if asked is not None:
            known.append(_outcome(self._own, asked))
        elif not candidates:
            raise ValueError(refused)
        else:
            first = min(candidates, key=lambda one: (one.batch, one.model, one.fsdp, one.remat, one.accumulation))
            log.info("%s: trying %s", refused, " ".join(first.flags(self._config)))
            known.append(_outcome(first, self.figures(first)))
            tries -= 1
        base = known[0]
        return search(
            candidates, lambda one: self._guess(one, base), self._measure, usable(self._topology), tries, known
        )

    def _measure(self, setting: Setting) -> Found:
        log.info("trying %s", " ".join(setting.flags(self._config)) or "the config itself")
        return _outcome(setting, self.figures(setting))

    def _guess(self, setting: Setting, base: Found) -> Guess:
        """Guesses what a setting takes, from a compiled setting and the size of the state on the setting's mesh."""
        theirs = base.result
        planned = theirs.planned
        mesh = make_mesh(setting.on(self._config), self._devices)
        place = lambda tree: jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, state_sharding(tree, mesh)
        )
        state = place(planned.state)
        gradients = bytes_on_chip(without_frozen(state.params, planned.freeze))
        held = self._saved_for(setting.remat) * _sequences(setting, mesh)
        held *= 0.4 + 0.6 / setting.model  # the model axis splits what is as wide as heads or feed-forward layers
        accumulated = gradients if setting.accumulation > 1 else 0.0
        fixed = bytes_on_chip(state) + theirs.memory.batch + theirs.memory.code
        work = max(theirs.compute, theirs.transfer) * setting.batch / base.setting.batch
        work *= (REMAT_COST if setting.remat else 1.0) / (REMAT_COST if base.setting.remat else 1.0)
        work *= 1 + 0.02 * (setting.accumulation > 1) + 0.25 * (setting.model.bit_length() - 1)
        whole = bytes_on_chip(jax.tree.map(_replicated(mesh), planned.state.params))
        link = self._topology.chip.link or 1e12
        sent = 2 * whole / setting.model
        if setting.fsdp > 1:  # parameters are gathered for both passes, gradients scattered, for every micro-batch
            sent = (2 + setting.remat + 1) * whole / setting.model * setting.accumulation
        return Guess(gradients + accumulated + held, fixed, max(work, sent / link))

    def _saved_for(self, remat: bool) -> float:
        """Returns the bytes that the forward pass of one sequence keeps on its chip for the backward pass."""
        if remat not in self._saved:
            chips = self._topology.chips
            setting = self._own._replace(remat=remat, fsdp=1, model=1, accumulation=1)
            setting = setting._replace(batch=-(-self._own.batch // chips) * chips)
            planned: Planned = self._planner(setting.on(self._config), self._devices)
            self._saved[remat] = planned.saved() / _sequences(setting, planned.mesh)
        return self._saved[remat]


def _replicated(mesh: Mesh) -> Callable[[jax.ShapeDtypeStruct], jax.ShapeDtypeStruct]:
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere)


def _sequences(setting: Setting, mesh: Mesh) -> float:
    """Returns the number of sequences of a micro-batch on each chip."""
    return setting.batch / setting.accumulation / (mesh.shape["data"] * mesh.shape["fsdp"])


def _outcome(setting: Setting, found: Figures) -> Found:
    return Trial(setting, found.analysis.temporary, found.memory.needed, found.step, found.fits, found)
