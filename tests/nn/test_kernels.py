"""Tests the kernels of attention: which one is chosen, each against the reference, and cuDNN's call for NVIDIA GPUs.

On CPUs, JAX's own implementation of the same function replaces cuDNN's, so that all of our part is compared: layout,
scale, biases, mask, gradients. The last test compares with cuDNN itself and needs a GPU: `JAX_PLATFORMS=cuda pytest
tests/nn/test_kernels.py`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from programs import initial

from charlm.nn import kernels
from charlm.nn.attention import DisentangledAttention
from charlm.nn.blocks import Attention, Block, BlockConfig, KeyValue
from charlm.nn.kernels import CUDNN, EINSUM, Machine, choose, this_machine
from charlm.nn.transformer import Encoder, EncoderConfig

CPU, H100 = Machine("cpu"), Machine("gpu", (9, 0))
NOISE = {jnp.float32: 1e-5, jnp.bfloat16: 0.03}  # of values of size 1; bfloat16 has 8 bits, and so have biases then

# ---- The choice ----


def query(queries: int = 512, head_dim: int = 64, dtype=jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, 3, queries, head_dim), dtype)


@pytest.mark.parametrize("query", [query(), query(128), query(dtype=jnp.float16), query(head_dim=128)])
@pytest.mark.parametrize("machine", [H100, Machine("gpu", (8, 0)), Machine("gpu", (12, 0))])
@pytest.mark.parametrize("keys", [128, 1000])
def test_cudnn_is_chosen_where_every_condition_holds(query, machine, keys):
    assert choose("auto", machine, query, keys, False) == CUDNN
    assert choose("auto", machine, query, keys, True) == EINSUM  # it has no probabilities to return or to drop
    assert choose("einsum", machine, query, keys, False) == EINSUM


IMPOSSIBLE = [
    (CPU, query(), r"needs an NVIDIA GPU .* got Machine\(platform='cpu'"),
    (Machine("tpu"), query(), "needs an NVIDIA GPU"),
    (Machine("gpu"), query(), "needs an NVIDIA GPU"),  # another maker's
    (Machine("gpu", (9, 0), here=False), query(), "which is not here"),
    (Machine("gpu", (7, 5)), query(), "of compute capability 8.0 or more"),
    (H100, query(dtype=jnp.float32), "needs bfloat16 or float16, got float32"),
    (H100, query(head_dim=60), "a multiple of 8, at most 128, got 60"),
    (H100, query(head_dim=136), "a multiple of 8, at most 128, got 136"),
]
NOT_WORTH_IT = [
    (H100, query(127), 512),
    (H100, query(1), 512),  # a step of generation
    (H100, query(), 127),
    (H100._replace(devices=2), query(), 512),
    (Machine("gpu", (10, 3)), query(), 512),
]


@pytest.mark.parametrize(("machine", "query", "message"), IMPOSSIBLE)
def test_where_cudnn_cannot_run_the_reference_does_and_asking_for_it_says_why(machine, query, message):
    assert choose("auto", machine, query, 512, False) == EINSUM
    for probabilities in (False, True):
        with pytest.raises(
            ValueError, match=f"attention_kernel='cudnn': it {message}" if "got M" in message else message
        ):
            choose("cudnn", machine, query, 512, probabilities)


@pytest.mark.parametrize(("machine", "query", "keys"), NOT_WORTH_IT)
def test_where_cudnn_is_not_known_to_be_good_it_must_be_asked_for(machine, query, keys):
    assert choose("auto", machine, query, keys, False) == EINSUM
    assert choose("cudnn", machine, query, keys, False) == CUDNN
    assert choose("cudnn", machine, query, keys, True) == EINSUM


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="attention_kernel='flash' is not one of auto, einsum, cudnn, pallas"):
        choose("flash", H100, query(), 512, False)


def test_the_machine_is_that_of_the_program(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: [types.SimpleNamespace(platform="gpu", **found)])
    found = {"compute_capability": "9.0"}
    assert this_machine() == H100
    with jax.default_device(jax.devices("cpu")[0]):
        assert this_machine() == CPU
    found = {"compute_capability": "gfx942"}
    assert this_machine() == Machine("gpu")
    found = {}
    devices = []
    mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh):
        jax.jit(lambda: devices.append(this_machine().devices))()
    assert devices == [len(jax.devices())]


# ---- Equal to the reference ----


@pytest.fixture
def calls(monkeypatch):
    """Lets cuDNN run anywhere, with JAX's own implementation in its place; counts the calls."""
    own, made = jax.nn.dot_product_attention, []

    def stand_in(query, key, value, bias, mask, *, scale, implementation):
        assert implementation == "cudnn"
        assert mask.shape[2:] == (query.shape[1], key.shape[1])
        assert bias is None or bias.shape == (query.shape[0], query.shape[2], *mask.shape[2:])
        assert bias is None or bias.dtype == query.dtype
        made.append(query.shape)
        return own(query, key, value, bias, mask, scale=scale, implementation="xla")

    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    monkeypatch.setattr(kernels, "obstacle", lambda *_: "")
    return made


