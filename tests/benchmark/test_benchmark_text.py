"""The text of the benchmark: the same words for every path, as substrings of the corpus."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_jobs import CONFIG, corpus, small_job

from charlm.benchmark import cases, text
from charlm.benchmark.bert import masked_subwords, subwords
from charlm.benchmark.hlm import HLMInference
from charlm.benchmark.text import Corpus, Shape, distinct_share, load_wordpiece
from charlm.text.chars import CLS, SEP, WORD_CLS, CharVocab
from charlm.text.words import RulesSplitter

pytestmark = pytest.mark.usefixtures("quick")


def words_of(part):
    return [part[start:end] for start, end in RulesSplitter().spans(part)]


def test_texts_are_consecutive_and_have_the_words_asked_for(tmp_path):
    found = corpus(tmp_path)
    texts = found.texts(Shape(5, 9))
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
    texts = Corpus(cases.load_config(CONFIG, str(tmp_path / "text.txt"))).texts(Shape(2, 4))
    assert texts == ["one a", "tag b"]


@pytest.mark.parametrize("shape", [Shape(3, 2), Shape(10**5, 9), Shape(2, 8)])
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
    job = small_job(tmp_path, "bert", shape=Shape(6, 60))
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
