"""Tests the characters under subwords: equal to the authors' four builders; ours drop nothing and ignore padding."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from charlm.families.charbert.char_inputs import PieceChars, lay_out, lay_out_as_released, slots_for
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab

TESTS = Path(__file__).parents[2]
GOLDEN = json.loads((TESTS / "goldens" / "charbert" / "char_inputs.json").read_text(encoding="utf-8"))
SHARED = TESTS.parents[1] / "shared" / "golden" / "charbert"  # the larger files these were cut down from
FAMILIES = ("bert", "roberta")
LENGTHS = st.lists(st.integers(1, 12), max_size=9)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> dict[str, SubwordTokenizer]:
    found = {}
    for family, files in GOLDEN["vocabularies"].items():
        folder = tmp_path_factory.mktemp(family)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
        found[family] = SubwordTokenizer.load(folder, lowercase=False if family == "bert" else None)
    return found


@pytest.fixture(scope="module")
def released(tokenizers) -> dict[str, PieceChars]:
    return {name: PieceChars(tokenizers[name], symbols(name), compat_reference=True) for name in FAMILIES}


@pytest.fixture(scope="module")
def clean(tokenizers) -> dict[str, PieceChars]:
    return {name: PieceChars(tokenizers[name], symbols(name)) for name in FAMILIES}


def symbols(family: str) -> SymbolVocab:
    return SymbolVocab(GOLDEN["symbols"][family].removesuffix("\n").split("\n"))


# ---- Equal to the authors' builders ----


def known_words(golden: dict, kind: str, tokenizer: SubwordTokenizer) -> dict[int, str]:
    """Returns the words that the authors' SQuAD and pre-training builders put in place of unknown tokens."""
    special = {tokenizer.token(i) for i in tokenizer.special if i is not None}
    texts = {}
    for place, index in enumerate(golden["ids"]):
        if kind == "squad" and index == tokenizer.special.unk and str(place) in golden["token_to_orig_map"]:
            texts[place] = golden["doc_tokens"][golden["token_to_orig_map"][str(place)]]
        if kind == "mlm" and golden["mlm_labels"][place] == -1:
            if index == tokenizer.special.unk:
                texts[place] = golden["sub_index_to_orig"].get(str(place - 1), "")
            elif tokenizer.token(index).startswith("<"):  # RoBERTa's, which they take for BERT's and spell out
                texts[place] = tokenizer.token(index)
    return texts if kind == "mlm" else {place: text for place, text in texts.items() if text not in special}


def check(pieces: PieceChars, golden: dict, kind: str, tokenizer: SubwordTokenizer) -> None:
    texts = known_words(golden, kind, tokenizer)
    ids = np.array(golden["ids"])
    if kind == "squad":  # padding spelled out in a text is left out
        real = ids != tokenizer.special.pad
        ids, texts = ids[real], {int(real[:place].sum()): text for place, text in texts.items()}
    hidden = np.array(golden["mlm_labels"]) != -1 if kind == "mlm" else None
    row = pieces.row(ids, golden["length"], hidden_T=hidden, texts=texts, pads_have_slots=kind == "glue")
    chars = np.zeros(6 * golden["length"], int)
    chars[: len(golden["chars"])] = golden["chars"]
    np.testing.assert_array_equal(row.chars_N, chars)
    np.testing.assert_array_equal(row.starts_L, golden["starts"])
    np.testing.assert_array_equal(row.ends_L, golden["ends"])


def check_all(pieces: PieceChars, golden: dict, tokenizer: SubwordTokenizer) -> int:
    done = [(pair, "glue") for pair in golden["pairs"]]
    for string in golden["strings"]:
        done += [(string[kind], kind) for kind in ("glue", "ner", "mlm")]
        done += [(window, "squad") for window in string["squad"]]
    for features, kind in done:
        check(pieces, features, kind, tokenizer)
    return len(done)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_equal_the_authors_builders(family, released, tokenizers):
    assert check_all(released[family], GOLDEN["families"][family], tokenizers[family]) > 35


