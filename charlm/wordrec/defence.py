"""Puts a word recogniser in front of a model, and says what becomes of words that it does not know.

Pruthi et al. (ACL 2019, section 3) back off in three ways: the word passes through as it is, which CharBERT's Table 2
has (section 4.5), a neutral word stands in its place, or another recogniser, which knows more words, is asked. Open it
to change which words are corrected, or to add a way.
"""

from __future__ import annotations

from collections.abc import Sequence

from charlm.text.defences import Defence, cased
from charlm.text.noise.edits import Edit
from charlm.text.words import get_splitter
from charlm.wordrec.recogniser import TrainedRecogniser

_APOSTROPHES = str.maketrans("", "", "'’")


class WordRecognition(Defence):
    """Replaces words of letters by those that a recogniser recognises, in the case of what it replaces.

    Words of other characters, such as numbers and marks, stay; so do words that are recognised as what they are.

    Args:
      recogniser: is asked first.
      neutral: what stands in the place of a word that it does not know; "": the word itself.
      background: is asked for such words; None: there is none. Words that it does not know, either, pass through.
    """

    def __init__(
        self, recogniser: TrainedRecogniser, neutral: str = "", background: TrainedRecogniser | None = None
    ) -> None:
        self._recogniser, self._neutral, self._background = recogniser, neutral, background
        self._splitter = get_splitter(recogniser.known.splitter, recogniser.known.language)
        self.version = f"wordrec 1 {recogniser.digest[:32]}"
        if neutral:
            self.version += f" neutral {neutral}"
        if background is not None:
            self.version += f" background {background.digest[:32]}"

    def edits(self, text: str) -> list[Edit]:
        """Returns the corrections of all words of a text, each of one word by one."""
        spans = self._splitter.spans(text)
        words = [text[start:end] for start, end in spans]
        found = zip(spans, words, self.corrected(words), strict=True)
        return [Edit(start, end, new) for (start, end), old, new in found if new != old]

    def corrected(self, words: Sequence[str]) -> list[str]:
        """Returns as many words, which are recognised together."""
        if not words:
            return []
        found = self._recogniser.recognise(words)
        if self._background is not None and not all(found):
            others = self._background.recognise(words)
            found = tuple(one or other for one, other in zip(found, others, strict=True))
        return [self._one(old, new or self._neutral) for old, new in zip(words, found, strict=True)]

    def _one(self, old: str, new: str) -> str:
        if not new or new == old.lower() or not old.translate(_APOSTROPHES).isalpha():
            return old
        return cased(new, old)
