"""Tests how pieces are found in words: the longest that ends at each slot, compared with a search by plain Python."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from programs import applied

from charlm.nn.embed import CharEmbed, PieceEmbed
from charlm.nn.pieces import FACTORS, NO_PIECES, PieceTable, piece_rows

START = 5  # the id before a word


def words(count: int, slots: int, letters: int, seed: int) -> np.ndarray:
    """Words of few different letters, so that many pieces fit, padded by zeros."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(8, 8 + letters, (count, slots))
    ids[:, 0] = START
    return np.where(np.arange(slots) < rng.integers(1, slots + 1, count)[:, None], ids, 0)


def drawn_pieces(count: int, longest: int, letters: int, seed: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    drawn = (
        (START,) * int(rng.integers(0, 2)) + tuple(rng.integers(8, 8 + letters, rng.integers(1, longest)).tolist())
        for _ in range(count)
    )
    return list(dict.fromkeys(drawn))


def longest_by_hand(word: list[int], end: int, pieces: dict[tuple[int, ...], int]) -> int | None:
    """The number of the longest piece that ends at a slot; None if none does."""
    for start in range(end + 1):
        if 0 not in word[start : end + 1] and tuple(word[start : end + 1]) in pieces:
            return pieces[tuple(word[start : end + 1])]
    return None


@pytest.mark.parametrize(("letters", "longest", "count"), [(2, 9, 60), (4, 5, 300), (3, 30, 50), (2, 2, 3)])
def test_the_longest_piece_is_found_at_every_slot_and_nothing_else(letters, longest, count):
    kept = drawn_pieces(count, longest, letters, seed=1)
    found = {piece: number for number, piece in enumerate(kept)}
    chars = words(200, 12, letters, seed=2)
    rows, there = (np.asarray(x) for x in jax.jit(lambda chars: piece_rows(chars, PieceTable(kept)))(chars))
    hits = 0
    for word, row, is_one in zip(chars.tolist(), rows, there, strict=True):
        for end in range(len(word)):
            want = longest_by_hand(word, end, found)
            assert is_one[end] == (want is not None)
            assert row[end] == (want or 0)
            hits += want is not None
    assert 0.05 < hits / chars.size < 1


def test_as_many_pieces_as_a_large_vocabulary_has_are_told_apart():
    """Of 250,000 pieces some seven pairs share a hash of 32 bits."""
    rng = np.random.default_rng(3)
    kept = list(dict.fromkeys(map(tuple, rng.integers(8, 1000, (250_000, 4)).tolist())))
    table = PieceTable(kept)
    assert table.sharing == 2
    (first,) = np.nonzero(np.diff(table.codes[0].astype(np.int64)) == 0)
    shared = table.rows[np.concatenate([first, first + 1])]
    asked = np.concatenate([rng.permutation(len(kept))[:500], shared])
    rows, there = piece_rows(np.array([kept[number] for number in asked]), table)
    np.testing.assert_array_equal(np.asarray(rows)[:, 3], asked)
    assert np.asarray(there)[:, 3].all()


@pytest.mark.parametrize("count", [2, 3])
def test_pieces_that_share_a_hash_are_told_apart(count):
    """The second id of each undoes what the first one adds, so their first hashes are the same."""
    kept = [(100 + 256 * n, (100 - 256 * n * FACTORS[0]) % 2**32) for n in range(count)]
    table = PieceTable(kept)
    assert table.sharing == (2 if count == 2 else 1)
    assert (table.factors[0] == FACTORS[0]) == (count == 2)  # three of one hash: other factors are tried
    rows, there = piece_rows(np.array(kept), table)
    assert np.asarray(rows)[:, 1].tolist() == [*range(count)]
    assert np.asarray(there).tolist() == [[False, True]] * count


def test_equal_pieces_are_equal_tables():
    one, same, other = PieceTable([(8, 9), (5, 8)]), PieceTable([(8, 9), (5, 8)]), PieceTable([(5, 8), (8, 9)])
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert repr(one) == "PieceTable(2 pieces)"
    assert not NO_PIECES
    assert PieceTable([(8,)]) != PieceTable([(8, 8)])


@pytest.mark.parametrize("pieces", [[(8, 9), (8, 9)], [()], [(8, 0)]])
def test_wrong_pieces_are_refused(pieces):
    with pytest.raises(ValueError, match="pieces: expected different ones of ids above 0"):
        PieceTable(pieces)


def test_vectors_are_rows_and_zero_where_no_piece_ends():
    table = np.random.default_rng(4).normal(size=(2, 4)).astype(np.float32)
    chars = np.array([[START, 8, 9, 8, 0, 0], [START, 9, 9, 8, 9, 8]])
    got = np.asarray(applied(PieceEmbed(PieceTable([(8, 9, 8), (8,)]), 4))({"embedding": table}, chars))
    want = np.zeros((2, 6, 4), np.float32)
    want[0, 1], want[0, 3], want[1, 3], want[1, 5] = table[1], table[0], table[1], table[0]
    np.testing.assert_array_equal(got, want)


def test_a_new_model_begins_as_one_without_pieces():
    shape = (40, 8, 1e-7, 0.0, "bert", np.float32)
    chars = words(5, 6, 4, seed=5)
    plain, more = CharEmbed(*shape), CharEmbed(*shape, pieces=PieceTable([(START, 8), (9, 8)]))
    params = dict(more.init(jax.random.key(0), chars, True)["params"])
    np.testing.assert_array_equal(params["pieces"]["embedding"], np.zeros((2, 8)))
    without = plain.apply({"params": {name: x for name, x in params.items() if name != "pieces"}}, chars, True)
    np.testing.assert_array_equal(more.apply({"params": params}, chars, True), without)
