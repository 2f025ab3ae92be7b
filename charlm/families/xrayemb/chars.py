"""XRayEmb's character vocabulary, and words as its encoder reads them (Pinter et al., 2021, section 2; released code).

A word is `<e>`, at most 20 characters, `<e>`: the same symbol opens and closes it. Our ids are (their id + 1) mod size,
where theirs are those of the released code, so that 0 is padding here as everywhere in charlm. Open it when a word gets
other ids than in the released code.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from charlm.core.durable import write_text
from charlm.core.reading import loads, read_bytes
from charlm.text.chars import PAD
from charlm.text.symbols import UNKNOWN

FIRST_XRAY_CHAR = 1
SPECIAL_ROWS = 3  # padding, unknown, end
XRAY_SLOTS = 22  # characters of the longest word, both `<e>` included; the released code cuts words after 20
END = "<e>"  # how the symbol at both ends of a word is shown
XRAY_CHARS_FILE = "xray_chars.json"  # stands beside a model
_MAX_SIZE = 2**16  # character ids are uint16


class XRayChars:
    """An immutable character vocabulary: 0 pads, the ids 1 to n are characters by code point, then `<unk>` and `<e>`.

    Vocabularies with the same characters are equal.
    """

    __slots__ = ("_chars", "_ids")

    def __init__(self, chars: Iterable[str], source: str = "characters") -> None:
        """Takes distinct characters in any order.

        Raises:
          ValueError: an entry is no single character or is there twice, or there are too many; it names `source`.
        """
        found = list(chars)
        for char in found:
            if not isinstance(char, str) or len(char) != 1 or "\ud800" <= char <= "\udfff":
                raise ValueError(f"{source}: expected single characters, got {char!r}")
        if len(found) + SPECIAL_ROWS > _MAX_SIZE:
            raise ValueError(f"{source}: expected at most {_MAX_SIZE - SPECIAL_ROWS} characters, got {len(found)}")
        self._chars = tuple(sorted(found))
        self._ids = {char: FIRST_XRAY_CHAR + place for place, char in enumerate(self._chars)}
        if len(self._ids) < len(found):
            twice = next(char for char in found if found.count(char) > 1)
            raise ValueError(f"{source}: the character {twice!r} is there twice")

    @classmethod
    def build(cls, counts: Mapping[str, int], size: int | None = None) -> XRayChars:
        """Returns the vocabulary of the characters that occur, without white space, which words do not contain.

        Args:
          counts: how often each character occurs.
          size: most rows of the character table, padding, `<unk>` and `<e>` included. The most frequent characters are
            kept, ties by code point. None: all characters are kept, as in the released code.

        Raises:
          ValueError: `size` leaves no room for a character, or a key is no single character.
        """
        if size is not None and size <= SPECIAL_ROWS:
            raise ValueError(f"size of a character vocabulary: expected at least {SPECIAL_ROWS + 1}, got {size}")
        kept = [char for char, count in counts.items() if count > 0 and not char.isspace()]
        kept.sort(key=lambda char: (-counts[char], char))
        return cls(kept if size is None else kept[: size - SPECIAL_ROWS], "counts")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> XRayChars:
        """Reads a JSON list of characters, as `save` writes it, or the `chars.txt` of the released code.

        A `chars.txt` holds only the characters, in order of code point. White space at its end counts as characters
        (the released reader loses it). A line break at the end that breaks the order comes from an editor and is
        ignored.

        Raises:
          ValueError: the file has neither format; the message names it.
          OSError: the file cannot be read.
        """
        data = read_bytes(path)
        try:
            text = data.decode("utf-8")
            if Path(path).suffix == ".txt":
                return cls._of_text(text, str(path))
            chars = loads(text)
        except ValueError as error:
            raise ValueError(f"{path}: expected UTF-8, a JSON list of characters or a chars.txt: {error}") from None
        if not isinstance(chars, list):
            raise ValueError(f"{path}: expected a JSON list of characters, got {type(chars).__name__}")
        return cls(chars, str(path))

    @classmethod
    def _of_text(cls, text: str, source: str) -> XRayChars:
        if len(text) > 1 and text[-1] == "\n" and text[-2] > "\n":
            text = text[:-1]
        if any(a >= b for a, b in itertools.pairwise(text)):
            raise ValueError(f"{source}: expected distinct characters in order of code point")
        return cls(text, source)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, int], source: str = "characters") -> XRayChars:
        """Returns the vocabulary from the result of `to_dict`; ValueError naming `source` if the ids are wrong."""
        chars = cls(mapping, source)
        if chars._ids != dict(mapping):
            wrong = next(char for char in chars._ids if chars._ids[char] != mapping[char])
            raise ValueError(f"{source}: expected the id {chars._ids[wrong]} for {wrong!r}, got {mapping[wrong]!r}")
        return chars

    def to_dict(self) -> dict[str, int]:
        """Returns the map from characters to ids, in order of ids."""
        return dict(self._ids)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON list that `load` reads; a reader never sees a partly written file."""
        write_text(path, json.dumps(self._chars, ensure_ascii=False, indent=0) + "\n")

    def digest(self) -> str:
        """Returns the SHA-256 of the characters in hexadecimal: equal on every machine for equal vocabularies."""
        return hashlib.sha256(json.dumps(self._chars, separators=(",", ":")).encode("ascii")).hexdigest()

    @property
    def chars(self) -> tuple[str, ...]:
        """The characters in order of their ids, which begin at 1."""
        return self._chars

    @property
    def ids(self) -> Mapping[str, int]:
        """The map from characters to ids."""
        return self.to_dict()

    @property
    def size(self) -> int:
        """Rows of a table of characters, with those for padding, `<unk>` and `<e>`."""
        return len(self._chars) + SPECIAL_ROWS

    @property
    def unknown(self) -> int:
        """The id of characters that are not in the vocabulary."""
        return len(self._chars) + FIRST_XRAY_CHAR

    @property
    def end(self) -> int:
        """The id of `<e>`, which opens and closes words."""
        return len(self._chars) + FIRST_XRAY_CHAR + 1

    @property
    def spaces_V(self) -> np.ndarray:
        """bool [size], True at white space, with which no generated word begins; see `XRDecoder.generate`."""
        return np.array([False, *(char.isspace() for char in self._chars), False, False])

    def encode_word(self, word: str, slots: int = XRAY_SLOTS) -> list[int]:
        """Returns the ids of a word between two `<e>`; characters beyond `slots - 2` are cut off."""
        return [self.end, *(self._ids.get(char, self.unknown) for char in word[: slots - 2]), self.end]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the characters of ids up to the closing `<e>`, without `<e>` and padding.

        Unknown characters are shown as `<unk>`. The opening `<e>` may be missing.

        Raises:
          ValueError: an id is not in the vocabulary.
        """
        found: list[str] = []
        for place, index in enumerate(map(int, ids)):
            if not 0 <= index < self.size:
                raise ValueError(f"character id {index}: expected 0 to {self.size - 1}")
            if index == self.end and place:
                break
            if index not in (PAD, self.end):
                found.append(UNKNOWN if index == self.unknown else self._chars[index - FIRST_XRAY_CHAR])
        return "".join(found)

    def __eq__(self, other: object) -> bool:
        return self._chars == other._chars if isinstance(other, XRayChars) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._chars)

    def __repr__(self) -> str:
        return f"XRayChars({len(self._chars)} characters, size {self.size})"

    def __reduce__(self) -> tuple[object, ...]:
        return XRayChars, (self._chars,)


def word_rows(words: Sequence[str], chars: XRayChars, slots: int = XRAY_SLOTS) -> np.ndarray:
    """Returns words as the encoder reads them, uint16 [U, slots]: `<e>`, characters, `<e>`, zeros.

    The length of a word is the number of ids that are not 0.

    Raises:
      ValueError: there are fewer than 3 slots.
    """
    if slots < SPECIAL_ROWS:
        raise ValueError(f"slots={slots}: expected at least 3, for <e>, a character and <e>")
    rows_UC = np.zeros((len(words), slots), np.uint16)
    for row, word in zip(rows_UC, words, strict=True):
        ids = chars.encode_word(word, slots)
        row[: len(ids)] = ids
    return rows_UC
