"""Tests the predictor of HLM: vectors of words do not depend on other texts, and gaps are filled exactly."""

from __future__ import annotations

import copy
import itertools
import math

import jax
import numpy as np
import pytest

from charlm.core.cache import WordCache
from charlm.data.word_batch import reshape_batch
from charlm.families.hlm.config import model_config
from charlm.families.hlm.filling import GapFiller, WordGap
from charlm.families.hlm.model import HLM, HLMForMaskedLM
from charlm.families.hlm.predictor import HLMPredictor
from charlm.families.predictor import Predictor
from charlm.families.windows import few_widths
from charlm.text.chars import CLS, MASK, SEP, WORD_CLS, CharVocab
from charlm.text.wordlist import WordList
from charlm.text.words import get_splitter

TEXTS = ["The cat sat, near  a tree.", "trees", "", "old mat and house: 3.14!\n", "dog ran to every town", " \t"]
LONG = " ".join(f"{'abcdeghimnorst'[i % 14]}{'aeiou'[i % 5]}{'nrst'[i % 4]}" for i in range(40))
ROOM = 14  # words of a sequence, without [CLS] and [SEP]


@pytest.fixture(scope="module")
def loaded(trained):
    return Predictor.from_checkpoint(trained.workdir)


@pytest.fixture(scope="module")
def predictor(loaded):
    """With larger weights than twelve steps lead to, so that everything depends on everything it may depend on."""
    params = jax.tree.map(lambda x: x * 6 if x.ndim > 1 else x, loaded._params)
    return HLMPredictor(loaded.config, loaded.vocab, params)


@pytest.fixture(scope="module")
def encoded(predictor):
    return predictor.encode(TEXTS)


def rows_of(predictor, words, hidden=()):
    """Returns the characters [W, C] that the model reads, [CLS] and [SEP] included, by hand."""
    rows = np.zeros((len(words) + 2, 8), np.uint16)
    rows[0, 0], rows[-1, 0] = CLS, SEP
    for i, word in enumerate(words, start=1):
        ids = predictor.vocab.encode_word(word)[:7]
        rows[i, : len(ids) + 1] = [WORD_CLS, *([MASK] * len(ids) if i - 1 in hidden else ids)]
    return rows


def assert_same(got, want):
    assert (got.words, got.offsets) == (want.words, want.offsets)
    np.testing.assert_allclose(got.vectors_WD, want.vectors_WD, atol=1e-5)
    np.testing.assert_allclose(got.sentence_D, want.sentence_D, atol=1e-5)


# ---- Vectors ----


def test_offsets_cut_the_words_out_of_the_text(encoded):
    assert len(encoded) == len(TEXTS)
    for text, encoding in zip(TEXTS, encoded, strict=True):
        assert encoding.offsets == get_splitter("rules", "en").spans(text)
        assert encoding.words == [text[a:b] for a, b in encoding.offsets]
        assert encoding.vectors_WD.shape == (len(encoding.words), 16)
        assert encoding.vectors_WD.dtype == np.float32
    assert encoded[0].words[:3] == ["The", "cat", "sat"]


def test_vectors_are_those_of_the_model(predictor, encoded):
    batch = reshape_batch(rows_of(predictor, encoded[0].words)[None])
    model = HLM(model_config(predictor.config))
    output = jax.jit(model.apply)({"params": predictor._params["hlm"]}, batch)
    np.testing.assert_allclose(encoded[0].vectors_WD, output.context_NWD[0, 1:-1], atol=1e-5)
    np.testing.assert_allclose(encoded[0].sentence_D, output.context_NWD[0, 1:-1].mean(axis=0), atol=1e-5)


def test_vectors_do_not_depend_on_what_else_is_encoded(predictor, encoded):
    for text, want in zip(TEXTS, encoded, strict=True):
        assert_same(predictor.encode([text])[0], want)
    for got, want in zip(predictor.encode(TEXTS[::-1], batch_size=2)[::-1], encoded, strict=True):
        assert_same(got, want)


