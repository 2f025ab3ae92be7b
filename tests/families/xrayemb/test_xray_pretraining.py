"""Tests the five losses of XRayEmb: each equals a loop, and its gradient reaches only the right parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import applied
from small_xrayemb_losses import END, B, C, D, L, S, V, small_batch, small_model, with_words

from charlm.families.xrayemb import loss
from charlm.families.xrayemb.decoder import spelled_rows
from charlm.families.xrayemb.loss import LOSSES, XRayLosses, XRaySums, sphere_points, summarize

WEIGHTS = {"language": 1.0, "embedding": 0.5, "generation": 0.25, "cycle_words": 0.125, "cycle_sphere": 2.0}


@pytest.fixture(scope="module")
def batch():
    return small_batch()


@pytest.fixture(scope="module")
def made(batch):
    return small_model("bert", batch)


def nats_of(logits, labels):
    logits = np.asarray(logits, np.float64)
    return float(np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels[..., None], -1)[..., 0])


def spell(model, params, chars_UC):
    return np.asarray(applied(model, method="spell")(params, chars_UC.astype(np.int32)))


def generate(model, params, vectors_UD):
    return jax.device_get(applied(model, method="generate", max_steps=C - 2)(params, vectors_UD))


def write(model, vectors_UD, chars_UC):
    return model.xr_dec(vectors_UD, chars_UC.astype(np.int32))


def characters(model, params, vectors_UD, chars_UC):
    """Returns the negative log-likelihood of words, and their number of labels, by a loop."""
    logits = applied(model, method=write)(params, vectors_UD, chars_UC)
    nats = labels = 0
    for u, row in enumerate(chars_UC):
        for t in range(1, np.count_nonzero(row)):
            nats += nats_of(logits[u, t - 1], row[t].astype(int) - 1)
            labels += 1
    return nats, labels


def expected(model, params, batch):
    """Returns the sum and the divisor of every loss but that of the sphere, by loops."""
    output = applied(model)(params, batch.inputs)
    logits = np.asarray(output.logits).reshape(S, B * L, V)
    states = np.asarray(output.transformer.states_BLD).reshape(S, B * L, D)
    rows = np.asarray(params[model_name(params)]["embed"]["token"]["embedding"])
    found = dict.fromkeys(LOSSES[:4], (0.0, 0.0))
    add = lambda name, nats, labels: found.update({name: (found[name][0] + nats, found[name][1] + labels)})
    for s in range(S):
        for at, label in zip(batch.position_SM[s], batch.labels_SM[s], strict=True):
            if label >= 0:
                add("language", nats_of(logits[s, at], label), 1)
        table = spell(model, params, batch.inputs.chars[0][s])
        for row, pieces in zip(batch.learned.row_SW[s], batch.learned.pieces_SWP[s], strict=True):
            if pieces[0] >= 0:
                add("embedding", np.square(table[row] - rows[pieces[pieces >= 0]].max(axis=0)).mean(), 1)
        for written in batch.written:
            add("generation", *characters(model, params, states[s, written.position_SG[s]], written.chars_SGC[s]))
        for chars in batch.cycle:
            add("cycle_words", *characters(model, params, spell(model, params, chars[s]), chars[s]))
    return found


def model_name(params):
    return "bert" if "bert" in params else "gpt2"


@pytest.mark.parametrize("kind", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_sums_equal_loops(made, batch, kind):
    model, params = made if kind == "bert" else small_model(kind, batch)
    sums = jax.jit(lambda params: XRayLosses(WEIGHTS).sums(model, params, batch, jax.random.key(5)))(params)
    for name, (total, divisor) in expected(model, params, batch).items():
        np.testing.assert_allclose(getattr(sums, name), WEIGHTS[name] * total, rtol=2e-5)
        assert getattr(sums, f"{name}_weight") == divisor
    assert sums.cycle_sphere_weight == S * 4
    assert sums.generation_characters == sums.generation_weight
    assert sums.rebuilt_words == 0  # counted in evaluation alone
    metrics = summarize(sums, WEIGHTS)
    total = sum(WEIGHTS[name] * metrics[f"{name}_loss"] for name in LOSSES)
    assert metrics["loss"] == pytest.approx(total, rel=1e-5)


def test_the_sphere_is_read_again_as_the_generator_wrote_it(made, batch):
    model, params = made
    only = XRayLosses(dict.fromkeys(LOSSES, 0.0) | {"cycle_sphere": 1.0})
    key = jax.random.key(5)
    sums = jax.jit(lambda params: only.sums(model, params, batch, key))(params)
    points = sphere_points(jax.random.fold_in(key, 1), (S * 4, D))
    rows = np.asarray(spelled_rows(generate(model, params, points), END))
    assert (rows[:, 0] == END).all()
    assert len(np.unique(rows, axis=0)) > 2
    vectors = spell(model, params, rows)
    np.testing.assert_allclose(sums.cycle_sphere, np.square(vectors - points).mean(axis=1).sum(), rtol=1e-5)
    assert np.linalg.norm(sphere_points(key, (100, 400)), axis=1) == pytest.approx(1, abs=0.15)


# Whom each loss moves: parts of the parameters.
REACHED = {
    "language": {"backbone", "xr_enc"},
    "embedding": {"xr_enc"},
    "generation": {"backbone", "xr_enc", "xr_dec"},
    "cycle_words": {"xr_enc", "xr_dec"},
    "cycle_sphere": {"xr_enc"},
}


def gradients(losses, model, params, batch):
    """Returns the gradient of every loss, each array with an axis of losses before the others."""
    of = lambda params: jnp.stack(losses.sums(model, params, batch, jax.random.key(5))[0:10:2])
    return jax.device_get(jax.jit(jax.jacrev(of))(params))


def reached(grads, number):
    """Returns the parts of the parameters that a loss has a gradient for."""
    moves = lambda tree: any(np.any(x[number]) for x in jax.tree.leaves(tree))
    return {"backbone" if name in ("bert", "head") else name for name, tree in grads.items() if moves(tree)}


def test_no_two_parts_of_a_step_have_the_same_dropout(made, batch, monkeypatch):
    used = {}
    of = {"_words": 3, "_sphere": 5, "applied": 2}  # the place of the random streams among the arguments
    for name, place in of.items():
        real = getattr(loss, name)

        def noted(*arguments, real=real, name=name, place=place, **named):
            if len(arguments) > place:  # of what is applied, the text is the first
                used.setdefault(name, arguments[place]["dropout"])
            return real(*arguments, **named)

        monkeypatch.setattr(loss, name, noted)
    with jax.disable_jit():
        XRayLosses(WEIGHTS).sums(*made, batch, jax.random.key(5))
    assert len({tuple(jax.random.key_data(key).tolist()) for key in used.values()}) == len(of) == len(used)


def test_gradients_reach_what_they_should_and_nothing_else(made, batch):
    model, params = made
    grads = gradients(XRayLosses(WEIGHTS), model, params, batch)
    assert {name: reached(grads, number) for number, name in enumerate(LOSSES)} == REACHED


def test_the_table_moves_towards_the_encoder_if_it_may(made, batch):
    model, params = made
    losses = XRayLosses(dict.fromkeys(LOSSES, 0.0) | {"embedding": 1.0}, detach=False)
    grads = gradients(losses, model, params, batch)
    assert [reached(grads, number) for number in range(5)] == [set(), {"xr_enc", "backbone"}, set(), set(), set()]
    rows = np.asarray(grads["bert"]["embed"]["token"]["embedding"][1])
    assert set(np.flatnonzero(rows.any(axis=1))) <= {2, 3, 4, 5, 7, 9}


@pytest.mark.parametrize("name", LOSSES)
def test_what_has_no_weight_is_not_asked(batch, name):
    losses = XRayLosses(dict.fromkeys(LOSSES, 0.0) | {name: 1.0})
    assert [weight > 0 for weight in losses.label_weights(batch)] == [other == name for other in LOSSES]


@pytest.mark.parametrize(("pooling", "pool"), [("mean", np.mean), ("first", lambda rows, axis: rows[0])])
def test_poolings(made, batch, pooling, pool):
    model, params = made
    losses = XRayLosses(dict.fromkeys(LOSSES, 0.0) | {"embedding": 1.0}, pooling=pooling)
    rows = np.asarray(params[model_name(params)]["embed"]["token"]["embedding"])
    total = 0
    for s, w in ((0, 0), (0, 1), (1, 0)):
        pieces = batch.learned.pieces_SWP[s, w]
        vector = spell(model, params, batch.inputs.chars[0][s])[batch.learned.row_SW[s, w]]
        total += np.square(vector - pool(rows[pieces[pieces >= 0]], axis=0)).mean()
    found = jax.jit(lambda params: losses.sums(model, params, batch, None).embedding)(params)
    np.testing.assert_allclose(found, total, rtol=1e-5)


def test_a_batch_of_cycles_alone_has_finite_gradients_of_both_parts(made, batch):
    model, params = made
    none = jax.tree.map(np.zeros_like, batch)
    learned = none.learned._replace(pieces_SWP=np.full_like(batch.learned.pieces_SWP, -1))
    labels = np.full_like(batch.labels_SM, -1)
    alone = none._replace(cycle=batch.cycle, points_SK=batch.points_SK, learned=learned, labels_SM=labels)
    losses = XRayLosses(WEIGHTS, reduction="sum_per_word", distance="euclidean")
    assert [weight > 0 for weight in losses.label_weights(alone)] == [False] * 3 + [True] * 2
    grads = jax.device_get(
        jax.jit(jax.grad(lambda p: sum(losses.sums(model, p, alone, jax.random.key(5))[0:10:2])))(params)
    )
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads))
    moved = {name for name, tree in grads.items() if any(np.any(x) for x in jax.tree.leaves(tree))}
    assert moved == {"xr_enc", "xr_dec"}


def test_the_papers_distance_is_a_length(made, batch):
    """The length of a difference in place of its mean square, for the embedding loss and the sphere."""
    model, params = made
    weights = dict.fromkeys(LOSSES, 0.0) | {"embedding": 1.0, "cycle_sphere": 1.0}
    key = jax.random.key(5)
    found = jax.jit(lambda p: XRayLosses(weights, distance="euclidean").sums(model, p, batch, key))(params)
    points = sphere_points(jax.random.fold_in(key, 1), (S * 4, D))
    vectors = spell(model, params, np.asarray(spelled_rows(generate(model, params, points), END)))
    np.testing.assert_allclose(found.cycle_sphere, np.linalg.norm(vectors - points, axis=1).sum(), rtol=1e-5)
    rows, total = np.asarray(params[model_name(params)]["embed"]["token"]["embedding"]), 0
    for s, w in ((0, 0), (0, 1), (1, 0)):
        pieces = batch.learned.pieces_SWP[s, w]
        vector = spell(model, params, batch.inputs.chars[0][s])[batch.learned.row_SW[s, w]]
        total += np.linalg.norm(vector - rows[pieces[pieces >= 0]].max(axis=0))
    np.testing.assert_allclose(found.embedding, total, rtol=1e-5)
    with pytest.raises(ValueError, match="distance='l2' is not one of euclidean, mean_square"):
        XRayLosses(weights, distance="l2")


def test_words_may_count_alike(batch):
    losses = XRayLosses(WEIGHTS, reduction="sum_per_word")
    _, _, generation, cycle, _ = losses.label_weights(batch)
    assert (generation, cycle) == (3 + 5, 8)
    mean = XRayLosses(WEIGHTS).label_weights(batch)
    assert (mean[2], mean[3]) == tuple(
        sum((rows[..., 1:] != 0).sum() for rows in tables)
        for tables in ([written.chars_SGC for written in batch.written], batch.cycle)
    )


@pytest.fixture(scope="module")
def evaluated(made):
    """Returns what sums a batch in evaluation, compiled once."""
    model, params = made
    sums = jax.jit(lambda batch: XRayLosses(WEIGHTS).sums(model, params, batch, None))
    return lambda batch: jax.device_get(sums(batch))


def test_without_words_of_cycles_nothing_comes_of_them(evaluated, batch):
    none = with_words(batch, np.zeros((S, 4, C), np.uint16), (5, C), (2, 3))
    sums = evaluated(none)
    assert sums.cycle_words == sums.cycle_sphere == sums.cycle_words_weight == sums.rebuilt_words == 0
    metrics = summarize(sums, WEIGHTS)
    assert "cycle_words_loss" not in metrics
    assert "language_loss" in metrics


def test_other_points_of_the_sphere_with_other_text_and_the_same_again(evaluated, batch):
    other = batch._replace(inputs=batch.inputs._replace(ids_SBL=np.maximum(batch.inputs.ids_SBL, 0)))
    found, again, elsewhere = (evaluated(x) for x in (batch, batch, other))
    assert found.cycle_words == elsewhere.cycle_words
    assert found.cycle_sphere == again.cycle_sphere
    assert abs(found.cycle_sphere - elsewhere.cycle_sphere) > 1e-3


def in_one_table(batch):
    """Returns the words of cycles, without rows that are none."""
    rows = np.concatenate([np.pad(x, ((0, 0), (0, 0), (0, C - x.shape[-1]))).reshape(-1, C) for x in batch.cycle])
    return rows[rows[:, 0] != 0]


def generated_from(model, params, chars_UC):
    """Returns what the generator makes of the vectors of words."""
    return generate(model, params, spell(model, params, chars_UC))


@pytest.mark.slow
def test_length_buckets_change_no_sum_and_no_gradient(made, evaluated, batch):
    """Nor does it matter where a word stands, or that one found no room: it has its point of the sphere still."""
    model, params = made
    words_SKC = in_one_table(batch).reshape(S, 4, C)
    assert [x.any(axis=-1).sum() for x in batch.cycle] == [4, 4]
    # The losses whose words these are; the others' gradients are none of theirs, as their sums below show.
    of_words = XRayLosses(WEIGHTS | {"language": 0.0, "embedding": 0.0, "generation": 0.0})
    loss = lambda params, batch: sum(of_words.sums(model, params, batch, jax.random.key(5))[0:10:2])
    both, other = jax.jit(jax.value_and_grad(loss)), with_words(batch, words_SKC, (C,), (4,))
    for name, found, want in zip(XRaySums._fields, evaluated(other), evaluated(batch), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, err_msg=name)
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, both(params, other), both(params, batch))
    longest = words_SKC.reshape(-1, C)[(words_SKC != 0).sum(axis=-1).argmax()]
    crowded = evaluated(with_words(batch, np.tile(longest, (S, 4, 1)), (5, C), (2, 3)))
    assert crowded.rebuilt_words == 3 * S
    assert crowded.cycle_sphere == evaluated(batch).cycle_sphere


def test_a_word_that_fills_its_bucket_must_be_ended_to_be_whole(made, evaluated, batch):
    model, params = made
    letters = np.zeros((1, END - 1, C), np.uint16)
    letters[0, :, :3] = [[END, letter, END] for letter in range(1, END)]
    generated = generated_from(model, params, letters[0])
    begun = np.asarray(generated.ids_UT[:, 0]) == letters[0, :, 1]
    ended = begun & (np.asarray(generated.length_U) == 1)
    assert begun.sum() > ended.sum()
    sums = evaluated(with_words(batch, np.concatenate([letters, 0 * letters]), (3, C), (END - 1, 1)))
    assert (sums.rebuilt_right, sums.rebuilt_words_right) == (begun.sum(), ended.sum())


def test_rebuilt_words_are_counted_character_by_character(made, evaluated, batch):
    model, params = made
    chars = in_one_table(batch)
    generated = generated_from(model, params, chars)
    right = np.asarray(spelled_rows(generated, END))[:, 1:-1] == chars[:, 1:-1]
    length = np.count_nonzero(chars, axis=1) - 2
    inside = np.arange(C - 2) < length[:, None]
    sums = evaluated(batch)
    assert (sums.rebuilt_characters, sums.rebuilt_right) == (inside.sum(), (right & inside).sum())
    assert sums.rebuilt_words == len(chars)
    assert sums.rebuilt_words_right == ((right | ~inside).all(axis=1) & (generated.length_U == length)).sum()


def test_nothing_asked_and_unknown_names():
    with pytest.raises(ValueError, match="nothing was asked: too little text"):
        summarize(XRaySums(*[0.0] * len(XRaySums._fields)), WEIGHTS)
    with pytest.raises(ValueError, match=r"losses: no weight of embedding"):
        XRayLosses({name: 1.0 for name in LOSSES if name != "embedding"})
    with pytest.raises(ValueError, match=r"pooling='median' is not one of max, mean, first"):
        XRayLosses(WEIGHTS, pooling="median")
