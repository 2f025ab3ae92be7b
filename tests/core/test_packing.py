"""Tests that an optimizer which moves vectors together moves each as it would alone, and keeps the state's tree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from charlm.config import get_config
from charlm.core.optimizer import make_optimizer
from charlm.core.packing import packing
from charlm.core.sharding import collectives, is_split, make_mesh, state_sharding, traced_on


def tree(seed: int) -> dict:
    draw = np.random.default_rng(seed).normal
    layer = lambda: {
        "query": {"kernel": draw(size=(8, 8)), "bias": draw(size=8)},
        "ffn_out": {"kernel": draw(size=(16, 8)), "bias": draw(size=8)},
        "norm": {"scale": draw(size=8), "bias": draw(size=8)},
    }
    made = {"encoder": {f"layer_{n}": layer() for n in range(3)}, "head": {"bias": draw(size=5), "gain": draw(size=())}}
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), made)


def after(optimizer: optax.GradientTransformation, steps: int = 3):
    """Returns the parameters and the optimizer's state after some steps."""
    params = tree(0)
    state = optimizer.init(params)
    update = jax.jit(optimizer.update)
    for step in range(steps):
        updates, state = update(tree(step + 1), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def alone(monkeypatch, **arguments) -> optax.GradientTransformation:
    """Returns the optimizer of `make_optimizer` without packing."""
    with monkeypatch.context() as patch:
        patch.setattr("charlm.core.optimizer.packing", lambda optimizer, kind: optimizer)
        return make_optimizer(**arguments)


CASES = {
    "all": ({}, {}),
    "no clipping": ({"clip_norm": 0.0}, {}),
    "frozen": ({"freeze": ("layer_1/",)}, {}),
    "one frozen vector": ({"freeze": ("layer_2/norm/bias", "layer_0/.*/kernel")}, {}),
    "new": ({}, {"new": {"head/bias", "encoder/layer_1/norm/scale"}, "new_rate": optax.constant_schedule(0.3)}),
    "new and frozen": (
        {"freeze": ("layer_1/",)}, {"new": {"head/bias"}, "new_rate": optax.constant_schedule(0.3)}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_vectors_move_together_as_each_would_alone(case, monkeypatch):
    changes, more = CASES[case]
    optim = get_config().optim
    optim.update({"learning_rate": 0.1, "weight_decay": 0.1, "clip_norm": 1.0, **changes})
    given = {"optim": optim, "rate": optax.constant_schedule(0.1), **more}
    (params, state), (expected, kept) = after(make_optimizer(**given)), after(alone(monkeypatch, **given))
    assert jax.tree.structure(state) == jax.tree.structure(kept)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-7), (params, state), (expected, kept))
    begun = tree(0)
    moves = jax.tree.map(lambda x, y: bool((x != y).all()), params, begun)
    frozen = any("layer_1/" in pattern for pattern in changes.get("freeze", ()))
    assert moves["encoder"]["layer_1"]["norm"]["scale"] is not frozen
    assert moves["encoder"]["layer_0"]["norm"]["scale"]
    assert moves["head"]["bias"]


def test_a_step_has_operations_for_few_vectors(monkeypatch):
    given = {"optim": get_config().optim, "rate": optax.constant_schedule(0.1)}
    lengths = []
    for optimizer in (make_optimizer(**given), alone(monkeypatch, **given)):
        state = optimizer.init(tree(0))
        lengths.append(jax.jit(optimizer.update).lower(tree(1), state, tree(0)).as_text().count("stablehlo."))
    assert lengths[0] < 0.75 * lengths[1]


def test_vectors_of_another_kind_stay_apart():
    seen = []
    note = optax.stateless(lambda updates, params: (seen.append(jax.tree.leaves(updates)), updates)[1])
    names = []
    optimizer = packing(note, lambda name: (names.append(name), "norm" in name)[1])
    optimizer.update(tree(1), optimizer.init(tree(0)), tree(0))
    assert "encoder/layer_2/norm/scale" in names
    vectors = sorted(leaf.size for leaf in seen[0] if leaf.ndim == 1)
    assert vectors == [3 * 2 * 8, 3 * 2 * 8 + 5]  # norms; queries, outputs and the head


@pytest.mark.parametrize("shape", ["dtypes", "known and new", "list"])
def test_odd_trees_are_moved_as_well(shape, monkeypatch):
    params = tree(0)
    if shape == "dtypes":
        norm = params["encoder"]["layer_1"]["norm"]
        norm["scale"], norm["bias"] = (norm[name].astype(jnp.bfloat16) for name in ("scale", "bias"))
    if shape == "known and new":  # as optax calls parts of its own state
        params = {"known": params["encoder"], "new": params["head"]}
    if shape == "list":
        params = list(params["encoder"].values())
    given = {"optim": get_config().optim, "rate": optax.constant_schedule(0.1)}
    if shape == "known and new":
        given |= {"new": {"new/bias"}, "new_rate": optax.constant_schedule(0.3)}
    found = []
    for optimizer in (make_optimizer(**given), alone(monkeypatch, **given)):
        found.append(jax.jit(optimizer.update)(params, optimizer.init(params), params))
    near = lambda x, y: np.testing.assert_allclose(np.float32(x), np.float32(y), rtol=1e-4, atol=1e-7)
    jax.tree.map(near, *found)
    assert jax.tree.map(lambda x: x.dtype, found[0]) == jax.tree.map(lambda x: x.dtype, found[1])


def test_what_the_mesh_splits_stays_where_it_is():
    config = get_config()
    config.mesh.update({"data": 2, "fsdp": 2, "model": 2})
    mesh = make_mesh(config)
    params = tree(0)
    optimizer = make_optimizer(config.optim, optax.constant_schedule(0.1))
    state = optimizer.init(params)
    names = {"encoder/layer_0/query/bias": (8,), "encoder/layer_0/norm/bias": (8,), "of/another/package": (8,)}
    asked = traced_on(mesh, lambda: [name for name, shape in names.items() if is_split(name, shape)])
    assert asked() == ["encoder/layer_0/query/bias"]
    placed = lambda x: jax.tree.map(jax.device_put, x, state_sharding(x, mesh))
    run = jax.jit(traced_on(mesh, optimizer.update), out_shardings=state_sharding((params, state), mesh))
    program = run.lower(placed(tree(1)), placed(state), placed(params)).compile().as_text()
    assert set(collectives(program)) <= {"all-reduce"}  # of the norm of all gradients
    bias = NamedSharding(mesh, P("model"))
    assert state_sharding(params, mesh)["encoder"]["layer_0"]["query"]["bias"] == bias
    assert not is_split("encoder/layer_0/query/bias", (8,))  # without a mesh
