"""Tests gaps: probabilities and order are those of transformers; known words are ranked as pieces under masks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hf_reference import FILE, GAPS
from tiny_models import release, run_alone

from charlm.families.predictor import Fill, Predictor
from charlm.families.windows import text_of, window_around
from charlm.text.wordlist import WordList

NOISE = 2e-5
WORDS = ["birds", "unbelievable", "running", "a", "naïve", "tokens", "words"]


@pytest.fixture(scope="module", params=["bert", "roberta", "roformer"])
def predictor(request):
    return Predictor.from_checkpoint(release(request.param))


@pytest.fixture(scope="module")
def bert():
    return Predictor.from_checkpoint(release("bert"))


@pytest.fixture(scope="module")
def roberta():
    return Predictor.from_checkpoint(release("roberta"))


def log_probs(predictor, ids):
    """Returns the log-probabilities [L, V] of the model alone."""
    return run_alone(predictor.pretrained.family, ids)[1]


def shown(tokenizer, index, first):
    """How a piece is shown, by the tokenizer's own decoding."""
    text = tokenizer.decode([index])
    if tokenizer.family == "bert":
        return tokenizer.token(index)
    return text.removeprefix(" ") if text.startswith(" ") or first else f"##{text}"


def test_the_same_as_transformers_pipeline(predictor):
    family, tokenizer = predictor.pretrained.family, predictor.tokenizer
    golden = json.loads(FILE.read_text(encoding="utf-8"))[family]["gaps"]
    assert set(golden) == set(GAPS[family])
    for text, gaps in golden.items():
        for gap, (want, fills) in enumerate(zip(gaps, predictor.fill_mask(text, top=15), strict=True)):
            first = gap == 0 and text.startswith(("[MASK]", "<mask>"))
            want = [(index, score) for index, score in want if tokenizer.surface(index) is not None]
            assert len(want) >= 10
            assert [shown(tokenizer, index, first) for index, _ in want] == [fill.word for fill in fills[: len(want)]]
            np.testing.assert_allclose(
                [score for _, score in want], [fill.score for fill in fills[: len(want)]], atol=1e-6
            )


def test_gaps_of_one_window_are_read_together(predictor, monkeypatch):
    tokenizer, read, fill = predictor.tokenizer, [], predictor._fill

    def counted(params, ids_BL, *more):
        read.append(ids_BL.shape[0])
        return fill(params, ids_BL, *more)

    monkeypatch.setattr(predictor, "_fill", counted)
    mask = tokenizer.token(tokenizer.special.mask)
    text = " ".join(["a", mask] * 6)
    found = predictor.fill_mask(text, top=1)
    assert read == [1]  # one row for six gaps
    ids = tokenizer.encode(text).ids
    want = log_probs(predictor, ids)[np.array(ids) == tokenizer.special.mask]
    allowed = [index for index in range(tokenizer.size) if tokenizer.surface(index) is not None]
    np.testing.assert_allclose([fills[0].log_prob for fills in found], want[:, allowed].max(axis=1), atol=NOISE)


def test_gaps_of_several_texts_are_read_together(predictor, monkeypatch):
    texts = ["She had [MASK] birds.", "[MASK]", "a [MASK] b [MASK:4]", "She had [MASK] birds.", "It was naïve [MASK]"]
    for known in (None, WORDS):
        alone = [predictor.fill_mask(text, top=4, known=known) for text in texts]
        read, fill = [], predictor._fill

        def counted(params, ids_BL, *more, read=read, fill=fill):
            read.append(ids_BL.shape[0])
            return fill(params, ids_BL, *more)

        with monkeypatch.context() as patched:
            patched.setattr(predictor, "_fill", counted)
            found = predictor.fill_masks(iter(texts), top=4, known=iter(known) if known else None)
        assert len(read) <= (1 if known is None else 3)
        for together, apart in zip(found, alone, strict=True):
            assert [[fill.word for fill in gap] for gap in together] == [[fill.word for fill in gap] for gap in apart]
            got, want = ([fill.log_prob for gap in gaps for fill in gap] for gaps in (together, apart))
            np.testing.assert_allclose(got, want, atol=NOISE)
        small = predictor.fill_masks(texts, batch_size=2, top=4, known=known)
        assert [[len(gap) for gap in gaps] for gaps in small] == [[len(gap) for gap in gaps] for gaps in found]
    assert predictor.fill_masks([]) == []
    with pytest.raises(ValueError, match=r'no "\[MASK\]".* in the text'):
        predictor.fill_masks(["a [MASK]", "no gap"])


