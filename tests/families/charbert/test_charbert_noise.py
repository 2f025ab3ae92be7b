"""Tests the noise of noisy language modelling: the released code's draw by draw, the paper's in its shares."""

from __future__ import annotations

import collections
import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.masking import SubwordMasking, mask_as_released
from charlm.families.charbert.noise import REFERENCE_LETTERS, WordNoise, misspell_as_released, noise_as_released
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "charbert"
GOLDEN = json.loads((GOLDENS / "nlm.json").read_text(encoding="utf-8"))
RELEASED = json.loads((GOLDENS / "char_inputs.json").read_text(encoding="utf-8"))
SYMBOLS = SymbolVocab(RELEASED["symbols"]["bert"].removesuffix("\n").split("\n"))
LETTERS = SYMBOLS.symbols[:REFERENCE_LETTERS]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The tokenizer of the goldens."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "vocab.txt").write_text(RELEASED["vocabularies"]["bert"]["vocab.txt"], encoding="utf-8")
    return SubwordTokenizer.load(folder, lowercase=False)


# ---- The released code ----


def test_single_words_come_out_as_in_the_released_code():
    assert len(GOLDEN["noise"]) == 240
    for word, seed, other, result in GOLDEN["noise"]:
        assert misspell_as_released(word, random.Random(seed), random.Random(other), LETTERS) == result


def test_shares_of_the_released_code():
    for word, want in GOLDEN["stats"].items():
        rng, swaps, count = random.Random(0), random.Random(1), 20_000
        found = [misspell_as_released(word, rng, swaps, LETTERS) for _ in range(count)]
        kinds = {-1: "delete", 0: "swap", 1: "insert"}
        shares = collections.Counter(kinds[len(result) - len(word)] for result in found)
        assert {kind: n / count for kind, n in shares.items()} == pytest.approx(want["kinds"], abs=0.015)
        first = sum(result[0] != word[0] for result in found) / count
        last = sum(result[-1] != word[-1] for result in found) / count
        assert [first, last] == pytest.approx([want["first_char_changed"], want["last_char_changed"]], abs=0.015)


def test_the_whole_pipeline_of_the_released_code(tokenizer):
    """Lines glued, words noised, a chunk masked, blocks cut, characters laid out: ten blocks, every array."""
    settings, block = GOLDEN["pipeline"], GOLDEN["pipeline"]["block_size"]
    text = "".join(line.strip() for line in settings["corpus"].splitlines())
    rng, swaps = random.Random(settings["rng_seed"]), random.Random(settings["global_seed"])
    words = text.split()
    noised = noise_as_released(words, settings["adv_probability"], rng, swaps, LETTERS)
    ids, terms, texts = [], [], []
    for word, seen in zip(words, noised, strict=True):
        pieces = [i for i in tokenizer.encode(seen).ids if i not in (tokenizer.special.cls, tokenizer.special.sep)]
        ids += pieces
        term = GOLDEN["terms"].get(word.lower(), 30_000) if seen != word else -1
        terms += [term] * len(pieces)
        texts += [seen if i == tokenizer.special.unk else "" for i in pieces]
    ids_T, terms_T = np.array(ids), np.array(terms)
    starts = [t for t, i in enumerate(ids) if not tokenizer.token(i).startswith("##")]
    groups = list(itertools.pairwise([*starts, len(ids)]))
    masking = masking_of(tokenizer, settings["mlm_probability"])
    input_T, labels_T = mask_as_released(ids_T, groups, terms_T >= 0, masking, rng)

    room, chars = block - 2, PieceChars(tokenizer, SYMBOLS, compat_reference=True)
    assert len(settings["examples"]) == len(ids) // room == 10
    for number, want in enumerate(settings["examples"]):
        part = slice(number * room, (number + 1) * room)
        edged = lambda middle, cls, sep: [cls, *middle, sep]
        row = edged(input_T[part].tolist(), tokenizer.special.cls, tokenizer.special.sep)
        assert row == want["input_ids"]
        assert edged(labels_T[part].tolist(), -1, -1) == want["mlm_labels"]
        assert edged(terms_T[part].tolist(), -1, -1) == want["nlm_labels"]
        spelled = {1 + t: text for t, text in enumerate(texts[part]) if text}
        hidden_T = np.array(edged((labels_T[part] >= 0).tolist(), False, False))
        got = chars.row(np.array(row), hidden_T=hidden_T, texts=spelled)
        assert got.chars_N.tolist() == want["char_ids"] + [0] * (6 * block - len(want["char_ids"]))
        assert (got.starts_L.tolist(), got.ends_L.tolist()) == (want["start_ids"], want["end_ids"])


