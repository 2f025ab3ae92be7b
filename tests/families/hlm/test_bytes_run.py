"""Tests a run whose unknown characters are spelled by bytes: read apart, ranked, exported, and imported."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_run import on_devices, small_config, write_text

import charlm
import charlm.training.train
from charlm.config import validate
from charlm.convert.__main__ import main as convert
from charlm.data.corpus import prepare
from charlm.families.arrays import PADDED
from charlm.families.hlm.arrays import HLMArrays
from charlm.families.hlm.candidates import Proposer
from charlm.families.lookup import units_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.text.chars import FIRST_CHAR

RARE = "語国🙂"


def new_config(folder, **text):
    config = small_config(write_text(folder / "text.txt", extra="the café 語 and 国語 in town"), folder)
    config.text.update(text)
    config.model.vocab_size = FIRST_CHAR + 256 + 20
    config.data.table_shards = 1
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The workdir of a model that was trained for twelve steps."""
    folder = tmp_path_factory.mktemp("bytes")
    with on_devices(1):
        charlm.training.train.train(new_config(folder, unknown="bytes"), str(folder / "run"))
    return folder / "run"


def test_a_corpus_has_no_unknown_character(tmp_path):
    config = new_config(tmp_path, unknown="bytes")
    data = prepare(config)
    assert len(data.vocab.chars) == 20
    config.text.unknown, config.model.vocab_size = "symbol", FIRST_CHAR + 20
    plain = prepare(config)
    assert plain.vocab.chars == data.vocab.chars
    counts = lambda prepared: [corpus.stats.chars_unknown for corpus in (*prepared.train, *prepared.heldout)]
    assert sum(counts(plain)) > 0
    assert sum(counts(data)) == 0


def test_unknown_characters_are_read_apart(run):
    model = charlm.load(run)
    one, other = (model.encode(text).vectors for text in ("語 the", "国 the"))
    assert np.abs(one[0] - other[0]).max() > 1e-4
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    heldout = [line for line in metrics if "heldout_bits_per_char" in line]
    assert heldout[-1]["heldout_loss"] < heldout[0]["heldout_loss"]


def test_gaps_rank_known_words_of_such_characters_and_write_none(run):
    predictor = Predictor.from_checkpoint(run)
    found = predictor.fill_mask("the [MASK:3] and", known=[RARE[0], "cat", "dog", RARE[1]])[0]
    assert {fill.word for fill in found} == {RARE[0], "cat", "dog", RARE[1]}  # 語 takes three slots, as cat does
    assert all(np.isfinite(fill.log_prob) for fill in found)
    free = predictor.fill_mask("the [MASK:3] and", top=50)[0]
    assert free
    assert all(len(fill.word) == 3 and "\ufffd" not in fill.word for fill in free)


def test_bytes_go_out_and_come_back(run, tmp_path):
    assert convert(["export", "--family=hlm", f"--checkpoint={run}", f"--output={tmp_path / 'out'}"]) == 0
    family = ["import", "--family=hlm", f"--input={tmp_path}/out", f"--output={tmp_path}/back"]
    assert convert(family) == 0
    ours, back = (charlm.load(path).encode(f"the {RARE} cat").vectors for path in (run, tmp_path / "back"))
    np.testing.assert_allclose(ours, back, atol=1e-5)


@pytest.mark.parametrize("slots", [8, 5])
def test_the_recipe_beside_a_program_reads_as_charlm_does(run, tmp_path, slots):
    pretrained = from_pretrained(run)
    pretrained.metadata["config"]["model"]["char_slots"] = slots
    units = units_of(pretrained)
    arrays = HLMArrays(pretrained, units)
    arrays.write_beside(tmp_path)
    texts = [["the", RARE, "cat", "ca語t", "naïve"], ["国", "🙂"]]
    names = {
        "json": json,
        "np": np,
        "folder": str(tmp_path),
        "reading": arrays.reading() | {"slots": units.slots, "length": 9},
    }
    exec(PADDED + arrays.recipe, names)
    found, wanted = names["arrays_of"](texts), arrays.of([units.join(one) for one in units.encode_words(texts)])
    chars = lambda of: [[of["chars"][n][of["chars"][n] != 0].tolist() for n in row if n >= 0] for row in of["index"]]
    assert chars(found) == chars(wanted)
    with pytest.raises(ValueError, match="a text has 10 positions; the model reads 9 at a time"):
        names["arrays_of"]([["a"] * 8])


@pytest.mark.parametrize("objective", ["next_word", "spelling"])
def test_what_spells_words_letter_by_letter_spells_them_by_bytes_too(objective, tmp_path):
    config = new_config(tmp_path, unknown="bytes")
    config.objective, config.model.position, config.model.char_slots = objective, "rotary", 10
    config.data.bucket_slots, config.train.examples = (10,), 1
    config.spelling.noise, config.spelling.misspelled = ("swap:0.5",), 0.9
    with on_devices(1):
        charlm.training.train.train(config, str(tmp_path / "run"))
    model = charlm.load(tmp_path / "run")
    if objective == "spelling":
        text = "teh жук café"  # the vocabulary has no Cyrillic letter, so each is two bytes
        predictor = Predictor.from_checkpoint(tmp_path / "run")
        asked = {text[slice(*one.span)]: one.log_probs_CV for one in predictor.reader.asked([text], 1)}
        assert set(asked) == {"teh", "жук", "café"}
        can_write = lambda word: Proposer(predictor.vocab).log_probs(word, asked["жук"]) is not None
        assert [can_write(word) for word in ("жук", "жуки", "жуки🙂")] == [True, True, False]  # room for 2 characters
        assert set(model.correct(text, threshold=0.0).corrected) & set("жук")
    else:
        assert "\ufffd" not in model.generate("the ", 9, temperature=5.0, seed=1).text
        assert np.isfinite(model.score(f"the {RARE}").bits_per_char)


def test_a_word_that_is_written_has_room_for_a_character_of_four_bytes(tmp_path):
    config = new_config(tmp_path, unknown="bytes")
    config.objective, config.model.position, config.model.char_slots = "next_word", "rotary", 5
    with pytest.raises(ValueError, match=r"text.unknown=bytes, objective=next_word: model.char_slots=5, expected 6"):
        validate(config)
