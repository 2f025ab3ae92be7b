"""Tests the predictor of Char2Subword: words, cached vectors, gaps, neighbours, and what it refuses."""

from __future__ import annotations

import functools
import io
import json

import jax
import numpy as np
import pytest
from small_char2subword import SLOTS, spelled, vectors
from tiny_models import POSITIONS, release

from charlm.convert.__main__ import main as convert
from charlm.families.char2subword.predictor import Char2SubwordPredictor
from charlm.families.char2subword.tensors import bert_config
from charlm.families.predictor import Predictor
from charlm.families.subword.bert import BertForMaskedLM
from charlm.predict import main
from charlm.text.words import get_splitter

pytestmark = pytest.mark.usefixtures("log_lines")

NOISE = 2e-5
TEXTS = ["Tokenizing naïve words, unbelievably!", "", "the birds", "don't größte 今天 x", "birds"]
BACKBONES = ("bert", "roberta")


# On RoBERTa, full mode has no part that the other three do not have.
CASES = [
    pytest.param((b, m), marks=[pytest.mark.slow] * ((b, m) == ("roberta", "full")), id=f"{b}-{m}")
    for b in BACKBONES
    for m in ("full", "hybrid")
]


@pytest.fixture(scope="module", params=CASES)
def predictor(request):
    return Predictor.from_checkpoint(spelled(request.param[0]), mode=request.param[1])


@pytest.fixture(scope="module")
def bert():
    return Predictor.from_checkpoint(spelled("bert"))


def rows_of(predictor, words):
    """Returns the input vectors of words [W, D], one at a time, and the rows of special tokens around them."""
    tokenizer, model = predictor.tokenizer, predictor.pretrained
    table = np.asarray(model.params["bert"]["embed"]["token"]["embedding"])
    forms = ["".join(tokenizer.normalized(word).split()) for word in words]
    surfaces = {index: tokenizer.surface(index) for index in tokenizer.ids()}
    entries = {s.chars: i for i, s in reversed(surfaces.items()) if s and s.starts_word and s.whole and s.chars}
    made = vectors(model, forms) if forms else []
    hybrid = predictor.config.mode == "hybrid"
    inner = [table[entries[f]] if hybrid and f in entries else v for f, v in zip(forms, made, strict=True)]
    ends = tokenizer.encode("").ids
    return np.stack([table[ends[0]], *inner, table[ends[1]]])


def states_alone(predictor, words, mask=None):
    """Returns the last states [L, D] and log-probabilities [L, V] of one text; `mask`: a place to hide."""
    model = predictor.pretrained
    inputs = rows_of(predictor, words)
    if mask is not None:
        inputs[1 + mask] = np.asarray(model.params["bert"]["embed"]["token"]["embedding"])[
            predictor.tokenizer.special.mask
        ]
    L = len(inputs)
    vectors_1LD, mask_1L = np.zeros((1, POSITIONS, 24), np.float32), np.arange(POSITIONS)[None] < L
    vectors_1LD[0, :L] = inputs
    states, log_probs = _run(model.model)(model.params, vectors_1LD, mask_1L)
    return np.asarray(states)[:L], np.asarray(log_probs)[:L]


@functools.cache
def _run(model):
    """Returns the compiled transformer of a model, which reads vectors."""
    bert = BertForMaskedLM(bert_config(model.config))

    def run(params, vectors_1LD, mask_1L):
        theirs = {name: params[name] for name in ("bert", "head")}
        output = bert.apply({"params": theirs}, None, mask_1L, embeddings_BLD=vectors_1LD)
        return output.transformer.states_BLD[0], jax.nn.log_softmax(output.logits[0])

    return jax.jit(run)


# ---- Vectors ----


def test_a_checkpoint_is_its_own_kind_of_predictor(bert):
    assert type(bert) is Char2SubwordPredictor
    assert (bert.name, bert.abilities) == ("Char2Subword", ("encode", "fill_mask", "neighbors"))
    encoder = Predictor.from_checkpoint(spelled("bert"), head="encoder")
    assert encoder.abilities == ("encode", "neighbors")
    tagger = Predictor.from_checkpoint(spelled("bert", "token_classification", "hybrid", 3))
    for one in (encoder, tagger):
        with pytest.raises(ValueError, match="has no head that predicts words; it can encode, neighbors"):
            one.fill_mask("[MASK]")
    assert tagger.encode(["birds"])[0].vectors_WD.shape == (1, 24)


