"""Reads lists of misspelled words, as the noise "misspelling" needs them.

Open it to read another format of list. A list is a file of the user; charlm contains none.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from charlm.core.reading import read_bytes, unpacked_bytes


class Misspellings:
    """Words and their misspellings; a misspelling that equals the word is left out.

    A misspelling takes the case of the word that is looked up ("becuase", "Becuase" or "BECUASE"), whatever its case in
    the list. A word that mixes cases in another way (McDonald) only has the misspellings listed for exactly that
    spelling, with their case unchanged.
    """

    def __init__(self, entries: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Collects words and their misspellings; the misspellings of a word that occurs again are joined in order."""
        mixed: dict[str, dict[str, None]] = {}
        folded: dict[str, dict[str, None]] = {}
        for word, forms in entries:
            for form in forms:
                folded.setdefault(word.lower(), {})[form.lower()] = None
                if _casing(word) is None:
                    mixed.setdefault(word, {})[form] = None
        self._mixed = {word: tuple(forms) for word, forms in mixed.items()}
        self._folded = {word: tuple(forms) for word, forms in folded.items()}

    @classmethod
    def read(cls, *paths: str | os.PathLike[str]) -> Misspellings:
        """Reads lists in UTF-8, plain or compressed by gzip; the first line tells which of three formats a list has.

        - "$word", then its misspellings, one per line, optionally with a count: Wikipedia's list as edited by Roger
          Mitton, and his other lists; _ stands for a space.
        - "misspelling->word", "misspelling->word, other word," or "misspelling->word, reason": codespell.
        - "word misspelling misspelling ...": the natural noise of Belinkov and Bisk.

        Raises:
          ValueError: a file has none of these formats; the message names the file and the line.
        """
        return cls(entry for path in paths for entry in entries_of(path))

    def of(self, word: str, spaces: bool = False) -> tuple[str, ...]:
        """Returns the misspellings of a word; those that contain whitespace only if `spaces` is true."""
        cased = _casing(word)
        forms = self._mixed.get(word, ()) if cased is None else map(cased, self._folded.get(word.lower(), ()))
        return tuple(form for form in forms if form != word and (spaces or len(form.split()) == 1))

    def __len__(self) -> int:
        """Returns the number of words, whatever their case."""
        return len(self._folded)

    def __contains__(self, word: str) -> bool:
        """Says whether the lists have misspellings of a word, whatever its case."""
        return word.lower() in self._folded

    def words(self) -> tuple[str, ...]:
        """Returns the words that have misspellings, in lower case."""
        return tuple(self._folded)


def _casing(word: str) -> Callable[[str], str] | None:
    """Returns a function that puts a lower-case form into the case of `word`; None if `word` mixes cases."""
    if word == word.lower():
        return str
    if word[1:] == word[1:].lower():
        return lambda form: form[:1].upper() + form[1:]
    return str.upper if word == word.upper() else None


def entries_of(file: str | os.PathLike[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the words of a list with some of their misspellings; see `Misspellings.read`, also for what it raises."""
    path = Path(file)
    lines = [(number, line) for number, line in enumerate(_text(path).split("\n"), 1) if line.strip()]
    if not lines:
        raise ValueError(f"{path}: expected a list of misspellings, the file is empty")
    first = lines[0][1]
    if "->" in first:
        parse = _arrow_lines
    elif first.startswith("$") and len(first.split()) == 1:
        parse = _dollar_lines
    else:
        parse = _column_lines
    yield from parse(path, lines)


def _text(path: Path) -> str:
    """Returns the text of a file, compressed or not."""
    data = read_bytes(path)
    if data.startswith(b"\x1f\x8b"):
        try:
            data = unpacked_bytes(data, str(path))
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: cannot be decompressed: {error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: expected UTF-8: {error}") from None


def _dollar_lines(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[str, list[str]]]:
    word = ""
    for number, line in lines:
        form, *count = line.split()
        if len(count) > 1 or not all(field.isdecimal() for field in count) or form == "$":
            raise _error(path, number, '"$word", or a misspelling and perhaps a count', line)
        if form.startswith("$"):
            word = form[1:].replace("_", " ")
        else:
            yield word, [form.replace("_", " ")]


def _arrow_lines(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[str, list[str]]]:
    for number, line in lines:
        form, _, right = line.partition("->")
        words = [word.strip() for word in (right.split(",")[:-1] if "," in right else [right])]  # the last is a reason
        if not form.strip() or not words or not all(words):
            raise _error(path, number, '"misspelling->word" or "misspelling->word, other word,"', line)
        for word in words:
            yield word, [form.strip()]


def _column_lines(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[str, list[str]]]:
    for number, line in lines:
        word, *forms = line.split()
        if not forms or "->" in line:
            raise _error(path, number, "a word and its misspellings", line)
        yield word, forms


def _error(path: Path, number: int, expected: str, line: str) -> ValueError:
    return ValueError(f"{path}, line {number}: expected {expected}, got {line.strip()!r}")