def test_all_pieces_are_ranked_but_special_ones_and_free_rows(predictor):
    tokenizer = predictor.tokenizer
    (fills,) = predictor.fill_mask("She had [MASK] birds.", top=10_000)
    pieces = [index for index in range(tokenizer.size) if tokenizer.surface(index) is not None]
    assert len(fills) == len(pieces) < tokenizer.size
    scores = [fill.score for fill in fills]
    assert scores == sorted(scores, reverse=True)
    mask = tokenizer.token(tokenizer.special.mask)
    ids = tokenizer.encode(f"She had {mask} birds.").ids
    want = np.exp(log_probs(predictor, ids)[ids.index(tokenizer.special.mask)])
    assert sum(scores) == pytest.approx(want[pieces].sum(), abs=1e-5)
    assert sum(scores) < 1
    for fill in fills:
        assert fill.score == pytest.approx(math.exp(fill.log_prob))


def test_the_mask_token_and_mask_in_brackets_are_one(roberta):
    assert roberta.fill_mask("She had <mask> birds [MASK:3].") == roberta.fill_mask("She had [MASK] birds [MASK:3].")


@pytest.mark.parametrize("length", [1, 2, 4])
def test_a_length_leaves_words_of_so_many_characters(predictor, length):
    (every,) = predictor.fill_mask("She had [MASK] birds.", top=10_000)
    (fills,) = predictor.fill_mask(f"She had [MASK:{length}] birds.", top=10_000)
    assert fills == [
        f for f in every if len(f.word) == length and not f.word.startswith("##") and "\ufffd" not in f.word
    ]
    assert fills
    assert predictor.fill_mask("She had [MASK] birds.", top=10_000, length=length) == [fills]


def test_a_byte_level_piece_begins_a_word_where_the_text_begins(roberta):
    (first,) = roberta.fill_mask("[MASK] birds", top=10_000)
    assert not any(fill.word.startswith("##") for fill in first)
    (second,) = roberta.fill_mask("a [MASK] birds", top=10_000)
    assert any(fill.word.startswith("##") for fill in second)


def test_each_gap_is_filled_with_the_others_hidden(predictor):
    gaps = predictor.fill_mask("[MASK] birds [MASK:1] naïve [MASK]", top=3)
    assert [len(gap) for gap in gaps] == [3, 3, 3]
    assert {len(fill.word) for fill in gaps[1]} == {1}
    tokenizer = predictor.tokenizer
    mask = tokenizer.token(tokenizer.special.mask)
    ids = tokenizer.encode(f"{mask} birds {mask} naïve {mask}").ids
    places = [place for place, index in enumerate(ids) if index == tokenizer.special.mask]
    best = max(log_probs(predictor, ids)[places[2]][[i for i in range(tokenizer.size) if tokenizer.surface(i)]])
    assert gaps[2][0].log_prob == pytest.approx(best, abs=NOISE)


# ---- Known words ----


@pytest.mark.parametrize(("before", "after"), [("She had ", " birds."), ("", " birds"), ("(", ") a")])
def test_known_words_are_scored_as_their_pieces_under_as_many_masks(predictor, before, after):
    tokenizer, want = predictor.tokenizer, []
    mask, special = tokenizer.token(tokenizer.special.mask), tokenizer.special_count() // 2
    for word in WORDS:
        lead = len(text_of(tokenizer.encode(before.rstrip())).ids)
        pieces = text_of(tokenizer.encode(before + word)).ids[lead:]
        ids = tokenizer.encode(before + mask * len(pieces) + after).ids
        assert list(ids).count(tokenizer.special.mask) == len(pieces)
        rows = log_probs(predictor, ids)[special + lead : special + lead + len(pieces)]
        log_prob = rows[np.arange(len(pieces)), pieces].sum()
        want.append(Fill(word, log_prob, math.exp(log_prob / len(pieces))))
    want.sort(key=lambda fill: -fill.score)
    (fills,) = predictor.fill_mask(f"{before}[MASK]{after}", known=WORDS, top=len(WORDS))
    assert [fill.word for fill in fills] == [fill.word for fill in want]
    np.testing.assert_allclose([f.log_prob for f in fills], [f.log_prob for f in want], atol=NOISE)
    np.testing.assert_allclose([f.score for f in fills], [f.score for f in want], atol=NOISE)
    prepared = predictor.known_words(WORDS)
    assert predictor.fill_mask(f"{before}[MASK]{after}", known=prepared, top=2) == [fills[:2]]
    assert len({len(text_of(tokenizer.encode(" " + word)).ids) for word in WORDS}) > 2