def test_words_have_the_last_states_of_their_positions(predictor):
    for text, encoding in zip(TEXTS, predictor.encode(TEXTS), strict=True):
        assert encoding.offsets == get_splitter("rules", "en").spans(text)
        assert encoding.words == [text[a:b] for a, b in encoding.offsets]
        states, _ = states_alone(predictor, encoding.words)
        np.testing.assert_allclose(encoding.vectors_WD, states[1:-1], atol=NOISE)
        np.testing.assert_allclose(encoding.sentence_D, states.mean(axis=0), atol=NOISE)
        assert encoding.vectors_WD.dtype == encoding.sentence_D.dtype == np.float32


def test_long_texts_are_read_in_windows(predictor):
    words = ["unbelievable", "birds", "run", "and", "the", "naïve", "storie"] * 12
    (whole,) = predictor.encode([" ".join(words)], batch_size=2)
    assert whole.words == words
    room = POSITIONS - 2
    parts = [states_alone(predictor, words[at : at + room])[0] for at in range(0, len(words), room)]
    np.testing.assert_allclose(whole.vectors_WD, np.concatenate([part[1:-1] for part in parts]), atol=NOISE)
    np.testing.assert_allclose(whole.sentence_D, np.concatenate(parts).mean(axis=0), atol=NOISE)


@pytest.mark.parametrize("kept", [True, False])
def test_with_a_cache_long_texts_are_read_a_few_at_a_time(predictor, kept, monkeypatch):
    texts = [*TEXTS, "birds run and the " * 4]
    together = predictor.encode(texts)
    alone = Char2SubwordPredictor(predictor.pretrained)
    read, calls = alone._states, []
    alone._states = lambda *inputs, method: calls.append(method) or read(*inputs, method=method)
    if not kept:
        alone.cache = None
    monkeypatch.setattr("charlm.families.windows.CPU_POSITIONS", 16)
    for got, want in zip(alone.encode(texts), together, strict=True):
        np.testing.assert_allclose(got.vectors_WD, want.vectors_WD, atol=NOISE)
    assert (len(calls) > 1) == kept


def test_what_is_kept_changes_nothing(predictor):
    cold = Char2SubwordPredictor(predictor.pretrained)
    first, second = cold.encode(TEXTS), cold.encode(TEXTS[::-1], batch_size=1)[::-1]
    stats = cold.cache.stats
    assert stats.hits > 0
    assert stats.words == len({w for t in TEXTS for w in spelled_words(cold, t)})
    cold.cache = None
    for one, two, bare in zip(first, second, cold.encode(TEXTS), strict=True):
        np.testing.assert_allclose(one.vectors_WD, bare.vectors_WD, atol=1e-5)
        np.testing.assert_allclose(two.vectors_WD, bare.vectors_WD, atol=1e-5)
        np.testing.assert_allclose(two.sentence_D, bare.sentence_D, atol=1e-5)
    with pytest.raises(ValueError, match="this predictor has no cache"):
        cold.precompute(["a"])


def spelled_words(predictor, text):
    reader = predictor._units.words
    return [w for w in reader.read(text[a:b] for a, b in get_splitter("rules", "en").spans(text)) if isinstance(w, str)]


def test_words_that_were_computed_before_are_there(predictor):
    fresh = Char2SubwordPredictor(predictor.pretrained)
    words = [text[a:b] for text in TEXTS for a, b in get_splitter("rules", "en").spans(text)]
    fresh.precompute(words)
    fresh.encode(TEXTS)
    assert (fresh.cache.stats.misses, fresh.cache.stats.hit_rate) == (0, 1.0)
    with pytest.raises(ValueError, match="takes a list of words"):
        fresh.precompute("birds")


def test_modes_differ_where_the_vocabulary_has_the_word(bert):
    full = Predictor.from_checkpoint(spelled("bert"), mode="full")
    known = next(iter(bert._units.words.entries))
    assert np.abs(bert.encode([known])[0].vectors_WD - full.encode([known])[0].vectors_WD).max() > 1e-2
    np.testing.assert_allclose(bert.encode(["zqzq"])[0].vectors_WD, full.encode(["zqzq"])[0].vectors_WD, atol=1e-6)


