"""Tests units: text that is joined, packed and read back equals what the family's own code makes of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from finetune.tiny_tasks import FAMILIES, source

from charlm.data.word_batch import reshape_batch
from charlm.families.charbert.conversion import symbols_of
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.finetune.batching import Packer
from charlm.finetune.strips import eval_groups
from charlm.tasks.base import Row

TEXTS = ["the cat sat on a mat", "", "dog", "we slept near old trees 3.14 naïve", "a\x00b  town"]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, trained):
    return from_pretrained(source(request.param, trained.workdir))


@pytest.fixture
def units(model):
    return units_of(model)


def test_offsets_are_those_of_the_text(units):
    for text, encoded in zip(TEXTS, units.encode(TEXTS), strict=True):
        assert len(encoded.offsets) == len(encoded)
        ends = [end for _, end in encoded.offsets]
        assert ends == sorted(ends)
        covered = "".join(text[a:b] for a, b in encoded.offsets)
        assert set("catdogmw") & set(text) <= set(covered) | {" "}


def test_rows_are_taken_as_long_as_they_fit(units):
    rng = np.random.default_rng(0)
    word = lambda: "".join(rng.choice(list("abdegt"), rng.integers(1, 20)))
    rows = [units.join(one) for one in units.encode([" ".join(word() for _ in range(4)) for _ in range(60)])]
    length = max(row.length for row in rows)
    shape = units.measure([rows[:3]], len(rows), length, least=1)
    packing, taken = units.packing(shape), []
    for row in rows:
        fits = packing.fits(row)
        assert fits == (units.pack([*taken, row], shape) is not None)
        if fits:
            packing.add(row)
            taken.append(row)
    assert len(packing) == len(taken) >= 3
    jax.tree.map(np.testing.assert_array_equal, packing.build(), units.pack(taken, shape))


def test_fresh_units_read_as_those_that_have_met_other_words(units):
    units.encode(["supercalifragilistic \u200b \u4e00 words"])
    packed = []
    for one in (units, units.fresh()):
        rows = [one.join(encoded) for encoded in one.encode(["the catt \u4e01 sat", "on matts"])]
        packed.append(one.pack(rows, one.widest(2, max(row.length for row in rows))))
    jax.tree.map(np.testing.assert_array_equal, *packed)


def test_every_word_has_a_unit(units):
    words = ["the", "\x00", "cat", "supercalifragilistic" * 3, "\u200b", "trees"]
    (encoded,) = units.encode_words([words])
    assert sorted(set(encoded.words)) == list(range(len(words)))
    assert list(encoded.words) == sorted(encoded.words)
    part = encoded.part(1, 3)
    assert (len(part), part.words) == (2, encoded.words[1:3])


def test_rows_are_what_the_template_makes(model):
    units = units_of(model)
    a, b = units.encode(["the cat", "on a mat"])
    single, double = units.join(a), units.join(a, b)
    assert single.length == len(a) + units.specials(False)
    assert double.length == len(a) + len(b) + units.specials(True)
    if model.family in ("bert", "roberta", "charbert"):
        own = model.tokenizer()
        assert single.content[:, 0].tolist() == list(own.encode("the cat").ids)
        both = own.encode("the cat", "on a mat")
        assert double.content[:, 0].tolist() == list(both.ids)
        types = [0] * len(both.ids) if model.family == "roberta" else list(both.type_ids)
        assert double.content[:, 1].tolist() == types
        assert both.sequences[double.first] == 0
        assert both.sequences[double.second] == 1
        assert both.sequences[double.second - 1] is None
        assert double.whole == 0
    elif model.family == "gpt2":
        end = model.tokenizer().special.eos
        ids = [*a.content.tolist(), end, *b.content.tolist(), end]
        assert double.content[:, 0].tolist() == ids
        assert (double.first, double.second, double.whole) == (0, len(a) + 1, len(ids) - 1)
    elif model.family == "char2subword":
        own = model.tokenizer().special
        ids = [own.cls, *a.content.tolist(), own.sep, *b.content.tolist(), own.sep]
        assert double.content[:, 0].tolist() == ids
        assert double.content[:, 1].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert single.content[:, 0].tolist() == ids[: len(a) + 2]
        assert (double.first, double.second, double.whole) == (1, len(a) + 2, 0)
    else:
        chars = double.content.chars_WC
        assert chars[[0, 1 + len(a), -1], 0].tolist() == [1, 2, 2]  # [CLS], [SEP]
        assert (chars[double.first] == a.content[0]).all()
        assert (chars[double.second] == b.content[0]).all()


def rows_of(units, texts):
    return [Row(units.join(e), n, {"weight": np.float32(1)}) for n, e in enumerate(units.encode(texts))]


def states(model, units, rows, batch_size, shards, lengths):
    """The last states of each row, read through batches of a given layout."""
    packer = Packer(units, batch_size, shards=shards)
    groups = eval_groups(rows, lengths, batch_size)
    packer.measure(rows, groups[:1])  # the others may not fit that shape and take the widest
    found, read = {}, jax.jit(lambda params, inputs: units.states(model.config, params, inputs))
    for group in groups:
        inputs = jax.tree.map(lambda x: x[0], packer.inputs(rows, group))
        values = np.asarray(read(model.params, inputs))
        for row, strip, start in packer.places(rows, group):
            found[row] = values[strip, start : start + rows[row].joined.length]
    return [found[n] for n in range(len(rows))]


def test_states_do_not_depend_on_the_batch_they_are_in(model):
    units = units_of(model)
    texts = [text for text in TEXTS if text] * 3 + ["town house"]
    rows = rows_of(units, texts)
    alone = states(model, units, rows, 1, 1, (16, units.longest))
    together = states(model, units, rows, 8, 4, (units.longest,))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(alone[0], alone[4], atol=1e-6)


def test_an_hlm_row_is_the_plain_reshape(trained):
    model = from_pretrained(trained.workdir)
    units = units_of(model)
    (row,) = rows_of(units, TEXTS[:1])
    (through_tables,) = states(model, units, [row], 1, 1, (units.longest,))
    plain = reshape_batch(row.joined.content.chars_WC[None])
    direct = jax.jit(units.states, static_argnums=0)(model.config, model.params, plain)[0]
    np.testing.assert_allclose(through_tables, direct, atol=1e-5)


def test_a_charbert_row_has_the_characters_of_its_pieces():
    model = from_pretrained(source("charbert", Path()))
    units, tokenizer, symbols = units_of(model), model.tokenizer(), symbols_of(model)
    (first,), (second,) = units.encode(["the 今天 cat"]), units.encode_words([["trees", "\u4eca"]])
    row = units.join(first, second)
    packed = units.pack([row], (2, row.length + 3))
    spelled = [
        "".join(symbols.symbols[i] for i in packed.chars_BN[0, start : end + 1])
        for start, end in zip(packed.starts_BL[0, : row.length], packed.ends_BL[0, : row.length], strict=True)
    ]
    want = [tokenizer.token(i).removeprefix("##") for i in row.content[:, 0]]
    unknown = {tokenizer.special.unk: "<unk>"}
    for place, index in enumerate(row.content[:, 0]):
        if index in (tokenizer.special.cls, tokenizer.special.sep):
            want[place] = " "
        else:
            shown = [c if c in symbols.symbols else "<unk>" for c in want[place]]
            want[place] = unknown.get(index, "".join(shown))
    assert spelled == want
    assert not packed.mask_BL[0, row.length :].any()
    assert not packed.mask_BL[1].any()


def test_a_charbert_of_the_authors_is_read_in_their_layout():
    model = from_pretrained(source("charbert", Path()), compat_reference=True)
    units = units_of(model)
    (first,) = units.encode(["the cat"])
    row = units.join(first)
    L = row.length + 2
    packed = units.pack([row], (1, L))
    assert packed.chars_BN.shape == (1, 6 * L)
    assert packed.starts_BL[0, -2:].tolist() == packed.ends_BL[0, -2:].tolist() == [6 * L - 1] * 2
    glue = units_of(dataclasses.replace(model, head="sequence_classification")).pack([row], (1, L))
    assert glue.starts_BL[0, -2:].tolist() == [int(packed.ends_BL[0, -3]) + 2, int(packed.ends_BL[0, -3]) + 4]


def test_lengths_that_cannot_be(model):
    most = units_of(model).longest
    assert units_of(model, most - 1).longest == most - 1
    with pytest.raises(ValueError, match=rf"data.max_length={most + 1}: the model has {most} positions"):
        units_of(model, most + 1)
    with pytest.raises(ValueError, match=r"data.max_length=2 leaves no room"):
        units_of(model, 2)


def test_operations_are_those_of_what_is_real(model):
    units, config = units_of(model), model.config
    rows = [units.join(e) for e in units.encode(["the cat sat", "we slept near old trees"])]
    count = lambda rows, *shape: units.forward_flops(config, units.pack(rows, units.widest(*shape)))
    both = count(rows, 2, 24)
    assert count(rows, 3, 32) == both  # padding is not counted
    assert 0 < count(rows[:1], 2, 24) < both
    if model.family == "gpt2":  # a causal layer scores half of the pairs
        lengths = np.array([row.length for row in rows])
        dense = 2 * lengths.sum() * (4 * config.hidden**2 + 2 * config.hidden * config.ffn)
        pairs = (lengths * (lengths + 1)).sum() / 2
        assert both == config.layers * (dense + 4 * pairs * config.hidden)
    again = count(rows * 2, 4, 24)  # words that repeat are read once, where they are read by themselves
    assert both < again < 2 * both if model.family in ("hlm", "char2subword") else again == 2 * both
    stacked = jax.tree.map(lambda x: np.stack([x, x]), units.pack(rows, units.widest(2, 24)))  # shards
    assert units.forward_flops(config, stacked) == 2 * both
    inner = config.inter_ffn if model.family == "hlm" else config.ffn
    name = "inter_layers" if model.family == "hlm" else "layers"
    more = dataclasses.replace(config, **{name: getattr(config, name) + 1})
    dense = 2 * sum(row.length for row in rows) * config.hidden * (4 * config.hidden + 2 * inner)
    channels = 2 if model.family == "charbert" else 1
    assert units.forward_flops(more, stacked) / 2 - both >= channels * dense
