"""The plain arrays that a CharacterBERT reads outside of charlm: ELMo's characters of distinct words, and their places.

`charlm.export` makes programs of them. Open it to change what such a program reads.
"""

from __future__ import annotations

from pathlib import Path

from charlm.core.types import JsonObject
from charlm.families.characterbert.characters import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD
from charlm.families.characterbert.units import CharacterBertUnits
from charlm.families.spelled.arrays import SpelledArrays


class CharacterBertArrays(SpelledArrays):
    """Every position is spelled, those of [CLS] and [SEP], too. A character is a byte of UTF-8, plus 1."""

    units: CharacterBertUnits
    table = False
    texts = (
        "lists of words: a list of words for each text, punctuation marks being words of their own; lower-cased and "
        "without accents if reading.lowercase says so"
    )
    recipe = """\
def characters(word):  # bytes between two marks; a long word is cut
    bytes_of = [byte + 1 for byte in word.encode()[: reading["slots"] - 2]]
    return (reading["begin"], *bytes_of, reading["end"])


def arrays_of(texts):
    edge = lambda name: (reading["begin"], reading[name], reading["end"])
    rows = [[edge("cls"), *map(characters, words), edge("sep")] for words in texts]
    numbers = {word: n for n, word in enumerate(dict.fromkeys(word for row in rows for word in row))}
    chars = np.zeros((len(numbers), reading["slots"]), np.int32)
    for word, n in numbers.items():
        chars[n, : len(word)] = word
    index = padded([[numbers[word] for word in row] for row in rows])
    arrays = {"chars": chars, "index": index, "types": np.zeros_like(index)}
    return {name: arrays[name] for name in names}"""

    def reading(self) -> JsonObject:
        """See `Arrays`."""
        config = self.pretrained.config
        return {
            "begin": BEGIN_WORD,
            "end": END_WORD,
            "cls": BEGIN_SENTENCE,
            "sep": END_SENTENCE,
            "slots": self.units.buckets[-1],
            "lowercase": config.lowercase,
            "splitter": config.splitter,
            "language": config.language,
        }

    def write_beside(self, folder: Path) -> None:
        """Writes nothing: bytes need no vocabulary."""
