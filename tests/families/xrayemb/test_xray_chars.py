"""Tests XRayEmb's characters: ids against those of the released code, words between two `<e>`, and files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charlm.families.xrayemb.chars import XRAY_SLOTS, XRayChars, word_rows

GOLDENS = Path(__file__).parents[2] / "goldens" / "xrayemb"


def test_rows_are_the_golden_ones():
    meta = json.loads((GOLDENS / "modules_meta.json").read_text(encoding="utf-8"))["enc_conv_a"]
    chars = XRayChars(meta["char_vocab"][:-3])
    theirs_UC = np.load(GOLDENS / "enc_conv_a.npz")["char_ids"]
    ours_UC = (theirs_UC + 1) % chars.size
    np.testing.assert_array_equal(word_rows(meta["words"], chars, ours_UC.shape[1]), ours_UC)
    assert chars.size == len(meta["char_vocab"])
    assert meta["char_vocab"].index("<unk>") + 1 == chars.unknown
    assert meta["char_vocab"].index("<e>") + 1 == chars.end


def test_words_are_cut_and_closed():
    chars = XRayChars("cab")
    assert chars.ids == {"a": 1, "b": 2, "c": 3}
    assert (chars.unknown, chars.end, chars.size) == (4, 5, 6)
    rows = word_rows(["abc", "x" * 99, ""], chars)
    assert (rows.dtype, rows.shape) == (np.uint16, (3, XRAY_SLOTS))
    assert rows[0, :6].tolist() == [5, 1, 2, 3, 5, 0]
    assert rows[1].tolist() == [5, *[4] * 20, 5]
    assert rows[2, :3].tolist() == [5, 5, 0]
    assert word_rows(["abc"], chars, 4).tolist() == [[5, 1, 2, 5]]
    with pytest.raises(ValueError, match="slots=2: expected at least 3"):
        word_rows(["a"], chars, 2)


def test_ids_become_characters_again():
    chars = XRayChars("cab")
    assert chars.decode([5, 1, 4, 3, 5, 1]) == "a<unk>c"
    assert chars.decode([2, 3, 5, 0, 0]) == "bc"
    assert chars.decode([0]) == ""
    with pytest.raises(ValueError, match="character id 6: expected 0 to 5"):
        chars.decode([6])
    assert XRayChars("a\u3000 ").spaces_V.tolist() == [False, True, False, True, False, False]  # " ", a, U+3000


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
def test_known_words_survive(word):
    chars = XRayChars(sorted({*word, "a"}))
    assert chars.decode(word_rows([word], chars)[0]) == word


def test_the_authors_file_keeps_its_white_space(tmp_path):
    text = "\t\n !a\u2003\u3000"
    (tmp_path / "chars.txt").write_bytes(text.encode())
    assert "".join(XRayChars.load(tmp_path / "chars.txt").chars) == text
    (tmp_path / "chars.txt").write_bytes(f"{text}\n".encode())  # an editor was here
    assert "".join(XRayChars.load(tmp_path / "chars.txt").chars) == text
    (tmp_path / "chars.txt").write_bytes(b"\r\nab")
    with pytest.raises(ValueError, match=r"chars\.txt: expected distinct characters in order of code point"):
        XRayChars.load(tmp_path / "chars.txt")


@pytest.mark.parametrize(
    "text", ["\n", "\t\n", "\t", "\n\r", "\t ", " ", "ab\u3000", "a\x85", "a\u2028\u2029", "a\u00a0"]
)
def test_no_white_space_at_the_end_of_the_authors_file_is_lost(tmp_path, text):
    (tmp_path / "chars.txt").write_bytes(text.encode())
    chars = XRayChars.load(tmp_path / "chars.txt")
    assert "".join(chars.chars) == text
    assert chars.spaces_V.sum() == sum(char.isspace() for char in text)


def test_files_and_copies_are_equal(tmp_path):
    chars = XRayChars("\u3000ß \nab")
    chars.save(tmp_path / "xray_chars.json")
    for other in (
        XRayChars.load(tmp_path / "xray_chars.json"),
        XRayChars.from_dict(json.loads(json.dumps(chars.to_dict()))),
        pickle.loads(pickle.dumps(chars)),
    ):
        assert other == chars
        assert (hash(other), other.digest()) == (hash(chars), chars.digest())
    assert XRayChars("ab").digest() != chars.digest()
    assert list(tmp_path.iterdir()) == [tmp_path / "xray_chars.json"]


def test_the_most_frequent_characters_are_kept():
    counts = {"a": 1, "b": 3, "c": 3, " ": 9, "d": 0}
    assert XRayChars.build(counts).chars == ("a", "b", "c")
    assert XRayChars.build(counts, 5).chars == ("b", "c")
    assert XRayChars.build(counts, 4).chars == ("b",)
    with pytest.raises(ValueError, match="expected at least 4, got 3"):
        XRayChars.build(counts, 3)


def test_what_is_no_vocabulary_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the character 'a' is there twice"):
        XRayChars("aba")
    with pytest.raises(ValueError, match="expected single characters, got 'ab'"):
        XRayChars(["ab"])
    with pytest.raises(ValueError, match="here: expected the id 1 for 'a', got 2"):
        XRayChars.from_dict({"a": 2, "b": 1}, "here")
    with pytest.raises(ValueError, match="at most 65533 characters"):
        XRayChars(map(chr, (c for c in range(65600 + 2048) if not 0xD800 <= c < 0xE000)))
    for content, message in ((b'{"a": 1}', "got dict"), (b"[", "expected UTF-8, a JSON list"), (b"\xff", "UTF-8")):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(ValueError, match=rf"a.json: .*{message}"):
            XRayChars.load(tmp_path / "a.json")
