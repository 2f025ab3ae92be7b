"""Tests sequences with joined words: equal to those of the released code, and properties of any text."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import release
from tokenizers import Tokenizer, models, pre_tokenizers

from charlm.families.xrayemb.policies import get_policy, select, text_rng
from charlm.families.xrayemb.words import XRayWords
from charlm.text.subwords import Subwords, SubwordTokenizer

GOLDENS = Path(__file__).parents[2] / "goldens" / "xrayemb"
GOLDEN = json.loads((GOLDENS / "policy_golden.json").read_text(encoding="utf-8"))
OURS = {
    "none": "none",
    "all": "all",
    "all_multi": "all_multi",
    "all_single": "all_single",
    "no_easy_suffs_author": "no_suffix_compat",
    "suffixes_paper": "no_suffix",
    "stoch_0.2": "stochastic:0.2",
    "stoch_0.5": "stochastic:0.5",
}
VECTORIZED = "[VECTORIZED]"


class Draws:
    """A generator that gives the numbers of a list."""

    def __init__(self, numbers):
        self.left = list(numbers)

    def random(self):
        return self.left.pop(0)


@functools.cache
def golden_bert():
    """Returns a tokenizer with the golden pieces alone: among them the longest match is the one among all."""
    folder = Path(tempfile.mkdtemp())
    tokens = dict.fromkeys(t for case in GOLDEN["bert"] for t in case["tokens"])
    tokens |= dict.fromkeys(t for row in GOLDEN["embedder"]["collapsed_tokens"] for t in row if t != VECTORIZED)
    tokens |= dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return SubwordTokenizer.load(folder, lowercase=True)


@functools.cache
def golden_gpt2():
    """Returns a byte-level tokenizer with the golden vocabulary."""
    vocab = {token: int(index) for index, token in GOLDEN["gpt2_vocab"].items() if token != VECTORIZED}
    backend = Tokenizer(models.BPE(vocab, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(["<|endoftext|>", "<PAD>"])
    return SubwordTokenizer(backend, {"eos_token": "<|endoftext|>", "pad_token": "<PAD>"})


def bare(ids):
    """Returns ids as an encoded text of which nothing else is known."""
    P = len(ids)
    return Subwords(tuple(ids), (0,) * P, (False,) * P, ((0, 0),) * P, (None,) * P, (None,) * P)


def places_of_words(found):
    """Returns the positions that are words."""
    return [n for n, item in enumerate(found.items) if isinstance(item, str)]


def check_golden(words, tokenizer, item, policies):
    """Compares all policies of one sentence."""
    assert set(policies) == set(OURS)
    for name, want in policies.items():
        rng = Draws(want.get("uniform_draws", ()))
        policy = get_policy(OURS[name])
        found = words.collapse(item, policy, rng)
        assert rng.left == [], name
        groups = [
            {"word": found.items[n], "positions": list(range(found.starts_L[n], found.ends_L[n]))}
            for n in places_of_words(found)
        ]
        assert [g | {"group": n} for n, g in enumerate(groups)] == want["selected"], name
        shown = [VECTORIZED if isinstance(i, str) else tokenizer.token(i) for i in found.items]
        assert shown == want["sequence"], name
        spans = zip(found.starts_L.tolist(), found.ends_L.tolist(), strict=True)
        assert [list(range(a, b)) for a, b in spans] == want["source_positions"], name
        filled = np.full(len(item.ids), -1)
        for n, group in enumerate(groups):
            filled[group["positions"]] = n
        assert filled.tolist() == want["filter"], name


@pytest.mark.parametrize("number", range(len(GOLDEN["bert"])))
def test_every_policy_of_every_golden_sentence(number):
    case, tokenizer = GOLDEN["bert"][number], golden_bert()
    item = tokenizer.encode(case["sentence"])
    assert [tokenizer.token(index) for index in item.ids] == case["tokens"]
    check_golden(XRayWords(tokenizer), tokenizer, item, case["policies"])


@pytest.mark.parametrize("number", range(len(GOLDEN["gpt2_style"])))
def test_every_policy_of_byte_level_pieces(number):
    case, tokenizer = GOLDEN["gpt2_style"][number], golden_gpt2()
    assert [tokenizer.token(index) for index in case["ids"]] == case["tokens"]
    words = XRayWords(tokenizer, compat_bytes=True)
    check_golden(words, tokenizer, bare(case["ids"]), case["policies"])
    decoded = XRayWords(tokenizer).collapse(bare(case["ids"]), get_policy("all"))
    glyphs = words.collapse(bare(case["ids"]), get_policy("all"))
    for ours, theirs in zip(decoded.items, glyphs.items, strict=True):
        if isinstance(ours, str):
            assert ours == theirs.replace("Ã©", "é").replace("Ã¯", "ï")


def test_the_golden_embedder_reads_these_words():
    tokenizer, arrays = golden_bert(), np.load(GOLDENS / "embedder.npz")
    golden, draws, learned = GOLDEN["embedder"], Draws(arrays["uniform_draws"]), []
    words = XRayWords(tokenizer)
    for row, sentence in enumerate(golden["sentences"]):
        item = tokenizer.encode(sentence)
        found = words.collapse(item, get_policy("all_multi"))
        shown = [VECTORIZED if isinstance(i, str) else tokenizer.token(i) for i in found.items]
        assert shown == golden["collapsed_tokens"][row]
        want = {int(k.split(",")[1]): v for k, v in golden["orig_words"].items() if int(k.split(",")[0]) == row}
        assert {n: found.items[n] for n in places_of_words(found)} == want
        runs = words.find(item.ids)
        learned += select(get_policy("stochastic:0.4"), runs, draws).nonzero()[0].tolist()
    assert draws.left == []
    assert len(learned) == len(arrays["learn_preds"])


FAMILIES = ("bert", "roberta", "gpt2")
PARTS = [*"abcdez ,.'\n\t", "\u00e9", "ß", "今", "天", "\u200b", "\x00", "[MASK]", "<mask>", "🙂"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)
SPECS = st.sampled_from([*OURS.values()])


@functools.cache
def words_for(family):
    tokenizer = SubwordTokenizer.load(release(family))
    return tokenizer, XRayWords(tokenizer)


def check_whole(item, found, policy, rng, words, given_words):
    """Checks what holds of every collapsed sequence."""
    P = len(item.ids)
    runs = words.find(item.ids, item.sequences, given_words)
    selected = select(policy, runs, rng)
    assert len(found) == P - int((runs.counts_W[selected] - 1).sum())
    assert found.starts_L.tolist() == [0, *found.ends_L.tolist()][: len(found)]
    assert (found.ends_L[-1] if len(found) else 0) == P
    np.testing.assert_array_equal(found.positions_P, np.repeat(np.arange(len(found)), found.ends_L - found.starts_L))
    taken = {(a, b) for a, b in zip(runs.starts_W[selected].tolist(), runs.ends_W[selected].tolist(), strict=True)}
    for n, (a, b) in enumerate(zip(found.starts_L.tolist(), found.ends_L.tolist(), strict=True)):
        assert isinstance(found.items[n], str) == ((a, b) in taken)
        assert isinstance(found.items[n], str) or (b == a + 1 and found.items[n] == item.ids[a])
        assert len(set(item.sequences[a:b])) == 1
        assert not (isinstance(found.items[n], str) and any(item.special[a:b]))
        assert found.offsets[n] == (
            min(s for s, _ in item.offsets[a:b]),
            max(e for _, e in item.offsets[a:b]),
        )
    assert found.first(item.ids) == [item.ids[a] for a in found.starts_L]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS, pair=st.none() | TEXTS, spec=SPECS)
def test_any_text_is_covered_once(family, text, pair, spec):
    tokenizer, words = words_for(family)
    item = tokenizer.encode(text, pair)
    policy = get_policy(spec)
    found = words.collapse(item, policy, text_rng((0,), text))
    check_whole(item, found, policy, text_rng((0,), text), words, None)
    for n in places_of_words(found):
        side = pair if found.sequences[n] else text
        a, b = found.offsets[n]
        normal = lambda chars: "".join(tokenizer.normalized(chars).split())
        assert normal(side[a:b]) == normal(found.items[n])


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(given_words=st.lists(TEXTS, max_size=8), spec=SPECS)
def test_no_given_word_is_lost_or_joined(family, given_words, spec):
    tokenizer, words = words_for(family)
    item = tokenizer.encode_words(given_words)
    policy = get_policy(spec)
    found = words.collapse(item, policy, text_rng((0,), *given_words), given=True)
    check_whole(item, found, policy, text_rng((0,), *given_words), words, item.words)
    assert {word for word in found.words if word is not None} == set(range(len(given_words)))
    for a, b in zip(found.starts_L.tolist(), found.ends_L.tolist(), strict=True):
        assert len(set(item.words[a:b])) == 1


def test_byte_level_words_are_what_stands_between_spaces():
    tokenizer, words = words_for("gpt2")
    text = "größte 今天! x\ny  z"
    item = tokenizer.encode(text)
    found = words.collapse(item, get_policy("all"))
    assert [i for i in found.items if isinstance(i, str)] == ["größte", "今天!", "x", "y", "z"]
    glyphs = XRayWords(tokenizer, compat_bytes=True).collapse(item, get_policy("all"))
    assert next(i for i in glyphs.items if isinstance(i, str)) == "grÃ¶ÃŁte"
    half = words.text(item.ids[:1]) if len(item.ids) > 1 else ""
    assert "\udc80" not in half
    first = tokenizer.encode("今").ids[:1]
    assert words.text(first) == "\ufffd"  # a byte alone is no character


def test_texts_of_a_pair_stay_apart():
    tokenizer, words = words_for("gpt2")
    item = tokenizer.encode("ab", "cd")
    found = words.collapse(item, get_policy("all"))
    assert found.items == ("ab", "cd")
    assert found.sequences == (0, 1)
    assert words.collapse(bare(item.ids), get_policy("all")).items == ("abcd",)


def test_given_words_are_never_joined_however_they_are_spelled():
    tokenizer, words = words_for("bert")
    begins = next(i for i in tokenizer.ids() if tokenizer.token(i) == "a")
    continues = next(i for i in tokenizer.ids() if tokenizer.token(i).startswith("##"))
    item = bare([begins, continues])._replace(words=(0, 1))
    assert len(words.collapse(item, get_policy("all"))) == 1
    assert len(words.collapse(item, get_policy("all"), given=True)) == 2