@pytest.fixture(autouse=True)
def _float32_products() -> Iterator[None]:
    """A GPU would round float32 factors to TensorFloat-32."""
    with jax.default_matmul_precision("highest"):
        yield


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def case(name: str):
    """Returns queries, keys, values, visibility, biases and scale as a model makes them; one query sees no key."""
    X, Y, Q, N, K = 2, 3, 5, 8, 16
    inputs = normal(0, X, Y, Q, K), normal(1, X, Y, N, K), normal(2, X, Y, N, K)
    if name == "disentangled":  # heads lead
        visible = np.random.default_rng(0).random((1, Y, 1, N)) < 0.7
        visible[0, 1] = False
        return *inputs, visible, (3 * normal(3, X, Y, Q, N), 2 * normal(4, X, Y, Q, N)), 1 / np.sqrt(3 * K)
    if name == "padded":
        visible = np.arange(N)[None, None, None] < np.array([N, 0])[:, None, None, None]
    else:  # causal, behind three positions of a cache; the first of a row is padding
        visible = (np.arange(N) <= 3 + np.arange(Q)[:, None])[None, None] & np.ones((X, 1, 1, N), bool)
        visible[1, 0, 0] = False
    return *inputs, visible, (), 1.0


@pytest.mark.parametrize("dtype", NOISE)
@pytest.mark.parametrize("name", ["disentangled", "padded", "causal"])
def test_fused_equals_the_reference(calls, name, dtype):
    *inputs, visible, biases, scale = case(name)
    inputs = [x.astype(dtype) for x in inputs]
    weight = normal(5, *inputs[0].shape)

    def outcome(function):
        def total(inputs, biases):
            mixed = function(*inputs, visible, biases, scale)
            return (mixed.astype(jnp.float32) * weight).sum(), mixed

        mixed = jax.jit(lambda: function(*inputs, visible, biases, scale))()
        return mixed, jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(tuple(inputs), biases)[0]

    want, want_grads = outcome(lambda *a: kernels._reference(*a)[0])
    assert not calls
    got, grads = outcome(kernels._fused)
    assert len(calls) == 1  # a gradient does not call it
    sees = np.broadcast_to(visible.any(axis=-1, keepdims=True), want.shape)
    assert 0 < sees.mean() < 1
    assert got.dtype == dtype
    everything = kernels._reference(*inputs, np.ones_like(visible), biases, scale)[0]  # what a blind query is shown
    want = jnp.where(sees, want, everything)
    np.testing.assert_allclose(*(np.asarray(x, np.float32) for x in (got, want)), atol=NOISE[dtype], rtol=0)
    jax.tree.map(np.testing.assert_array_equal, grads, want_grads)
    assert all(np.isfinite(grad).all() and np.abs(grad).max() > 0.01 for grad in jax.tree.leaves(grads))


def test_whoever_differentiates_or_maps_gets_the_gradient_of_the_reference(calls):
    *inputs, visible, biases, scale = case("disentangled")
    of = lambda function: jax.grad(lambda q: function(q, *inputs[1:], visible, biases, scale).sum())
    want = jax.jit(jax.vmap(of(lambda *a: kernels._reference(*a)[0])))(jnp.stack([inputs[0], -inputs[0]]))
    got = jax.jit(jax.vmap(jax.checkpoint(of(kernels._fused))))(jnp.stack([inputs[0], -inputs[0]]))
    np.testing.assert_allclose(got, want, atol=1e-6)


