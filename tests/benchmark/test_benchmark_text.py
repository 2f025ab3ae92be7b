"""Tests the benchmark's text: every path reads the same words, as substrings of the corpus."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_jobs import CONFIG, corpus, small_job

from charlm.benchmark import cases, text
from charlm.benchmark.bert import masked_subwords, subwords
from charlm.benchmark.hlm import HLMInference
from charlm.benchmark.text import Corpus, TextShape, distinct_share, load_wordpiece
from charlm.text.chars import CLS, SEP, WORD_CLS, CharVocab
from charlm.text.words import RulesSplitter


def words_of(part):
    return [part[start:end] for start, end in RulesSplitter().spans(part)]


def test_texts_are_consecutive_and_have_the_words_asked_for(tmp_path):
    found = corpus(tmp_path)
    texts = found.texts(TextShape(5, 9))
    assert [len(words_of(part)) for part in texts] == [7] * 5
    whole = "\n\n".join((tmp_path / "text.txt").read_text().splitlines())
    assert found.stretch(0) == ""
    assert words_of(found.stretch(9)) == words_of(whole)[:9]
    assert whole.startswith(texts[0])
    at = 0
    for part in texts:
        at = whole.index(part, at) + len(part)
    assert [word for part in texts for word in words_of(part)] == words_of(whole[:at])


def test_a_text_that_would_be_cut_differently_by_itself_begins_one_word_later(tmp_path):
    (tmp_path / "text.txt").write_text("one a#tag b c d e f g h i j\n")  # "a", "#", "tag"; but "#tag" is one word
    texts = Corpus(cases.load_config(CONFIG, str(tmp_path / "text.txt"))).texts(TextShape(2, 4))
    assert texts == ["one a", "tag b"]


@pytest.mark.parametrize(
    "shape", [TextShape(2, 4), TextShape(4, 14), TextShape(5, 9), TextShape(32, 46), TextShape(7, 511)]
)
def test_drawn_lengths_vary_and_add_up(shape):
    lengths = shape.drawn_lengths()
    assert len(lengths) == shape.batch
    assert sum(lengths) == shape.batch * shape.words
    most = min(shape.words // 2, shape.words - 3)
    assert (min(lengths), max(lengths)) == (shape.words - most, shape.words + most)
    assert lengths == shape.drawn_lengths()  # the same for all models
    if shape.batch > 4:
        assert len(set(lengths)) >= 5
        assert lengths not in (sorted(lengths), sorted(lengths)[::-1])


@pytest.mark.parametrize("shape", [TextShape(1, 46), TextShape(8, 3)])
def test_texts_that_cannot_vary_are_refused(shape):
    with pytest.raises(ValueError, match=rf"--drawn: {shape} cannot vary in length: expected two texts of four words"):
        shape.drawn_lengths()


def numbered(folder, words):
    """Returns a corpus whose words are their own numbers."""
    path = folder / "numbers.txt"
    path.write_text("\n".join(" ".join(f"w{n}" for n in range(at, at + 10)) for at in range(0, words, 10)) + "\n")
    return Corpus(cases.load_config(CONFIG, str(path)))


def test_drawn_texts_come_from_all_over_the_corpus(tmp_path):
    shape = TextShape(8, 12)
    (batch,) = numbered(tmp_path, 4000).drawn(shape)
    found = [[int(word[1:]) for word in words_of(part)] for part in batch]
    assert [len(numbers) + 2 for numbers in found] == shape.drawn_lengths()
    assert all(numbers == list(range(numbers[0], numbers[0] + len(numbers))) for numbers in found)
    gaps = np.diff([numbers[0] for numbers in found])
    assert found[0][0] == 0
    assert gaps.min() > 480 - 12  # eighths of 4,000 words, and lengths that differ
    assert gaps.max() < 500 + 12
    assert batch == numbered(tmp_path, 4000).drawn(shape)[0]
    assert [len(words_of(part)) for part in numbered(tmp_path, 4000).texts(shape)] == [10] * 8  # consecutive as ever


def test_pairs_have_the_lengths_of_mrpc(tmp_path):
    path = tmp_path / "text.txt"
    sentence = "The old house stood near the river, and nobody had lived in it for years."  # 16 words
    path.write_text("\n".join(f"{sentence} Then came w{n}, who didn't mind." for n in range(400)) + "\n")
    shape = TextShape(32, 46)
    pairs = Corpus(cases.load_config(CONFIG, str(path))).pairs(shape)
    parted = [text.sentences(pair) for pair in pairs]
    lengths = [[len(words_of(part)) for part in pair] for pair in parted]
    assert [sum(pair) + 3 for pair in lengths] == shape.drawn_lengths()
    assert sum(map(sum, lengths)) == 32 * 43
    assert all(5 <= n <= 40 for pair in lengths for n in pair)
    assert all(3 * min(pair) >= 2 * max(pair) for pair in lengths)
    assert len({min(pair) == pair[0] for pair in lengths}) == 2  # now the first is the shorter one, now the second
    whole = path.read_text().split()
    joined = " ".join(whole)
    assert all(" ".join(" ".join(pair).split()).replace(" ,", ",") in joined for pair in parted if pair[0][-1] == ".")
    assert sum(pair[0].endswith(".") for pair in parted) > 16  # at the end of a sentence, where one is near the middle
    assert pairs == Corpus(cases.load_config(CONFIG, str(path))).pairs(shape)
    with pytest.raises(ValueError, match="--pairs: 4 x 8 words are too few: expected 5 words in the shortest pair"):
        Corpus(cases.load_config(CONFIG, str(path))).pairs(TextShape(4, 8))


def test_every_model_reads_both_sentences_of_a_pair(tmp_path):
    job = small_job(tmp_path, "table")
    pairs = [text.PAIR.join(job.texts[0][:2]), text.PAIR.join(["the small house", "the"])]
    runner = HLMInference(job)
    chars_BWC, vocab = runner.chars(pairs, 30), CharVocab.from_dict(job.chars)
    for pair, chars_WC in zip(pairs, chars_BWC, strict=True):
        first, second = (words_of(part) for part in text.sentences(pair))
        seps = np.flatnonzero(chars_WC[:, 0] == SEP)
        assert seps.tolist() == [len(first) + 1, len(first) + len(second) + 2]
        inside = [*chars_WC[1 : seps[0]], *chars_WC[seps[0] + 1 : seps[1]]]
        assert [vocab.decode(row[1:]) for row in inside] == [word[:19] for word in (*first, *second)]
        assert not chars_WC[seps[1] + 1 :].any()
    tokenizer = load_wordpiece(small_job(tmp_path, "bert").tokenizer)
    for pair, ids_L, mask_L in zip(pairs, *subwords(tokenizer, pairs), strict=True):
        assert tuple(ids_L[mask_L]) == tokenizer.encode(*text.sentences(pair)).ids
    assert distinct_share([text.PAIR.join(["a a b", "b c c"])]) == (3 + 2) / (6 + 3)


def test_so_much_text_is_enough(tmp_path):
    corpora = [numbered(tmp_path, words).drawn(TextShape(8, 12)) for words in (80 * text.DRAWN_FROM, 200_000)]
    assert corpora[0] == corpora[1]


def test_further_batches_lie_between_the_texts_of_the_first(tmp_path):
    shape = TextShape(4, 12)
    several = numbered(tmp_path, 4000).drawn(shape, 5)
    assert several[0] == numbered(tmp_path, 4000).drawn(shape)[0]
    starts = np.array([[int(words_of(part)[0][1:]) for part in batch] for batch in several])
    assert (np.diff(starts.T.ravel()) > 120).all()  # fifths of a quarter of 64 x 40 words


def test_a_corpus_just_large_enough_is_drawn_whole(tmp_path):
    shape = TextShape(4, 12)
    ((*_,),) = made = numbered(tmp_path, 40).drawn(shape)
    assert [word for part in made[0] for word in words_of(part)] == [f"w{n}" for n in range(40)]
    with pytest.raises(ValueError, match="30 words are too few for a batch of 4 x 12 words"):
        numbered(tmp_path, 30).drawn(shape)


@pytest.mark.parametrize("shape", [TextShape(3, 2), TextShape(10**5, 9), TextShape(2, 8)])
def test_too_few_words_are_named(tmp_path, shape):
    (tmp_path / "text.txt").write_text("a b c d e f g h i j k\n")  # one less than twice six
    with pytest.raises(ValueError, match=r"three words at least|words are too few for a batch of \d+ x \d words"):
        Corpus(cases.load_config(CONFIG, str(tmp_path / "text.txt"))).texts(shape)


def test_hlm_reads_exactly_the_words(tmp_path):
    job = small_job(tmp_path, "table")
    runner = HLMInference(job)
    chars_BWC = runner.tokenise(job.texts[0], 14)
    vocab = CharVocab.from_dict(job.chars)
    for part, chars_WC in zip(job.texts[0], chars_BWC, strict=True):
        assert (chars_WC[0, 0], chars_WC[-1, 0]) == (CLS, SEP)
        assert (chars_WC[1:-1, 0] == WORD_CLS).all()
        assert [vocab.decode(row[1:]) for row in chars_WC[1:-1]] == [word[:19] for word in words_of(part)]
    assert runner.tokens(chars_BWC) == (14.0, 14)


def test_berts_ids_are_the_tokenizers(tmp_path):
    job = small_job(tmp_path, "bert")
    tokenizer = load_wordpiece(job.tokenizer)
    ids_BL, mask_BL = subwords(tokenizer, job.texts[0])
    for part, ids_L, mask_L in zip(job.texts[0], ids_BL, mask_BL, strict=True):
        expected = tokenizer.encode(part).ids
        assert tuple(ids_L[mask_L]) == expected
        read = tokenizer.decode(ids_L[mask_L]).replace(" ", "")
        assert read == "".join(words_of(part)).lower().replace("ï", "i")
    assert ids_BL.shape[1] == mask_BL.sum(axis=1).max()  # no more padding than the longest text needs


def test_fifteen_percent_of_the_pieces_are_to_be_guessed(tmp_path):
    job = small_job(tmp_path, "bert", shape=TextShape(6, 60))
    tokenizer = load_wordpiece(job.tokenizer)
    batch = masked_subwords(tokenizer, job.texts[0])
    before_BL, mask_BL = subwords(tokenizer, job.texts[0])
    assert batch.weight_BM.sum() / mask_BL.sum() == pytest.approx(0.15, abs=0.02)
    real = batch.weight_BM > 0
    np.testing.assert_array_equal(np.take_along_axis(before_BL, batch.positions_BM, 1)[real], batch.labels_BM[real])
    (rows, columns) = np.nonzero(batch.ids_BL != before_BL)
    assert {*zip(rows, columns, strict=True)} <= {
        (b, p) for b in range(6) for p in batch.positions_BM[b][real[b]].tolist()
    }
    shown = np.take_along_axis(batch.ids_BL, batch.positions_BM, 1)[real]
    assert 0.6 < (shown == tokenizer.special.mask).mean() < 0.95


def test_the_vocabulary_is_trained_once(tmp_path, monkeypatch):
    first = corpus(tmp_path).wordpiece()
    monkeypatch.setattr(text, "_train_wordpiece", lambda *_: pytest.fail("trained again"))
    assert corpus(tmp_path).wordpiece().digest() == first.digest()
    assert first.encode("the SMALL house").ids[1:-1] == tuple(first.id(piece) for piece in ("the", "small", "house"))


def test_a_bare_vocabulary_is_uncased(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "house"]) + "\n")
    assert load_wordpiece(str(path)).encode("House").ids == (2, 5, 3)
    with pytest.raises(ValueError, match="no such file"):
        load_wordpiece(str(tmp_path / "none"))


def test_the_share_of_distinct_words():
    assert distinct_share(["a a b", "b c c"]) == (3 + 2) / (6 + 4)
