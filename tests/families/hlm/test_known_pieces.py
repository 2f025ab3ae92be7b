"""Tests which pieces of a tokenizer an HLM knows, and that they stay with the model: stored, taken over, compared."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from small_run import WORDS, on_devices, small_config, write_text

from charlm.core import checkpoint as checkpoints
from charlm.data.subword_building import build_byte_level, build_wordpiece
from charlm.families.hlm.config import model_config
from charlm.families.hlm.objective import MaskedCharacters, check_pieces
from charlm.families.hlm.pieces import piece_table, pieces_of, pieces_of_start
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.nn.pieces import NO_PIECES, piece_rows
from charlm.text.chars import WORD_CLS, CharVocab
from charlm.text.subwords import SubwordTokenizer, Surface
from charlm.training.train import train

COUNTS = Counter(dict.fromkeys(WORDS, 9))


def piece_of(table, word: str, vocab: CharVocab, end: int) -> int | None:
    """The number of the piece found at a character of a word, counted from 0."""
    row, there = piece_rows(np.array([[WORD_CLS, *vocab.encode_word(word)]]), table)
    return int(row[0, end + 1]) if there[0, end + 1] else None


@pytest.mark.parametrize("build", [build_wordpiece, lambda *to: build_byte_level(*to, "gpt2")], ids=["##", "bytes"])
def test_pieces_say_whether_they_begin_a_word(tmp_path, build):
    build(COUNTS, 400, str(tmp_path / "made"))
    pieces = pieces_of(SubwordTokenizer.load(tmp_path / "made"))
    assert {" the", " t", " mat"} <= set(pieces)
    assert any(not piece.startswith(" ") for piece in pieces)
    assert not {"[MASK]", " [MASK]", "<|endoftext|>", "t", " ", ""} & set(pieces)
    assert len(set(pieces)) == len(pieces)


def test_a_word_gets_the_longest_piece_at_each_character():
    vocab = CharVocab("thesmaé")
    table = piece_table((" t", " th", "he", "hes", " unknown", "a" * 9, "Ä"), vocab, "none")
    assert table.size == 5  # what holds other characters is left out
    assert [piece_of(table, "thes", vocab, end) for end in range(4)] == [0, 1, 2, 3]
    assert [piece_of(table, "mhes", vocab, end) for end in range(4)] == [None, None, 2, 3]


def test_pieces_have_the_form_of_the_text_and_none_may_be_left():
    vocab = CharVocab("né")
    decomposed = "ne\u0301"
    assert piece_table((decomposed,), vocab, "none") is NO_PIECES
    assert piece_table((decomposed,), vocab, "nfc").size == 1


def test_a_config_with_a_tokenizer_makes_no_model_without_its_pieces():
    config = small_config(Path("text.txt"), Path("cache"))
    config.text.tokenizer = "subwords"
    with pytest.raises(ValueError, match=r"text.tokenizer='subwords': its pieces are needed here, and there are none"):
        model_config(config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with text, two tokenizers, and a short run that knows the pieces of the first."""
    folder = tmp_path_factory.mktemp("pieces")
    write_text(folder / "text.txt")
    build_wordpiece(COUNTS, 200, str(folder / "subwords"))
    build_wordpiece(COUNTS, 90, str(folder / "others"))
    with on_devices(1):
        train(of(folder, "subwords"), str(folder / "run"))
    return folder


def of(folder: Path, tokenizer: str = "", **changes):
    """The config of tests, with a tokenizer of the folder."""
    config = small_config(folder / "text.txt", folder / "cache")
    config.text.tokenizer = str(folder / tokenizer) if tokenizer else ""
    config.train.steps, config.optim.learning_rate = 4, 0.05
    config.update(changes)
    return config


def test_a_model_keeps_its_pieces_when_it_is_saved(folder, tmp_path):
    model = from_pretrained(folder / "run")
    assert len(model.metadata["pieces"]) > model.config.pieces.size / 2 > 10
    assert model.params["hlm"]["embed"]["pieces"]["embedding"].shape == (model.config.pieces.size, 16)
    model.save_pretrained(tmp_path / "saved")
    again = from_pretrained(tmp_path / "saved")
    assert again.config == model.config
    found, other = (Predictor.from_checkpoint(at).encode(["the cat"])[0] for at in (folder / "run", tmp_path / "saved"))
    np.testing.assert_array_equal(found.vectors_WD, other.vectors_WD)


