"""The words of noisy language modelling: most frequent first, in a file of one a line, the same after a round trip."""

from __future__ import annotations

import pytest

from charlm.families.charbert.terms import TermVocab


def test_built_by_frequency_in_lower_case():
    vocab = TermVocab.build({"The": 3, "the": 2, "zoo": 4, "ab": 4, "rare": 1, "<unk>": 9, "": 3, "a\nb": 9}, size=4)
    assert vocab.terms == ("the", "ab", "zoo", "<unk>")
    assert (vocab.size, vocab.unknown) == (4, 3)
    assert [vocab.id(word) for word in ("THE", "Zoo", "rare", "")] == [0, 2, 3, 3]


def test_a_file_keeps_every_word(tmp_path):
    vocab = TermVocab(["the", "naïve", "\u2028", "<unk>"])
    vocab.save(tmp_path / "terms.txt")
    again = TermVocab.load(tmp_path / "terms.txt")
    assert again == vocab
    assert again.digest() == vocab.digest() != TermVocab(["the", "<unk>"]).digest()


def test_lines_may_end_in_crlf(tmp_path):
    (tmp_path / "terms").write_bytes("the\r\nna\u00efve\r\n<unk>\r\n".encode())
    assert TermVocab.load(tmp_path / "terms") == TermVocab(["the", "naïve", "<unk>"])
    (tmp_path / "terms").write_bytes(b"a\rb\n<unk>\n")
    with pytest.raises(ValueError, match=r"entry 0: expected a word, got 'a\\rb'"):
        TermVocab.load(tmp_path / "terms")


def test_a_word_listed_twice_has_its_last_id():
    assert TermVocab(["a", "b", "a", "<unk>"]).id("A") == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\n", "expected <unk> among the words, got none in 2"),
        (b"a\n\n<unk>\n", "entry 1: expected a word, got ''"),
        (b"\xff\n", "expected UTF-8 text, a word a line"),
    ],
)
def test_no_term_vocabulary(tmp_path, content, message):
    (tmp_path / "terms").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        TermVocab.load(tmp_path / "terms")
    assert str(tmp_path / "terms") in str(error.value)


def test_no_room_for_a_word():
    with pytest.raises(ValueError, match="expected at least 2, got 1"):
        TermVocab.build({"a": 1}, size=1)
