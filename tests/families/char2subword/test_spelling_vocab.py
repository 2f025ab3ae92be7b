"""Tests which entries of a vocabulary have a spelling, and that each of their typos can be spelled."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from charlm.families.char2subword.spelling_vocab import Entries, characters_of
from charlm.text.noise import Noise, Noiser
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.subwords import SubwordTokenizer


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wordpiece")
    tokens = [
        "[PAD]",
        "[unused0]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "business",
        "##ness",
        "##",
        "#",
        "naïve",
        "Straße",
    ]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return SubwordTokenizer.load(folder, lowercase=False)


def test_special_tokens_and_free_rows_have_no_spelling(wordpiece):
    entries = Entries.of(wordpiece)
    assert entries.ids_N.tolist() == [6, 7, 8, 9, 10, 11]
    assert entries.spellings == ("##business", "ness", "####", "###", "##naïve", "##Straße")


def test_half_a_character_has_no_spelling(tmp_path):
    backend = Tokenizer(models.BPE({"Ġ": 0, "a": 1, "Ã": 2, "©": 5, "Ã©": 3, "Ġa": 4}, [("Ã", "©"), ("Ġ", "a")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(["<s>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    entries = Entries.of(SubwordTokenizer.load(tmp_path))
    # A space alone is nothing to spell, and the first byte of an accented letter is no character.
    assert dict(zip(entries.ids_N.tolist(), entries.spellings, strict=True)) == {1: "a", 3: "é", 4: "##a"}


def test_every_typo_can_be_written(wordpiece):
    entries = Entries.of(wordpiece)
    chars = characters_of(entries, keyboard_for("auto"))
    noiser = Noiser(Noise("char2subword", 1.0, 1), seed=0)
    rng = np.random.default_rng(0)
    for surface in entries.surfaces:
        for _ in range(300):
            typo = noiser.word(surface.chars, rng)
            assert all(char in chars.ids for char in typo), typo
    assert list(chars.ids) == sorted(chars.ids)
