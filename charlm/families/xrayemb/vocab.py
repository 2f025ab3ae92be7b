"""Builds XRayEmb's character vocabulary from text or from encoded corpora, as the model's tokenizer reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from charlm.data.corpus import EncodedCorpus
from charlm.data.sources import Source
from charlm.data.subword_building import count_words
from charlm.data.vocab import count_chars
from charlm.families.xrayemb.chars import XRayChars
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import count_symbols


def xray_chars_of(
    corpora: Iterable[EncodedCorpus], tokenizer: SubwordTokenizer | None = None, size: int | None = None
) -> XRayChars:
    """Returns the characters of the words of encoded corpora (`charlm.data.forms.TextForm`).

    Args:
      tokenizer: the model's tokenizer; words are counted as it normalises them, so there are no capital letters if it
        lower-cases. None: words are counted unchanged, as in the released code.
      size: see `XRayChars.build`.
    """
    return xray_chars_of_words(count_words(corpora), tokenizer, size)


def xray_chars_of_words(
    counts: Mapping[str, int], tokenizer: SubwordTokenizer | None = None, size: int | None = None
) -> XRayChars:
    """Returns the characters of words with their counts; see `xray_chars_of`."""
    read = counts.keys() if tokenizer is None else map(tokenizer.normalized, counts)
    return XRayChars.build(count_symbols(read, counts.values()), size)


def xray_chars_of_text(
    sources: Sequence[Source], tokenizer: SubwordTokenizer | None = None, size: int | None = None
) -> XRayChars:
    """Returns the characters of all documents of text sources; see `xray_chars_of`.

    Raises:
      ValueError: a source cannot be read.
    """
    counts = count_chars(sources, "none")
    if tokenizer is None:
        return XRayChars.build(counts, size)
    # The normalizers of the published models change each character independently of its neighbours.
    read: Counter[str] = Counter()
    for char, count in counts.items():
        for form in tokenizer.normalized(char):
            read[form] += count
    return XRayChars.build(read, size)
