"""Tests masking: whole words, only their characters, in the shares and at the rate of the paper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.data.masking import Masking, mask_words, rounded_at_random
from charlm.text.chars import CLS, FIRST_CHAR, MASK, SEP, WORD_CLS

SLOTS = 10
FIRST_OWN_ID = 2000  # characters of the texts here: beyond every id that masking could put in their place


def text(words: int, seed: int = 0, padding: int = 0) -> np.ndarray:
    """Returns [CLS], words of 1 to 9 characters, [SEP], and rows of padding."""
    rng = np.random.default_rng(seed)
    chars = np.zeros((words + 2 + padding, SLOTS), np.uint16)
    chars[0, 0], chars[words + 1, 0] = CLS, SEP
    chars[1 : words + 1, 0] = WORD_CLS
    lengths = rng.integers(1, SLOTS, words)
    is_char = np.arange(SLOTS - 1) < lengths[:, None]
    chars[1 : words + 1, 1:][is_char] = rng.integers(FIRST_OWN_ID, 60_000, is_char.sum())
    return chars


def kinds(chars: np.ndarray, read: np.ndarray, labels: np.ndarray) -> list[str]:
    """Returns what became of each chosen word."""
    found = []
    for before, after in zip(chars[labels.any(axis=1)], read[labels.any(axis=1)], strict=True):
        before, after = before[1:][before[1:] != 0], after[1:][before[1:] != 0]
        if (after == MASK).all():
            found.append("mask")
        else:
            found.append("same" if (after == before).all() else "random")
    return found


def test_the_mean_of_numbers_rounded_at_random_is_exact():
    rng = np.random.default_rng(0)
    drawn = [rounded_at_random(2.3, rng) for _ in range(20_000)]
    assert set(drawn) == {2, 3}
    assert np.mean(drawn) == pytest.approx(2.3, abs=0.02)
    assert {rounded_at_random(4.0, rng) for _ in range(99)} == {4}


maskings = st.builds(
    lambda rate, shares, style: Masking(rate, min(shares), max(shares) - min(shares), 500, style),
    st.floats(0.01, 1),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.sampled_from(["paper", "reference"]),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 40), st.integers(0, 2**32), st.integers(0, 4), maskings)
def test_only_whole_words_change_and_labels_say_what_they_were(words, seed, padding, masking):
    chars = text(words, seed, padding)
    before = chars.copy()
    read, labels = mask_words(chars, masking, np.random.default_rng(seed))
    np.testing.assert_array_equal(chars, before)
    assert read.dtype == labels.dtype == np.uint16
    assert read.shape == labels.shape == chars.shape
    chosen = labels.any(axis=1)
    assert (chars[chosen, 0] == WORD_CLS).all()  # never [CLS], [SEP] or padding
    np.testing.assert_array_equal(read[:, 0], chars[:, 0])
    np.testing.assert_array_equal(labels[:, 0], 0)
    np.testing.assert_array_equal(labels[chosen, 1:], chars[chosen, 1:])  # whole words, nothing else
    np.testing.assert_array_equal(read[~chosen], chars[~chosen])
    np.testing.assert_array_equal(read != 0, chars != 0)  # the length stays visible
    new = read[(read != chars) & (read != MASK)]
    first, end = (8, 128) if masking.style == "reference" else (FIRST_CHAR, 500)
    assert ((new >= first) & (new < end)).all()
    changed = (read != chars)[chosen].any(axis=1)
    per_word = (read != chars)[chosen].sum(axis=1)
    np.testing.assert_array_equal(per_word[changed], (chars[chosen][changed, 1:] != 0).sum(axis=1))
    count = masking.rate * words
    assert chosen.sum() in ({int(count)} if masking.style == "reference" else {int(count), int(count) + 1})


def test_same_rng_same_masks():
    chars = text(50)
    first, again, other = (mask_words(chars, Masking(), np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[1], other[1])


@pytest.mark.parametrize(("words", "rate"), [(3, 0.15), (10, 0.15), (33, 0.15), (5, 0.31), (4, 1.0)])
def test_mean_count_is_the_rate_exactly(words, rate):
    draws = 4000
    rng = np.random.default_rng(0)
    chars = text(words)
    masking = Masking(rate=rate)
    total = sum(mask_words(chars, masking, rng)[1].any(axis=1).sum() for _ in range(draws))
    up = words * rate % 1  # the chance that the count is rounded up
    assert abs(total - draws * words * rate) <= 5 * (draws * up * (1 - up)) ** 0.5 + 1e-6


def test_every_word_is_chosen_equally_often():
    words, draws = 12, 4000
    rng = np.random.default_rng(0)
    chars = text(words)
    counts = sum(mask_words(chars, Masking(rate=0.25), rng)[1].any(axis=1).astype(int) for _ in range(draws))
    assert counts[0] == counts[-1] == 0
    assert np.abs(counts[1:-1] - draws / 4).max() <= 5 * (draws * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("style", ["paper", "reference"])
@pytest.mark.parametrize(("mask_share", "random_share"), [(0.8, 0.1), (0.5, 0.5), (0.0, 0.3), (1.0, 0.0)])
def test_shares_hold_word_by_word(style, mask_share, random_share):
    masking = Masking(rate=1.0, mask_share=mask_share, random_share=random_share, style=style)
    chars = text(20_000)
    found = kinds(chars, *mask_words(chars, masking, np.random.default_rng(0)))
    assert len(found) == 20_000
    wanted = {"mask": mask_share, "random": random_share, "same": 1 - mask_share - random_share}
    for kind, share in wanted.items():
        assert abs(found.count(kind) - 20_000 * share) <= 5 * (20_000 * share * (1 - share)) ** 0.5 + 1e-6, kind


@pytest.mark.parametrize(("style", "first", "end"), [("paper", FIRST_CHAR, 300), ("reference", 8, 128)])
def test_random_characters_are_uniform_over_their_ids_and_independent(style, first, end):
    masking = Masking(rate=1.0, mask_share=0.0, random_share=1.0, chars_end=300, style=style)
    chars = text(20_000)
    read, labels = mask_words(chars, masking, np.random.default_rng(0))
    ids, counts = np.unique(read[labels != 0], return_counts=True)
    np.testing.assert_array_equal(ids, np.arange(first, end))
    mean = counts.sum() / len(ids)
    assert np.abs(counts - mean).max() <= 6 * mean**0.5
    two = read[labels[:, 2] != 0]
    assert (two[:, 1] == two[:, 2]).mean() < 0.02  # each character is drawn for itself


@pytest.mark.parametrize(("words", "count"), [(1, 0), (6, 0), (7, 1), (13, 1), (14, 2), (100, 15), (101, 15)])
def test_reference_style_rounds_down(words, count):
    for seed in range(5):
        _, labels = mask_words(text(words), Masking(style="reference"), np.random.default_rng(seed))
        assert labels.any(axis=1).sum() == count


@pytest.mark.parametrize(
    "rates",
    [
        {"rate": 0.0}, {"rate": -0.1}, {"rate": 1.1}, {"mask_share": -0.1}, {"random_share": -0.1},
        {"mask_share": 0.8, "random_share": 0.3},
    ],
)  # fmt: skip
def test_impossible_rates_are_refused(rates):
    with pytest.raises(ValueError, match=r"data\.mask_rate .* data\.mask_share"):
        Masking(**rates)
