"""Tests the speller as a defence: texts and words are corrected to the likeliest known word, in their case."""

from __future__ import annotations

import pytest

from charlm.text.defences import defence_of, parsed
from charlm.text.speller.defence import NoisyChannel
from charlm.wordrec.defences import KNOWN

TEXTS = ["The old service will launch soon.", "The service, the launch and 90s pop.", "Launch the Setanta service"]


@pytest.fixture(scope="module")
def defence():
    return NoisyChannel.of_texts(TEXTS)


def test_texts_are_corrected_in_their_case(defence):
    found = defence.text("Teh SERVCIE lanuch (Setnata, sotp)", 0)
    assert found.text == "The SERVICE launch (Setanta, soon)"
    assert found.original[slice(*found.back(4, 11))] == "SERVCIE"
    assert defence.text("the oldservice", 0).text == "the old service"


def test_words_stay_as_many(defence):
    words = ["Teh", "oldservice", "lanuch!", "42", "日本", ""]
    assert list(defence.words(words, 0).words) == ["The", "service", "launch!", "42", "日本", ""]


def test_a_file_says_which_words_are_known(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    (part,) = parsed(f"speller:{path}", KNOWN)
    found = defence_of(part, KNOWN)
    assert found.text("teh", 0).text == "the"
    assert found.version == NoisyChannel.of_texts(TEXTS).version
    assert found.version != NoisyChannel.of_texts(TEXTS[:2]).version
    with pytest.raises(ValueError, match="there is no such file"):
        parsed("speller:none.txt", KNOWN)
    with pytest.raises(ValueError, match="expected speller:FILE, got 'speller'"):
        parsed("speller", KNOWN)
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match="expected words with positive counts"):
        defence_of(part, KNOWN)