# Blocks of four queries, the last of them shorter; eleven at once; the first position alone.
@pytest.mark.parametrize(("block", "queries", "count"), [(4, 11, 3), (512, 11, 1), (4, 1, 1)])
def test_disentangled_attention_is_the_same_with_either_kernel(monkeypatch, calls, block, queries, count):
    monkeypatch.setattr("charlm.nn.attention.QUERY_BLOCK", block)
    x, positions = normal(0, 2, 11, 32), 3 * normal(1, 8, 32)
    mask = np.ones((2, 11), bool)
    mask[1, 8:] = False
    make = lambda kernel: DisentangledAttention(2, 8, 0.5, 0.5, "lecun", jnp.float32, kernel)
    variables = {"params": initial(make(EINSUM), x, mask, positions, queries, True, seed=2)}
    run = lambda kernel, **more: jax.jit(
        lambda: make(kernel).apply(variables, x, mask, positions, queries, True, **more)
    )()
    want, state = run(CUDNN, mutable=["intermediates"])
    assert not calls
    assert state["intermediates"]["probs"][0].shape == (2, 2, queries, 11)
    np.testing.assert_array_equal(run(EINSUM), want)
    np.testing.assert_allclose(run(CUDNN), want, atol=1e-5)
    assert len(calls) == count
    rngs = {"dropout": jax.random.key(3)}
    jax.eval_shape(lambda: make(CUDNN).apply(variables, x, mask, positions, queries, False, rngs=rngs))
    assert len(calls) == count  # dropout is the reference's


@pytest.mark.parametrize("cached", [False, True])
def test_plain_attention_is_the_same_with_either_kernel(calls, cached):
    x = normal(0, 2, 5, 32)
    make = lambda kernel: Attention(2, 0.5, "lecun", jnp.float32, kernel)
    places = 9 if cached else 5
    causal = np.arange(places) <= np.arange(5)[:, None] + 3 * cached
    visible = causal[None, None] & (np.arange(places) >= np.array([0, 1])[:, None])[:, None, None]
    past = KeyValue(normal(1, 2, 9, 2, 16), normal(2, 2, 9, 2, 16)) if cached else None
    variables = {"params": initial(make(EINSUM), x, visible, past, jnp.asarray(3), seed=2)}
    run = lambda kernel, *more, **rngs: jax.jit(
        lambda: make(kernel).apply(variables, x, visible, past, jnp.asarray(3), *more, **rngs)
    )()
    want, probs, kept = run(CUDNN)
    assert probs.shape == (2, 2, 5, places)
    assert run(EINSUM, True, False)[1] is not None  # for nothing: the compiler drops what nobody reads
    run(CUDNN, False, False, rngs={"dropout": jax.random.key(3)})
    assert not calls
    got, none, kept_too = run(CUDNN, True, False)
    assert none is None
    assert len(calls) == 1
    sees = visible.any(axis=-1)[:, 0]
    assert sees.all() == cached  # and it is still the caller's
    np.testing.assert_allclose(got[sees], want[sees], atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, kept_too, kept)


# ---- Programs for NVIDIA GPUs ----

CALL, BACKWARD = "@__cudnn$fmhaScaleBiasSoftmax(", "fmhaScaleBiasSoftmaxBackward"


@pytest.fixture
def lowered(monkeypatch):
    """Returns the text of a function's program for an H100, made without one; compiled it is not."""
    monkeypatch.setattr(kernels, "this_machine", lambda: H100)
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91000)  # all that JAX asks the machine for
    return lambda function, *args: jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def hlm_encoder(length: int, dtype=jnp.bfloat16):
    """Returns two layers of HLM-Base between words, as a function, and the shapes of what it takes."""
    config = EncoderConfig(layers=2, hidden=768, heads=12, ffn=3072, max_distance=512, dtype=dtype)
    x, mask = jax.ShapeDtypeStruct((4, length, 768), dtype), jax.ShapeDtypeStruct((4, length), bool)
    params = jax.eval_shape(Encoder(config).init, jax.random.key(0), x, mask)
    return Encoder(config).apply, params, x, mask


def bert_block(length: int, dtype=jnp.bfloat16, causal: bool = False, **more):
    """Returns a layer of BERT-base or GPT-2, as a function, and the shapes of what it takes."""
    config = BlockConfig(768, 12, 3072, causal, "gelu", 1e-12, 0.1, 0.1, "bert", dtype)
    x = jax.ShapeDtypeStruct((4, length, 768), dtype)
    visible = jax.ShapeDtypeStruct((4, 1, length if causal else 1, length), bool)
    params = jax.eval_shape(Block(config).init, jax.random.key(0), x, visible)
    return functools.partial(Block(config).apply, probabilities=False, **more), params, x, visible


