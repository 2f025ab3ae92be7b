"""Maps characters to ids and back: the character vocabulary and the encoder of words that HLM uses.

Open it to see what each id means, or how a word longer than its slots is cut. Source: HLM, section 3.5, and the
released code. Ids 0..7 are reserved in every character vocabulary; characters begin at 8. Text is not lower-cased, and
it is normalised only on request (`WordEncoder`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from types import MappingProxyType

import numpy as np

from charlm.core.durable import write_text
from charlm.core.reading import loads, read_bytes
from charlm.core.types import Json

PAD = 0
CLS = 1
SEP = 2
MASK = 3
UNK = 4
WORD_CLS = 5
SPACED = 6  # the end of a word that is written, with a space behind it; only in what an HLM predicts, never reads
JOINED = 7  # the end of one that the next word follows at once
FIRST_CHAR = 8
BYTES = 256  # of a vocabulary that spells unknown characters by them: ids FIRST_CHAR to FIRST_CHAR + 255

CHAR_VOCAB_FILE = "char_vocab.json"  # stands beside a model that reads a `CharVocab`
_SPECIAL_NAMES = {PAD: "", CLS: "[CLS]", SEP: "[SEP]", MASK: "[MASK]", UNK: "[UNK]", WORD_CLS: "[WORD_CLS]"}
_RELEASED = "released_chars.json"
_BYTE_IDS = {f"<0x{byte:02X}>": FIRST_CHAR + byte for byte in range(BYTES)}  # named as SentencePiece writes them
_MAX_ID = 2**16 - 1  # encoded words are uint16
_MAX_CACHED_WORDS = 2**18
_MAX_CACHED_LENGTH = 64  # characters; a few huge "words" must not fill the memory


class CharVocab:
    """An immutable map from characters to ids >= FIRST_CHAR; ids may have gaps. Equal maps are equal vocabularies.

    A vocabulary may begin with the 256 bytes, named <0x00> to <0xFF>: then a character that it lacks is spelled by the
    bytes of its UTF-8, and none is unknown.

    Attributes:
      by_bytes: whether it does.
    """

    __slots__ = ("_chars", "_ids", "by_bytes")

    def __init__(self, chars: Sequence[str], by_bytes: bool = False) -> None:
        """Gives the characters the ids FIRST_CHAR, FIRST_CHAR + 1, ... in their order, behind those of bytes if any.

        Raises:
          ValueError: an entry is not a single character, or appears twice.
        """
        entries = [*(_BYTE_IDS if by_bytes else ()), *chars]
        self._fill([(char, FIRST_CHAR + index) for index, char in enumerate(entries)], "chars")

    def _fill(self, pairs: Iterable[tuple[str, Json]], source: str) -> None:
        """Checks and stores (character, id) pairs; raises a ValueError that names source, key and value."""
        ids: dict[str, int] = {}
        chars: dict[int, str] = {}
        for char, index in pairs:
            entry = f"{source}: key {char!r}, value {index!r}"
            if not isinstance(char, str) or (char not in _BYTE_IDS and not _is_character(char)):
                raise ValueError(f"{entry}: a key must be a single character")
            if index != _BYTE_IDS.get(char, index):
                raise ValueError(f"{entry}: this byte must have id {_BYTE_IDS[char]}")
            if type(index) is not int or not FIRST_CHAR <= index <= _MAX_ID:
                raise ValueError(f"{entry}: an id must be a whole number from {FIRST_CHAR} to {_MAX_ID}")
            if char in ids:
                raise ValueError(f"{entry}: this character already has id {ids[char]}")
            if index in chars:
                raise ValueError(f"{entry}: this id already belongs to {chars[index]!r}")
            ids[char] = index
            chars[index] = char
        self._chars = dict(sorted(chars.items()))
        self._ids = {char: index for index, char in self._chars.items()}
        found = [name for name in _BYTE_IDS if name in ids]
        if found and len(found) < BYTES:
            raise ValueError(f"{source}: {len(found)} of the {BYTES} bytes, from {found[0]} on; expected all or none")
        self.by_bytes = bool(found)

    @classmethod
    def build(cls, counts: Mapping[str, int], size: int = 1024, by_bytes: bool = False) -> CharVocab:
        """Builds a vocabulary of the most frequent characters; ids follow frequency, ties are broken by code point.

        Args:
          counts: how often each character occurs; whitespace, control characters and lone surrogates are left out.
          size: number of rows of the character table, including the FIRST_CHAR reserved ids, and bytes if any.
          by_bytes: whether characters that find no room are spelled by bytes.

        Raises:
          ValueError: `size` leaves no room for a character or exceeds 65,536, or a key is not a single character.
        """
        first = FIRST_CHAR + BYTES * by_bytes
        if not first < size <= _MAX_ID + 1:
            raise ValueError(f"size of a character vocabulary: expected {first + 1} to {_MAX_ID + 1}, got {size}")
        for char in counts:
            if len(char) != 1:
                raise ValueError(f"counts: key {char!r}, value {counts[char]!r}: a key must be a single character")
        kept = [char for char, count in counts.items() if count > 0 and not _excluded(char)]
        kept.sort(key=lambda char: (-counts[char], char))
        return cls(kept[: size - first], by_bytes)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, int], source: str = "character vocabulary") -> CharVocab:
        """Builds a vocabulary with exactly the ids of `mapping`.

        Raises:
          ValueError: a key is not a single character, or an id is below FIRST_CHAR, too large or given twice; the
            message names `source`, key and value.
        """
        return cls._of(mapping.items(), source)

    @classmethod
    def _of(cls, pairs: Iterable[tuple[str, Json]], source: str) -> CharVocab:
        vocab = cls.__new__(cls)
        vocab._fill(pairs, source)
        return vocab

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CharVocab:
        """Reads a UTF-8 JSON file {character: id}, such as `char2int.json` of the released HLM code.

        Raises:
          ValueError: the file does not hold such a JSON object; the message names file, key and value.
        """
        data = read_bytes(path)
        try:
            pairs = loads(data, _JsonObject)
        except ValueError as error:
            raise ValueError(f"{path}: expected a UTF-8 JSON object of characters and ids: {error}") from None
        if type(pairs) is not _JsonObject:
            raise ValueError(f"{path}: expected a JSON object of characters and ids, got {type(pairs).__name__}")
        return cls._of(pairs, str(path))

    @classmethod
    def released(cls) -> CharVocab:
        """Returns the vocabulary of the released HLM code: 1,001 characters with ids 8 to 1008.

        The packaged JSON file states the source and the licence.
        """
        text = resources.files("charlm.text").joinpath(_RELEASED).read_text(encoding="utf-8")
        return cls.from_dict(json.loads(text)["char2int"], _RELEASED)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON file that `load` reads, in order of ids; a reader never sees a half-written file."""
        write_text(path, json.dumps(self._ids, ensure_ascii=False, indent=0) + "\n")

    @property
    def ids(self) -> Mapping[str, int]:
        """The read-only map from characters, and names of bytes if any, to ids, in order of ids."""
        return MappingProxyType(self._ids)

    @property
    def chars(self) -> tuple[str, ...]:
        """The characters in order of their ids, without bytes."""
        return tuple(self._ids)[BYTES * self.by_bytes :]

    @property
    def size(self) -> int:
        """The number of rows a character table needs: the largest id + 1, which includes the reserved ids."""
        return max(self._chars, default=FIRST_CHAR - 1) + 1

    def to_dict(self) -> dict[str, int]:
        """Returns a copy of the map from characters to ids, in order of ids."""
        return dict(self._ids)

    def digest(self) -> str:
        """Returns the SHA-256 of the map in hexadecimal; equal vocabularies have equal digests on every machine."""
        return hashlib.sha256(json.dumps(list(self._ids.items()), separators=(",", ":")).encode("ascii")).hexdigest()

    def encode_word(self, word: str) -> list[int]:
        """Returns the id of every character of `word`; adds no special ids, cuts nothing off.

        An unknown character becomes its bytes if the vocabulary has these, else UNK.
        """
        if not self.by_bytes:
            return [self._ids.get(char, UNK) for char in word]
        return [index for char in word for index in self._spelled(char)]

    def _spelled(self, char: str) -> list[int]:
        """Returns the id of a character, or those of its bytes; of a lone surrogate as the bytes that it would have."""
        known = self._ids.get(char)
        return [FIRST_CHAR + byte for byte in char.encode("utf-8", "surrogatepass")] if known is None else [known]

    def encode_beginning(self, word: str, room: int) -> tuple[list[int], bool]:
        """Returns the ids of as many whole characters of `word` as `room` holds, and whether any are left out."""
        if not self.by_bytes:
            return self.encode_word(word[:room]), len(word) > room
        ids: list[int] = []
        for char in word:
            spelled = self._spelled(char)
            if len(ids) + len(spelled) > room:
                return ids, True
            ids += spelled
        return ids, False

    def cut(self, word: str, room: int, normalize: str = "none") -> list[str]:
        """Returns a word in pieces of at most `room` ids each, and of whole characters; "" is one piece.

        A character whose bytes find no room at all is a piece of its own.

        Args:
          normalize: the form in which the pieces will be encoded; see `WordEncoder`.
        """
        if len(word) <= room and (word.isascii() or (not self.by_bytes and normalize == "none")):
            return [word]
        form = functools.partial(unicodedata.normalize, "NFC") if normalize == "nfc" else str
        pieces, taken = [""], 0
        for char in word:
            size = len(self.encode_word(form(char)))
            if pieces[-1] and taken + size > room:
                pieces.append("")
                taken = 0
            pieces[-1] += char
            taken += size
        return pieces

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of `ids`.

        Special ids appear as [CLS], [MASK] ..., PAD as "", and an id without a character as its number, e.g. [17].
        Bytes that are no UTF-8 together appear as U+FFFD.
        """
        names = self._chars | _SPECIAL_NAMES
        if not self.by_bytes:
            return "".join(names.get(int(index), f"[{int(index)}]") for index in ids)
        is_byte = lambda index: FIRST_CHAR <= index < FIRST_CHAR + BYTES
        parts = []
        for bytes_, run in itertools.groupby(map(int, ids), is_byte):
            if bytes_:
                parts.append(bytes(index - FIRST_CHAR for index in run).decode("utf-8", "replace"))
            else:
                parts += [names.get(index, f"[{index}]") for index in run]
        return "".join(parts)

    def __eq__(self, other: object) -> bool:
        return self._ids == other._ids if isinstance(other, CharVocab) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._ids.items()))

    def __repr__(self) -> str:
        return f"CharVocab({len(self._ids)} characters, size {self.size})"


class _JsonObject(list):
    """The (key, value) pairs of a JSON object; unlike a dict, the list keeps keys that appear twice."""


def _is_character(text: str) -> bool:
    return len(text) == 1 and unicodedata.category(text) != "Cs"


def _excluded(char: str) -> bool:
    """Says whether `build` leaves a character out: words hold no whitespace, and controls and surrogates are noise."""
    return char.isspace() or unicodedata.category(char) in ("Cc", "Cs", "Zs")


class WordEncoder:
    """Encodes words as character ids, and counts cut words and unknown characters.

    Attributes:
      words_total: number of words encoded so far.
      words_cut: how many of them had more than char_slots - 1 ids; only their beginning was kept.
      chars_total: number of ids produced so far; of a character that is spelled by bytes, that of each.
      chars_unknown: how many of them are UNK.
    """

    def __init__(self, vocab: CharVocab, char_slots: int = 20, normalize: str = "none") -> None:
        """Makes an encoder that keeps at most char_slots - 1 ids of a word, and no part of a character.

        Slot 0 of a word holds WORD_CLS (HLM, section 3.1), which the encoder does not write. `normalize` is "none" or
        "nfc"; it applies to each word by itself, so the offsets of words in the text stay valid.

        Raises:
          ValueError: char_slots is not in 2..256, or `normalize` is unknown.
        """
        if not 2 <= char_slots <= 256:
            raise ValueError(f"model.char_slots: expected 2 to 256, got {char_slots!r}")
        if normalize not in ("none", "nfc"):
            raise ValueError(f"text.normalize={normalize!r} is not one of none, nfc")
        self.vocab = vocab
        self.char_slots = char_slots
        self.normalize = normalize
        self.words_total = 0
        self.words_cut = 0
        self.chars_total = 0
        self.chars_unknown = 0
        self._cache: dict[str, tuple[bytes, int, bool, int]] = {}

    def encode(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lengths and the concatenated ids of W words.

        The lengths are uint8 [W], each 1..char_slots - 1; the ids are uint16 [sum of lengths]. An empty word, which
        splitters never produce, becomes one UNK.
        """
        entries = list(map(self._cache.get, words))
        if None in entries:
            entries = [entry or self._entry(word) for entry, word in zip(entries, words, strict=True)]
        if not entries:
            return np.zeros(0, np.uint8), np.zeros(0, np.uint16)
        ids, lengths, cut, unknown = zip(*entries, strict=True)
        flat = np.frombuffer(bytearray(b"".join(ids)), np.uint16)  # through a bytearray, so that it is writable
        self.words_total += len(entries)
        self.words_cut += sum(cut)
        self.chars_total += len(flat)
        self.chars_unknown += sum(unknown)
        return np.frombuffer(bytearray(lengths), np.uint8), flat

    def form(self, word: str) -> str:
        """Returns a word as it is spelled: normalised, but not cut."""
        return unicodedata.normalize("NFC", word) if self.normalize == "nfc" else word

    def _entry(self, word: str) -> tuple[bytes, int, bool, int]:
        """Returns (ids as bytes, number of ids, whether the word was cut, number of UNK) of a word, and caches it."""
        known = self._cache.get(word)  # a word missing from the cache may occur twice in the batch
        if known is not None:
            return known
        form = self.form(word)
        ids, cut = self.vocab.encode_beginning(form, self.char_slots - 1)
        ids = ids or [UNK]  # an empty word, or one without room for the bytes of its first character
        entry = (np.array(ids, np.uint16).tobytes(), len(ids), cut, ids.count(UNK))
        if len(word) <= _MAX_CACHED_LENGTH:
            if len(self._cache) >= _MAX_CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = entry
        return entry
