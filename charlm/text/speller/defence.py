"""A defence that corrects texts to the likeliest words of the noisy channel, in front of any model.

Open it to change how a correction is written; which words are likely is decided in `charlm.text.speller.reading`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from charlm.text.defences import Defence, cased
from charlm.text.noise.edits import Edit
from charlm.text.speller.files import counted
from charlm.text.speller.lexicon import Lexicon
from charlm.text.speller.reading import Reading, Speller
from charlm.text.speller.settings import SpellerSettings, with_words

VERSION = "speller 2"


class NoisyChannel(Defence):
    """Corrects words to the likeliest of the known words, by their frequency and by the slips between.

    Args:
      words: known words, in lower case, and how often each is seen.
    """

    def __init__(self, words: Mapping[str, float]) -> None:
        """Builds the index of the words; raises ValueError if there are none."""
        listed = "\n".join(f"{word} {count}" for word, count in sorted(words.items()))
        digest = hashlib.sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()
        self.version = f"{VERSION} {len(words)} words {digest[:16]}"
        self._speller = Speller(Lexicon(words), with_words(SpellerSettings()))

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> NoisyChannel:
        """Returns a defence that knows the words of texts; ValueError if they have none."""
        return cls(counted(texts, str.lower))

    def edits(self, text: str) -> list[Edit]:
        """Returns the corrections of a text."""
        edits = [edit for one in self._read(text) for edit in one.edits(text)]
        return [edit._replace(text=cased(edit.text, text[edit.start : edit.end])) for edit in edits]

    def one(self, word: str) -> str:
        """Returns the likeliest single word that a word may mean."""
        found = self._read(word)
        if len(found) != 1:
            return word
        (one,) = found
        single = next((other for other, _ in one.words if " " not in other), None)
        if single is None:
            return word
        return word[: one.start] + cased(single, word[one.start : one.end]) + word[one.end :]

    def _read(self, text: str) -> list[Reading]:
        return self._speller.read(text)