# ---- Gaps ----


@pytest.mark.parametrize("kept", [True, False])
def test_gaps_have_the_probabilities_of_the_head(predictor, kept):
    asked = Char2SubwordPredictor(predictor.pretrained)
    asked.cache = asked.cache if kept else None
    tokenizer = asked.tokenizer
    (fills,) = asked.fill_mask("the [MASK] run.", top=5)
    _, log_probs = states_alone(asked, ["the", "x", "run", "."], mask=1)
    best = sorted((i for i in tokenizer.ids() if tokenizer.surface(i)), key=lambda i: -log_probs[2, i])[:5]
    assert [fill.log_prob for fill in fills] == pytest.approx([log_probs[2, i] for i in best], abs=1e-4)
    for fill, index in zip(fills, best, strict=True):
        look = tokenizer.surface(index)
        shown = look.chars.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        assert fill.word == ("" if look.starts_word else "##") + shown
        assert fill.score == pytest.approx(np.exp(fill.log_prob))


def test_known_words_are_single_entries(bert):
    entries = bert._units.words.entries
    words = [word for word in entries if word.isalpha() and word.isascii()][:6]
    known = bert.known_words([*words, "zqzq", words[0]])
    assert len(known) == 6
    (fills,) = bert.fill_mask("the [MASK] run", known=known, top=9)
    _, log_probs = states_alone(bert, ["the", "x", "run"], mask=1)
    assert {fill.word: fill.log_prob for fill in fills} == pytest.approx(
        {word: log_probs[2, entries[word]] for word in words}, abs=1e-4
    )
    assert fills == sorted(fills, key=lambda fill: -fill.log_prob)
    (some,) = bert.fill_mask(f"the [MASK:{len(words[0])}] run", known=words, top=9)
    assert {fill.word for fill in some} == {word for word in words if len(word) == len(words[0])}
    assert [len(gap) for gap in bert.fill_mask("[MASK] a [MASK] b [MASK:3]", top=2)] == [2, 2, 2]
    with pytest.raises(ValueError, match="a list that another model made"):
        Char2SubwordPredictor(bert.pretrained).fill_mask("[MASK]", known=known)


def test_gaps_of_a_long_text_are_read_in_a_window_around_them(bert):
    words = ["birds", "run"] * 40
    text = " ".join([*words, "[MASK]", *words])
    (fills,) = bert.fill_mask(text, top=1)
    room = POSITIONS - 2
    near = [*words, "x", *words]
    start = 80 - (room - 1) // 2
    _, log_probs = states_alone(bert, near[start : start + room], mask=80 - start)
    allowed = [index for index in bert.tokenizer.ids() if bert.tokenizer.surface(index)]
    assert fills[0].log_prob == pytest.approx(log_probs[1 + 80 - start, allowed].max(), abs=1e-4)


# ---- Neighbours ----


def test_neighbours_are_the_rows_nearest_to_the_vector(predictor):
    tokenizer, model = predictor.tokenizer, predictor.pretrained
    table = np.asarray(model.params["bert"]["embed"]["token"]["embedding"], np.float64)
    for string in ("birds", "BIRDS", "bssinesssses"):
        vector = vectors(model, [string])[0].astype(np.float64)
        cosines = table @ vector / np.linalg.norm(table, axis=1) / np.linalg.norm(vector)
        looks = {i: tokenizer.surface(i) for i in tokenizer.ids()}
        allowed = [i for i, look in looks.items() if look is not None and look.whole]
        best = sorted(allowed, key=lambda i: -cosines[i])[:7]
        found = predictor.neighbors(string, 7)
        assert [n.cosine for n in found] == pytest.approx([cosines[i] for i in best], abs=1e-5)
        assert [n.subword for n in found] == [("" if looks[i].starts_word else "##") + looks[i].chars for i in best]
    assert predictor.neighbors("birds") != predictor.neighbors("BIRDS")
    special = {tokenizer.token(index) for index in tokenizer.special if index is not None}
    every = {n.subword for n in predictor.neighbors("a", 10**6)}
    assert not special & every
    assert len(every) == len(allowed)