def as_stored(features: dict) -> dict:
    """Returns features of the larger files as they are in the small one."""
    real = sum(features["attention_mask"]) if "attention_mask" in features else len(features["input_ids"])
    chars, starts, ends = (features[f"{name}_ids"] for name in ("char", "start", "end"))
    found = {"ids": features["input_ids"][:real], "length": len(starts), "chars": chars, "starts": starts, "ends": ends}
    return features | found


@pytest.mark.parametrize("family", FAMILIES)
def test_all_golden_strings_equal_the_authors_builders(family, released, tokenizers):
    path = SHARED / f"char_inputs_{family}.json"
    if not path.is_file():
        pytest.skip(f"the larger golden file is not there: {path}")
    whole = json.loads(path.read_text(encoding="utf-8"))
    strings = [
        {kind: as_stored(string[kind]) for kind in ("glue", "ner", "mlm")}
        | {"squad": [as_stored(window) for window in string["squad"]]}
        for string in whole["strings"]
    ]
    golden = {"strings": strings, "pairs": [as_stored(pair) for pair in whole["pairs"]]}
    windows = sum(len(string["squad"]) for string in whole["strings"])
    assert check_all(released[family], golden, tokenizers[family]) == 3 * 32 + 4 + windows


def test_released_rows_that_overflow_end_where_the_slots_do():
    values = np.arange(1, 10)
    row = lay_out_as_released(np.array([3, 4, 2]), values, 4, 6, pads_have_slots=False)
    np.testing.assert_array_equal(row.chars_N, [1, 2, 3, 0, 4, 5])
    np.testing.assert_array_equal(row.starts_L, [0, 4, 5, 5])
    np.testing.assert_array_equal(row.ends_L, [2, 5, 5, 5])


# ---- Ours ----


def test_the_example_of_the_module():
    row = lay_out(np.array([1, 2, 1, 1]), np.array([0, 7, 8, 9, 0]), 6, 10)
    np.testing.assert_array_equal(row.chars_N, [0, 0, 7, 8, 0, 9, 0, 0, 0, 0])
    np.testing.assert_array_equal(row.starts_L, [0, 2, 5, 7, 0, 0])
    np.testing.assert_array_equal(row.ends_L, [0, 3, 5, 7, 0, 0])


def by_hand(words: list[list[int]], length: int, slots: int) -> tuple[list[int], list[int], list[int]]:
    """Lays words out one after the other, the longest cut a character at a time until all fit."""
    words = [list(word) for word in words]
    while sum(map(len, words)) + len(words) > slots:
        longest = max(map(len, words))
        words = [word[: longest - 1] for word in words]
    chars, starts, ends = [], [], []
    for word in words:
        starts.append(len(chars))
        ends.append(len(chars) + len(word) - 1)
        chars += [*word, 0]
    pad = [0] * (length - len(words))
    return chars + [0] * (slots - len(chars)), starts + pad, ends + pad


@given(LENGTHS, st.integers(0, 3), st.integers(0, 60))
def test_every_token_keeps_its_place(lengths, padding, extra):
    words = [[10 * place + n + 1 for n in range(size)] for place, size in enumerate(lengths)]
    length, slots = len(words) + padding, 2 * len(words) + extra + 1
    row = lay_out(np.array(lengths, int), np.array([char for word in words for char in word], int), length, slots)
    expected = by_hand(words, length, slots)
    for array, want in zip(row, expected, strict=True):
        np.testing.assert_array_equal(array, want)
        assert array.dtype == np.int32


@given(LENGTHS, st.integers(0, 20))
def test_padding_changes_no_slot(lengths, padding):
    values = np.arange(1, sum(lengths) + 1)
    slots = 6 * len(lengths) + 1
    short = lay_out(np.array(lengths, int), values, len(lengths), slots)
    long = lay_out(np.array(lengths, int), values, len(lengths) + padding, slots)
    np.testing.assert_array_equal(long.chars_N, short.chars_N)
    np.testing.assert_array_equal(long.starts_L[: len(lengths)], short.starts_L)
    np.testing.assert_array_equal(long.ends_L[: len(lengths)], short.ends_L)


