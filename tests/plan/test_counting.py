"""What a compiled program does is counted as XLA counts it, and loops as often as they run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from charlm.plan import counting
from charlm.plan.groups import groups_of
from charlm.plan.hlo import HloModule
from charlm.plan.network import traffic
from charlm.plan.topology import parse

ROWS = jax.ShapeDtypeStruct((64, 48), jnp.float32)
SQUARE = jax.ShapeDtypeStruct((48, 48), jnp.float32)
BATCHED = jax.ShapeDtypeStruct((5, 16, 24), jnp.float32)
IMAGES = jax.ShapeDtypeStruct((2, 20, 8), jnp.float32)
WINDOWS = jax.ShapeDtypeStruct((3, 8, 12), jnp.float32)


def compiled(function, *shapes):
    return jax.jit(function).lower(*shapes).compile()


def convolve(x, kernel, **options):
    options = {"window_strides": (1,), "padding": "SAME", "dimension_numbers": ("NWC", "WIO", "NWC")} | options
    return jax.lax.conv_general_dilated(x, kernel, **options)


def looped(x, kernel):
    return jax.lax.scan(lambda x, _: (jnp.tanh(x @ kernel), x.sum()), x, None, length=7)


def normalised(x):
    x -= x.mean(-1, keepdims=True)
    return jax.nn.softmax(x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6))


PROGRAMS = {
    "product": (lambda x, k: x @ k, ROWS, SQUARE),
    "batch": (lambda x: jnp.einsum("bij,bkj->bik", x, x), BATCHED),
    "gradient": (jax.grad(lambda k, x: jnp.square(jnp.tanh(x @ k)).sum()), SQUARE, ROWS),
    "elementwise": (normalised, ROWS),
    "convolution": (convolve, IMAGES, WINDOWS),
    "strided": (lambda x, k: convolve(x, k, window_strides=(2,), padding="VALID"), IMAGES, WINDOWS),
    "dilated": (lambda x, k: convolve(x, k, lhs_dilation=(2,), padding=[(1, 2)]), IMAGES, WINDOWS),
    "convolution's gradient": (jax.grad(lambda k, x: jnp.square(convolve(x, k)).sum()), WINDOWS, IMAGES),
    "gather": (lambda x, i: x[i], ROWS, jax.ShapeDtypeStruct((9,), jnp.int32)),
    "loop": (looped, ROWS, SQUARE),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_operations_and_bytes_are_those_of_xla(name):
    program = compiled(*PROGRAMS[name])
    count, theirs = counting.count(HloModule(program.as_text()), once=True), program.cost_analysis()
    assert count.flops == pytest.approx(theirs.get("flops", 0), rel=0.02, abs=64)
    assert count.transcendental == pytest.approx(theirs.get("transcendentals", 0), rel=0.02, abs=16)
    if name != "gather":  # XLA for CPUs counts the whole table
        assert count.bytes == pytest.approx(theirs["bytes accessed"], rel=0.15, abs=256)
    assert count.unknown == 0


def test_loops_are_multiplied_out():
    program = HloModule(compiled(*PROGRAMS["loop"]).as_text())
    assert counting.count(program).products == {"f32": 7 * 2 * 64 * 48 * 48}
    assert counting.count(program, once=True).products == {"f32": 2 * 64 * 48 * 48}

    nested = lambda x, k: jax.lax.fori_loop(0, 3, lambda _, x: looped(x, k)[0], x)
    assert counting.count(HloModule(compiled(nested, ROWS, SQUARE).as_text())).products == {
        "f32": 21 * 2 * 64 * 48 * 48
    }


def test_a_loop_of_unknown_length_is_told():
    endless = lambda x, k: jax.lax.while_loop(lambda x: jnp.sum(x) > 1, lambda x: x @ k, x)
    count = counting.count(HloModule(compiled(endless, ROWS, SQUARE).as_text()))
    assert count.unknown == 1
    assert count.products == {"f32": 2 * 64 * 48 * 48}


def test_the_largest_branch_counts():
    branches = lambda flag, x, k: jax.lax.cond(flag, lambda: x @ k @ k, lambda: x @ k)
    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    count = counting.count(HloModule(compiled(branches, flag, ROWS, SQUARE).as_text()))
    assert count.products == {"f32": 2 * 2 * 64 * 48 * 48}


def test_what_is_no_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        HloModule("nothing")


GROUPS = {
    "replica_groups={{0,1},{2,3}}, x=1": [[0, 1], [2, 3]],
    "replica_groups={}, x=1": [[0, 1, 2, 3]],
    "replica_groups=[2,2]<=[4], x=1": [[0, 1], [2, 3]],
    "replica_groups=[2,2]<=[2,2]T(1,0), x=1": [[0, 2], [1, 3]],
    "replica_groups=mesh['a'=2,'b'=2] {'b'}, x=1": [[0, 1], [2, 3]],
    "replica_groups=mesh['a'=2,'b'=2] {'a'}, x=1": [[0, 2], [1, 3]],
    "replica_groups=mesh['a'=2,'b'=1,'c'=2], device_ids=([2,2]T(1,0)) {'a'}, x=1": [[0, 1], [2, 3]],
    "replica_groups=mesh['a'=4] {'a':(1)2}, x=1": [[0, 2], [1, 3]],
    "replica_groups=mesh['a'=4] {'a':(2)2}, x=1": [[0, 1], [2, 3]],
    "source_target_pairs={{0,1},{1,0}}": [[0, 1], [1, 0]],
}


@pytest.mark.parametrize("text", GROUPS)
def test_groups_are_read_in_each_way_of_writing(text):
    assert groups_of(text, 4).tolist() == GROUPS[text]


def test_groups_written_otherwise_are_refused():
    with pytest.raises(ValueError, match="without groups"):
        groups_of("replica_groups=something", 4)


def test_communication_is_told_by_axis_and_size():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * 3)

    def step(kernel):
        whole = jax.lax.all_gather(kernel, "fsdp", tiled=True)
        moved = jax.lax.ppermute(whole, "model", [(0, 1), (1, 0)])
        return jax.lax.psum(jnp.tanh(moved).sum(0), ("data", "fsdp"))

    split = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=PartitionSpec("fsdp"), out_specs=PartitionSpec(),
                                  check_vma=False))  # fmt: skip
    count = counting.count(HloModule(split.lower(SQUARE).compile().as_text()))
    lines = {line.kind: line for line in traffic(counting.merged(count.collectives), mesh, parse("cpu:8"))}
    assert (lines["all-gather"].axes, lines["all-gather"].bytes) == ("fsdp", 48 * 48 * 4)
    assert (lines["all-reduce"].axes, lines["all-reduce"].members) == ("data x fsdp", 4)
    assert lines["all-reduce"].sent == pytest.approx(2 * 3 / 4 * 48 * 4)
    assert (lines["collective-permute"].axes, lines["collective-permute"].sent) == ("model", 48 * 48 * 4)
    assert all(line.seconds == 0 for line in lines.values())  # nothing is known of the links of this machine


def test_communication_in_loops_is_counted_as_often_as_it_happens():
    mesh = Mesh(np.array(jax.devices()), ("data",), axis_types=(AxisType.Auto,))

    def step(x):
        x, _ = jax.lax.scan(lambda x, _: (jax.lax.psum(jnp.tanh(x), "data"), None), x, None, length=5)
        return jax.lax.psum(x[:6], "data")

    split = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec(),
                                  check_vma=False))  # fmt: skip
    count = counting.count(HloModule(split.lower(ROWS).compile().as_text()))
    (line,) = traffic(counting.merged(count.collectives), mesh, parse("cpu:8"))
    assert line.times == 6
    assert line.bytes == (5 * 8 + 6) * 48 * 4
