"""Tests the way from records to batches: nothing is lost or doubled, one shape, and exact resume."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from types import SimpleNamespace

import grain
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batching import assert_equal_batches, read_shard

from charlm.data.batching import BatchShape, ShardPacker, WordSequence
from charlm.data.forms import rows_of
from charlm.data.lanes import empty_batch
from charlm.data.masking import Masking
from charlm.data.pipeline import EncodedRecord, SentenceMaker, record_dataset, record_lanes
from charlm.data.records import CorpusStats, write_record
from charlm.data.streams import SequenceStream, sequence_batches
from charlm.text.chars import CLS, SEP, WORD_CLS

SLOTS = 7
SHAPE = BatchShape(2, 3, 14, (3, 5, SLOTS), (12, 12, 12), (6, 6, 6), (8, 8, 8))
# Room for [CLS], [SEP] and one word: nearly every shard closes early, and long sequences are halved.
TIGHT = dataclasses.replace(SHAPE, table=(3, 2, 2), masked=(1, 1, 1), labels=(1, 1, 1))
RESHAPE = BatchShape(2, 3, 14, (SLOTS,), (), (42,), (9,), unique_words=False)
TIGHT_RESHAPE = dataclasses.replace(RESHAPE, labels=(1,))
MASKING = Masking(rate=0.3, chars_end=60)

Sentence = list[tuple[int, ...]]


def text(rng: np.random.Generator, lengths: list[int], words: int = 40) -> list[Sentence]:
    """Returns sentences of so many words, the frequent ones short, as in a language."""
    lexicon = [tuple(rng.integers(8, 60, 1 + i % (SLOTS - 1)).tolist()) for i in range(words)]
    share = 1 / np.arange(1, words + 1)
    return [[lexicon[i] for i in rng.choice(words, n, p=share / share.sum())] for n in lengths]


def record(sentences: list[Sentence]) -> EncodedRecord:
    words = list(itertools.chain(*sentences))
    return EncodedRecord(
        np.array([len(s) for s in sentences], np.uint16),
        np.array([len(w) for w in words], np.uint8),
        np.array(list(itertools.chain(*words)), np.uint16),
    )


def records_of(sentences: list[Sentence], per_record: int = 3) -> list[EncodedRecord]:
    return [record(sentences[i : i + per_record]) for i in range(0, len(sentences), per_record)]


def maker_of(max_words=14, masking=MASKING, seed=0) -> SentenceMaker:
    return SentenceMaker(max_words, SLOTS, masking, seed)


def batches_of(records, shape, *, seed=0, accumulation=1, prefetch=0, masking=MASKING, lanes=None):
    """Returns the batches of all lanes, or of those named; record n belongs to lane n % shards."""
    dealt = {
        lane: grain.MapDataset.source(records)[lane :: shape.shards].to_iter_dataset(grain.ReadOptions(num_threads=0))
        for lane in (range(shape.shards) if lanes is None else lanes)
    }
    maker, sizes = maker_of(shape.words, masking, seed), {"of": shape.shards, "accumulation": accumulation}
    return sequence_batches(dealt, maker, lambda: ShardPacker(shape), **sizes, prefetch=prefetch)


def read(batch) -> list[list[WordSequence]]:
    """Returns the sequences of each shard, in the order in which they were packed."""
    return [read_shard(batch, index) for index in np.ndindex(batch.mask_SBW.shape[:2])]


def by_lane(batches) -> list[list[list[WordSequence]]]:
    """Returns for each lane the sequences of its shards, in the order in which they were packed."""
    lanes = [
        [read_shard(batch, (a, s)) for batch in batches for a in range(batch.mask_SBW.shape[0])]
        for s in range(batches[0].mask_SBW.shape[1])
    ]
    return lanes


def words_of(record: EncodedRecord) -> list[tuple[int, ...]]:
    """Returns the characters of each word of a record."""
    return [tuple(part.tolist()) for part in np.split(record.chars, np.cumsum(record.words.astype(int))[:-1])]


def sequences_of(records, shape=SHAPE, seed=0, masking=MASKING, lane=0, lanes=1) -> list[WordSequence]:
    stream = SequenceStream(iter(records[lane::lanes]), maker_of(shape.words, masking, seed), lane, lanes)
    return list(iter(stream.next, None))


def inner(sequences: list[WordSequence]) -> tuple[np.ndarray, np.ndarray]:
    """Returns what is read and what is to be predicted at all words, [CLS] and [SEP] left out."""
    for s in sequences:
        assert s.chars_WC[:, 0].tolist() == [CLS, *[WORD_CLS] * (len(s.chars_WC) - 2), SEP]
        assert not s.labels_WC[[0, -1]].any()
        assert len(s.chars_WC) >= 3
    none = np.zeros((0, SLOTS), np.uint16)
    return tuple(np.concatenate([none, *(getattr(s, f)[1:-1] for s in sequences)]) for f in WordSequence._fields)


def original(sequences: list[WordSequence]) -> list[tuple[int, ...]]:
    chars, labels = inner(sequences)
    return [tuple(int(c) for c in row[1:] if c) for row in np.where(labels != 0, labels, chars)]


texts = st.builds(
    lambda seed, lengths: text(np.random.default_rng(seed), lengths),
    st.integers(0, 2**32),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
)


# ---- Records to sequences ----


def test_rows_of_a_record():
    rows = rows_of(record([[(8,), (9, 10)], [(11, 12, 13, 14, 15, 16)]]), SLOTS)
    want = [[WORD_CLS, 8, 0, 0, 0, 0, 0], [WORD_CLS, 9, 10, 0, 0, 0, 0], [WORD_CLS, 11, 12, 13, 14, 15, 16]]
    np.testing.assert_array_equal(rows, want)
    assert rows.dtype == np.uint16


def test_a_word_too_long_for_the_model_is_refused():
    with pytest.raises(ValueError, match=r"a word of 7 characters, but model\.char_slots=7 holds 6"):
        rows_of(record([[tuple(range(8, 15))]]), SLOTS)


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(3, 20), st.integers(1, 5))
def test_sequences_hold_the_text_in_order_and_no_sentence_is_cut_without_need(sentences, max_words, per_record):
    records = records_of(sentences, per_record)
    found = sequences_of(records, dataclasses.replace(SHAPE, words=max_words))
    assert original(found) == list(itertools.chain(*sentences))
    assert max(len(s.chars_WC) for s in found) <= max_words
    # Greedy, written down once more: a long sentence fills whole sequences, and its rest is a sentence like others.
    want, room = [0], max_words - 2
    for piece in itertools.chain(*([room] * (len(s) // room) + [len(s) % room] for s in sentences)):
        if want[-1] + piece > room:
            want.append(0)
        want[-1] += piece
    assert [len(s.chars_WC) - 2 for s in found] == want


def test_empty_records_and_sentences_are_passed_over():
    empty = EncodedRecord(np.zeros(0, np.uint16), np.zeros(0, np.uint8), np.zeros(0, np.uint16))
    hollow = record([[], [(8,)], []])
    assert original(sequences_of([empty, hollow, empty, hollow])) == [(8,), (8,)]
    assert sequences_of([empty]) == []


@pytest.mark.parametrize("max_words", [0, 2])
def test_sequences_without_room_for_a_word_are_refused(max_words):
    with pytest.raises(ValueError, match=rf"data\.max_words={max_words}"):
        maker_of(max_words)


def test_masks_depend_on_seed_and_number_of_the_sequence():
    sentences = [text(np.random.default_rng(0), [12])[0]] * 6  # the same sequence again and again
    first, again, other = (inner(sequences_of(records_of(sentences), seed=seed))[1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({bytes(part) for part in np.split(first, 6)}) > 1


@pytest.mark.parametrize("lanes", [2, 3])
def test_lanes_number_their_sequences_in_turn_so_that_no_two_have_the_same_masks(lanes):
    """Of a text that is the same everywhere, sequence k of lane l is masked as number l + k * lanes of one lane."""
    sequence = records_of([text(np.random.default_rng(0), [12])[0]])  # as long as a sequence
    masks = lambda lane, of, count: [
        s.labels_WC.tobytes() for s in sequences_of(sequence * (count * of), lane=lane, lanes=of)
    ]
    together = masks(0, 1, 8 * lanes)
    assert len(set(together)) == 8 * lanes
    for lane in range(lanes):
        assert masks(lane, lanes, 8) == together[lane::lanes]


def test_shards_of_a_batch_that_read_the_same_text_are_masked_each_in_its_own_way():
    sequence = records_of([text(np.random.default_rng(0), [12])[0]])
    shape = dataclasses.replace(SHAPE, table=(40, 40, 40), masked=(20, 20, 20), labels=(40, 40, 40))
    (batch,) = batches_of(sequence * shape.shards * shape.sequences, shape)
    one, two = ([s.labels_WC.tobytes() for s in shard] for shard in read(batch))
    assert len(set(one) | set(two)) == 2 * shape.sequences


def test_sequences_by_record_and_their_masks_do_not_depend_on_the_lanes():
    records = records_of(text(np.random.default_rng(0), [5, 12, 30, 7, 1, 3] * 5), per_record=2)

    def found(lanes):
        streams = [
            SequenceStream(iter(records[lane::lanes]), maker_of(), lane, lanes, by_record=True) for lane in range(lanes)
        ]
        return sorted((s.chars_WC.tobytes(), s.labels_WC.tobytes()) for t in streams for s in iter(t.next, None))

    assert found(1) == found(2) == found(7)
    stream = SequenceStream(iter(records), maker_of(), by_record=True)
    whole = [w for s in iter(stream.next, None) for w in original([s])]
    assert whole == [w for record in records for w in words_of(record)]
    again = SequenceStream(iter(records[:1] * 2), maker_of(), by_record=True)
    masks = inner(list(iter(again.next, None)))[1]
    assert not np.array_equal(*np.split(masks, 2)), "the same record twice has two masks"


def test_what_is_given_back_comes_first_and_in_order():
    stream = SequenceStream(iter(records_of(text(np.random.default_rng(0), [12] * 4))), maker_of())
    a, b = stream.next(), stream.next()
    stream.give_back(a, b)
    assert stream.next() is a
    assert stream.next() is b
    assert len(list(iter(stream.next, None))) == 2


# ---- Sequences to batches ----


def fixed_shapes(batch):
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), batch)


def wanted_shapes(shape: BatchShape, accumulation: int):
    lead = (accumulation, shape.shards)
    masked = [
        ((*lead, P, C), (*lead, M), (*lead, M), (*lead, M, C))
        for P, M, C in zip(shape.masked, shape.labels, shape.slots, strict=True)
    ]
    tables = [(*lead, U, C) for U, C in zip(shape.table, shape.slots, strict=False)]
    return tables, masked, (*lead, shape.sequences, shape.words)


@settings(max_examples=40, deadline=None)
@given(
    texts,
    st.sampled_from([SHAPE, TIGHT, RESHAPE, TIGHT_RESHAPE]),
    st.integers(1, 2),
    st.integers(0, 9),
    st.floats(0.05, 1),
)
def test_an_epoch_holds_every_word_once_in_batches_of_one_shape(sentences, shape, accumulation, seed, rate):
    """Lane by lane, in the order of its records."""
    records = records_of(sentences)
    masking = dataclasses.replace(MASKING, rate=rate)
    batches = list(batches_of(records, shape, seed=seed, accumulation=accumulation, masking=masking))
    for batch in batches:
        assert fixed_shapes(batch) == fixed_shapes(batches[0])
        shapes = [x.shape for x in batch.chars], [tuple(x.shape for x in m) for m in batch.masked]
        assert (*shapes, batch.index_SBW.shape) == wanted_shapes(shape, accumulation)
        assert {x.dtype for x in (*batch.chars, *(m.chars_SPC for m in batch.masked))} == {np.dtype(np.uint16)}
        assert batch.index_SBW.dtype == np.int32
        assert batch.mask_SBW.any()
    for lane, shards in enumerate(by_lane(batches)):
        found = list(itertools.chain(*shards))
        wanted = sequences_of(records, shape, seed, masking, lane, shape.shards)
        assert original(found) == [w for r in records[lane :: shape.shards] for w in words_of(r)]
        # Inputs and labels are those of the sequences, also where one was halved.
        for got, want in zip(inner(found), inner(wanted), strict=True):
            np.testing.assert_array_equal(got, want)
        # Only a shard that the next sequence does not fit closes early; empty ones stand at the end.
        sizes = [len(s) for s in shards]
        assert 0 not in sizes[: max((i + 1 for i, n in enumerate(sizes) if n), default=0)]


@settings(max_examples=20, deadline=None)
@given(texts, st.sampled_from([SHAPE, TIGHT, RESHAPE]), st.integers(1, 2), st.sampled_from([(0,), (1,), (1, 0)]))
def test_a_process_packs_its_own_lanes_and_sees_there_what_one_process_sees(sentences, shape, accumulation, lanes):
    records = records_of(sentences)
    whole = batches_of(records, shape, accumulation=accumulation)
    own = batches_of(records, shape, accumulation=accumulation, lanes=lanes)
    mine = lambda batch: jax.tree.map(lambda x: x[:, list(lanes)], batch)
    parts = [batch for batch in map(mine, whole) if batch.mask_SBW.any()]
    for got, want in zip(own, parts, strict=True):
        assert_equal_batches(got, want)


def test_an_empty_batch_has_the_shape_of_the_others_and_no_word():
    (batch, *_) = batches_of(records_of(text(np.random.default_rng(0), [12] * 10)), SHAPE, accumulation=2)
    empty = empty_batch(ShardPacker(SHAPE).build(), shards=2, accumulation=2)
    assert fixed_shapes(empty) == fixed_shapes(batch)
    assert not any(x.any() for x in jax.tree.leaves(empty))


def test_tight_budgets_do_close_early_and_halve():
    records = records_of(text(np.random.default_rng(0), [12] * 40))
    found = [read(batch) for batch in batches_of(records, TIGHT)]
    shards = list(itertools.chain(*found))
    lengths = [len(s.chars_WC) for shard in shards for s in shard]
    assert len(lengths) > 40, "some sequence was halved"
    assert sum(len(shard) < TIGHT.sequences for shard in shards[:-4]) > 10, "some shard closed early"
    assert max(map(len, shards)) > 1, "some shard holds more than one sequence"


def test_roomy_budgets_fill_every_shard():
    records = records_of(text(np.random.default_rng(0), [12] * 60))
    roomy = dataclasses.replace(SHAPE, table=(40, 40, 40), masked=(40, 40, 40), labels=(40, 40, 40))
    shards = [shard for batch in batches_of(records, roomy) for shard in read(batch)]
    assert [len(shard) for shard in shards] == [3] * 20  # twenty records of three sentences, ten to a lane


def test_words_spill_to_longer_buckets_in_batches():
    spilled = 0
    for batch in batches_of(records_of(text(np.random.default_rng(0), [12] * 40)), TIGHT):
        for table, slots in zip(batch.chars[1:], TIGHT.slots[:-1], strict=True):
            lengths = (table != 0).sum(axis=-1)
            spilled += int(((lengths > 0) & (lengths <= slots)).sum())
    assert spilled > 10


def test_plain_reshape_gives_the_same_text_and_masks():
    records = records_of(text(np.random.default_rng(0), [5, 12, 30, 7] * 5))
    found = [by_lane(list(batches_of(records, shape))) for shape in (SHAPE, RESHAPE)]
    for lanes in zip(*found, strict=True):
        for tables, reshape in zip(*(inner(list(itertools.chain(*shards))) for shards in lanes), strict=True):
            np.testing.assert_array_equal(tables, reshape)


def test_seed_decides_the_masks_and_nothing_else():
    records = records_of(text(np.random.default_rng(0), [12] * 20))
    first, again, other = (list(batches_of(records, SHAPE, seed=seed)) for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        assert_equal_batches(a, b)
    read_all = lambda batches: list(itertools.chain(*(shard for batch in batches for shard in read(batch))))
    assert original(read_all(first)) == original(read_all(other))
    assert not np.array_equal(inner(read_all(first))[1], inner(read_all(other))[1])


def test_no_records_no_batches():
    empty = EncodedRecord(np.zeros(0, np.uint16), np.zeros(0, np.uint8), np.zeros(0, np.uint16))
    assert list(batches_of([empty], SHAPE)) == []


# ---- Saved and resumed ----


def test_resumes_exactly_as_grain_asks():
    grain.experimental.assert_equal_output_after_checkpoint(
        batches_of(records_of(text(np.random.default_rng(0), [12, 30, 3] * 5)), TIGHT)
    )


def held(state) -> dict[str, int]:
    """Returns how many sentences and sequences a state of the stream holds back."""
    stream = SequenceStream(iter([]), maker_of())
    stream.set_state(state)
    return {"sentences": len(stream._parts), "returned": len(stream._returned)}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize(("shape", "accumulation"), [(SHAPE, 2), (TIGHT, 1), (RESHAPE, 1)])
def test_a_fresh_iterator_goes_on_where_the_saved_one_was(shape, accumulation, prefetch):
    records = records_of(text(np.random.default_rng(3), [12, 30, 3] * 9))
    make = lambda: iter(batches_of(records, shape, accumulation=accumulation, prefetch=prefetch))
    iterator = make()
    states, batches = [json.dumps(iterator.get_state())], []
    for batch in iterator:
        states.append(json.dumps(iterator.get_state()))
        batches.append(batch)
    iterator.close()
    assert len(batches) >= 3
    for k in {0, 1, 2, len(batches) // 2, len(batches)}:
        resumed = make()
        resumed.set_state(json.loads(states[k]))
        rest = list(resumed)
        resumed.close()
        assert len(rest) == len(batches) - k
        for got, want in zip(rest, batches[k:], strict=True):
            assert_equal_batches(got, want)


def test_states_with_halves_sentences_and_sequences_given_back_are_among_those_resumed():
    iterator = iter(batches_of(records_of(text(np.random.default_rng(3), [12, 30, 3] * 6)), TIGHT))
    found = []
    for _ in iterator:
        found += [held(state["stream"]) for state in iterator.get_state()["lanes"].values()]
    assert max(f["returned"] for f in found) >= 2, "a halved sequence, of which one half did not fit"
    assert max(f["sentences"] for f in found) >= 2
    assert found[-1] == {"sentences": 0, "returned": 0}


@pytest.mark.parametrize("split", [((0,), (1,)), ((0, 1),), ((1,),)])
def test_a_position_saved_by_some_processes_is_read_by_others(split):
    """Each process saves its lanes; together they are what one process would have saved, and the other way round."""
    records = records_of(text(np.random.default_rng(3), [12, 30, 3] * 6))
    start = lambda lanes: iter(batches_of(records, TIGHT, lanes=lanes))
    saved, whole = [start(lanes) for lanes in ((0,), (1,))], start((0, 1))
    for iterator in (*saved, whole):
        list(itertools.islice(iterator, 3))
    lanes = {name: lane for iterator in saved for name, lane in iterator.get_state()["lanes"].items()}
    assert {"of": 2, "lanes": lanes} == whole.get_state()
    for part in split:
        resumed, expected = start(part), start(part)
        resumed.set_state({"of": 2, "lanes": lanes})
        list(itertools.islice(expected, 3))
        for got, want in zip(resumed, expected, strict=True):
            assert_equal_batches(got, want)


def test_a_position_of_other_shards_is_refused():
    records = records_of(text(np.random.default_rng(3), [12] * 6))
    state = iter(batches_of(records, SHAPE)).get_state()
    other = iter(batches_of(records, dataclasses.replace(SHAPE, shards=3)))
    with pytest.raises(ValueError, match=r"belongs to data\.table_shards=2, not 3"):
        other.set_state(state)


def test_a_state_can_be_set_back_on_a_used_iterator():
    iterator = iter(batches_of(records_of(text(np.random.default_rng(3), [12, 30, 3] * 6)), TIGHT))
    state = iterator.get_state()
    first = list(itertools.islice(iterator, 4))
    iterator.set_state(state)
    for got, want in zip(itertools.islice(iterator, 4), first, strict=True):
        assert_equal_batches(got, want)


# ---- Corpora to records ----


@pytest.fixture
def corpora(tmp_path):
    """Two corpora in ArrayRecord shards; a record is one sentence of one word that says where it comes from."""
    from array_record.python.array_record_module import ArrayRecordWriter

    made, number = [], itertools.count(8)
    for name, shards in (("a", (25, 15)), ("b", (10,))):
        paths = []
        for i, records in enumerate(shards):
            paths.append(str(tmp_path / f"{name}-{i}.array_record"))
            writer = ArrayRecordWriter(paths[-1], "group_size:1")
            for _ in range(records):
                writer.write(write_record(*record([[(next(number),)]])))
            writer.close()
        stats = CorpusStats(words=sum(shards), records=sum(shards))
        made.append(SimpleNamespace(name=name, paths=tuple(paths), stats=stats))
    return made


def take(dataset, count: int | None = None) -> list[int]:
    iterator = iter(dataset)
    found = [int(r.chars[0]) for r in itertools.islice(iterator, count)]
    iterator.close()
    return found


def test_without_repetition_every_record_comes_once(corpora):
    everything = list(range(8, 58))
    assert take(record_dataset(corpora)) == everything
    assert take(record_dataset(corpora[:1])) == everything[:40]
    shuffled = take(record_dataset(corpora, shuffle=True))
    assert sorted(shuffled) == everything
    assert shuffled != everything
    assert take(record_dataset(corpora, shuffle=True)) == shuffled
    assert take(record_dataset(corpora, shuffle=True, seed=1)) != shuffled


@pytest.mark.parametrize(("shuffle", "repeat"), [(False, False), (True, False), (True, True)])
def test_lanes_take_the_records_in_turn(corpora, shuffle, repeat):
    options = {"shuffle": shuffle, "repeat": repeat, "seed": 3}
    everything = take(record_dataset(corpora, **options), 200)
    lanes = record_lanes(corpora, lanes=(0, 2, 3), of=4, **options)
    assert list(lanes) == [0, 2, 3]
    for lane, dataset in lanes.items():
        assert take(dataset, 50) == everything[lane::4]
    assert take(record_lanes(corpora, lanes=(60,), of=64)[60]) == []


def test_every_epoch_is_shuffled_anew(corpora):
    found = take(record_dataset(corpora[:1], shuffle=True, repeat=True), 120)
    epochs = [found[i : i + 40] for i in (0, 40, 80)]
    assert all(sorted(epoch) == list(range(8, 48)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize(("weights", "share"), [((0.3, 0.7), 0.3), ((3.0, 1.0), 0.75), ((), 0.8)])
def test_corpora_are_mixed_by_their_weights(corpora, weights, share):
    found = take(record_dataset(corpora, weights, shuffle=True, repeat=True), 400)
    assert abs(sum(n < 48 for n in found) / 400 - share) < 0.02
    # And within a corpus every record comes about equally often.
    for low, high in ((8, 48), (48, 58)):
        counts = Counter(n for n in found if low <= n < high)
        assert len(counts) == high - low
        assert max(counts.values()) - min(counts.values()) <= 1


def test_weights_are_shares_of_words_however_many_a_record_holds(corpora):
    corpora[1].stats.words *= 3
    found = take(record_dataset(corpora, (1.0, 1.0), shuffle=True, repeat=True), 400)
    assert abs(sum(n < 48 for n in found) / 400 - 0.75) < 0.02


def test_mixed_corpora_resume(corpora):
    make = lambda: iter(record_dataset(corpora, (0.5, 0.5), shuffle=True, repeat=True))
    iterator = make()
    list(itertools.islice(iterator, 37))
    state = json.loads(json.dumps(iterator.get_state()))
    want = [int(r.chars[0]) for r in itertools.islice(iterator, 50)]
    resumed = make()
    resumed.set_state(state)
    assert [int(r.chars[0]) for r in itertools.islice(resumed, 50)] == want
    iterator.close()
    resumed.close()
