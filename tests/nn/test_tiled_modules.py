"""Tests which attention is computed by tiles, and that models that use them compute what they did without."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from again import again
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from programs import initial

from charlm.nn import attention, blocks, kernels, tiled
from charlm.nn.attention import DisentangledAttention
from charlm.nn.blocks import Attention, KeyValue
from charlm.nn.kernels import CUDNN, EINSUM, PALLAS, Machine, choose_tiled
from charlm.nn.transformer import Encoder, EncoderConfig

TPU, CPU, GPU = Machine("tpu"), Machine("cpu"), Machine("gpu", (9, 0))

# ---- The choice ----


def of(queries: int, keys: int, head_dim: int = 64, dtype=jnp.bfloat16) -> tuple[jax.ShapeDtypeStruct, int]:
    return jax.ShapeDtypeStruct((queries, head_dim), dtype), keys


@pytest.mark.parametrize("size", [(128, 128), (512, 512), (128, 4096)])
def test_tiles_are_taken_when_asked_for(size):
    for machine in (TPU, GPU, CPU):
        assert choose_tiled(PALLAS, machine, *of(*size), False)
        assert not choose_tiled(PALLAS, machine, *of(*size), True)  # there are no probabilities to return
        for asked in (EINSUM, CUDNN):
            assert not choose_tiled(asked, machine, *of(*size), False)


def test_auto_takes_tiles_on_hopper_gpus():
    chosen = functools.partial(choose_tiled, "auto", probabilities=False)
    for one, other in ((512, 512), (46, 46), (20, 20), (46, 128)):
        assert chosen(GPU, *of(one, other))
        for machine in (TPU, CPU, Machine("gpu", (8, 0)), Machine("gpu", (10, 0)), Machine("gpu")):
            assert not chosen(machine, *of(one, other))
    for refused in (of(512, 512, 24), of(512, 512, 64, jnp.float32), of(512, 4097)):
        assert not chosen(GPU, *refused)


@pytest.mark.parametrize(
    ("machine", "size"), [*((TPU, size) for size in ((127, 512), (512, 127), (1, 20))), (GPU, (1, 20))]
)
def test_windows_that_fill_no_tile_stay_with_the_reference(machine, size):
    assert not choose_tiled(PALLAS, machine, *of(*size), False)


def test_where_tiles_cannot_be_computed_asking_for_them_says_why():
    for old in (Machine("gpu", (8, 0)), Machine("gpu")):
        with pytest.raises(ValueError, match=r"^attention_kernel='pallas': it needs a TPU, an NVIDIA .* got Machine"):
            choose_tiled(PALLAS, old, *of(512, 512), False)
    with pytest.raises(ValueError, match=r"^attention_kernel='pallas': its heads on GPUs are of 16, .* got 24$"):
        choose_tiled(PALLAS, GPU, *of(512, 512, 24), False)
    with pytest.raises(ValueError, match=r"^attention_kernel='pallas': it needs bfloat16 on GPUs, got float32$"):
        choose_tiled(PALLAS, GPU, *of(512, 512, 64, jnp.float32), False)
    assert choose_tiled(PALLAS, GPU, *of(512, 512, 128), False)
    assert choose_tiled(PALLAS, TPU, *of(512, 512, 24), False)
    with pytest.raises(ValueError, match=r"^attention_kernel='pallas': its windows have at most 4096 .* got 4097$"):
        choose_tiled(PALLAS, TPU, *of(512, 4097), False)
    assert not choose_tiled("auto", TPU, *of(512, 4097), False)
    with pytest.raises(ValueError, match="attention_kernel='flash' is not one of auto, einsum, cudnn, pallas"):
        choose_tiled("flash", TPU, *of(512, 512), False)


# ---- Models ----


@pytest.fixture
def calls(monkeypatch) -> list[tuple[int, ...]]:
    """The shapes of the queries of each call of the tiles."""
    made: list[tuple[int, ...]] = []

    compute = tiled.tiled_attention

    def counted(query, *rest, **named):
        made.append(query.shape)
        return compute(query, *rest, **named)

    monkeypatch.setattr(tiled, "tiled_attention", counted)
    return made


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def near(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    close = lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance * max(1, np.abs(y).max()), rtol=0)
    jax.tree.map(close, got, want)


@pytest.mark.parametrize("queries", [130, again(150)])
def test_disentangled_attention_is_the_same_by_tiles(calls, queries):
    x, positions = normal(0, 2, 150, 16), 3 * normal(1, 64, 16)
    mask = np.ones((2, 150), bool)
    mask[1, 90:] = False
    make = lambda kernel, rate=0.0: DisentangledAttention(2, 100, rate, 0.0, "lecun", jnp.float32, kernel)
    params = initial(make(PALLAS), x, mask, positions, queries, True, seed=2)
    assert not calls  # parameters do not depend on the kernel

    def total(kernel, params, x, positions):
        mixed = make(kernel).apply({"params": params}, x, mask, positions, queries, False)
        return (mixed * normal(3, *mixed.shape)).sum(), mixed

    run = lambda kernel: jax.jit(
        jax.grad(functools.partial(total, kernel), argnums=(0, 1, 2), has_aux=True)
    )(params, x, positions)  # fmt: skip
    want = run(EINSUM)
    assert not calls
    near(run(PALLAS), want)
    assert calls == [(2, queries, 16)]
    sown = jax.eval_shape(lambda: make(PALLAS).apply({"params": params}, x, mask, positions, queries, True,
                                                    mutable=["intermediates"]))  # fmt: skip
    assert sown[1]["intermediates"]["probs"][0].shape == (2, 2, queries, 150)
    assert len(calls) == 1  # whoever reads probabilities gets them from the reference
    drawn = jax.jit(lambda seed: make(PALLAS, 0.5).apply(
        {"params": params}, x, mask, positions, queries, False, rngs={"dropout": jax.random.key(seed)}))  # fmt: skip
    first = drawn(0)
    np.testing.assert_array_equal(drawn(0), first)
    assert np.abs(drawn(1) - first).mean() > 0.05


def test_plain_attention_is_the_same_by_tiles_unless_it_is_causal_or_cached(calls):
    x, params = normal(0, 2, 128, 16), None
    run = lambda kernel, visible, *more, **named: jax.jit(
        lambda: Attention(2, 0.0, "lecun", jnp.float32, kernel).apply({"params": params}, x, visible, *more, **named)
    )()
    padded = (np.arange(128) < np.array([128, 70])[:, None])[:, None, None]
    params = initial(Attention(2, 0.0, "lecun", jnp.float32, PALLAS), x, padded)
    want = run(EINSUM, padded)[0]
    assert not calls
    got, none, _ = run(PALLAS, padded, probabilities=False)
    near(got, want)
    assert none is None
    assert len(calls) == 1
    assert run(PALLAS, padded, probabilities=True)[1].shape == (2, 2, 128, 128)
    causal = (np.arange(128) <= np.arange(128)[:, None])[None, None]
    near(run(PALLAS, causal, probabilities=False)[0], run(EINSUM, causal)[0])
    cache = KeyValue(jnp.zeros((2, 200, 2, 8)), jnp.zeros((2, 200, 2, 8)))
    everything = np.ones((1, 1, 1, 200), bool)
    run(PALLAS, everything, cache, jnp.asarray(0), probabilities=False)
    assert len(calls) == 1


ENCODER = EncoderConfig(
    layers=2, hidden=16, heads=2, ffn=16, max_distance=64, position_buckets=32, dropout=0.0, attention_dropout=0.3
)


@pytest.mark.slow
def test_encoders_learn_the_same_recomputed_and_on_any_mesh_over_micro_batches(calls):
    x, weight = normal(0, 2, 4, 128, 16), normal(1, 4, 128, 16)  # two micro-batches
    mask = np.arange(128) < np.array([128, 100, 120, 60])[:, None]
    params = initial(Encoder(ENCODER), x[0], mask, seed=2)

    def gradients(params, x, **changes):
        model = Encoder(dataclasses.replace(ENCODER, attention_kernel=PALLAS, **changes))

        def add(sums, n_and_x):
            n, x = n_and_x
            rngs = {"dropout": jax.random.fold_in(jax.random.key(3), n)}
            loss = lambda params: (model.apply({"params": params}, x, mask, False, rngs=rngs) * weight).sum()
            return jax.tree.map(jnp.add, sums, jax.grad(loss)(params)), None

        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (jnp.arange(2), x))[0]

    run = lambda *arrays, **changes: jax.jit(functools.partial(gradients, **changes))(*arrays)
    want = run(params, x)
    assert len(calls) == 2
    near(run(params, x, remat=True), want)
    scanned = run(params, x, scan_layers=True)  # which draws other masks
    mesh = jax.make_mesh((2, 2, 2), ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        x = jax.device_put(x, NamedSharding(mesh, P(None, ("data", "fsdp"))))
        near(run(params, x, scan_layers=True), scanned)


def test_a_loop_over_layers_keeps_what_the_forward_kernel_computed(calls):
    x, mask = jax.ShapeDtypeStruct((2, 130, 16), jnp.float32), np.ones((2, 130), bool)
    model = Encoder(dataclasses.replace(ENCODER, attention_kernel=PALLAS, scan_layers=True))
    params = jax.eval_shape(model.init, jax.random.key(0), x, mask)
    loss = lambda params, x: model.apply(params, x, mask, False, rngs={"dropout": jax.random.key(0)}).sum()
    text = str(jax.make_jaxpr(jax.grad(loss))(params, x))
    assert text.count("pallas_call[") == 2  # forward and backward: none a second time


# ---- Programs for TPUs and GPUs ----


def test_encoders_call_the_kernels_where_words_are_many(monkeypatch):
    def lowered(machine, length, kernel=PALLAS):
        monkeypatch.setattr(kernels, "this_machine", lambda: machine)
        for module in (attention, blocks):
            monkeypatch.setattr(module, "this_machine", lambda: machine)
        config = EncoderConfig(
            layers=2, hidden=128, heads=2, ffn=64, max_distance=512, dtype=jnp.bfloat16, attention_kernel=kernel
        )
        x, mask = jax.ShapeDtypeStruct((2, length, 128), jnp.bfloat16), jax.ShapeDtypeStruct((2, length), bool)
        params = jax.eval_shape(Encoder(config).init, jax.random.key(0), x, mask)
        loss = lambda params, x, mask: Encoder(config).apply(
            params, x, mask, False, rngs={"dropout": jax.random.key(0)}).astype(jnp.float32).sum()  # fmt: skip
        platform = "tpu" if machine == TPU else "cuda"
        return jax.jit(jax.grad(loss)).trace(params, x, mask).lower(lowering_platforms=(platform,)).as_text()

    assert lowered(TPU, 300).count("tpu_custom_call") == 4  # each layer forward and backward
    assert "tpu_custom_call" not in lowered(TPU, 100)
    assert "tpu_custom_call" not in lowered(TPU, 300, EINSUM)
    if jax.__version_info__ <= (0, 10, 2):  # later ones call Triton's compiler here, which CPUs do not have
        assert lowered(GPU, 300).count("gpu.triton") == 8  # each layer forward, and backward in three kernels
        assert lowered(GPU, 20, "auto").count("gpu.triton") == 6  # words: backward in two
        assert "gpu.triton" not in lowered(GPU, 300, EINSUM)
