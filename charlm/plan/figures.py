"""Computes the figures of a plan (memory, times, the whole run) from an analysed step and the data of a chip.

Open it to change how a time or a memory is derived. Each time is a bound: how long one kind of work would take if
nothing else kept a chip waiting. A step takes at least as long as the longest of these times.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from charlm.core.optimizer import without_frozen
from charlm.plan.analysis import Analysis
from charlm.plan.network import Traffic, traffic
from charlm.plan.program import Planned, bytes_on_chip
from charlm.plan.topology import Topology

FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
DAY = 24 * 3600.0


class Memory(NamedTuple):
    """The memory of a chip that a step uses, in bytes.

    Attributes:
      parameters: the parameters.
      optimizer: the state of the optimizer.
      batch: the batch.
      activations: what the forward pass keeps for the backward pass.
      temporaries: gradients and all other working memory.
      code: the program itself.
      needed: the highest number of bytes that the step needs at any time.
      usable: what programs can use of the chip's memory; 0: not known.
      total: all memory of the chip.
    """

    parameters: float
    optimizer: float
    batch: float
    activations: float
    temporaries: float
    code: float
    needed: float
    usable: float
    total: float

    @property
    def fits(self) -> bool:
        """Whether the step fits into a chip, as far as that is known."""
        return not self.usable or self.needed <= self.usable


class Figures(NamedTuple):
    """A plan in figures.

    Attributes:
      topology: the machine.
      planned: the step that is planned.
      analysis: what the compiled step takes.
      memory: the memory of a chip.
      traffic: the communication of a step.
      compute: seconds that the products of a step take; 0: not known.
      transfer: seconds that reading and writing main memory take in a step; 0: not known.
      network: seconds that the links are busy in a step; 0: not known.
      step: seconds of a step, at least: the longest of these three times.
      binds: which time is the longest, "compute", "memory" or "network"; "": none is known.
      steps: the number of steps of the run with the planned batch size.
    """

    topology: Topology
    planned: Planned
    analysis: Analysis
    memory: Memory
    traffic: list[Traffic]
    compute: float
    transfer: float
    network: float
    step: float
    binds: str
    steps: float

    @property
    def fits(self) -> bool:
        """Whether the step fits into a chip."""
        return self.memory.fits and not self.analysis.beyond

    @property
    def speed(self) -> float:
        """Units (such as words) a second, at most; 0: not known."""
        return self.planned.units / self.step if self.step else 0.0

    @property
    def mfu(self) -> float:
        """The share of the chips' peak that useful operations can reach, at most; 0: not known."""
        peak = self.topology.chip.peak * self.topology.chips
        return self.planned.useful / self.step / peak if self.step and peak else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all steps of the run, at least; 0: not known."""
        return self.steps * self.step

    @property
    def chip_hours(self) -> float:
        """Hours of the run times the number of chips, at least; 0: not known."""
        return self.seconds / 3600 * self.topology.chips


def figures(planned: Planned, analysis: Analysis, topology: Topology, saved: float, share: float = 1.0) -> Figures:
    """Returns the figures of an analysed step.

    Args:
      planned: the step.
      analysis: what the compiled step takes.
      topology: the machine.
      saved: the return value of `Planned.saved`.
      share: the config's batch size divided by the planned one; the steps of the run grow by this factor.
    """
    chip = topology.chip
    lines = traffic(analysis.collectives, planned.mesh, topology)
    compute = sum(flops / _peak(dtype, topology) for dtype, flops in analysis.products.items()) if chip.peak else 0.0
    transfer = analysis.bytes / chip.bandwidth if chip.bandwidth else 0.0
    network = sum(line.seconds for line in lines)
    times = {"compute": compute, "memory": transfer, "network": network}
    binds = max(times, key=lambda name: times[name])
    return Figures(
        topology=topology,
        planned=planned,
        analysis=analysis,
        memory=memory_of(planned, analysis, topology, saved),
        traffic=lines,
        compute=compute,
        transfer=transfer,
        network=network,
        step=times[binds],
        binds=binds if times[binds] else "",
        steps=planned.steps * share,
    )


def _peak(dtype: str, topology: Topology) -> float:
    """Returns the FLOP/s of products of a dtype; whole numbers and bytes count as bfloat16."""
    return topology.chip.float32 if dtype in ("f32", "f64") else topology.chip.peak


def usable(topology: Topology) -> float:
    """Returns the bytes of a chip that programs can use; 0: not known."""
    share = os.environ.get(FRACTION, "")
    if topology.platform == "gpu" and share:
        return topology.chip.memory * float(share)
    return float(topology.chip.usable)


def memory_of(planned: Planned, analysis: Analysis, topology: Topology, saved: float) -> Memory:
    """Returns how much of a chip's memory a step needs.

    Working memory is divided into activations and temporaries. Activations are what the forward pass asks to keep, but
    at most what is left beside gradients of the size of the trained parameters.
    """
    state, batch = bytes_on_chip((planned.state.params, planned.state.opt_state)), bytes_on_chip(planned.batch)
    # A compiler that gives up states all memory as one.
    working = max(analysis.temporary - (state + batch if analysis.beyond else 0.0), 0.0)
    gradients = bytes_on_chip(without_frozen(planned.state.params, planned.freeze))
    activations = min(saved, max(working - gradients, 0.0))
    return Memory(
        parameters=bytes_on_chip(planned.state.params),
        optimizer=bytes_on_chip(planned.state.opt_state),
        batch=batch,
        activations=activations,
        temporaries=working - activations,
        code=analysis.code,
        needed=analysis.memory,
        usable=usable(topology),
        total=float(topology.chip.memory),
    )
