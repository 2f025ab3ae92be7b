"""Masks of rows with several texts: what sees what, and how positions are counted."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import release

from charlm.families.pretrained import from_pretrained
from charlm.families.subword.bert import BertConfig, position_ids
from charlm.nn.masks import counted, numbers_texts, real_positions, visible_keys

NUMBERS = jnp.array([[1, 1, 1, 2, 2, 3, 0, 0]])
ALONE = jnp.array([[True, True, False]])


def test_a_text_sees_itself_alone():
    seen = np.asarray(visible_keys(NUMBERS)[0])
    numbers = np.asarray(NUMBERS[0])
    for query in range(6):
        np.testing.assert_array_equal(seen[query], numbers == numbers[query])
    assert visible_keys(NUMBERS, slice(2)).shape == (1, 2, 8)
    assert visible_keys(ALONE).shape == (1, 1, 3)
    assert numbers_texts(NUMBERS)
    assert not numbers_texts(ALONE)
    assert real_positions(NUMBERS).tolist() == [[True] * 6 + [False] * 2]


def test_positions_are_counted_from_the_start_of_a_text():
    assert counted(real_positions(NUMBERS), NUMBERS)[0, :6].tolist() == [1, 2, 3, 1, 2, 1]
    some = jnp.array([[True, False, True, False, True, True, False, False]])
    assert counted(some, NUMBERS)[0, :6].tolist() == [1, 1, 2, 0, 1, 1]
    assert counted(ALONE, ALONE).tolist() == [[1, 2, 2]]


def test_a_first_text_that_counts_nothing_at_its_start():
    """Padding ids inside texts, which RoBERTa does not count."""
    numbers = jnp.array([[1, 1, 2, 2]])
    assert counted(jnp.array([[False, True, False, True]]), numbers).tolist() == [[0, 1, 0, 1]]


@pytest.mark.parametrize("mask", [[[1, 1, 0, 1, 1]], [[0, 0, 1, 1, 1]], [[1, 1, 1, 0, 0]]])
@pytest.mark.parametrize("family", ["bert", "roberta", "roformer", "gpt2"])
def test_a_mask_of_zeros_and_ones_means_what_a_bool_one_does(family, mask):
    """As Hugging Face's users have it, also with padding on the left or inside."""
    found, ids, mask_1L = from_pretrained(release(family)), np.array([[7, 8, 9, 10, 11]]), np.array(mask)
    states = lambda mask_1L: np.asarray(
        found.model.apply({"params": found.params}, ids, mask_1L).transformer.states_BLD
    )
    one, other = states(mask_1L), states(mask_1L == 1)
    np.testing.assert_allclose(one[mask_1L == 1], other[mask_1L == 1], atol=1e-5)


def test_rows_of_the_position_table():
    bert, roberta = BertConfig(), BertConfig(position_offset=2, pad_id=1, max_positions=514)
    assert position_ids(bert, None, ALONE) is None
    found = position_ids(bert, None, NUMBERS)
    assert found is not None
    assert found[0, :6].tolist() == [0, 1, 2, 0, 1, 0]
    assert position_ids(bert, None, jnp.array([[0, 0, 1, 1]])).tolist() == [[0, 1, 2, 3]]
    ids = jnp.array([[9, 9, 9, 9, 1, 9, 1, 1]])
    found = position_ids(roberta, ids, NUMBERS)
    assert found is not None
    assert found.tolist() == [[2, 3, 4, 2, 1, 2, 1, 1]]
