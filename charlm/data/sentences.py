"""Sentences of corpora, for measuring what models make of them one by one.

Open it to change which sentences are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from charlm.data.sources import open_source
from charlm.text.sentences import sentence_ends
from charlm.text.words import Splitter, get_splitter

SPLITTER = "rules"
WORDS = (4, 60)  # words of the sentences that are used, marks included


def sentences_of(specs: Iterable[str], most: int = 0) -> Iterator[str]:
    """Yields sentences of corpora, each on one line, distinct and in order.

    Args:
      specs: corpora as `charlm.data.sources.open_source` reads them.
      most: stop after so many; 0: all.

    Raises:
      ValueError: a corpus cannot be read.
    """
    splitter, seen = get_splitter(SPLITTER), set()
    for spec in specs:
        source = open_source(spec, split="all", key="--data")
        for document in (text for part in source.parts for text in source.documents(part)):
            for sentence in _sentences(document, splitter):
                if most and len(seen) >= most:
                    return
                if sentence not in seen:
                    seen.add(sentence)
                    yield sentence


def _sentences(text: str, splitter: Splitter) -> Iterator[str]:
    spans, start = splitter.spans(text), 0
    for end in sentence_ends([text[a:b] for a, b in spans]):
        if WORDS[0] <= end - start <= WORDS[1]:
            yield " ".join(text[spans[start][0] : spans[end - 1][1]].split())
        start = end