def test_a_run_that_starts_from_a_model_knows_its_pieces(folder):
    config = of(folder, init_from=str(folder / "run"))
    data = MaskedCharacters.prepare(config)
    assert data.pieces == tuple(from_pretrained(folder / "run").metadata["pieces"])
    objective = MaskedCharacters(config, data, 1)
    shapes = jax.eval_shape(objective.init_params, jax.random.key(0))
    loaded = objective.load_params(config.init_from, shapes, shapes)
    assert np.abs(loaded["hlm"]["embed"]["pieces"]["embedding"]).max() > 0
    assert f"pieces known  {objective.model.config.pieces.size}" in objective.start_lines()


def test_a_run_that_starts_from_a_model_may_add_ngrams_which_begin_as_zeros(folder, caplog):
    config = of(folder, init_from=str(folder / "run"))
    config.model.ngrams = 64
    objective = MaskedCharacters(config, MaskedCharacters.prepare(config), 1)
    fresh = objective.init_params(jax.random.key(0))
    with caplog.at_level("INFO"):
        loaded = objective.load_params(config.init_from, jax.eval_shape(lambda: fresh), fresh)
    assert caplog.text.rstrip().endswith("; fresh: the rows of n-grams, zeros")
    added = loaded["hlm"]["embed"].pop("ngrams")
    np.testing.assert_array_equal(added["embedding"], np.zeros((64, 16)))
    jax.tree.map(np.testing.assert_array_equal, loaded, from_pretrained(folder / "run").params)


def test_a_run_goes_on_with_its_pieces_whatever_became_of_the_tokenizer(folder):
    run = folder / "run"
    own = tuple(from_pretrained(run).metadata["pieces"])
    gone = of(folder, "moved", resume=str(run))
    assert pieces_of_start(gone, None) == pieces_of_start(of(folder, "moved"), run) == own
    other = of(folder, "others", resume=str(run))
    with pytest.raises(ValueError, match=r"leave out text\.tokenizer"):
        check_pieces(run / "checkpoints" / "4", pieces_of_start(other, None))


def test_pieces_do_not_depend_on_the_slots_of_words(folder):
    shape = lambda slots: model_config(of(folder, model={"char_slots": slots}), CharVocab("the"), ("he", "thet"))
    assert [shape(slots).pieces.size for slots in (3, 9)] == [2, 2]


def test_a_search_index_of_a_model_without_pieces_stays_valid():
    """An index knows its model by this text, among others, so a newer field must not change it."""
    assert "pieces" not in repr(model_config(small_config(Path("text.txt"), Path("cache"))))


def test_a_model_without_pieces_learns_none(folder, trained):
    with pytest.raises(ValueError, match="knows no pieces of a subword tokenizer, and a trained model learns none"):
        check_pieces(checkpoints.find(trained.workdir), (" the",))


def test_pieces_of_several_words_and_line_ends_are_left_out():
    class Tokenizer:
        surfaces = (Surface("a b", False), Surface("ab\n", False), Surface("ab", False), Surface("c", True), None)

        def ids(self):
            return range(len(self.surfaces))

        def surface(self, index):
            return self.surfaces[index]

    assert pieces_of(Tokenizer()) == ("ab", " c")


def test_a_model_of_other_pieces_is_refused(folder):
    other = of(folder, "others", init_from=str(folder / "run"))
    with pytest.raises(ValueError, match=r"run\S* knows \d+ pieces of a subword tokenizer, this run \d+; leave out"):
        MaskedCharacters.check_vocab(folder / "run" / "checkpoints" / "4", MaskedCharacters.prepare(other))


@pytest.mark.parametrize(
    ("named", "said"),
    [("nowhere", r"text.tokenizer='\S*nowhere': "), ("cache", r"text.tokenizer='\S*cache': ")],
)
def test_a_tokenizer_that_cannot_be_read_is_named(folder, named, said):
    with pytest.raises(ValueError, match=said):
        MaskedCharacters.prepare(of(folder, named))


def test_the_released_code_cannot_hold_pieces(folder, tmp_path):
    message = "cannot be exported: the released code does not add the pieces of a subword tokenizer to characters"
    with pytest.raises(ValueError, match=re.escape(message)):
        from_pretrained(folder / "run").save_pretrained(tmp_path / "theirs", format="pytorch")