def test_long_texts_are_read_a_few_at_a_time(predictor, monkeypatch):
    together = predictor.encode([LONG, *TEXTS])
    read, shapes = predictor._contextualize, []
    alone = copy.copy(predictor)
    alone._contextualize = lambda *inputs: shapes.append(inputs[-1].shape) or read(*inputs)
    monkeypatch.setattr("charlm.families.windows.CPU_POSITIONS", 2 * (ROOM + 2))
    for got, want in zip(alone.encode([LONG, *TEXTS]), together, strict=True):
        assert_same(got, want)
    assert len(shapes) > 2
    assert max(rows * words for rows, words in shapes) == 2 * (ROOM + 2)
    whole, calls = predictor._encode, []
    alone.cache = None  # then the rows of a call share their words
    alone._encode = lambda *inputs: calls.append(inputs) or whole(*inputs)
    for got, want in zip(alone.encode([LONG, *TEXTS]), together, strict=True):
        assert_same(got, want)
    assert len(calls) == 1


def test_cached_words_give_the_same_vectors(predictor, encoded):
    """Also when the cache is smaller than a text, shared, or warm before the first."""
    other = HLMPredictor(predictor.config, predictor.vocab, jax.tree.map(lambda x: 1.5 * x, predictor._params))
    alone = HLMPredictor(predictor.config, predictor.vocab, predictor._params)
    alone.cache = None
    with pytest.raises(ValueError, match="precompute: this predictor has no cache"):
        alone.precompute(["the"])
    for got, want in zip(alone.encode(TEXTS), encoded, strict=True):
        assert_same(got, want)
    different = other.encode(TEXTS)
    assert np.abs(different[0].vectors_WD - encoded[0].vectors_WD).max() > 0.1
    whole = predictor.cache
    small = WordCache(whole._encode, 16, np.float32, whole._buckets, max_words=9)
    for cache in (small, whole):
        alone.cache = other.cache = cache
        for _ in range(2):
            for got, want in zip(alone.encode(TEXTS, batch_size=2), encoded, strict=True):
                assert_same(got, want)
            for got, want in zip(other.encode(TEXTS), different, strict=True):
                assert_same(got, want)
    assert small.stats.words <= 9


def test_words_are_computed_once_and_ahead_of_time(predictor):
    fresh = HLMPredictor(predictor.config, predictor.vocab, predictor._params)
    assert fresh.precompute(["the", "cat", "the", "nowhere"]) == (0, 0, 5, fresh.cache.limit)  # and [CLS] and [SEP]
    fresh.encode(["the cat the cat", "nowhere"])
    assert fresh.cache.stats[:2] == (5, 0)
    fresh.encode(["the tree"])
    assert fresh.cache.stats[:2] == (8, 1)
    assert str(fresh.cache.stats).startswith(
        "word cache: 8 of 9 distinct words read were there (88.9 %), it holds 6 of"
    )
    with pytest.raises(ValueError, match="one string"):
        fresh.precompute("the")


def test_what_depends_on_parameters_alone_is_never_that_of_others(predictor):
    model = predictor._params["hlm"]
    inter_word = jax.tree.map(lambda x: 1.5 * x, model["inter_word"])
    params = {**predictor._params, "hlm": {**model, "inter_word": inter_word}}
    changed = HLMPredictor(predictor.config, predictor.vocab, predictor._params)
    before = changed.encode(TEXTS), changed.fill_mask("the [MASK:3]")
    changed._params = params
    fresh = HLMPredictor(predictor.config, predictor.vocab, params)
    for got, want, old in zip(changed.encode(TEXTS), fresh.encode(TEXTS), before[0], strict=True):
        assert_same(got, want)
        assert not got.words or np.abs(got.vectors_WD - old.vectors_WD).max() > 0.01
    assert changed.fill_mask("the [MASK:3]") == fresh.fill_mask("the [MASK:3]") != before[1]


