"""Texts laid end to end: each is read once, rows are nearly full, and states are those that a text has by itself."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_char2subword import spelled
from small_characterbert import characterbert
from small_hlm import hlm
from small_xrayemb import xrayemb
from tiny_models import release

from charlm.families.predictor import Predictor
from charlm.families.unpadded import Call, calls
from charlm.families.windows import mask_of, packed, rounded, rows_a_call
from charlm.families.xrayemb.predictor import XRayEmbPredictor
from charlm.nn.kernels import Machine

LONGEST = 512


def laid(lengths: list[int], shares: bool = True, batch_size: int = 32) -> list[Call]:
    most = lambda length: rows_a_call(batch_size, length)
    return list(calls(lengths, lambda n: rounded(min(n, LONGEST), LONGEST), most, shares=shares))


@given(st.lists(st.integers(1, LONGEST), max_size=60), st.booleans(), st.sampled_from([1, 5, 32]))
def test_every_text_has_a_place_of_its_own(lengths, shares, batch_size):
    made = laid(lengths, shares, batch_size)
    assert sorted(n for call in made for n in call.at) == list(range(len(lengths)))
    for call in made:
        assert call.rows <= rows_a_call(batch_size, call.length)
        taken = np.zeros((call.rows, call.length), int)
        for n, (row, start) in call.at.items():
            assert start + lengths[n] <= call.length
            taken[row, start : start + lengths[n]] += 1
        assert taken.max() == 1
        mask = call.mask(lengths)
        np.testing.assert_array_equal(mask != 0, taken == 1)
        for n, (row, start) in call.at.items():
            assert len(set(mask[row, start : start + lengths[n]].tolist())) == 1
        if not shares:
            assert len({row for row, _ in call.at.values()}) == len(call.at)
            assert mask.max() == 1


def test_a_mask_numbers_the_texts_of_a_row():
    call = Call(2, 6, {0: (0, 3), 1: (0, 0), 2: (1, 0)})
    assert call.mask([2, 3, 1]).tolist() == [[1, 1, 1, 2, 2, 0], [1, 0, 0, 0, 0, 0]]


def test_fused_attention_gets_a_mask_of_keys_where_it_can(monkeypatch):
    alone, shared = Call(1, 6, {0: (0, 0)}), Call(1, 6, {0: (0, 0), 1: (0, 3)})
    assert mask_of(alone, [3, 2]).tolist() == [[1, 1, 1, 0, 0, 0]]
    assert mask_of(alone, [3, 2]).dtype == np.int32
    monkeypatch.setattr("charlm.families.windows.this_machine", lambda: Machine("gpu", (9, 0)))
    assert mask_of(alone, [3, 2]).dtype == bool
    assert mask_of(alone, [3, 2]).tolist() == [[True, True, True, False, False, False]]
    assert mask_of(shared, [3, 2]).tolist() == [[1, 1, 1, 2, 2, 0]]


def test_rows_are_nearly_full_and_have_few_shapes():
    rng = np.random.default_rng(0)
    shapes: set[tuple[int, int]] = set()
    real = computed = 0
    for _ in range(1000):
        lengths = rng.integers(23, 70, size=rng.integers(1, 65)).tolist()
        real += sum(lengths)
        for call in laid(lengths):
            computed += call.rows * call.length
            shapes.add((call.rows, call.length))
    assert real > 0.9 * computed
    assert len(shapes) <= 16  # as many programs are compiled for a thousand batches


def test_a_single_text_gets_a_short_row():
    assert [(call.rows, call.length) for call in laid([7])] == [(1, 16)]
    assert [(call.rows, call.length) for call in laid([20, 21])] == [(1, 48)]
    assert [(call.rows, call.length) for call in laid([300])] == [(1, 384)]


def test_ids_lie_in_the_places_of_their_texts():
    rows = [[n + 1] * n for n in (3, 50, 20, 100, 1)]
    found = {}
    for call, ids_BL, mask_BL in packed(rows, 32, 60 + 68, 0, splits=True):
        assert ids_BL.dtype == np.int32
        np.testing.assert_array_equal(ids_BL != 0, mask_BL != 0)
        found |= {n: ids_BL[row, start : start + len(rows[n])].tolist() for n, (row, start) in call.at.items()}
    assert [found[n] for n in range(len(rows))] == rows


FAMILIES: dict[str, Callable[[], Predictor]] = {
    "hlm": hlm,
    **{
        name: lambda name=name: Predictor.from_checkpoint(release(name))
        for name in ("bert", "roberta", "roformer", "gpt2", "charbert")
    },
    "characterbert": lambda: Predictor.from_checkpoint(characterbert()),
    "characterbert, rotary": lambda: Predictor.from_checkpoint(characterbert(position="rotary")),
    "char2subword": lambda: Predictor.from_checkpoint(spelled("bert")),
    "char2subword, gated": lambda: Predictor.from_checkpoint(spelled("bert", mode="gated")),
    **{
        f"xrayemb on {name}": lambda name=name: XRayEmbPredictor(xrayemb(name))
        for name in ("roberta", "roformer", "gpt2")
    },
}


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_states_are_those_of_texts_by_themselves(name, cached, monkeypatch):
    """In float32 to 1e-5, for every family: several texts a row, one text a row, and each text by itself."""
    predictor = copy.copy(FAMILIES[name]())
    if not cached and not predictor.caches:
        pytest.skip("it has no cache")
    if not cached:
        predictor.cache = None
    words = ["the", "cat", "sat", "unbelievably", "near", "a", "tree"]
    texts = [" ".join(words[n % 3 :][: 1 + n % 5]) for n in range(12)]
    together = predictor.encode(texts)
    for module in ("charlm.families.windows", "charlm.families.hlm.predictor"):
        monkeypatch.setattr(f"{module}.calls", lambda *given, **named: calls(*given, **named | {"shares": False}))
    apart = predictor.encode(texts)
    alone = [predictor.encode([text])[0] for text in texts[:3]]
    for one, other in [*zip(together, apart, strict=True), *zip(together, alone, strict=False)]:
        assert one.words == other.words
        atol = 1e-5 * max(1.0, float(np.abs(other.vectors_WD).max()))
        np.testing.assert_allclose(one.vectors_WD, other.vectors_WD, atol=atol)
        np.testing.assert_allclose(one.sentence_D, other.sentence_D, atol=atol)
