"""Tests GPT-2: it is causal, padding on either side has no effect, and the cache changes nothing."""

from __future__ import annotations

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import applied
from subword_cases import apply, case, ours
from tiny_models import release

from charlm.data.examples import TaggedExample
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.gpt2 import GPT2Config, empty_cache
from charlm.tasks.tagging import Tagging

NOISE = 5e-6
IDS = np.random.default_rng(0).integers(0, 60, (3, 9)).astype(np.int32)
assert_close = functools.partial(np.testing.assert_allclose, rtol=0, atol=NOISE)


def padded(left: int, right: int):
    """Returns IDS between padding of noise, and the mask."""
    noise = np.random.default_rng(1).integers(0, 60, (3, left + 9 + right)).astype(np.int32)
    mask = np.zeros(noise.shape, bool)
    mask[:, left : left + 9] = True
    noise[:, left : left + 9] = IDS
    return noise, mask


def test_no_position_sees_what_is_to_its_right():
    changed = IDS.copy()
    changed[:, 5:] = (changed[:, 5:] + 7) % 60
    one, other = apply("gpt2", IDS).logits, apply("gpt2", changed).logits
    np.testing.assert_array_equal(one[:, :5], other[:, :5])
    assert (np.abs(one[:, 5:] - other[:, 5:]).max(axis=-1) > 1e-3).all()


@pytest.mark.parametrize(("left", "right"), [(0, 3), (4, 0), (2, 2)])
def test_padding_on_either_side_changes_nothing(left, right):
    logits = apply("gpt2", *padded(left, right)).logits
    assert_close(logits[:, left : left + 9], apply("gpt2", IDS).logits)


def test_rows_do_not_see_each_other():
    together = apply("gpt2", IDS).logits
    assert_close(apply("gpt2", IDS[::-1]).logits[::-1], together)
    assert_close(apply("gpt2", IDS[1:2]).logits, together[1:2])


def test_embeddings_in_place_of_ids_give_the_same():
    model, params = ours("gpt2")
    rows = applied(model, method="embed_tokens")(params, IDS)
    np.testing.assert_array_equal(apply("gpt2", embeddings_BLD=rows).logits, apply("gpt2", IDS).logits)


def test_logits_at_some_positions_are_those_of_all():
    positions = np.array([[8], [0], [4]], np.int32)
    some = apply("gpt2", IDS, positions_BM=positions).logits
    assert_close(some, np.take_along_axis(np.asarray(apply("gpt2", IDS).logits), positions[..., None], axis=1))


# ---- The cache ----


@pytest.mark.parametrize("cuts", [(9,), (4, 5), (1,) * 9, (6, 1, 1, 1)])
def test_in_pieces_with_a_cache_as_at_once_without(cuts):
    model, _ = ours("gpt2")
    cache, start, logits = empty_cache(model.config, 3, places=12), 0, []
    for cut in cuts:
        output = apply("gpt2", IDS[:, start : start + cut], cache=cache)
        cache, start = output.transformer.cache, start + cut
        logits.append(output.logits)
    assert_close(np.concatenate(logits, axis=1), apply("gpt2", IDS).logits)
    assert (int(cache.length), cache.mask_BN.sum()) == (9, 27)


@pytest.mark.parametrize("side", ["left", "right"])
def test_texts_of_unequal_length_go_on_from_one_cache(side):
    """Row b has b + 3 real positions of IDS before the cache, and the next three of IDS come after it."""
    model, _ = ours("gpt2")
    first, mask = np.full((3, 6), 59, np.int32), np.zeros((3, 6), bool)
    for b in range(3):
        place = slice(6 - (b + 3), 6) if side == "left" else slice(0, b + 3)
        first[b, place], mask[b, place] = IDS[b, : b + 3], True
    cache = apply("gpt2", first, mask, cache=empty_cache(model.config, 3, 9)).transformer.cache
    after = np.stack([IDS[b, b + 3 : b + 6] for b in range(3)])
    logits = apply("gpt2", after, cache=cache).logits
    whole = np.asarray(apply("gpt2", IDS).logits)
    assert_close(logits, np.stack([whole[b, b + 3 : b + 6] for b in range(3)]))


