"""Tests the LSTM: values and gradients equal a loop over the equations, however inputs and texts are passed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import drawn, initial

from charlm.nn.lstm import LSTM, BiLSTM, LSTMState

N, B, E, K = 6, 3, 4, 5


def made(rows):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(rows, E)).astype(np.float32)
    ids = rng.integers(0, rows, (N, B)).astype(np.int32)
    start = rng.normal(size=(B, K)).astype(np.float32)
    params = initial(LSTM(E, K, jnp.float32), table[ids], start, seed=1)
    return table, ids, start, params


def plain(x_NBE, start_BK, params):
    """Returns the outputs by a loop that JAX takes the gradient of itself."""
    h, s, outputs = start_BK, jnp.zeros_like(start_BK), []
    for x in x_NBE:
        gates = x @ params["input_kernel"] + params["input_bias"][None]
        gates += h @ params["state_kernel"] + params["state_bias"][None]
        i, f, n, o = (gates[:, k * K : (k + 1) * K] for k in range(4))
        s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(n)
        h = jax.nn.sigmoid(o) * jnp.tanh(s)
        outputs.append(h)
    return jnp.stack(outputs)


def read(lstm, params, table, ids, start):
    """Returns the outputs for rows of a table, as one stretch of steps."""
    return stretches(lstm, params, table, [ids], start)[0]


def stretches(lstm, params, table, ids, start, groups=1):
    def run(lstm, table, start):
        return lstm.run(lstm.gates_of_rows(table, ids), start, groups)

    applied = jax.jit(lambda params, table, start: lstm.apply({"params": params}, table, start, method=run))
    return applied(params, table, start)


@pytest.mark.parametrize("rows", [7, 40], ids=["multiplies the table", "multiplies the sequence"])
def test_outputs_and_gradients_are_those_of_a_loop(rows):
    table, ids, start, params = made(rows)
    weight = np.random.default_rng(2).normal(size=(N, B, K)).astype(np.float32)
    lstm = LSTM(E, K, jnp.float32)
    ours = lambda params, table, start: (read(lstm, params, table, ids, start) * weight).sum()
    theirs = lambda params, table, start: (plain(table[ids], start, params) * weight).sum()
    np.testing.assert_allclose(
        read(lstm, params, table, ids, start), plain(table[ids], start, params), atol=1e-6, rtol=1e-5
    )
    np.testing.assert_allclose(
        jax.jit(lstm.apply)({"params": params}, table[ids], start), plain(table[ids], start, params), atol=1e-6
    )
    got, want = (jax.jit(jax.grad(loss, (0, 1, 2)))(params, table, start) for loss in (ours, theirs))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), got, want)
    assert all(np.abs(x).max() > 1e-3 for x in jax.tree.leaves(got))


@pytest.mark.parametrize("rows", [7, 90], ids=["multiplies the table", "multiplies the sequence"])
def test_stretches_of_fewer_and_fewer_sequences_are_a_loop_over_each(rows):
    """Two groups of four sequences, 6, 5, 2 and 2 steps long: eight run for 2 steps, four for 3 more, two for one."""
    rng = np.random.default_rng(3)
    lengths, lstm = np.array([6, 5, 2, 2] * 2), LSTM(E, K, jnp.float32)
    ids, start = rng.integers(0, rows, (N, 8)).astype(np.int32), rng.normal(size=(8, K)).astype(np.float32)
    table, _, _, params = made(rows)
    weight = rng.normal(size=(N, 8, K)).astype(np.float32)
    real = (np.arange(N)[:, None] < lengths[None])[..., None]
    still = [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 4, 5], [0, 4]]
    steps = [slice(0, 2), slice(2, 5), slice(5, 6)]
    parts = [ids[step][:, words] for step, words in zip(steps, still, strict=True)]
    placed = list(zip(steps, still, strict=True))

    def ours(params, table, start):
        found = stretches(lstm, params, table, parts, start, groups=2)
        sums = [(x * weight[step][:, words]).sum() for x, (step, words) in zip(found, placed, strict=True)]
        return sum(sums), found

    theirs = lambda params, table, start: (jnp.where(real, plain(table[ids], start, params), 0) * weight).sum()
    found = ours(params, table, start)[1]
    want = plain(table[ids], start, params)
    for x, (step, words) in zip(found, placed, strict=True):
        np.testing.assert_allclose(x, want[step][:, words], atol=1e-6, rtol=1e-5)
    got = jax.jit(jax.grad(lambda *x: ours(*x)[0], (0, 1, 2)))(params, table, start)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5),
        got,
        jax.jit(jax.grad(theirs, (0, 1, 2)))(params, table, start),
    )


def test_steps_one_by_one_are_the_same():
    table, ids, start, params = made(7)
    lstm = LSTM(E, K, jnp.float32)
    want = read(lstm, params, table, ids, start)
    state = LSTMState(jnp.asarray(start), jnp.zeros((B, K)))
    for row, output in zip(ids, want, strict=True):
        state = lstm.apply({"params": params}, table[row], state, method="step")
        np.testing.assert_allclose(state.h_BK, output, atol=1e-6)


def test_bfloat16_rounds_inputs_of_products_alone():
    """Beside a loop that rounds there and nowhere else, whose gradient JAX takes itself."""
    table, ids, start, params = made(7)
    lstm = LSTM(E, K, jnp.bfloat16)
    rounded = lambda x: x.astype(jnp.bfloat16).astype(jnp.float32)

    def loop(params, table, start):
        h, s, outputs = start, jnp.zeros_like(start), []
        for x in table[ids]:
            gates = rounded(x) @ rounded(params["input_kernel"]) + rounded(h) @ rounded(params["state_kernel"])
            gates += (params["input_bias"] + params["state_bias"])[None]
            i, f, n, o = (gates[:, k * K : (k + 1) * K] for k in range(4))
            s = jax.nn.sigmoid(f) * s + jax.nn.sigmoid(i) * jnp.tanh(n)
            h = jax.nn.sigmoid(o) * jnp.tanh(s)
            outputs.append(h)
        return jnp.stack(outputs)

    got, want = read(lstm, params, table, ids, start), jax.jit(loop)(params, table, start)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, atol=2e-6)
    full = read(LSTM(E, K, jnp.float32), params, table, ids, start)
    assert np.abs(full - want).max() > 1e-3  # what is not rounded is seen
    ours = jax.jit(jax.grad(lambda *x: (read(lstm, x[0], x[1], ids, x[2]) ** 2).sum(), (0, 1, 2)))
    theirs = jax.jit(jax.grad(lambda *x: (loop(*x) ** 2).sum(), (0, 1, 2)))
    pairs = zip(*(jax.tree.leaves(f(params, table, start)) for f in (ours, theirs)), strict=True)
    for mine, exact in pairs:  # gradients of products are rounded, too
        np.testing.assert_allclose(mine, exact, atol=0.02 * np.abs(exact).max())


def both_ways(x_LE, params):
    """Returns the outputs of a text, by the loop from each end."""
    start = jnp.zeros((1, K))
    forward = plain(x_LE[:, None], start, params["forward"])[:, 0]
    backward = plain(x_LE[::-1, None], start, params["backward"])[::-1, 0]
    return jnp.concatenate([forward, backward], axis=-1)


TEXTS = {(0, 1): (0, 2), (0, 2): (2, 4), (1, 1): (1, 3), (2, 1): (0, 4)}  # row and number of a text: its positions


def test_each_text_of_a_row_is_read_alone_in_both_directions():
    """Two texts side by side, one between padding of NaN, one that fills its row: outputs, and gradients of all."""
    rng = np.random.default_rng(5)
    model, x = BiLSTM(E, K, jnp.float32), rng.normal(size=(3, 4, E)).astype(np.float32)
    params, weight = drawn(model, x, seed=6), rng.normal(size=(3, 4, 2 * K)).astype(np.float32)
    mask = np.zeros((3, 4), np.int32)
    for (row, number), (begin, end) in TEXTS.items():
        mask[row, begin:end] = number
    empty = np.where(mask[..., None] > 0, x, np.nan)

    def theirs(params, x):
        parts = {at: both_ways(x[at[0], begin:end], params) for at, (begin, end) in TEXTS.items()}
        return sum((parts[at] * weight[at[0], slice(*TEXTS[at])]).sum() for at in TEXTS), parts

    def ours(params, x):
        found = model.apply({"params": params}, x, mask)
        return jnp.where(mask[..., None] > 0, found * weight, 0).sum(), found

    (_, found), got = jax.jit(jax.value_and_grad(ours, (0, 1), has_aux=True))(params, empty)
    (_, wanted), want = jax.jit(jax.value_and_grad(theirs, (0, 1), has_aux=True))(params, x)
    for at, part in wanted.items():
        np.testing.assert_allclose(found[at[0], slice(*TEXTS[at])], part, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, want)
    assert all(np.abs(x).max() > 1e-3 for x in jax.tree.leaves(got))
    np.testing.assert_array_equal(got[1][mask == 0], 0)


def test_a_row_without_a_mask_is_one_text():
    model, x = BiLSTM(E, K, jnp.float32), np.random.default_rng(7).normal(size=(2, 5, E)).astype(np.float32)
    params = drawn(model, x)
    found = jax.jit(model.apply)({"params": params}, x)
    np.testing.assert_allclose(found[1], both_ways(x[1], params), atol=1e-6)
    np.testing.assert_array_equal(found, jax.jit(model.apply)({"params": params}, x, np.ones((2, 5), bool)))
