"""Tests character vocabulary and word encoder: equal to the released code, deterministic, bounded, exact counts."""

import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from charlm.text import chars as chars_module
from charlm.text.chars import CLS, FIRST_CHAR, MASK, PAD, SEP, UNK, WORD_CLS, CharVocab, WordEncoder
from charlm.text.words import get_splitter, split

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "hlm_tokenizer.json").read_text(encoding="utf-8"))
SINGLE = GOLDEN["single"]
VOCAB = CharVocab.from_dict(GOLDEN["char2int"])
REFERENCE = get_splitter("reference")


def reference_words(text: str) -> list[str]:
    return list(split(text, REFERENCE).words)


def reference_ids(*texts: str) -> list[int]:
    ids = [CLS]
    for text in texts:
        for word in reference_words(text):
            ids += [WORD_CLS, *VOCAB.encode_word(word)]
        ids.append(SEP)
    return ids


def rows(encoder: WordEncoder, words: list[str]) -> list[list[int]]:
    """Returns the [words][slots] rows of the released code's matrix, WORD_CLS in slot 0."""
    lengths, flat = encoder.encode(words)
    return [[WORD_CLS, *part.tolist()] for part in np.split(flat, np.cumsum(lengths, dtype=np.int64)[:-1])]


@pytest.mark.parametrize("case", SINGLE, ids=range(len(SINGLE)))
def test_ids_equal_the_released_code(case):
    assert reference_ids(case["text"]) == case["ids"]
    assert VOCAB.decode(case["ids"]) == case["decoded"]


@pytest.mark.parametrize("case", SINGLE, ids=range(len(SINGLE)))
def test_encoder_equals_the_released_matrix(case):
    words = reference_words(case["text"])
    body = rows(WordEncoder(VOCAB), words) if words else []
    assert [[CLS], *body, [SEP]] == case["matrix"]


@pytest.mark.parametrize("pair", GOLDEN["pairs"], ids=range(len(GOLDEN["pairs"])))
def test_pairs_equal_the_released_code(pair):
    assert reference_ids(pair["a"], pair["b"]) == pair["ids"]


@pytest.mark.parametrize("batch", GOLDEN["batches"], ids=range(len(GOLDEN["batches"])))
def test_batches_equal_the_released_collator(batch):
    chars_CWB = np.array(batch["input_ids_CWB"])
    encoder = WordEncoder(VOCAB)
    for index, text in enumerate(batch["texts"]):
        words = reference_words(text)
        expected = [[CLS], *(rows(encoder, words) if words else []), [SEP]]
        padded = np.full(chars_CWB.shape[:2], PAD)
        for position, row in enumerate(expected):
            padded[: len(row), position] = row
        np.testing.assert_array_equal(padded, chars_CWB[:, :, index])


def test_truncation_keeps_the_last_word_of_the_released_collator():
    case = GOLDEN["truncation"]
    words = reference_words("w " * 600)
    kept = rows(WordEncoder(VOCAB), words)[: case["shape"][1] - 1]  # the collator cuts [CLS] + words at 512, losing SEP
    assert kept[-1] == case["last_word"]


def test_nothing_is_normalised_unless_asked():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    plain, nfc = WordEncoder(VOCAB), WordEncoder(VOCAB, normalize="nfc")
    assert rows(plain, [composed]) != rows(plain, [decomposed])
    assert rows(nfc, [composed]) == rows(nfc, [decomposed]) == rows(plain, [composed])
    assert VOCAB.encode_word("aA") == [GOLDEN["char2int"]["a"], GOLDEN["char2int"]["A"]]


def test_build_orders_by_frequency_then_code_point():
    counts = {
        "b": 5,
        "a": 5,
        "é": 9,
        "手": 1,
        " ": 99,
        "\n": 50,
        "\x07": 50,
        "\u3000": 50,
        "\u2028": 9,
        "\ud800": 9,
        "z": 0,
    }
    vocab = CharVocab.build(counts)
    assert vocab.to_dict() == {"é": 8, "a": 9, "b": 10, "手": 11}
    assert CharVocab.build(dict(reversed(counts.items()))).digest() == vocab.digest()
    assert CharVocab.build(counts, size=FIRST_CHAR + 2).chars == ("é", "a")
    assert vocab.size == 12
    assert CharVocab.build({}).size == FIRST_CHAR


@pytest.mark.parametrize("size", [0, FIRST_CHAR, 2**16 + 1])
def test_build_refuses_impossible_sizes(size):
    with pytest.raises(ValueError, match=f"got {size}"):
        CharVocab.build({"a": 1}, size=size)


