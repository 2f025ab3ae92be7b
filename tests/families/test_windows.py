"""Tests windows: they hold every piece once and are cut between words if possible; batches have few shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charlm.families import windows as windows_module
from charlm.families.subword.scoring import stretches
from charlm.families.windows import (
    Text,
    batches,
    of_like_length,
    rounded,
    rows_a_call,
    together,
    window_around,
    windows,
)
from charlm.nn.kernels import Machine


def text(lengths, prefix=(1,), suffix=(2,)):
    """Returns a text of words of so many pieces, whose ids count from 100."""
    words = [word for word, length in enumerate(lengths) for _ in range(length)]
    ids = list(range(100, 100 + len(words)))
    return Text(ids, [(i, i + 1) for i in range(len(ids))], words, list(prefix), list(suffix))


def begins(pieces, place):
    return place in (0, len(pieces.ids)) or pieces.words[place] != pieces.words[place - 1]


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(3, 12))
def test_windows_hold_every_piece_once_and_whole_words(lengths, longest):
    pieces = text(lengths)
    found = windows(pieces, longest)
    assert [*itertools.chain.from_iterable(w.ids[1:-1] for w in found)] == pieces.ids
    for window in found:
        assert len(window.ids) <= longest
        assert (window.ids[0], window.ids[-1], window.before) == (1, 2, 1)
        assert window.ids[1:-1] == pieces.ids[window.start : window.end]
    for one, other in itertools.pairwise(found):
        assert one.end == other.start
        if not begins(pieces, one.end):  # inside a word, which then began this window and is longer than it
            assert len({*pieces.words[one.start : one.end]}) == 1
            assert len(one.ids) == longest
        elif one.end < len(pieces.ids):  # one more word would not have fitted
            word = lengths[pieces.words[one.end]]
            assert one.end - one.start + word > longest - 2


def test_windows_of_little():
    assert [w.ids for w in windows(text([]), 5)] == [[1, 2]]
    assert [w.ids for w in windows(text([], (), ()), 5)] == [[]]
    assert [w.ids for w in windows(text([3]), 5)] == [[1, 100, 101, 102, 2]]
    assert [w.ids for w in windows(text([2, 2]), 5)] == [[1, 100, 101, 2], [1, 102, 103, 2]]
    assert [w.ids for w in windows(text([4, 1]), 5)] == [[1, 100, 101, 102, 2], [1, 103, 104, 2]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(8, 14), st.data())
def test_a_window_around_pieces_holds_them(lengths, longest, data):
    pieces = text(lengths)
    at = data.draw(st.integers(0, len(pieces.ids) - 1))
    count = data.draw(st.integers(1, min(longest - 2, len(pieces.ids) - at)))
    window = window_around(pieces, at, count, longest)
    assert window.start <= at
    assert at + count <= window.end
    assert len(window.ids) <= longest
    assert window.ids[1:-1] == pieces.ids[window.start : window.end]
    if window.start + 5 <= at:  # no word here is longer than that
        assert begins(pieces, window.start)
    if at + count + 5 <= window.end:
        assert begins(pieces, window.end)


def test_a_window_is_centred_and_reaches_the_ends():
    pieces = text([1] * 30)
    at = lambda place: (lambda w: (w.start, w.end))(window_around(pieces, place, 1, 12))
    assert [at(0), at(15), at(29)] == [(0, 10), (11, 21), (20, 30)]


def test_lengths_are_rounded_to_few():
    assert [rounded(n) for n in (1, 16, 17, 24, 25, 33, 48, 49, 100, 400)] == [16, 16, 24, 24, 32, 48, 48, 64, 128, 512]
    assert rounded(400, 420) == 420
    assert all(n <= rounded(n) <= max(16, n * 3 // 2) for n in range(1, 2000))
    assert len({rounded(n) for n in range(1, 1025)}) == 13


@pytest.mark.parametrize("left", [False, True])
def test_batches_hold_every_row(left):
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, 90, rng.integers(1, 40)).tolist() for _ in range(23)]
    seen, shapes = {}, set()
    for chosen, ids_BL, mask_BL in batches(rows, 8, 40, 3, left=left):
        assert ids_BL.shape == mask_BL.shape
        assert (ids_BL.dtype, mask_BL.dtype) == (np.int32, bool)
        assert (ids_BL[~mask_BL] == 3).all()
        assert not mask_BL[len(chosen) :].any()
        shapes.add(ids_BL.shape)
        for n, ids_L, mask_L in zip(chosen, ids_BL, mask_BL, strict=False):
            assert mask_L[-1 if left else 0]
            seen[n] = ids_L[mask_L].tolist()
    assert [seen[n] for n in range(23)] == rows
    assert {rows for rows, _ in shapes} == {8}  # 8, 8 and 7
    assert max(length for _, length in shapes) <= 40
    assert [ids.shape for _, ids, _ in batches([[7]] * 3, 8, 40, 0)] == [(4, 16)]


def test_processors_read_fewer_rows_a_call(monkeypatch):
    assert [rows_a_call(32, length) for length in (16, 32, 33, 96, 128, 512, 1023, 1024, 5000)] == [
        32, 32, 16, 8, 8, 2, 1, 1, 1,
    ]  # fmt: skip
    assert rows_a_call(5, 16) == 5
    assert rows_a_call(100, 16) == 64
    monkeypatch.setattr(windows_module, "this_machine", lambda: Machine("gpu", (9, 0)))
    assert rows_a_call(32, 5000) == 32


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 9))
def test_batches_of_like_length_are_as_large_as_they_may_be(lengths, most):
    made = list(of_like_length(lengths, most))
    assert sorted(itertools.chain(*made)) == list(range(len(lengths)))
    assert [lengths[n] for rows in made for n in rows] == sorted(lengths)
    assert all(len(rows) == most for rows in made[:-1])


@given(st.integers(0, 200), st.integers(2, 30))
def test_every_piece_but_the_first_is_scored_once_with_half_a_window_before_it(length, longest):
    scored = []
    for window in stretches(length, longest):
        assert window.start < window.first < window.end <= window.start + longest
        assert window.start == 0 or window.first - window.start >= longest // 2
        scored += range(window.first, window.end)
    assert scored == [*range(1, length)]


def test_a_model_that_reads_one_piece_at_a_time_scores_none():
    assert stretches(1, 1) == stretches(0, 1) == []
    with pytest.raises(ValueError, match="a model of 1 position scores nothing: expected at least 2"):
        stretches(2, 1)


def test_equal_rows_are_read_together_up_to_a_limit():
    assert together(["a", "b", "a", "a", "c", "b"], 2) == [[0, 2], [3], [1, 5], [4]]
    assert together([]) == []
