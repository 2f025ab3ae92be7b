"""Where sentences end, by their words."""

from __future__ import annotations

from collections.abc import Sequence

_TERMINALS = ".!?…。！？｡।॥።။។؟۔"
_CLOSERS = frozenset("\"'”’»›)]}）］｝」』】》〉")


def sentence_ends(words: Sequence[str]) -> list[int]:
    """Returns one past the last word of each sentence, ascending; the last is always len(words).

    A sentence ends with a word of terminal marks only, and the closing quotes and brackets that follow belong to it.
    Straight quotes count as closing. No words, no sentences.
    """
    ends: list[int] = []
    ended = False
    for index, word in enumerate(words):
        if word and not word.strip(_TERMINALS):
            ended = True
        elif ended and word not in _CLOSERS:
            ends.append(index)
            ended = False
    if words:
        ends.append(len(words))
    return ends
