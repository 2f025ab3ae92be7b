"""Programs compiled for TPUs and GPUs that are not here; skipped where the compilers are not installed."""

from __future__ import annotations

import subprocess

import pytest
from small_run import python

from charlm.plan.topology import check_packages, parse

pytestmark = pytest.mark.slow  # half a minute each


@pytest.fixture(autouse=True)
def _no_flags_for_processors(monkeypatch):
    """The compiler for TPUs ends the process for a flag that it does not know."""
    monkeypatch.delenv("XLA_FLAGS")


# In a process of its own, since the compiler for TPUs changes how a process ends.
STEP = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from charlm.plan.analysis import GPU_OPTIONS
from charlm.plan import counting
from charlm.plan.hlo import HloModule
from charlm.plan.network import traffic
from charlm.plan.topology import devices_of, parse, use_as_cpu

topology = parse(sys.argv[1])
use_as_cpu(topology)
mesh = Mesh(np.array(devices_of(topology)).reshape(2, 2), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)

def loss(kernel, x):
    y, _ = jax.lax.scan(lambda x, _: (jnp.tanh(x @ kernel), None), x, None, length=5)
    return jnp.square(y.astype(jnp.float32)).sum()

place = lambda *axes: NamedSharding(mesh, P(*axes))
step = jax.jit(jax.value_and_grad(loss), in_shardings=(place("fsdp"), place(("data", "fsdp"))))
shapes = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16), jax.ShapeDtypeStruct((1024, 256), jnp.bfloat16)
program = step.lower(*shapes).compile(compiler_options=GPU_OPTIONS if topology.platform == "gpu" else None)
text = HloModule(program.as_text())
count, once = counting.count(text), counting.count(text, once=True)
assert count.unknown == 0, count
assert count.products == {"bf16": 5 * 3 * 2 * 256 * 256 * 256}, count.products  # of a chip's quarter of the rows
costs = program.cost_analysis()
if costs:
    assert abs(once.flops / costs["flops"] - 1) < 0.02, (once.flops, costs["flops"])
lines = traffic(counting.merged(count.collectives), mesh, topology)
print(sorted({(line.kind, line.axes) for line in lines}))
assert all(line.seconds > 0 for line in lines), lines
"""


def compiled_for(name: str, script: str = STEP) -> subprocess.CompletedProcess[str]:
    try:
        check_packages(parse(name))
    except ValueError as error:
        pytest.skip(str(error).partition(": ")[2])
    return python("-c", script, name)


@pytest.mark.parametrize("name", ["v5e:2x2", "v5p:2x2x1", "v6e:2x2", "h100:4", "2xa100:2"])
def test_a_step_is_compiled_and_counted(name):
    done = compiled_for(name)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "('all-gather', 'fsdp')" in done.stdout
    assert "('all-reduce', 'data x fsdp')" in done.stdout


# The gradient of one layer of HLM-Base's width: 4 texts of 512 words, in bfloat16, with dropout of the probabilities.
ATTENTION = """
import sys
import jax, jax.numpy as jnp
from charlm.nn.transformer import Encoder, EncoderConfig
from charlm.plan import counting
from charlm.plan.analysis import GPU_OPTIONS
from charlm.plan.hlo import HloModule
from charlm.plan.topology import devices_of, parse, use_as_cpu

topology = parse(sys.argv[1])
use_as_cpu(topology)
(chip,) = devices_of(topology)
x, mask = jax.ShapeDtypeStruct((4, 512, 768), jnp.bfloat16), jax.ShapeDtypeStruct((4, 512), jnp.bool_)
key = jax.eval_shape(lambda: jax.random.key(0))

def taken(kernel):
    model = Encoder(EncoderConfig(
        layers=1, hidden=768, heads=12, ffn=768, max_distance=512, position_buckets=256, dtype=jnp.bfloat16,
        attention_kernel=kernel,
    ))
    def loss(params, x, mask, key):
        out = model.apply({"params": params}, x, mask, deterministic=False, rngs={"dropout": key})
        return jnp.square(out.astype(jnp.float32)).sum()
    with jax.default_device(chip):
        params = jax.eval_shape(model.init, key, x, mask)["params"]
        there = jax.sharding.SingleDeviceSharding(chip)
        given = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=there), (params, x, mask, key))
        program = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*given).compile(
            compiler_options=GPU_OPTIONS if topology.platform == "gpu" else None
        )
    call = "gpu.triton" if topology.platform == "gpu" else "tpu_custom_call"
    assert (call in program.as_text()) == (kernel == "pallas")
    if topology.platform == "gpu" and kernel == "pallas":
        assert " scatter(" not in program.as_text()  # it would add by atomics, in no fixed order
    return program.memory_analysis().temp_size_in_bytes, counting.count(HloModule(program.as_text())).bytes

(tiles, moved), (reference, moved_by_it) = taken("pallas"), taken("einsum")
print(f"temporaries by tiles {tiles / 2**20:.0f} MiB, by the reference {reference / 2**20:.0f} MiB")
print(f"memory traffic by tiles {moved / 1e9:.2f} GB, by the reference {moved_by_it / 1e9:.2f} GB")
assert tiles < reference / 3
assert moved < moved_by_it
"""


@pytest.mark.parametrize("name", ["v5e:1x1", "v6e:1x1", "h100:1"])
def test_tiles_are_compiled_and_keep_no_scores(name):
    done = compiled_for(name, ATTENTION)
    assert done.returncode == 0, done.stderr[-2000:]
    print(f"\n{name}: {done.stdout}")
