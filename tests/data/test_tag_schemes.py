"""Tests which scheme tags follow and which entities they mark."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.data.tag_schemes import (
    Entity,
    detect_scheme,
    entities,
    from_entities,
    is_iob,
    orphans,
    strict_entities,
    to_iob2,
)

SENTENCES = st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "B-x-y", "I-x-y", "B", "I"]), max_size=12)
WIDE = st.lists(st.sampled_from(["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B", "E", "S"]), max_size=12)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER", True),
        ("B I O", True),
        ("S-PER E-creative-work L-X U-X M-X W-X", True),
        ("", True),
        ("NOUN VERB", False),
        ("O OTHER", False),
        ("O B-", False),
        ("O B_PER", False),
        ("O b-PER", False),
        ("O-PER", False),
    ],
)
def test_is_iob(tags, expected):
    assert is_iob(tags.split()) is expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-A I-A O", [("A", 1, 3)]),
        ("I-A I-A I-B B-B", [("A", 0, 2), ("B", 2, 3), ("B", 3, 4)]),
        ("B-A I-B", [("A", 0, 1), ("B", 1, 2)]),
        ("B-A B-A", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A O I-A", [("A", 0, 1), ("A", 2, 3)]),
        ("B I O I", [("", 0, 2), ("", 3, 4)]),
        ("B-A E-A B-A E-A S-A", [("A", 0, 2), ("A", 2, 4), ("A", 4, 5)]),
        ("E-A I-A S-A I-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 3), ("A", 3, 4)]),
        ("B-A L-A U-A O B-A M-A E-A W-A", [("A", 0, 2), ("A", 2, 3), ("A", 4, 7), ("A", 7, 8)]),
        ("B-a-b I-a-b I-a", [("a-b", 0, 2), ("a", 2, 3)]),
    ],
)
def test_entities(tags, expected):
    assert entities(tags.split()) == [Entity(*entity) for entity in expected]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A B-A I-A I-B I-A", [("A", 1, 3)]),
        ("B-A O I-A B-B B-B I-B", [("A", 0, 1), ("B", 3, 4), ("B", 4, 6)]),
    ],
)
def test_strict_entities(tags, expected):
    assert strict_entities(tags.split()) == [Entity(*entity) for entity in expected]


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        (["O B-A I-A B-A"], "iob2"),
        (["O O", "O"], "iob2"),
        (["B-A O", "O B-B B-B"], "iob2"),
        (["I-A I-A O", "I-B B-B I-B"], "iob1"),
        (["I-A I-A O"], "iob1"),
        (["O I-A", "B-B O"], "iob2"),
        (["B-A E-A O", "S-B"], "iobes"),
        (["B-A L-A O", "U-B"], "iobes"),
        (["O B-A", "NOUN"], "none"),
        (["B I O", "B"], "iob2"),
        (["I-A B-B"], "iob2"),
        (["B-A I-B"], "iob2"),
        (["O I I", "I B"], "iob1"),
    ],
)
def test_detect_scheme(sentences, expected):
    assert detect_scheme(sentence.split() for sentence in sentences) == expected


def test_orphans():
    assert orphans(["I-A", "I-A", "B-A", "I-A", "I-B", "O", "I-B", "I-B"]) == [0, 4, 6]
    assert orphans(["S-A", "I-A"]) == [1]


def iob1(found, length):
    """IOB1 by its definition: B- only after an entity of the same type."""
    tags = ["O"] * length
    for i, (kind, start, stop) in enumerate(found):
        ending = f"-{kind}" if kind else ""
        touches = i > 0 and found[i - 1].stop == start and found[i - 1].type == kind
        tags[start:stop] = [("B" if touches else "I") + ending] + ["I" + ending] * (stop - start - 1)
    return tags


def iobes(found, length):
    """IOBES by its definition."""
    tags = ["O"] * length
    for kind, start, stop in found:
        ending = f"-{kind}" if kind else ""
        letters = "S" if stop - start == 1 else "B" + "I" * (stop - start - 2) + "E"
        tags[start:stop] = [letter + ending for letter in letters]
    return tags


@settings(max_examples=300, deadline=None)
@given(SENTENCES)
def test_every_scheme_says_the_same_entities(tags):
    found = entities(tags)
    length = len(tags)
    assert [tag for tag in iob1(found, length) if tag == "O"] == [tag for tag in tags if tag == "O"]
    for written in (iob1(found, length), iobes(found, length), from_entities(found, length)):
        assert entities(written) == found
        assert to_iob2(written) == from_entities(found, length)
    assert strict_entities(from_entities(found, length)) == found
    assert orphans(to_iob2(tags)) == []
    assert detect_scheme([iob1(found, length), ["I-A", "B-A"]]) == "iob1"
    assert detect_scheme([to_iob2(tags)]) == "iob2"


@settings(max_examples=300, deadline=None)
@given(WIDE)
def test_entities_as_seqeval_reads_them(tags):
    reason = "an oracle of this test alone: pip install seqeval"
    get_entities = pytest.importorskip("seqeval.metrics.sequence_labeling", reason=reason).get_entities
    expected = [(kind.removeprefix("_"), start, end + 1) for kind, start, end in get_entities(list(tags))]
    assert entities(tags) == expected


def test_to_iob2_of_other_tags():
    assert to_iob2(["NOUN", "O"]) == ["NOUN", "O"]
    assert to_iob2(["I-A", "I-A"], "none") == ["I-A", "I-A"]
    assert to_iob2(["I-A", "I-A"], "iob1") == ["B-A", "I-A"]
    with pytest.raises(ValueError, match=r"tag 'NOUN': expected O or a tag such as B-PER \(scheme iob1"):
        to_iob2(["NOUN", "O"], "iob1")
    with pytest.raises(ValueError, match=r"scheme='iob': expected one of auto, iob1"):
        to_iob2(["O"], "iob")
