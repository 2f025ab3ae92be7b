"""Tests the figures of a plan against sums made by hand, for machines whose rates are known."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from charlm.config import get_config, load_config_file
from charlm.plan import __main__ as command
from charlm.plan.analysis import Analysis
from charlm.plan.chips import CHIPS, GIB
from charlm.plan.counting import Collective
from charlm.plan.figures import Figures, figures
from charlm.plan.network import reducing
from charlm.plan.planning import Plan
from charlm.plan.report import as_json, lines
from charlm.plan.topology import Topology, parse

ALL_OF_16 = "replica_groups={{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}}, x=1"
ACROSS_NODES = "replica_groups={{0,8},{1,9},{2,10},{3,11},{4,12},{5,13},{6,14},{7,15}}, x=1"
COLUMNS = "replica_groups={{0,4,8,12},{1,5,9,13},{2,6,10,14},{3,7,11,15}}, x=1"


@pytest.mark.parametrize(
    ("kind", "gib", "bandwidth", "peak"),
    [  # data sheets of Google Cloud and NVIDIA
        ("v5e", 16, 0.819e12, 197e12),
        ("v5p", 95.74, 2.765e12, 459e12),
        ("v6e", 32, 1.638e12, 918e12),
        ("h100", 79.1, 3.352e12, 989e12),
        ("h200", 141.0, 4.8e12, 989e12),
        ("a100", 79.25, 2.039e12, 312e12),
    ],
)
def test_chips_are_those_of_their_data_sheets(kind, gib, bandwidth, peak):
    chip = CHIPS[kind]
    assert chip.memory / GIB == pytest.approx(gib, rel=2e-3)
    assert (chip.bandwidth, chip.peak) == (pytest.approx(bandwidth, rel=1e-3), pytest.approx(peak, rel=2e-3))


def devices(topology: Topology) -> np.ndarray:
    """Returns stand-ins for the devices of a machine, in the order of its chips."""
    if topology.platform == "tpu":
        places = np.ndindex(*topology.shape)
        found = [SimpleNamespace(coords=(*place, 0)[:3], process_index=0) for place in places]
    else:
        found = [SimpleNamespace(process_index=number // 8) for number in range(topology.chips)]
    made = np.empty((topology.chips, 1, 1), object)
    made[:, 0, 0] = found
    return made


def plan_of(name: str, collectives: str = ALL_OF_16, share: float = 1.0, **more: Any) -> Figures:
    """Returns the figures of a step of 2 TFLOP in bfloat16 and 12 GB of traffic a chip, with one all-reduce of 1 GB."""
    topology = parse(name)
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("data",)), PartitionSpec())
    params = {"w": jax.ShapeDtypeStruct((1000,), jnp.float32, sharding=sharding)}
    names = ("data", "fsdp", "model")
    mesh = SimpleNamespace(
        size=topology.chips, axis_names=names, shape=dict(zip(names, (topology.chips, 1, 1), strict=True)),
        devices=devices(topology),
    )  # fmt: skip
    planned: Any = SimpleNamespace(
        mesh=mesh, state=SimpleNamespace(params=params, opt_state=(params, params)), batch=params, freeze=(),
        units=8192.0, unit="words", useful=16e12, steps=100_000, notes=(),
    )  # fmt: skip
    values: dict[str, Any] = {
        "products": {"bf16": 2e12}, "other": 1e9, "transcendental": 0.0, "bytes": 12e9,
        "collectives": [Collective("all-reduce", collectives, "f32", 1e9, 1.0)], "arguments": 12_000.0,
        "outputs": 8_000.0, "aliased": 8_000.0, "temporary": 50_000.0, "code": 0.0, "unknown": 0.0, "calls": {},
        "xla": {}, "once": 0.0, "seconds": 60.0,
    }  # fmt: skip
    return figures(planned, Analysis(**values | more), topology, 30_000.0, share)


def test_a_step_takes_as_long_as_the_slowest_of_its_work():
    found = plan_of("v5e:4x4")
    assert found.compute == pytest.approx(2e12 / 197e12)
    assert found.transfer == pytest.approx(12e9 / 819e9)
    # 2 x 15/16 of the array leave a chip, over one link along each of the two axes: four chips are no ring.
    assert found.network == pytest.approx(2 * 15 / 16 * 1e9 / (2 * 50e9))
    assert (found.binds, found.step) == ("network", found.network)
    assert found.speed == pytest.approx(8192 / 0.01875)
    assert found.mfu == pytest.approx(16e12 / 0.01875 / (16 * 197e12))
    assert found.seconds == pytest.approx(1875)
    assert found.chip_hours == pytest.approx(1875 / 3600 * 16)
    assert plan_of("v5e:4x4", share=0.5).seconds == pytest.approx(1875 / 2)


def test_each_kind_of_work_can_bind():
    assert plan_of("v5e:4x4", products={"bf16": 20e12}).binds == "compute"
    assert plan_of("v5e:4x4", bytes=100e9).binds == "memory"
    assert plan_of("h100:16", products={"f32": 20e12}).compute == pytest.approx(20e12 / (989e12 / 2), rel=2e-3)


def test_rings_have_twice_the_links():
    """Along one axis of 4 chips: a line in v5e, a ring in v5p, whose links are twice as fast."""
    line, ring = plan_of("v5e:4x4", COLUMNS).network, plan_of("v5p:2x2x4", COLUMNS).network
    assert line == pytest.approx(2 * 3 / 4 * 1e9 / 50e9)
    # Chips 0, 4, 8, 12 of 2 x 2 x 4 differ along the first two axes, which are lines of two.
    assert ring == pytest.approx(2 * 3 / 4 * 1e9 / (2 * 100e9))
    whole = plan_of("v5p:2x2x4").network
    assert whole == pytest.approx(2 * 15 / 16 * 1e9 / (4 * 100e9))  # two lines, and a ring of four


def test_nodes_send_over_their_adapters():
    inside = 2 * 7 / 8 * 1e9 / 450e9  # all-reduce within a node, while its share goes to the other node
    assert plan_of("h100:16").network == pytest.approx(inside)
    assert plan_of("h100:16", ACROSS_NODES).network == pytest.approx(1e9 / 50e9)
    assert plan_of("h100:8", "replica_groups={{0,1,2,3,4,5,6,7}}, x=1").network == pytest.approx(inside)


@pytest.mark.parametrize(
    ("name", "sizes", "seconds"),
    [
        ("v5e:4x4", (16, 1, 1), 2 * 15 / 16 / (2 * 50e9)),
        ("v5e:4x4", (2, 2, 4), 2 * 3 / 4 / 50e9),  # the chips of a model's part lie along the first axis
        ("v5e:4x4", (1, 1, 16), 0.0),
        ("h100:16", (2, 1, 8), 1 / 50e9),
        ("h100:8", (2, 4, 1), 2 * 7 / 8 / 450e9),
    ],
)
def test_gradients_are_summed_over_chips_with_other_rows(name, sizes, seconds):
    names = ("data", "fsdp", "model")
    topology = parse(name)
    shape = dict(zip(names, sizes, strict=True))
    found = devices(topology).reshape(sizes)
    mesh: Any = SimpleNamespace(size=topology.chips, axis_names=names, shape=shape, devices=found)
    assert reducing(mesh, topology) == pytest.approx(seconds)


def test_memory_is_added_up():
    memory = plan_of("v5e:4x4").memory
    assert (memory.parameters, memory.optimizer, memory.batch) == (4000, 8000, 4000)
    assert (memory.activations, memory.temporaries) == (30_000, 20_000)  # 50,000 in all
    assert memory.needed == 12_000 + 8_000 - 8_000 + 50_000
    assert memory.fits
    assert not plan_of("v5e:4x4", temporary=15.76 * GIB).fits


def test_the_report_has_the_figures():
    config = get_config()
    config.data.batch_size = 16
    found = plan_of("v5e:4x4", seconds=60.0, kept=True, calls={"cublas": 2.0, "AllocateBuffer": 1.0}, unknown=3.0)
    plan = Plan(config, parse("v5e:4x4"), found, loop=["--config.model.scan_layers=True"])
    text = "\n".join(lines(plan, price=1.2))
    for part in (
        "products 10.2 ms, memory 14.7 ms, network 18.8 ms: network binds",
        "at most 436,907 words/s, MFU 27.1 %",
        "100,000 steps: at least 0.521 hours, 8 chip-hours, 10 at 1.2 an hour",
        "compiled    in 60 s earlier, kept since",
        "planned with --config.model.scan_layers=True",
        "not counted: cublas",
        "3 loops of unknown length",
    ):
        assert part in text
    values = as_json(plan, price=1.2)
    assert values["planned_with"] == ["--config.model.scan_layers=True"]
    asked = values["asked"]
    assert asked["step_seconds"]["binds"] == "network"
    assert asked["run"]["days"] == pytest.approx(1875 / 86400)
    assert asked["run"]["cost"] == pytest.approx(1.2 * 1875 / 3600 * 16)
    assert (asked["uncounted_calls"], asked["unknown_loops"], asked["compiled_earlier"]) == (["cublas"], 3.0, True)


def test_the_printed_command_can_be_pasted():
    given = [
        "--config.data.batch_size",
        "6",
        "-config.seed=3",
        "--config.data.bucket_slots=(7, 20)",
        "--topology=cpu:1",
    ]
    found = command.config_arguments(given)
    assert found == ["--config.data.batch_size=6", "--config.seed=3", "--config.data.bucket_slots=(7, 20)"]
    assert shlex.split(shlex.join(found)) == found
    assert "'--config.data.bucket_slots=(7, 20)'" in shlex.join(found)


def test_a_run_that_starts_from_a_model_is_planned_for_an_empty_one(monkeypatch, log_lines):
    seen = []
    monkeypatch.setattr(command, "use_as_cpu", lambda topology: None)
    monkeypatch.setattr(command, "write_bert", lambda folder, kind: folder)
    monkeypatch.setattr(command, "_plan", lambda config, topology: seen.append((config.init_from, topology)))
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["plan"])
    for name in ("char2subword_base", "hlm_base"):
        with flagsaver.flagsaver(topology="cpu:1"):
            command.main(load_config_file(f"configs/{name}.py"))
    assert seen[0][0].endswith("bert")
    assert seen[1] == ("", parse("cpu:1"))
    assert str(log_lines).count("init_from is empty: planned for an empty bert") == 1
