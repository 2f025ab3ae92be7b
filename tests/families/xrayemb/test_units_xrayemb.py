"""Tests XRayEmb's units: pieces and whole words, in rows and in tables that hold each word once."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_xrayemb import xrayemb

from charlm.families.lookup import units_of
from charlm.families.spelled.units import LEAST_ROWS, SpelledShape
from charlm.families.subword.units import SubwordUnits
from charlm.families.xrayemb.chars import word_rows
from charlm.families.xrayemb.conversion import chars_of
from charlm.families.xrayemb.units import XRayEmbUnits
from charlm.tasks.tagging import Tagging

BACKBONES = ("bert", "roberta", "gpt2")
WORDS = ["Birds", "unbelievably", "don't", "the", "naïve", "\x00", "größte!", "今天", "unbelievable" * 3, "the"]
TEXTS = ["the naïve birds", "", "unbelievably, the größte!", "a unbelievably b"]


@pytest.fixture(scope="module", params=BACKBONES)
def model(request):
    return xrayemb(request.param)


def packed(units, rows, length, shape=None):
    """Returns rows as a batch with one shard."""
    shape = shape or units.measure([rows], len(rows), length)
    return jax.tree.map(lambda x: x[None], units.pack(rows, shape))


def read_back(batch, chars):
    """Returns for each position of a batch of one row its id, or its word."""
    rows = [row for table in batch.chars for row in table[0]]
    ids, index, mask = batch.ids_SBL[0, 0], batch.index_SBL[0, 0], batch.mask_SBL[0, 0]
    return [chars.decode(rows[i]) if n < 0 else int(n) for n, i in zip(ids[mask], index[mask], strict=True)]


def pieces_of(tokenizer, text):
    item = tokenizer.encode(text)
    return [i for i, special in zip(item.ids, item.special, strict=True) if not special]


def test_the_policy_decides_what_is_a_word(model):
    tokenizer, base = model.tokenizer(), SubwordUnits(model)
    for text in TEXTS:
        pieces = pieces_of(tokenizer, text)
        (none,) = XRayEmbUnits(model, policy="none").encode([text])
        assert none.content.tolist() == pieces
        assert none.offsets == base.encode([text])[0].offsets
        units = XRayEmbUnits(model, policy="all_multi")
        (multi,) = units.encode([text])
        spelled = int((multi.content < 0).sum())
        assert len(multi) < len(pieces) or not spelled
        assert spelled or not text
        (every,) = XRayEmbUnits(model, policy="all").encode([text])
        assert (every.content < 0).all()
        # Those of several pieces are the same words, at the same places.
        words = [o for o, code in zip(multi.offsets, multi.content, strict=True) if code < 0]
        assert set(words) <= set(every.offsets)


def test_a_row_is_what_the_template_makes(model):
    units, base, chars = units_of(model), SubwordUnits(model), chars_of(model)
    first, second = units.encode(["the unbelievably", "naïve birds"])
    a, b = base.encode(["x", "y"])
    for row, like in ((units.join(first), base.join(a)), (units.join(first, second), base.join(a, b))):
        assert row.length == like.length - len(a) - (0 if like.second >= like.length else len(b)) + len(first) + (
            0 if like.second >= like.length else len(second)
        )
        assert row.first == like.first
    row = units.join(first, second)
    batch = packed(units, [row], row.length + 3)
    codes = row.content[:, 0]
    rows = units.spellings.rows(codes)
    assert read_back(batch, chars) == [
        chars.decode(rows[n]) if code < 0 else code for n, code in enumerate(codes.tolist())
    ]
    np.testing.assert_array_equal(batch.types_SBL[0, 0, : row.length], row.content[:, 1])
    assert not batch.mask_SBL[0, 0, row.length :].any()
    assert not batch.index_SBL[batch.ids_SBL >= 0].any()
    assert (batch.ids_SBL[0, 0, row.length :] == getattr(model.config, "pad_id", 0)).all()


def test_words_are_written_as_the_text_has_them(model):
    units, chars = XRayEmbUnits(model, policy="all"), chars_of(model)
    (encoded,) = units.encode(["unbelievable naïve"])
    want = ["unbelievable", "naive" if model.metadata["backbone"] == "bert" else "naïve"]
    np.testing.assert_array_equal(units.spellings.rows(encoded.content), word_rows(want, chars))
    row = units.join(encoded)
    assert [w for w in read_back(packed(units, [row], row.length), chars) if isinstance(w, str)] == want


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(BACKBONES),
    st.lists(st.text("abzß#X今 \x00", max_size=12), max_size=8),
    st.sampled_from(["none", "all", "all_multi", "no_suffix", "stochastic:0.5"]),
)
def test_no_given_word_is_lost(backbone, words, policy):
    units = XRayEmbUnits(xrayemb(backbone), policy=policy, eval_policy=policy)
    (encoded,) = units.encode_words([words])
    assert sorted(set(encoded.words)) == list(range(len(words)))
    assert list(encoded.words) == sorted(encoded.words)
    pieces = SubwordUnits(xrayemb(backbone)).encode_words([words])[0]
    assert len(encoded) <= len(pieces)
    assert [n for n in encoded.content.tolist() if n >= 0] == [
        p for p, place in zip(pieces.content.tolist(), kept(units, words), strict=True) if place >= 0
    ]


def kept(units, words):
    """Returns for each piece of words its id where it stays, and -1 where it is part of a word."""
    item = units._tokenizer.encode_words(words)
    found = units.collapse(item, words, given=True)
    stays_L = [-1 if isinstance(text, str) else 0 for text in found.items]
    by_piece = np.repeat(stays_L, found.ends_L - found.starts_L)
    return by_piece[~np.array(item.special, bool)].tolist() if item.ids else []


def test_a_word_has_one_label_at_its_first_position():
    from charlm.data.examples import TaggedExample

    words, tags = ("the", "unbelievably", "don't", "naïve"), ("A", "B", "C", "A")
    task = Tagging(scheme="none", labels=("A", "B", "C"))
    for backbone in BACKBONES:
        for policy in ("none", "all", "all_multi"):
            units = XRayEmbUnits(xrayemb(backbone), policy=policy)
            (row,) = task.rows([TaggedExample("0", "", words, tags)], units, training=True)
            assert row.places.words.tolist() == [0, 1, 2, 3]
            assert row.targets["label"][row.places.positions].tolist() == [0, 1, 2, 0]
            assert row.targets["weight"].sum() == 4
            (encoded,) = units.encode_words([words])
            at = (row.places.positions - row.joined.first).tolist()
            named = [encoded.words.index(w) for w in range(4)]
            if backbone == "gpt2":  # it has read a word when it has read its last piece
                named = [len(encoded) - 1 - encoded.words[::-1].index(w) for w in range(4)]
            assert at == named


def test_policies_that_draw_are_of_training():
    model = xrayemb("bert", policy="stochastic:0.5")
    units = units_of(model)
    texts = ["the birds run and the naïve storie " * 3] * 2
    assert units.draws
    assert not units_of(xrayemb("bert")).draws
    assert all((e.content >= 0).all() for e in units.encode(texts))
    first, again = units.training(1, 0).encode(texts), units.training(1, 0).encode(texts[::-1])
    for one, two in zip(first, again, strict=True):
        assert 0 < (one.content < 0).sum() < len(one)
        np.testing.assert_array_equal(one.content, two.content)
    for other in (units.training(1, 1), units.training(2, 0)):
        assert other.encode(texts)[0].content.tolist() != first[0].content.tolist()
    # What training reads, the units of all else can pack.
    row = units.join(first[0])
    assert any(isinstance(w, str) for w in read_back(packed(units, [row], row.length), chars_of(model)))
    both = XRayEmbUnits(model, policy="all", eval_policy="none")
    assert (both.encode(["the birds"])[0].content >= 0).all()
    assert (both.training(0, 0).encode(["the birds"])[0].content < 0).all()
    said = units_of(xrayemb("bert", policy="stochastic:0.5", eval_policy="all"))
    assert (said.encode(["the birds"])[0].content < 0).all()  # as its config has it
    given_too = XRayEmbUnits(model, eval_policy="stochastic:0.5")
    assert given_too.encode(texts)[0].content.tolist() == given_too.encode(texts[:1])[0].content.tolist()


def test_states_are_those_of_the_texts_alone(model):
    """They do not depend on batch or table, and are the base model's where no word is selected."""
    units, base = units_of(model), XRayEmbUnits(model, policy="none")
    rows = [units.join(e) for e in units.encode([t for t in TEXTS if t])]
    pieces = [base.join(e) for e in base.encode([t for t in TEXTS if t])]
    length = max(row.length for row in pieces)
    run = jax.jit(lambda batch: units.states(model.config, model.params, batch))
    spilled = SpelledShape(len(rows), length, (11, 22), (1, 20))
    together = run(packed(units, rows, length, spilled))
    alone = run(packed(units, rows[1:2], length, spilled))
    np.testing.assert_allclose(alone[0, : rows[1].length], together[1, : rows[1].length], atol=1e-5)
    if model.metadata["backbone"] == "bert":
        wide = run(packed(units, rows, length, units.widest(len(rows), length)))
        for n, row in enumerate(rows):
            np.testing.assert_allclose(together[n, : row.length], wide[n, : row.length], atol=1e-5)
    none = run(packed(base, pieces, length, spilled))
    plain = SubwordUnits(model)
    ids = plain.pack(pieces, (len(pieces), length))
    states = jax.jit(lambda ids: plain.states(model.config, model.params, ids))(ids)
    for n, row in enumerate(pieces):
        np.testing.assert_allclose(none[n, : row.length], states[n, : row.length], atol=1e-5)
        assert np.abs(none[n, 1] - together[n, 1]).max() > 1e-3  # words are not their pieces


def test_a_table_is_there_when_nothing_is_spelled():
    units = XRayEmbUnits(xrayemb("bert"), policy="none")
    row = units.join(*units.encode(["the birds"]))
    assert [table.shape for table in packed(units, [row], row.length).chars] == [(1, LEAST_ROWS, 7)]


def test_what_does_not_belong_together_is_refused():
    model = xrayemb("bert")
    fewer = dataclasses.replace(model, metadata=dict(model.metadata, xray_chars={"a": 1}))
    with pytest.raises(ValueError, match="4 characters, but the model has rows for 36: they do not belong together"):
        units_of(fewer)
    without = dataclasses.replace(model, metadata={})
    with pytest.raises(ValueError, match="has no characters of XRayEmb"):
        units_of(without)
    with pytest.raises(ValueError, match="did you mean all_multi"):
        XRayEmbUnits(model, policy="multi_all")


def test_padding_that_is_read_has_one_length():
    model = xrayemb("bert")
    encoder = dataclasses.replace(model.config.encoder, compat_padding=True)
    units = units_of(dataclasses.replace(model, config=dataclasses.replace(model.config, encoder=encoder)))
    assert (units.buckets, units_of(model).buckets) == ((22,), (7, 11, 16, 22))
