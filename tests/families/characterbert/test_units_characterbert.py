"""Tests CharacterBERT's units: each position is a spelled word; texts, pairs, and long words that are cut."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from programs import applied
from small_characterbert import characterbert

from charlm.families.characterbert.characters import PAD, shown, spell_rows
from charlm.families.characterbert.model import CharacterBert
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.families.spelled.batch import SpelledBatch
from charlm.robustness.segmentation import segmentation

WORDS = ["Birds", "naïve", "[SEP]", "\0", "今天", "unbelievable", "the", "birds"]


@pytest.fixture(scope="module")
def model():
    return from_pretrained(characterbert())


def read_back(batch):
    """Returns for each position of a batch of one row the word that is read there."""
    rows = [chars[chars != 0].tolist() for table in batch.chars for chars in table[0]]
    return [shown(rows[n]) for n in batch.index_SBL[0, 0][batch.mask_SBL[0, 0]]]


def test_every_position_is_the_spelling_of_its_word(model):
    units = units_of(model)
    (encoded,) = units.encode_words([WORDS])
    (other,) = units.encode(["The birds."])
    assert other.offsets == ((0, 3), (4, 9), (9, 10))
    row = units.join(encoded, other)
    shape = units.measure([[row]], 1, row.length + 3)
    batch = jax.tree.map(lambda x: x[None], units.pack([row], shape))
    want = ["birds", "naive", "[sep]", "", "今天", "unbelievable"[:12], "the", "birds"]
    assert read_back(batch) == ["[CLS]", *want, "[SEP]", "the", "birds", ".", "[SEP]"]
    assert (row.first, row.second, row.whole) == (1, len(WORDS) + 2, 0)
    assert row.content[:, 1].tolist() == [0] * (len(WORDS) + 2) + [1] * 4
    used = np.concatenate([chars[0][chars[0].any(axis=1)].sum(axis=1) for chars in batch.chars])
    assert len(used) == len({*want, "[CLS]", "[SEP]", "."})  # each distinct word once
    fresh = units.fresh()
    assert fresh.join(fresh.encode_words([WORDS])[0]).content[[0, -1], 0].tolist() == [-1, -2]


def test_states_are_those_of_the_padded_reading(model):
    """A row a position, in all slots of the model, padding a character like others."""
    units = units_of(model)
    (encoded,) = units.encode_words([WORDS])
    row = units.join(encoded)
    batch = jax.tree.map(lambda x: x[None], units.pack([row], units.measure([[row]], 1, row.length)))
    ours = jax.jit(lambda params, batch: units.states(model.config, params, batch))(model.params, batch)
    chars_LC = units.spellings.rows(row.content[:, 0])
    whole = np.where(chars_LC == 0, PAD, chars_LC)[None]
    index = np.arange(row.length, dtype=np.int32)[None, None]
    padded = SpelledBatch((whole,), index, index * 0 - 1, index * 0, index >= 0)
    plain = {name: model.params[name] for name in ("bert", "cnn")}
    theirs = applied(CharacterBert(model.config))(plain, padded).states_BLD
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_long_words_lose_bytes_and_no_byte_is_unknown(model):
    found = segmentation(units_of(model), [("birds", "unbelievably"), ("x" * 12, "größte" * 3)])
    assert found == (1.0, 0.0, 0.0, 1 / 4)  # ö is read as o; eighteen bytes, of which twelve have room


def test_rows_hold_a_word_of_any_length():
    rows = spell_rows(["", "x" * 99], 14)
    assert (rows != 0).sum(axis=1).tolist() == [2, 14]
    assert spell_rows([], 14).shape == (0, 14)