def test_batches_have_few_widths_and_little_padding():
    widths = {n: few_widths(n, 512) for n in range(3, 513)}
    assert all(n <= width <= min(n + 31, 512) for n, width in widths.items())
    assert all(3 * (width - n) <= width for n, width in widths.items() if n >= 16)
    assert len(set(widths.values())) == 19
    assert widths[46] == 48


def test_vectors_depend_on_the_context(predictor):
    one, two = predictor.encode(["the cat", "old cat"])
    # After twelve steps the context matters little; how much depends on the masks of dropout. Rounding is below 1e-5.
    assert np.abs(one.vectors_WD[1] - two.vectors_WD[1]).max() > 1e-3


def test_a_long_text_is_read_in_pieces(predictor):
    (whole,) = predictor.encode([LONG])
    words = LONG.split()
    pieces = predictor.encode(" ".join(words[i : i + ROOM]) for i in range(0, len(words), ROOM))  # a generator, too
    assert whole.words == words
    assert [LONG[a:b] for a, b in whole.offsets] == words
    np.testing.assert_allclose(whole.vectors_WD, np.concatenate([piece.vectors_WD for piece in pieces]), atol=1e-5)
    np.testing.assert_allclose(whole.sentence_D, whole.vectors_WD.mean(axis=0), atol=1e-5)
    assert predictor.encode([]) == []


@pytest.mark.parametrize("index", [2, 5])
def test_a_text_without_words_has_no_vectors(encoded, index):
    assert (encoded[index].words, encoded[index].offsets) == ([], [])
    assert encoded[index].vectors_WD.shape == (0, 16)
    np.testing.assert_array_equal(encoded[index].sentence_D, np.zeros(16))


def test_unknown_characters_are_all_alike(predictor):
    one, two = predictor.encode(["ΩΩΩ the ЖЖ", "ЯЯЯ the ΨΨ"])
    assert one.words == ["ΩΩΩ", "the", "ЖЖ"]
    assert np.isfinite(one.vectors_WD).all()
    np.testing.assert_allclose(one.vectors_WD, two.vectors_WD, atol=1e-6)


def test_long_words_are_cut(predictor):
    one, two = predictor.encode(["the supercalifragilistic", "the supercal"])
    assert one.words[1] == "supercalifragilistic"
    np.testing.assert_allclose(one.vectors_WD, two.vectors_WD, atol=1e-6)


# ---- Gaps ----


def test_gaps_are_filled_by_the_likeliest_spellings(predictor):
    """Every word of two characters, scored by the model as the paper lays it out."""
    words, position = ["the", "cat", "??", "on", "a", "mat"], 2
    chars = rows_of(predictor, words, hidden={position})
    labels = np.zeros_like(chars)
    labels[position + 1, 1:3] = MASK
    model = HLMForMaskedLM(model_config(predictor.config))
    (logits,) = jax.jit(model.apply)({"params": predictor._params}, reshape_batch(chars[None], labels[None]))
    ids = list(predictor.vocab.ids.values())
    log_probs = np.asarray(jax.nn.log_softmax(logits[0, 0, :2][:, np.array(ids)]), np.float64)
    letters = predictor.vocab.chars
    scores = {
        a + b: log_probs[0, i] + log_probs[1, j] for (i, a), (j, b) in itertools.product(enumerate(letters), repeat=2)
    }
    best = sorted(scores.values(), reverse=True)[:20]
    for position in (-1, 3):
        with pytest.raises(ValueError, match=rf"^position={position}: expected the number of one of 3 words, from 0$"):
            predictor.fill(["the", "cat", "sat"], position)
    with pytest.raises(ValueError, match=r"^top=0: expected at least 1$"):
        predictor.fill_mask("the cat [MASK:2] on a mat", top=0)
    (fills,) = predictor.fill_mask("the cat [MASK:2] on a mat", top=20)
    np.testing.assert_allclose([fill.log_prob for fill in fills], best, atol=1e-5)
    np.testing.assert_allclose([fill.log_prob for fill in fills], [scores[fill.word] for fill in fills], atol=1e-5)
    assert predictor.fill_mask("the cat [MASK] on a mat", length=2, top=20) == [fills]


