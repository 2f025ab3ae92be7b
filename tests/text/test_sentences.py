"""Tests the ends of sentences: where a person would put them, with every word in one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from charlm.text.sentences import sentence_ends


@pytest.mark.parametrize(
    ("sentences", "separator"),
    [
        ([], " "),
        (["no end at all"], " "),
        (["One .", "Two ?!", "Three"], " "),
        (["He said “ go . ”", "( Then . )", "Mr. Doe left ..."], " "),
        (["你 好 。", "好 ！ 」", "吗 ？"], " "),
        (["यह है ।", "ठीक"], " "),
        ([". . .", "a"], " "),
    ],
)
def test_sentence_ends(sentences, separator):
    lists = [sentence.split(separator) for sentence in sentences]
    ends, total = [], 0
    for words in lists:
        total += len(words)
        ends.append(total)
    assert sentence_ends([word for words in lists for word in words]) == ends


@given(words=st.lists(st.sampled_from(["a", ".", "?!", '"', ")", "。", "3.5", "...", "“"])))
def test_sentences_partition_the_words(words):
    ends = sentence_ends(words)
    assert ends == sorted(set(ends))
    assert (ends[-1] == len(words) and ends[0] > 0) if words else ends == []
    for end in ends[:-1]:
        assert any(not word.strip(".?!。") for word in words[:end])
        assert words[end] not in {".", "?!", '"', ")", "。", "..."}