def test_the_cache_is_a_pytree_that_a_compiled_loop_carries():
    model, params = ours("gpt2")

    def step(cache, ids_B):
        output = model.apply({"params": params}, ids_B[:, None], cache=cache)
        return output.transformer.cache, output.logits[:, 0]

    _, logits = jax.jit(lambda ids: jax.lax.scan(step, empty_cache(model.config, 3, 9), ids.T))(IDS)
    assert_close(logits.swapaxes(0, 1), apply("gpt2", IDS).logits)


def test_a_cache_that_is_full_is_loud_and_one_that_is_too_small_refused():
    model, _ = ours("gpt2")
    cache = apply("gpt2", IDS, cache=empty_cache(model.config, 3, 10)).transformer.cache
    assert np.isfinite(apply("gpt2", IDS[:, :1], cache=cache).logits).all()
    assert np.isnan(apply("gpt2", IDS[:, :2], cache=cache).logits).all()
    with pytest.raises(ValueError, match="a cache for 3 rows of 8 positions cannot take 3 rows of 9"):
        apply("gpt2", IDS, cache=empty_cache(model.config, 3, 8))
    with pytest.raises(ValueError, match="a cache for 2 rows of 10 positions cannot take 3 rows of 9"):
        apply("gpt2", IDS, cache=empty_cache(model.config, 2, 10))


def test_positions_beyond_the_table_are_loud_or_refused():
    model, _ = ours("gpt2")
    with pytest.raises(ValueError, match="25 positions, but the model has 24"):
        apply("gpt2", np.ones((1, 25), np.int32))
    cache = apply("gpt2", np.ones((1, 24), np.int32), cache=empty_cache(model.config, 1, 30)).transformer.cache
    assert np.isnan(apply("gpt2", np.ones((1, 1), np.int32), cache=cache).logits).all()


def test_a_cache_in_bfloat16_gives_the_same_as_none():
    model, _ = ours("gpt2")
    changed = model.clone(config=dataclasses.replace(model.config, dtype=jnp.bfloat16))
    cache = empty_cache(changed.config, 3, 9)
    assert cache.layers[0].key_BNHK.dtype == jnp.bfloat16
    one = apply("gpt2", IDS, cache=cache, changed=changed).logits
    np.testing.assert_allclose(one, apply("gpt2", IDS, changed=changed).logits, atol=0.05)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="gpt2: hidden=20 is not a multiple of heads=3"):
        GPT2Config(hidden=20, heads=3)
    model, params = ours("gpt2")
    with pytest.raises(ValueError, match=r"mask_BL is float64 \(3, 9\), expected bool"):
        model.apply({"params": params}, IDS, IDS * 1.0)
    assert case("gpt2").arrays["generated"].shape == (3, 8)


def test_a_words_label_may_be_at_its_first_piece(tmp_path):
    """As in XRayEmb's paper; a row of texts is still read from its end."""
    model = from_pretrained(release("gpt2"))
    units, first = units_of(model), units_of(from_pretrained(release("gpt2"), labelled="first"))
    words = ("supercalifragilistic", "cat")
    (encoded,) = units.encode_words([words])
    places = lambda units: (
        Tagging(labels=["O"]).rows([TaggedExample("1", "f", words)], units, False)[0].places.positions
    )
    assert encoded.words.count(0) > 1
    assert places(first).tolist() == [encoded.words.index(n) for n in (0, 1)]
    assert places(units).tolist() == [len(encoded) - 1 - encoded.words[::-1].index(n) for n in (0, 1)]
    assert first.join(encoded).whole == units.join(encoded).whole == len(encoded)
    exported = release("gpt2", labelled="first")
    assert json.loads((exported / "config.json").read_text())["charlm_labelled"] == "first"
    assert "charlm_labelled" not in json.loads((release("gpt2") / "config.json").read_text())
    assert from_pretrained(exported).config.labelled == "first"
    assert from_pretrained(exported, labelled="last").config.labelled == "last"
    with pytest.raises(ValueError, match="labelled='middle' is not one of first, last"):
        from_pretrained(exported, labelled="middle")