def test_automatic_lengths_are_ranked_together(predictor):
    (fills,) = predictor.fill_mask("The [MASK] of the list.", top=40)
    scores = [fill.score for fill in fills]
    assert len(fills) == 40
    assert scores == sorted(scores, reverse=True)
    assert len({len(fill.word) for fill in fills}) > 2
    for fill in fills:
        assert fill.score == pytest.approx(math.exp(fill.log_prob / len(fill.word)))
    for length in {len(fill.word) for fill in fills}:
        (fixed,) = predictor.fill_mask(f"The [MASK:{length}] of the list.", top=40)
        same = [fill.log_prob for fill in fills if len(fill.word) == length]
        np.testing.assert_allclose(same, [fill.log_prob for fill in fixed[: len(same)]], atol=1e-5)


def test_each_gap_has_its_fillings(predictor):
    gaps = predictor.fill_mask("[MASK:3] cat [MASK:5], [MASK].", top=3)
    assert [len(gap) for gap in gaps] == [3, 3, 3]
    assert [{len(fill.word) for fill in gap} for gap in gaps[:2]] == [{3}, {5}]
    (other,) = predictor.fill_mask("[MASK:3] cat mouse, dog.", top=3)
    assert other != gaps[0]  # what the other gaps hide was not read


def test_gaps_of_stated_lengths_share_their_sentences(predictor, monkeypatch):
    """A text of many gaps is read once for each window, several windows at a time, not once for each gap."""
    read, call = [], GapFiller._predict

    def counted(filler, asked, shape):
        read.append((len(asked.sequences), len(asked.words)))
        return call(filler, asked, shape)

    monkeypatch.setattr(GapFiller, "_predict", counted)
    text = " ".join(["[MASK:3]", "[MASK:2]", "cat"] * 4)  # 12 words: one window
    found = predictor.fill_mask(text, top=3)
    assert read == [(1, 8)]
    words = ["???", "??", "cat"] * 4
    hidden = [i for i in range(12) if i % 3 < 2]
    for fills, position in zip(found, hidden, strict=True):
        alone = predictor.fill(words, position, top=3, hidden=hidden)
        assert [fill.word for fill in fills] == [fill.word for fill in alone]
        np.testing.assert_allclose([f.log_prob for f in fills], [f.log_prob for f in alone], atol=1e-4)
    read.clear()
    predictor.fill_mask(" ".join(["[MASK:2]"] * 30), top=1)  # windows of 14 words
    assert sum(sentences for sentences, _ in read) <= 30 - ROOM + 1
    assert sum(gaps for _, gaps in read) == 30
    assert len(read) < 5


def test_gaps_of_several_texts_share_their_calls(predictor, monkeypatch):
    texts = [
        "The [MASK:3] sat.", "a [MASK:2] b [MASK:4]", "[MASK]", "no [MASK:3] here", f"{LONG} [MASK:5]",
        "The [MASK:3] sat.",
    ]  # fmt: skip
    alone = [predictor.fill_mask(text, top=3) for text in texts]
    read, call = [], GapFiller._predict

    def counted(filler, asked, shape):
        read.append(len(asked.words))
        return call(filler, asked, shape)

    monkeypatch.setattr(GapFiller, "_predict", counted)
    found = predictor.fill_masks(iter(texts), top=3)
    assert len(read) <= 3  # one word of any length, short texts, a long one
    for together, apart in zip(found, alone, strict=True):
        assert [[fill.word for fill in gap] for gap in together] == [[fill.word for fill in gap] for gap in apart]
        scores = [[[fill.log_prob for gap in gaps for fill in gap] for gaps in (together, apart)]]
        np.testing.assert_allclose(*scores[0], atol=1e-4)
    small = predictor.fill_masks(texts, batch_size=2, top=3)
    assert [[len(gap) for gap in gaps] for gaps in small] == [[len(gap) for gap in gaps] for gaps in found]
    assert predictor.fill_masks([]) == []
    with pytest.raises(ValueError, match="fill_masks takes a list of texts"):
        predictor.fill_masks("The [MASK:3] sat.")