def test_known_words_of_a_length(predictor):
    (every,) = predictor.fill_mask("She had [MASK] birds.", known=WORDS, top=9)
    (five,) = predictor.fill_mask("She had [MASK:5] birds.", known=WORDS, top=9)
    assert sorted(fill.word for fill in five) == ["birds", "naïve", "words"]
    assert [fill.word for fill in five] == [fill.word for fill in every if len(fill.word) == 5]
    assert predictor.fill_mask("She had [MASK:9] birds.", known=WORDS) == [[]]


def test_a_known_word_of_one_piece_is_as_likely_as_the_piece(bert):
    (fills,) = bert.fill_mask("She had [MASK] birds.", top=10_000)
    score = {fill.word: fill.score for fill in fills}
    (known,) = bert.fill_mask("She had [MASK] birds.", known=["tokens"])
    assert known[0].score == pytest.approx(score["tokens"], rel=1e-4)


def test_words_that_the_vocabulary_cannot_write_are_left_out(bert, roberta):
    odd = ["birds", "", "birds", "\U0001f9ff", "[MASK]", "\x01", "x" * 60]
    assert len(bert.known_words(odd)) == 1  # the empty one, a repeated, an unknown, a special, none, a long one
    (fills,) = bert.fill_mask("a [MASK]", known=odd)
    assert [fill.word for fill in fills] == ["birds"]
    assert len(roberta.known_words(["birds", "\U0001f9ff", "<mask>", "\x01"])) == 3  # bytes write everything


def test_lists_of_others_are_refused(bert, roberta):
    with pytest.raises(ValueError, match="known: a list that another model made; see known_words"):
        bert.fill_mask("a [MASK]", known=roberta.known_words(WORDS))
    with pytest.raises(ValueError, match="expected words, or a list that this model made, got str"):
        bert.fill_mask("a [MASK]", known="birds")
    with pytest.raises(ValueError, match="expected words, or a list that this model made, got WordList"):
        bert.fill_mask("a [MASK]", known=WordList.__new__(WordList))


# ---- Long texts and mistakes ----


def test_a_gap_of_a_long_text_is_filled_within_its_window(predictor):
    words = ("unbelievable birds running naïve " * 12).split()
    for at in (0, 20, len(words) - 1):
        gapped = [*words[:at], "[MASK]", *words[at + 1 :]]
        text = " ".join(gapped)
        (got,) = predictor.fill_mask(text, top=5)
        tokenizer = predictor.tokenizer
        mask = tokenizer.token(tokenizer.special.mask)
        pieces = text_of(tokenizer.encode(text.replace("[MASK]", mask)))
        place = pieces.ids.index(tokenizer.special.mask)
        window = window_around(pieces, place, 1, 40)
        assert len(pieces.ids) > 60
        row = log_probs(predictor, window.ids)[window.before + place - window.start]
        allowed = [index for index in range(tokenizer.size) if tokenizer.surface(index)]
        np.testing.assert_allclose([fill.log_prob for fill in got], sorted(row[allowed])[-1:-6:-1], atol=NOISE)
        (known,) = predictor.fill_mask(text, known=["unbelievable"])
        assert -200 < known[0].log_prob < 0


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("no gap", {}, r'no "\[MASK\]".* in the text \'no gap\''),
        ("", {}, 'no "'),
        ("a [MASK:0]", {}, "length=0: expected a positive number of characters"),
        ("a [MASK]", {"length": -2}, "length=-2: expected a positive number of characters"),
        ("a [MASK]", {"top": 0}, "top=0: expected at least 1"),
    ],
)
def test_gaps_that_cannot_be_filled(predictor, text, options, message):
    with pytest.raises(ValueError, match=message):
        predictor.fill_mask(text, **options)