@given(st.dictionaries(st.characters(exclude_categories=["Cs"]), st.integers(1, 9), max_size=40), st.integers(9, 60))
def test_build_keeps_the_most_frequent(counts, size):
    vocab = CharVocab.build(counts, size)
    allowed = {c: n for c, n in counts.items() if not c.isspace() and unicodedata.category(c) not in ("Cc", "Zs")}
    kept = [allowed[char] for char in vocab.chars]
    assert kept == sorted(allowed.values(), reverse=True)[: size - FIRST_CHAR]
    assert list(vocab.ids.values()) == list(range(FIRST_CHAR, FIRST_CHAR + len(kept)))


def test_file_round_trip(tmp_path):
    path = tmp_path / "chars.json"
    path.write_text("stale")
    VOCAB.save(path)
    assert CharVocab.load(path) == VOCAB
    assert json.loads(path.read_text(encoding="utf-8")) == GOLDEN["char2int"]
    assert "é" in path.read_text(encoding="utf-8")  # readable, not escaped
    assert list(json.loads(path.read_text(encoding="utf-8")).values()) == sorted(GOLDEN["char2int"].values())
    assert [entry.name for entry in tmp_path.iterdir()] == ["chars.json"]


def test_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "chars.json"
    CharVocab("ab").save(path)

    def fail(*_):
        raise OSError("disk")

    monkeypatch.setattr(chars_module.os, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        CharVocab("xyz").save(path)
    assert CharVocab.load(path) == CharVocab("ab")
    assert [entry.name for entry in tmp_path.iterdir()] == ["chars.json"]


def test_gaps_in_the_ids_count_as_rows():
    vocab = CharVocab.from_dict({"b": 20, "a": 8})
    assert vocab.chars == ("a", "b")
    assert vocab.size == 21
    assert VOCAB.size == 1009
    assert vocab.decode([PAD, CLS, 8, 20, MASK, UNK, 17, 6, SEP]) == "[CLS]ab[MASK][UNK][17][6][SEP]"


def test_unknown_characters_are_spelled_by_their_bytes(tmp_path):
    vocab = CharVocab.build({"a": 3, "ж": 2, "b": 1}, FIRST_CHAR + 256 + 2, by_bytes=True)
    assert (vocab.chars, vocab.size, vocab.by_bytes) == (("a", "ж"), FIRST_CHAR + 258, True)
    first = FIRST_CHAR + 256
    assert vocab.encode_word("aжb") == [first, first + 1, FIRST_CHAR + ord("b")]
    assert vocab.encode_word("語") == [FIRST_CHAR + byte for byte in "語".encode()]
    assert vocab.encode_word("\ud800") == [FIRST_CHAR + byte for byte in b"\xed\xa0\x80"]
    assert vocab.decode([CLS, first, *vocab.encode_word("語🙂"), SEP]) == "[CLS]a語🙂[SEP]"
    assert vocab.decode([FIRST_CHAR + 0xE8, first]) == "\ufffda"  # a character that is not whole
    vocab.save(tmp_path / "chars.json")
    again = CharVocab.load(tmp_path / "chars.json")
    assert again == vocab
    assert again.by_bytes
    assert again.digest() == vocab.digest() != CharVocab(vocab.chars).digest()
    assert pickle.loads(pickle.dumps(vocab)).by_bytes
    with pytest.raises(ValueError, match=f"expected {FIRST_CHAR + 257} to"):
        CharVocab.build({"a": 1}, FIRST_CHAR + 256, by_bytes=True)
    some = {name: index for name, index in vocab.ids.items() if name != "<0x41>"}
    with pytest.raises(ValueError, match="255 of the 256 bytes, from <0x00> on; expected all or none"):
        CharVocab.from_dict(some)
    with pytest.raises(ValueError, match=r"key '<0x00>', value 9: this byte must have id 8"):
        CharVocab.from_dict({"<0x00>": 9})


@given(st.text(), st.integers(2, 12))
def test_bytes_lose_nothing_but_what_is_cut(word, slots):
    vocab = CharVocab("abж", by_bytes=True)
    assume(not any("\ud800" <= char <= "\udfff" for char in word))
    assert vocab.decode(vocab.encode_word(word)) == word
    encoder = WordEncoder(vocab, slots)
    lengths, flat = encoder.encode([word])
    assert lengths.tolist() == [len(flat)]
    assert len(flat) < slots
    kept = "" if flat.tolist() == [UNK] else vocab.decode(flat)
    assert word.startswith(kept)  # whole characters only
    left = word[len(kept) :]
    assert encoder.words_cut == (left != "")
    assert not left or len(vocab.encode_word(kept + left[0])) >= slots


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"a": 7}', "key 'a', value 7"),
        ('{"ab": 9}', "key 'ab', value 9"),
        ('{"": 9}', "key '', value 9"),
        ('{"a": 9, "b": 9}', "key 'b', value 9.*belongs to 'a'"),
        ('{"a": 9, "a": 10}', "key 'a', value 10.*already has id 9"),
        ('{"a": true}', "key 'a', value True"),
        ('{"a": "9"}', "key 'a', value '9'"),
        ('{"a": 65536}', "key 'a', value 65536"),
        ('{"\\ud800": 9}', "value 9"),
        ("[1]", "expected a JSON object"),
        ("{", "expected a UTF-8 JSON object"),
    ],
)
def test_bad_files_are_explained(tmp_path, content, match):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=match) as caught:
        CharVocab.load(path)
    assert "bad.json" in str(caught.value)