def test_texts_with_gaps_share_programs(predictor, monkeypatch):
    """Calls of equal width and number of sentences have one shape, which grows with what it has to hold."""
    shapes, call = [], GapFiller._predict

    def noted(filler, asked, shape):
        shapes.append(shape)
        return call(filler, asked, shape)

    monkeypatch.setattr(GapFiller, "_predict", noted)
    words = [f"w{n}" for n in range(60)]
    texts = [f"{' '.join(words[n : n + 3])} [MASK:3]" for n in range(30)]
    predictor.fill_masks(texts)
    assert len(shapes) == 4
    assert len(set(shapes)) <= 2  # eight texts each; the last call has fewer
    again = len(set(shapes))
    predictor.fill_masks(["the [MASK:3]"] * 8 + texts[:24])
    assert len(set(shapes)) <= again + 2


def test_a_hidden_word_is_not_read(predictor):
    one, two = (predictor.fill(["the", word, "sat"], 1, hidden=[1], top=3) for word in ("cat", "xyz"))
    assert one == two
    one, two = (predictor.fill(["the", "cat", word], 1, hidden=[1, 2], top=3) for word in ("sat", "ran"))
    assert one == two
    assert one != predictor.fill(["the", "cat", "???"], 1, hidden=[1], top=3)  # hidden is not unknown
    assert predictor.fill(["the", "cat", "sat"], 1, top=3) != predictor.fill(["the", "xyz", "sat"], 1, top=3)


def test_gaps_of_several_sentences_are_filled_together(predictor):
    words = ["cat", "dog", "tree", "house"]
    gaps = [
        WordGap(["the", "cat", "sat"], 1, hidden=frozenset([1])),
        WordGap(LONG.split(), 30, 4, frozenset([30])),
        WordGap(["a", "dgo", "ran"], 1),
        WordGap(["a", "cat"], 0, "auto", frozenset([0, 1])),
    ]
    for known in (None, words):
        together = predictor.fill_all(gaps, top=3, known=known)
        for found, (sentence, position, length, hidden) in zip(together, gaps, strict=True):
            alone = predictor.fill(sentence, position, length=length, hidden=hidden, top=3, known=known)
            assert [fill.word for fill in found] == [fill.word for fill in alone]
            np.testing.assert_allclose([f.log_prob for f in found], [f.log_prob for f in alone], atol=1e-5)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("no gap", {}, r'no "\[MASK\]" in the text \'no gap\''),
        ("", {}, "no "),
        ("a [MASK:0]", {}, "length=0: the model holds words of 1 to 7 characters"),
        ("a [MASK:8]", {}, "length=8: the model holds words of 1 to 7 characters"),
        ("a [MASK]", {"length": 99}, "length=99: the model holds words of 1 to 7 characters"),
    ],
)
def test_gaps_that_cannot_be_filled(predictor, text, options, message):
    with pytest.raises(ValueError, match=message):
        predictor.fill_mask(text, **options)


def test_a_word_that_is_read_has_its_own_length(predictor):
    with pytest.raises(ValueError, match="length=4: a word that is not hidden has the length it has"):
        predictor.fill(["the", "cat"], 1, length=4)