# Words beyond 512 are asked for in blocks of 512; what is left is a block of its own.
@pytest.mark.parametrize(("length", "calls"), [(46, 0), (128, 2), (129, 2), (512, 2), (600, 2), (700, 4), (1024, 4)])
def test_hlm_calls_cudnn_once_a_layer_and_block(lowered, length, calls):
    assert lowered(*hlm_encoder(length)).count(CALL) == calls


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "calls"), [(54, 0), (128, 1), (384, 1), (511, 1)])
def test_bert_and_gpt2_call_cudnn_once_a_layer(lowered, length, calls, causal):
    function, *shapes = bert_block(length, causal=causal)
    assert lowered(function, *shapes).count(CALL) == calls
    assert CALL not in lowered(functools.partial(function, probabilities=True), *shapes)


def test_gpt2_calls_cudnn_with_a_cache_too(lowered):
    function, params, x, _ = bert_block(128, causal=True)
    cache = KeyValue(*[jax.ShapeDtypeStruct((4, 256, 12, 64), jnp.bfloat16)] * 2)
    start, visible = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((4, 1, 128, 256), bool)
    assert lowered(function, params, x, visible, cache, start).count(CALL) == 1
    one, seen = jax.ShapeDtypeStruct((4, 1, 768), jnp.bfloat16), jax.ShapeDtypeStruct((4, 1, 1, 256), bool)
    assert CALL not in lowered(function, params, one, seen, cache, start)


def test_float32_training_and_gradients_stay_with_the_reference(lowered):
    for make in (hlm_encoder, bert_block):
        assert CALL not in lowered(*make(512, jnp.float32))
        function, *args = make(512)
        trained = functools.partial(function, deterministic=False, rngs={"dropout": jax.random.key(0)})
        assert CALL not in lowered(trained, *args)

        def total(params, *rest, function=function):
            return sum(leaf.astype(jnp.float32).sum() for leaf in jax.tree.leaves(function(params, *rest)))

        text = lowered(jax.grad(total), *args)
        assert CALL not in text
        assert BACKWARD not in text


def test_what_cudnn_would_refuse_is_seen_without_a_gpu(lowered):
    """So that the tests above mean something: JAX's checks of shapes and types are made when a program is lowered."""
    call = lambda x, mask: jax.nn.dot_product_attention(x, x, x, mask=mask, implementation="cudnn")
    x, mask = jax.ShapeDtypeStruct((2, 64, 4, 64), jnp.bfloat16), jax.ShapeDtypeStruct((2, 1, 64, 64), bool)
    assert CALL in lowered(call, x, mask)
    with pytest.raises(ValueError, match="Bias must have same seq length"):
        lowered(call, x, jax.ShapeDtypeStruct((2, 1, 1, 64), bool))
    with pytest.raises(ValueError, match="Unsupported dtype"):
        lowered(call, jax.ShapeDtypeStruct(x.shape, jnp.float32), mask)
    with pytest.raises(NotImplementedError, match="The head dim must be"):
        lowered(call, jax.ShapeDtypeStruct((2, 64, 4, 60), jnp.bfloat16), mask)


# ---- On a GPU ----


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs an NVIDIA GPU: JAX_PLATFORMS=cuda")
@pytest.mark.parametrize("name", ["disentangled", "padded", "causal"])
@pytest.mark.parametrize("repeats", [1, 32])  # of 5 queries and 8 keys
def test_cudnn_itself_equals_the_reference(name, repeats):
    *inputs, visible, biases, scale = case(name)
    longer = lambda x, *axes: functools.reduce(lambda y, axis: jnp.repeat(y, repeats, axis), axes, x)
    query, key, value = (longer(x, 2).astype(jnp.bfloat16) for x in inputs)
    visible = longer(visible, *((2, 3) if visible.shape[2] > 1 else (3,)))
    biases = tuple(longer(bias, 2, 3) for bias in biases)
    assert not kernels.obstacle(this_machine(), query.dtype, query.shape[-1])
    got = jax.jit(lambda: kernels._fused(query, key, value, visible, biases, scale))()
    want = kernels._reference(query, key, value, visible, biases, scale)[0]
    sees = np.broadcast_to(visible.any(axis=-1, keepdims=True), want.shape)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(
        *(np.asarray(x, np.float32)[sees] for x in (got, want)), atol=NOISE[jnp.bfloat16], rtol=0
    )
