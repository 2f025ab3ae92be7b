"""Tests CharBERT's blocks: each word once and whole, with noise, masks and characters; exact saved states."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from small_charbert import LENGTH, SLOTS, small_maker, small_records, small_tokenizer
from tiny_models import release

from charlm.data.streams import SequenceStream
from charlm.data.text_records import TextRecord
from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.noise import WordNoise
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return small_tokenizer(tmp_path_factory.getbasetemp() / "small_tokenizer")


@pytest.fixture(scope="module")
def maker(tokenizer):
    return small_maker(tokenizer)


def blocks_of(records, maker, **options):
    return list(iter(SequenceStream(iter(records), maker, **options).next, None))


def assert_equal(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert one.words == other.words
        for a, b in zip(one[:1] + one.chars + one[2:6], other[:1] + other.chars + other[2:6], strict=True):
            np.testing.assert_array_equal(a, b)


def test_every_word_once_in_order_and_whole(maker, tokenizer):
    records = small_records()
    blocks = blocks_of(records, maker)
    words = [word for record in records for word in record.texts()]
    seen = [word for block in blocks for word in block.words]
    assert len(blocks) > 30
    assert len(seen) == len(words)
    changed = 0
    for word, original in zip(seen, words, strict=True):
        assert (word.term >= 0) == (word.seen != original)
        if word.term >= 0:
            changed += 1
            assert word.term == maker.terms.id(original)
    assert 0.2 < changed / sum(len(word) > 1 for word in words) < 0.4
    for block, following in itertools.pairwise(blocks):
        pieces = [i for word in block.words for i in word.pieces]
        assert len(block.ids_T) == len(pieces) + 2 <= LENGTH
        first = following.words[0]  # did not fit
        cost = 4 + sum(word.cost for word in block.words) + first.cost
        assert len(pieces) + 2 + len(first.pieces) > LENGTH or cost > SLOTS


def test_arrays_of_a_block(maker, tokenizer):
    special = tokenizer.special
    unknown = masked_total = 0
    for block in blocks_of(small_records(), maker):
        pieces = np.array([i for word in block.words for i in word.pieces])
        words = [word for word in block.words for _ in word.pieces]
        terms = np.array([word.term for word in words])
        assert (block.ids_T[0], block.ids_T[-1]) == (special.cls, special.sep)
        np.testing.assert_array_equal(pieces[block.mlm_positions - 1], block.mlm_labels)
        untouched = np.ones(len(pieces), bool)
        untouched[block.mlm_positions - 1] = False
        np.testing.assert_array_equal(block.ids_T[1:-1][untouched], pieces[untouched])
        np.testing.assert_array_equal(block.nlm_positions - 1, np.flatnonzero(terms >= 0))
        np.testing.assert_array_equal(block.nlm_labels, terms[terms >= 0])
        assert not set(block.mlm_positions) & set(block.nlm_positions)  # never both on one word
        masked_total += len(block.mlm_positions)
        chars, starts, ends = block.chars
        assert (chars[starts[block.mlm_positions]] == 0).all()  # a masked subword does not show its characters
        for place, index in enumerate(pieces, start=1):
            if place in block.mlm_positions:
                assert starts[place] == ends[place]
                continue
            spelled = chars[starts[place] : ends[place] + 1]
            if index == special.unk:  # it shows the characters of its word
                unknown += 1
                np.testing.assert_array_equal(spelled, maker.chars.vocab.ids(words[place - 1].seen))
            else:
                np.testing.assert_array_equal(spelled, maker.chars.vocab.ids(tokenizer.token(index).removeprefix("##")))
    assert unknown > 3
    assert masked_total > 30


def test_no_word_is_lost_that_is_longer_than_a_block(maker):
    long = "abcdefgh" * 9
    record = TextRecord.of([3], ["the", long, "the"], [True, False, True])
    quiet = dataclasses.replace(maker, noise=WordNoise("paper", 0.0, 0))
    blocks = blocks_of([record], quiet)
    assert "".join(word.seen for block in blocks for word in block.words) == f"the{long}the"
    assert all(len(block.ids_T) <= LENGTH for block in blocks)


def test_a_huge_unknown_word_keeps_its_beginning(maker):
    record = TextRecord.of([2], ["ï" * 500, "the"], [True, True])
    seen = dataclasses.replace(maker.masking, mask_share=0.0, random_share=0.0, rate=0.01)
    quiet = dataclasses.replace(maker, noise=WordNoise("paper", 0.0, 0), masking=seen)
    block = blocks_of([record], quiet)[0]
    assert block.words[0].seen == "ï" * 500
    assert block.mlm_positions.size == 0
    assert SLOTS - 10 < block.chars.ends_L[1] - block.chars.starts_L[1] < SLOTS


def test_noise_and_masks_depend_on_seed_and_number_alone(maker):
    records = small_records()
    assert_equal(blocks_of(records, maker), blocks_of(records, maker))
    other = dataclasses.replace(maker, seed=1)
    pairs = zip(blocks_of(records, maker), blocks_of(records, other), strict=True)
    assert any((one.ids_T != two.ids_T).any() for one, two in pairs)
    again = blocks_of(records + records, maker)  # a second epoch is another one
    texts = [[word.seen for block in part for word in block.words] for part in (again, blocks_of(records, maker))]
    assert texts[0][: len(texts[1])] == texts[1]
    assert texts[0][len(texts[1]) :] != texts[1]


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_blocks_by_record_are_the_same_in_any_number_of_lanes(maker, lanes):
    records = small_records(11)
    whole = {block.number: block for block in blocks_of(records, maker, by_record=True)}
    dealt = {}
    for lane in range(lanes):
        blocks = blocks_of(records[lane::lanes], maker, lane=lane, lanes=lanes, by_record=True)
        dealt |= {block.number: block for block in blocks}
    assert dealt.keys() == whole.keys()
    numbers = sorted(whole)
    assert_equal([dealt[n] for n in numbers], [whole[n] for n in numbers])
    assert {number[0] for number in numbers} == set(range(11))


class Reader:
    """Records with a position, as grain's iterators."""

    def __init__(self, records):
        self.records, self.at = records, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.records):
            raise StopIteration
        self.at += 1
        return self.records[self.at - 1]