def test_only_characters_of_the_vocabulary_are_proposed(predictor):
    (fills,) = predictor.fill_mask("a [MASK:1]", top=1000)
    assert sorted(fill.word for fill in fills) == sorted(predictor.vocab.chars)
    assert sum(fill.score for fill in fills) == pytest.approx(1)
    gaps = CharVocab.from_dict({"a": 9, "c": 12, "t": 30})  # as in the released code, ids between them mean nothing
    (fills,) = HLMPredictor(predictor.config, gaps, predictor._params).fill_mask("a [MASK:1]", top=1000)
    assert sorted(fill.word for fill in fills) == ["a", "c", "t"]
    assert sum(fill.score for fill in fills) == pytest.approx(1)


def test_known_words_are_ranked_instead(predictor):
    words = ["cat", "dog", "tree", "house", "Ωmega"]
    (fills,) = predictor.fill_mask("the [MASK] sat", top=10, known=WordList(words, predictor.vocab))
    assert sorted(fill.word for fill in fills) == sorted(words[:4])
    assert [fill.score for fill in fills] == sorted((fill.score for fill in fills), reverse=True)
    (three,) = predictor.fill_mask("the [MASK:3] sat", top=10, known=WordList(words, predictor.vocab))
    assert [fill.word for fill in three] == [fill.word for fill in fills if len(fill.word) == 3]
    assert predictor.fill_mask("the [MASK] sat", top=10, known=words) == [fills]
    assert predictor.fill(["the", "cat", "sat"], 1, hidden=[1], top=10, known=iter(words))[0].word == three[0].word


def test_words_that_the_model_cannot_write_are_left_out(predictor):
    known = predictor.known_words(["cat", "dog", "cat", "Ωmega", "eighteen", "seventy"])
    assert len(known) == 2 + (set("seventy") <= set(predictor.vocab.chars))  # no Ω, no eight characters, "cat" once
    with pytest.raises(ValueError, match="expected words, or a list that this model made, got str"):
        predictor.known_words("cat")


def test_a_gap_of_a_long_text_is_filled_within_its_window(predictor):
    words = LONG.split()
    for position in (0, 20, 39):
        start = min(max(0, position - ROOM // 2), 40 - ROOM)
        inside = words[start : start + ROOM]
        got = predictor.fill(words, position, hidden=[position], top=3)
        want = predictor.fill(inside, position - start, hidden=[position - start], top=3)
        assert [fill.word for fill in got] == [fill.word for fill in want]
        np.testing.assert_allclose([fill.log_prob for fill in got], [fill.log_prob for fill in want], atol=1e-5)


# ---- Loading ----


def test_a_step_folder_is_a_checkpoint_too(trained, loaded):
    early = Predictor.from_checkpoint(trained.workdir / "checkpoints" / "6")
    again = Predictor.from_checkpoint(trained.workdir / "checkpoints" / "12")
    leaf = lambda p: np.asarray(p._params["head"]["output_kernel"])
    assert (leaf(again) == leaf(loaded)).all()
    assert (leaf(early) != leaf(loaded)).any()
    assert loaded.vocab == trained.data.vocab
    assert loaded.config.model == trained.config.model


def test_a_run_gives_this_class(loaded):
    assert type(loaded) is HLMPredictor
    assert loaded.abilities == ("encode", "fill_mask")


def test_what_it_cannot_do_is_said(predictor):
    with pytest.raises(ValueError, match="a model of the kind HLM scores no texts: it can encode, fill-mask"):
        predictor.score(["a"])
    with pytest.raises(ValueError, match="a model of the kind HLM generates no text: it can encode, fill-mask"):
        predictor.generate(["a"])
    with pytest.raises(ValueError, match="unit='pieces': an HLM reads characters and has no pieces; expected 'words'"):
        predictor.encode(["a"], unit="pieces")


def test_encode_refuses_a_single_string(predictor: Predictor):
    with pytest.raises(ValueError, match="write \\[text\\]"):
        predictor.encode("one text")
