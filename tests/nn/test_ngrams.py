"""Tests the rows of character n-grams: the hash by plain Python, whole n-grams of one word alone, padding no matter."""

from __future__ import annotations

import jax
import numpy as np
from programs import applied

from charlm.nn.embed import CharEmbed, NGramEmbed
from charlm.nn.ngrams import FACTOR, MIXERS, ngram_rows

ROWS = 97
WORDS = np.array(
    [[5, 10, 11, 12, 13, 0, 0], [5, 10, 11, 12, 0, 0, 0], [5, 9, 10, 11, 12, 13, 14], [1, 0, 0, 0, 0, 0, 0]]
)


def by_hand(ngram: list[int], last: bool) -> int:
    """The hash in Python's own integers."""
    code = len(ngram) + FACTOR * int(last)
    for one in ngram:
        code = (code * FACTOR + one) % 2**32
    for mixer in MIXERS:
        code = (code ^ (code >> 15)) * mixer % 2**32
    return (code ^ (code >> 16)) % ROWS


def test_rows_are_those_of_the_hash_and_ngrams_end_within_their_word():
    for size in (2, 3, 4):
        rows, there = (np.asarray(x) for x in ngram_rows(WORDS, size, ROWS))
        for word, row, is_one in zip(WORDS.tolist(), rows, there, strict=True):
            letters = [one for one in word if one]
            assert is_one.tolist() == [size - 1 <= end < len(letters) for end in range(len(word))]
            for end in np.flatnonzero(is_one):
                assert row[end] == by_hand(letters[end - size + 1 : end + 1], end == len(letters) - 1)


def test_order_and_ends_count_and_padding_does_not():
    row = lambda *ids: int(ngram_rows(np.array([ids]), 3, 2**20)[0][0, 3])
    assert row(5, 10, 11, 12) == row(5, 10, 11, 12, 0, 0) == row(7, 10, 11, 12)
    assert len({row(5, 10, 11, 12), row(5, 12, 11, 10), row(5, 11, 10, 12), row(5, 10, 11, 12, 9)}) == 4


def test_rows_are_spread():
    ids = np.random.default_rng(0).integers(8, 60, (500, 12))
    counts = np.bincount(np.asarray(ngram_rows(ids, 3, 16)[0])[:, 2:].reshape(-1), minlength=16)
    assert counts.min() > 0.8 * counts.mean()


def test_vectors_are_sums_of_rows_and_zero_where_no_ngram_ends():
    table = np.random.default_rng(1).normal(size=(ROWS, 4)).astype(np.float32)
    got = np.asarray(applied(NGramEmbed(ROWS, 4, (2, 3)))({"embedding": table}, WORDS))
    for n, word in enumerate(WORDS.tolist()):
        letters = [one for one in word if one]
        for end in range(len(word)):
            parts = [letters[end - size + 1 : end + 1] for size in (2, 3) if size - 1 <= end < len(letters)]
            want = sum((table[by_hand(part, end == len(letters) - 1)] for part in parts), np.zeros(4))
            np.testing.assert_allclose(got[n, end], want, atol=1e-6)


def test_a_new_model_begins_as_one_without_ngrams():
    shape = (20, 8, 1e-7, 0.0, "torch", np.float32)
    plain, more = CharEmbed(*shape), CharEmbed(*shape, ngrams=ROWS, ngram_sizes=(3,))
    params = jax.jit(lambda: more.init(jax.random.key(0), WORDS, True)["params"])()
    np.testing.assert_array_equal(params.pop("ngrams")["embedding"], np.zeros((ROWS, 8)))
    want = jax.jit(lambda: plain.init(jax.random.key(0), WORDS, True)["params"])()
    jax.tree.map(np.testing.assert_array_equal, params, want)