def test_long_strings_are_cut_and_none_is_refused(bert):
    assert bert.neighbors("x" * SLOTS * 2) == bert.neighbors("x" * SLOTS)
    with pytest.raises(ValueError, match="neighbors of '': expected a string"):
        bert.neighbors("")
    with pytest.raises(ValueError, match="top=0: expected at least 1"):
        bert.neighbors("a", 0)


# ---- Refusals and the command line ----


def test_a_list_of_words_is_no_text(bert):
    with pytest.raises(ValueError, match="encode: expected texts, but number 1 is a list"):
        bert.encode(["Birds sing", ["Birds", "sing"]])


def test_what_it_cannot_do_is_said_in_a_line(bert):
    with pytest.raises(ValueError, match="a Char2Subword never splits a word into pieces; expected 'words'"):
        bert.encode(["a"], unit="pieces")
    for ability in ("score", "generate"):
        with pytest.raises(
            ValueError, match=r"a model of the kind Char2Subword .*: it can encode, fill-mask, neighbors"
        ):
            getattr(bert, ability)(["a"])
    for text, message in (("none", r'no "\[MASK\]" in the text'), ("[MASK:0]", "length=0")):
        with pytest.raises(ValueError, match=message):
            bert.fill_mask(text)
    with pytest.raises(ValueError, match="a model of the kind BERT makes no rows of a table from strings"):
        Predictor.from_checkpoint(release("bert")).neighbors("a")


@pytest.fixture
def ask(capsys, monkeypatch):
    def run(name, *arguments, stdin="", checkpoint=None):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = main([name, f"--checkpoint={checkpoint or spelled('bert')}", *arguments])
        captured = capsys.readouterr()
        return status, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return run


def test_neighbours_as_lines(ask, bert, tmp_path, capsys):
    status, lines, errors = ask("neighbors", "--top=3", "business", "BUSINESS")
    assert (status, errors) == (0, "")
    assert [line["text"] for line in lines] == ["business", "BUSINESS"]
    want = [{"subword": n.subword, "cosine": pytest.approx(n.cosine, abs=1e-5)} for n in bert.neighbors("business", 3)]
    assert lines[0]["neighbors"] == want
    status, lines, errors = ask("neighbors", stdin="a\n\nb\n")
    assert (status, [len(line.get("neighbors", "")) for line in lines]) == (1, [5, 0, 5])
    assert errors == "error: line 2: neighbors of '': expected a string of at least one character\n"
    assert ask("neighbors", "--top=0", "a")[2] == "error: --top=0: expected at least 1\n"
    convert(["export", f"--checkpoint={spelled('bert')}", f"--output={tmp_path / 'free'}", "--table-free"])
    capsys.readouterr()
    status, lines, errors = ask("neighbors", "a", checkpoint=tmp_path / "free")
    assert (status, lines) == (1, [])
    assert errors.splitlines()[-1].endswith("the table of subwords was left out of this model; it can encode")


def test_the_other_commands(ask, tmp_path):
    status, (line,), errors = ask("encode", "--stats", "zqzq the zqzq")
    assert (status, [word["word"] for word in line["words"]]) == (0, ["zqzq", "the", "zqzq"])
    assert errors.startswith("word cache: 0 of 1 distinct words read were there")
    (tmp_path / "words.txt").write_text("the\nzqzq\n")
    _, (line,), errors = ask("fill-mask", f"--words={tmp_path / 'words.txt'}", "a [MASK]")
    assert [fill["word"] for fill in line["fills"][0]] == ["the"]
    assert "1 of 2 words are no single entries of the vocabulary; they are left out" in errors


def test_the_attention_of_a_word(bert):
    found = bert.attention("birds")
    assert found.chars == tuple("##birds")
    cfg = bert.config.characters
    assert found.weights_LHCC.shape == (cfg.layers, cfg.heads, 7, 7)
    np.testing.assert_allclose(found.weights_LHCC.sum(axis=-1), 1, atol=1e-5)
    assert len(bert.attention("x" * 99).chars) == SLOTS, "long ones are cut"
    with pytest.raises(ValueError, match="attention of '': expected a string of at least one character"):
        bert.attention("")