@pytest.mark.parametrize("by_record", [False, True])
def test_a_saved_state_goes_on_exactly(maker, by_record):
    records = small_records()
    whole = blocks_of(records, maker, by_record=by_record)
    for stop in (0, 1, 7, len(whole)):
        reader = Reader(records)
        stream = SequenceStream(reader, maker, by_record=by_record)
        for _ in range(stop):
            last = stream.next()
        if stop:
            stream.give_back(last)
        state = json.loads(json.dumps(stream.get_state()))
        resumed_reader = Reader(records)
        resumed_reader.at = reader.at
        resumed = SequenceStream(resumed_reader, maker, by_record=by_record)
        resumed.set_state(state)
        assert resumed.get_state() == stream.get_state()
        assert_equal(list(iter(resumed.next, None)), whole[max(stop - 1, 0) :])


def test_every_piece_has_the_slots_that_it_is_counted_with(maker):
    for index, counted in enumerate(maker.piece_slots):
        row = maker.chars.row(np.array([index]), slots=100)
        assert row.ends_L[0] - row.starts_L[0] + 2 == counted, maker.tokenizer.token(index)


def test_a_byte_level_piece_of_hashes_keeps_its_characters():
    """`##` marks a continuation in WordPiece alone."""
    tokenizer = SubwordTokenizer.load(release("roberta"))
    chars = PieceChars(tokenizer, SymbolVocab([" ", "#", "<unk>"]))
    hashes = [i for i in range(tokenizer.size) if set(tokenizer.token(i)) == {"#"}]
    assert hashes
    maker = small_maker(tokenizer, chars=chars)
    assert [maker.piece_slots[i] for i in hashes] == [len(tokenizer.token(i)) + 1 for i in hashes]
