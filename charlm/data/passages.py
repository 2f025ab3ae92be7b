"""Turns passages in which one word is classified, such as NYTWIT's, into sentences where that word alone has a tag.

The task of tagging reads tables of such passages by it (`data.target`). Open it when the word is not found in its
passage, or to change how a passage is cut into words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from charlm.data.examples import Skipped, TaggedExample, TextExample
from charlm.text.words import Span, get_splitter, split

OUTSIDE = "_"  # the tag of all other words, which are only read


def in_passages(examples: Iterable[TextExample], skipped: Skipped) -> Iterator[TaggedExample]:
    """Yields the passages as sentences of words.

    The word is found wherever it stands as a whole word, in any case: NYTWIT has it in small letters. Each place has
    its class, as in XRayEmb's released code. The word stays whole, and the rest is cut by the splitter "rules".

    Args:
      examples: the passage as `text`, the word as `pair`, its class as `label` (None: not known), and its fold as
        `group`.
      skipped: counts passages without their word, which are left out.

    Raises:
      ValueError: what stands for a word is several words.
    """
    splitter = get_splitter("rules")
    for example in examples:
        word = (example.pair or "").strip()
        if len(word.split()) != 1:
            raise ValueError(f"{example.place}: expected one word of the passage, got {example.pair!r}")
        places = places_of(word, example.text)
        if not places:
            skipped.skip("the passage lacks its word", example.place)
            continue
        found = split(example.text, _Around(splitter.spans(example.text), places))
        tags = None
        if example.label is not None:
            tags = tuple(str(example.label) if span in places else OUTSIDE for span in found.spans)
        spaces = tuple(bool(gap) for gap in found.gaps[1:])
        yield TaggedExample(example.id, example.place, found.words, tags, spaces, example.group)


def places_of(word: str, text: str) -> list[Span]:
    """Returns where a word stands in a text as a whole word, in capital or small letters."""
    pattern = rf"(?<!\w){re.escape(word)}(?!\w)"
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


class _Around:
    """A splitter of one text that keeps some places whole."""

    name = "around"

    def __init__(self, spans: Sequence[Span], places: Sequence[Span]) -> None:
        self._spans, self._places = spans, places

    def spans(self, text: str) -> list[Span]:
        """Returns the words of the text: the places, and what other words have outside of them."""
        del text
        ends = sorted({end for place in self._places for end in place})
        found = list(self._places)
        for start, stop in self._spans:
            cuts = [start, *(end for end in ends if start < end < stop), stop]
            found += [part for part in itertools.pairwise(cuts) if not any(a <= part[0] < b for a, b in self._places)]
        return sorted(found)
