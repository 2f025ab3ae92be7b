"""Finds the ends of sentences in a sequence of words.

`charlm.data.encode` uses it to cut a document into sentences; open it to change what ends one.
"""

from __future__ import annotations

from collections.abc import Sequence

_TERMINALS = ".!?…。！？｡।॥።။។؟۔"
_CLOSERS = frozenset("\"'”’»›)]}）］｝」』】》〉")


def sentence_ends(words: Sequence[str]) -> list[int]:
    """Returns, for each sentence, the index one past its last word; ascending, the last is always len(words).

    A sentence ends with a word that consists of terminal marks only; closing quotes and brackets after that word belong
    to the sentence. Straight quotes count as closing. Without words there are no sentences.
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
