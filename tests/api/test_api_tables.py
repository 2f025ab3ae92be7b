"""Tests results as tables: which rows and columns each kind of result has."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.api.results import Answer, Class, Encoding, Gap, Generation, Neighbor, Piece, Ranked, Score, Tag, Word

VECTORS = np.arange(6, dtype=np.float32).reshape(2, 3)
GAP = Gap(4, 10, (Word("cat", -1.0, 0.5), Word("dog", -2.0, 0.25)))
ANSWER = Answer("cat", 4, 7, 0.5, (Answer("cat", 4, 7, 0.5),))
# A result, or several, with the columns of its table and the values of the last row.
CASES = {
    "tags": ([[Tag("the", 0, 3, "DET", 0.9)], [], [Tag("a", 0, 1, "X", 0.5)]],
             ["example", "word", "start", "end", "label", "probability"], [2, "a", 0, 1, "X", 0.5]),
    "tags of one text": ([Tag("the", 0, 3, "DET", 0.9), Tag("cat", 4, 7, "NOUN", 0.8)],
                         ["example", "word", "start", "end", "label", "probability"], [1, "cat", 4, 7, "NOUN", 0.8]),
    "class": (Class("b", 0.75, {"a": 0.25, "b": 0.75}),
              ["example", "label", "probability", "p(a)", "p(b)"], [0, "b", 0.75, 0.25, 0.75]),
    "numbers": ([1.5, 2.5], ["example", "value"], [1, 2.5]),
    "answers": ([ANSWER, ANSWER], ["example", "text", "start", "end", "probability"], [1, "cat", 4, 7, 0.5]),
    "ranked": ([Ranked("p", 2.0, 1)], ["example", "passage", "score", "index"], [0, "p", 2.0, 1]),
    "gaps": ([[GAP]],
             ["example", "start", "end", "rank", "word", "log_prob", "score"], [0, 4, 10, 2, "dog", -2.0, 0.25]),
    "neighbours": ([[Neighbor("cat", 0.5)]], ["example", "subword", "cosine"], [0, "cat", 0.5]),
    "scores": ([Score(-3.0, 1.5, (Piece("a", 0, 1, -3.0),))], ["example", "log_prob", "bits_per_char"], [0, -3.0, 1.5]),
    "generated": (Generation("mat", -1.0, True), ["example", "text", "log_prob", "finished"], [0, "mat", -1.0, True]),
    "stream": (iter([[Tag("the", 0, 3, "DET", 0.9)]]),
               ["example", "word", "start", "end", "label", "probability"], [0, "the", 0, 3, "DET", 0.9]),
    "vectors": (VECTORS, [0, 1, 2], [3.0, 4.0, 5.0]),
    "vector": (VECTORS[0], [0, 1, 2], [0.0, 1.0, 2.0]),
    "streamed vectors": (iter(VECTORS), [0, 1, 2], [3.0, 4.0, 5.0]),
    "nothing": ([], [], None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_columns_and_rows(case):
    results, columns, last = CASES[case]
    table = charlm.to_pandas(results)
    assert list(table.columns) == columns
    assert (None if last is None else table.iloc[-1].tolist()) == last


def test_vectors_of_words_stay_arrays():
    encoding = Encoding(("the", "cat"), ((0, 3), (4, 7)), VECTORS, VECTORS[0])
    table = charlm.to_pandas([encoding, encoding])
    assert list(table.columns) == ["example", "word", "start", "end", "vector"]
    assert table["example"].tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(table["vector"][3], VECTORS[1])


def test_what_a_model_gives():
    table = charlm.to_pandas(charlm.load(release("bert")).fill_mask(["the [MASK] sat", "a [MASK]"], top=3))
    assert table["example"].tolist() == [0] * 3 + [1] * 3
    assert table["rank"].tolist() == [1, 2, 3] * 2


@pytest.mark.parametrize("wrong", ["the cat", [object()], {"a": 1}])
def test_what_is_no_result(wrong):
    with pytest.raises(ValueError, match="expected results of a model, got"):
        charlm.to_pandas(wrong)