def masking_of(tokenizer, rate):
    return SubwordMasking(
        rate, 0.8, 0.1, tokenizer.special.mask, np.arange(tokenizer.size, dtype=np.int32), "reference"
    )


def test_masks_of_the_released_code(tokenizer):
    case = GOLDEN["masking"]
    ids_T = np.array([tokenizer.id(token) for token in case["tokens"]])
    starts = [t for t, token in enumerate(case["tokens"]) if not token.startswith("##")]
    groups = list(itertools.pairwise([*starts, len(ids_T)]))
    for run in case["runs"]:
        masking = masking_of(tokenizer, case["rate"])
        rng = random.Random(run["seed"])
        input_T, labels_T = mask_as_released(ids_T, groups, np.array(case["noised"]), masking, rng)
        assert [tokenizer.token(i) for i in input_T] == run["out_tokens"]
        assert labels_T.tolist() == run["labels"]


# ---- Words of a corpus ----

WORDS = ["the", "backhand", "a", "of", ".", "Überraschung", "3", "moon"] * 4000
LONG = [word for word in WORDS if len(word) > 1]


def test_the_paper_changes_characters_inside_of_its_share_of_words():
    noised = WordNoise("paper", 0.15, seed=3).words(WORDS, 0)
    changed = [(word, seen) for word, seen in zip(WORDS, noised, strict=True) if word != seen]
    assert len(changed) / len(LONG) == pytest.approx(0.15, abs=0.01)
    assert all(word[0] == seen[0] and word[-1] == seen[-1] for word, seen in changed)
    lengths = collections.Counter(len(seen) - len(word) for word, seen in changed if word == "backhand")
    assert [lengths[n] / sum(lengths.values()) for n in (-1, 0, 1)] == pytest.approx([1 / 3] * 3, abs=0.06)
    assert {len(seen) - len(word) for word, seen in changed if word == "of"} == {1}  # nothing to drop or swap inside


@pytest.mark.parametrize(("rate", "expected"), [(0.15, 0.15), (0.9, len(LONG) / len(WORDS))])
def test_the_share_may_be_one_of_all_words(rate, expected):
    """Section 4.1: 15 % of the input words. Words of one character cannot change, so more of the others do."""
    noised = WordNoise("paper", rate, seed=3, of="all").words(WORDS, 0)
    changed = [word for word, seen in zip(WORDS, noised, strict=True) if word != seen]
    assert len(changed) / len(WORDS) == pytest.approx(expected, abs=0.01)
    assert set(changed) == set(LONG)
    assert WordNoise("paper", rate, seed=3, of="all").words([".", "3"], 0) == [".", "3"]


def test_the_reference_changes_its_share_of_all_words():
    noised = WordNoise("reference", 0.1, 3, LETTERS).words(WORDS, 0)
    changed = [word for word, seen in zip(WORDS, noised, strict=True) if word != seen]
    assert len(changed) / len(WORDS) == pytest.approx(0.1, abs=0.01)
    assert set(changed) == set(WORDS)


@pytest.mark.parametrize("style", ["paper", "reference"])
def test_seed_and_number_alone_decide(style):
    noise = lambda seed=0: WordNoise(style, 0.3, seed, LETTERS)
    first = noise().words(WORDS[:100], 7)
    assert noise().words(WORDS[:100], 7) == first
    assert noise().words(WORDS[:100], 8) != first
    assert noise(1).words(WORDS[:100], 7) != first
    assert WordNoise(style, 0.0, 0, LETTERS).words(WORDS[:100], 7) == WORDS[:100]
    assert noise().words([], 7) == []


def test_impossible_noise():
    with pytest.raises(ValueError, match=r"data\.noise_rate=1\.5 must lie in \[0, 1\]"):
        WordNoise("paper", 1.5, 0)
    with pytest.raises(ValueError, match="letters= names nothing to insert"):
        WordNoise("reference", 0.1, 0)