def spelled(pieces: PieceChars, row, place: int) -> str:
    return "".join(pieces.vocab.symbols[i] for i in row.chars_N[row.starts_L[place] : row.ends_L[place] + 1])


def test_only_the_mark_of_a_continuation_is_taken_off(clean, released, tokenizers):
    texts = {"bert": "Hello #hash C#", "roberta": "Hello #hash C#"}
    for family, tokenizer in tokenizers.items():
        ids = tokenizer.encode(texts[family]).ids
        pieces = clean[family]
        row = pieces.row(np.array(ids))
        real = [spelled(pieces, row, place) for place in range(1, len(ids) - 1)]
        tokens = [tokenizer.token(i) for i in ids[1:-1]]
        assert real == [token.removeprefix("##") if family == "bert" else token for token in tokens]
        assert "#" in "".join(real)
        assert "#" not in "".join(pieces.vocab.symbols[i] for i in released[family].row(np.array(ids)).chars_N)


def test_special_hidden_and_unknown_tokens(clean, tokenizers):
    tokenizer, pieces = tokenizers["bert"], clean["bert"]
    special = tokenizer.special
    ids = np.array([special.cls, tokenizer.id("the"), special.unk, tokenizer.id("the"), special.sep])
    row = pieces.row(ids, hidden_T=np.array([False, True, False, False, False]))
    assert [spelled(pieces, row, place) for place in range(5)] == [" ", " ", " ", "the", " "]
    row = pieces.row(ids, texts={2: "C#☃", 3: ""})
    assert [spelled(pieces, row, place) for place in range(5)] == [" ", "the", "C#<unk>", "the", " "]
    assert row.chars_N.shape == (30,)


def test_batches_are_their_rows_and_no_longer_row_changes_another(clean, released, tokenizers):
    for family, tokenizer in tokenizers.items():
        ids = [np.array(tokenizer.encode(text).ids) for text in ("Hello", "supercalifragilistic " * 3, "")]
        texts = [{1: "C" * 200}, {}, {}]  # more characters than there is room for
        found = clean[family].rows(ids, 4, 40, texts)
        wider = clean[family].rows(ids[:1], 1, 60, texts[:1])
        for b, row in enumerate(ids):
            alone = clean[family].row(row, slots=slots_for(len(row)), texts=texts[b])
            for array, part in zip(found, alone, strict=True):
                np.testing.assert_array_equal(array[b, : len(part)], part)
                assert not array[b, len(part) :].any()
                assert not array[3].any()
        for array, other in zip(found, wider, strict=True):
            np.testing.assert_array_equal(other[0, : array.shape[1]], array[0])
        theirs = released[family].rows(ids, 3, 40, pads_have_slots=True)
        for b, row in enumerate(ids):
            alone = released[family].row(row, 40, pads_have_slots=True)
            for array, part in zip(theirs, alone, strict=True):
                np.testing.assert_array_equal(array[b], part)


def test_mistakes_are_named_in_one_line(clean, tokenizers):
    pieces, ones = clean["bert"], np.ones(3, int)
    for call, message in (
        (lambda: lay_out(ones, ones, 2, 9), "3 tokens in a row of 2"),
        (lambda: lay_out(ones, ones, 3, 5), "5 slots for 3 tokens, expected at least 6"),
        (lambda: lay_out(np.array([1, 0]), np.ones(1, int), 2, 9), "a token without characters"),
        (lambda: lay_out(ones, np.ones(2, int), 3, 9), "2 characters in 9 slots: expected 3"),
        (
            lambda: pieces.row(np.array([5, 10**6])),
            f"ids from 5 to 1000000: expected 0 to {tokenizers['bert'].size - 1}$",
        ),
        (lambda: pieces.row(np.array([5, 6]), texts={2: "a"}), "texts for places 2 to 2: expected 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert pieces.row(np.array([tokenizers["bert"].size - 1])).ends_L.shape == (1,)
