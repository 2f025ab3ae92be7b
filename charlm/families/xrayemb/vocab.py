"""Builds XRayEmb's character vocabulary from encoded corpora, as the model's tokenizer reads their words.

A run uses it unless the model that it starts from has characters already. Open it when the
vocabulary lacks characters or has unexpected ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from charlm.data.corpus import EncodedCorpus
from charlm.data.subword_building import count_words
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