def test_bad_characters_are_refused():
    with pytest.raises(ValueError, match="key 'a', value 9"):
        CharVocab("aa")
    with pytest.raises(ValueError, match="key 'ab'"):
        CharVocab.build({"ab": 1})
    with pytest.raises(ValueError, match="key 'a', value 3"):
        CharVocab.from_dict({"a": 3})


def test_vocabulary_is_a_value():
    vocab = CharVocab("ab")
    same = CharVocab.from_dict({"b": 9, "a": 8})
    assert vocab == same
    assert hash(vocab) == hash(same)
    assert vocab.digest() == same.digest()
    assert pickle.loads(pickle.dumps(vocab)) == vocab
    for other in (CharVocab("ba"), CharVocab("abc"), CharVocab.from_dict({"a": 8, "b": 10})):
        assert vocab != other
        assert vocab.digest() != other.digest()
    assert (
        vocab.digest() == "c6c400110d5d14ee90ccf191e7ee198e180766ad8bff7a72e72ded3872da65aa"
    )  # must never change: caches are found by it
    with pytest.raises(TypeError):
        vocab.ids["c"] = 10
    with pytest.raises(AttributeError):
        vocab.size = 3
    vocab.to_dict().clear()
    assert vocab == same


def test_encoder_counts():
    encoder = WordEncoder(CharVocab("abc"), char_slots=4)
    lengths, flat = encoder.encode(["abc", "abca", "xa", "abca", ""])
    assert lengths.dtype == np.uint8
    assert flat.dtype == np.uint16
    assert lengths.tolist() == [3, 3, 2, 3, 1]
    assert flat.tolist() == [8, 9, 10, 8, 9, 10, UNK, 8, 8, 9, 10, UNK]
    counted = (encoder.words_total, encoder.words_cut, encoder.chars_total, encoder.chars_unknown)
    assert counted == (5, 2, 12, 2)
    encoder.encode(["abca"])  # from the cache: counted all the same
    assert (encoder.words_total, encoder.words_cut, encoder.chars_total) == (6, 3, 15)
    empty = encoder.encode([])
    assert [part.size for part in empty] == [0, 0]
    assert [part.dtype for part in empty] == [np.uint8, np.uint16]


def test_widest_slots_and_ids_do_not_overflow():
    vocab = CharVocab.from_dict({"a": 2**16 - 1})
    lengths, flat = WordEncoder(vocab, char_slots=256).encode(["a" * 300, "a"])
    assert lengths.tolist() == [255, 1]
    assert flat.tolist() == [2**16 - 1] * 256


@given(st.lists(st.text("abcdé\u0301xy", max_size=9)), st.integers(2, 8), st.sampled_from(["none", "nfc"]))
def test_encoder_equals_the_definition(words, slots, normalize):
    vocab = CharVocab("abcdé")
    encoder = WordEncoder(vocab, slots, normalize)
    for _ in range(2):  # computed, then remembered
        lengths, flat = encoder.encode(words)
        forms = [unicodedata.normalize("NFC", word) if normalize == "nfc" else word for word in words]
        expected = [vocab.encode_word(form)[: slots - 1] or [UNK] for form in forms]
        assert lengths.tolist() == [len(ids) for ids in expected]
        assert flat.tolist() == [index for ids in expected for index in ids]


def test_cache_is_bounded_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(chars_module, "_MAX_CACHED_WORDS", 10)
    vocab = CharVocab("0123456789")
    words = [str(number) for number in range(100)]
    small, fresh = WordEncoder(vocab), WordEncoder(vocab)
    sizes = []
    for start in range(0, 100, 7):
        _, flat = small.encode(words[start : start + 7])
        sizes.append(len(small._cache))
        assert "".join(words[start : start + 7]) == vocab.decode(flat)
    assert 1 < max(sizes) <= 10
    small.encode(words)
    assert len(small._cache) <= 10
    fresh.encode(["1" * 10_000_000])
    assert not fresh._cache  # huge words are not kept


def test_released_characters_are_those_of_the_released_code():
    released = CharVocab.released()
    assert released.to_dict() == GOLDEN["char2int"]
    assert (len(released.chars), released.size) == (1001, 1009)


@pytest.mark.parametrize("slots", [1, 0, 257])
def test_impossible_slots_are_refused(slots):
    with pytest.raises(ValueError, match=f"char_slots.*{slots}"):
        WordEncoder(VOCAB, char_slots=slots)


def test_unknown_normalisation_is_refused():
    with pytest.raises(ValueError, match=r"text\.normalize='NFD'"):
        WordEncoder(VOCAB, normalize="NFD")
