"""The characters of an XRayEmb: counted in words and in text, as the tokenizer reads them."""

from __future__ import annotations

from collections import Counter

import pytest
from predictors.tiny_models import release

from charlm.data.corpus import encode_corpus
from charlm.data.forms import TextForm
from charlm.data.sources import open_source
from charlm.data.xray_vocab import xray_chars_of, xray_chars_of_text, xray_chars_of_words
from charlm.text.subwords import SubwordTokenizer


@pytest.fixture(scope="module")
def uncased():
    return SubwordTokenizer.load(release("bert"))


def test_words_are_counted_as_the_tokenizer_reads_them(uncased):
    counts = Counter({"Äb": 3, "b今": 1, "\u3000": 9})
    assert xray_chars_of_words(counts).chars == ("b", "Ä", "今")
    assert xray_chars_of_words(counts, uncased).chars == ("a", "b", "今")
    assert xray_chars_of_words(counts, uncased, 5).chars == ("a", "b")


def test_text_and_encoded_corpus_give_the_same(config, tmp_path, uncased):
    (tmp_path / "a.txt").write_text("Ein Ärger, 今天!\nnaïve Birds\n" * 3, encoding="utf-8")
    source = open_source(str(tmp_path / "a.txt"))
    corpus = encode_corpus(str(tmp_path / "a.txt"), config, "all", TextForm(), 64, key="data.train")
    for tokenizer in (None, uncased):
        found = xray_chars_of_text([source], tokenizer)
        assert found == xray_chars_of([corpus], tokenizer)
        assert ("Ä" in found.chars) == (tokenizer is None)
        assert " " not in found.chars
