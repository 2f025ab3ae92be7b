"""Reads files of labelled data line by line, with line numbers for error messages.

Unlike a line of a text corpus, a damaged line of labelled data is never dropped: an unreadable line stops the run. The
readers of CoNLL, SQuAD and tables build on it. Open it to change how a damaged line is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from charlm.core.reading import Held, lines_of, loads, read_bytes
from charlm.core.types import Json
from charlm.data.files import BOM, check_is_text, gzip_errors, open_binary
from charlm.data.parts import clear_read_errors


def numbered_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text file, also gzipped, numbered from 1 and without line end and byte order mark.

    A line ends at LF or CRLF only; U+2028, U+0085 and the like are part of the text. The readers keep what they read,
    so the total size that a packed file unpacks to is bounded, too, not only the size of a line.

    Raises:
      ValueError: the file cannot be read, is binary, not UTF-8 or too large; names the line.
    """
    with clear_read_errors(path):
        check_is_text(path)
        held = Held(path) if path.endswith(".gz") else None
        with gzip_errors(path), open_binary(path) as stream:
            for number, line in lines_of(stream, path):
                if held:
                    held.add(len(line))
                data = line.removeprefix(BOM) if number == 1 else line
                if data:  # a file that holds only a BOM has no line
                    yield number, decoded(data, f"{path}:{number}").removesuffix("\n").removesuffix("\r")


def whole_text(path: str) -> str:
    """Returns the content of a text file, also gzipped, without its BOM; ValueError when it cannot be read."""
    with clear_read_errors(path):
        check_is_text(path)
        with gzip_errors(path):
            return decoded(read_bytes(path, unpack=path.endswith(".gz")).removeprefix(BOM), path)


def decoded(data: bytes, place: str) -> str:
    """Returns bytes decoded as UTF-8; raises a ValueError that names the place when they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        bad = data[error.start]
        raise ValueError(f"{place}: invalid UTF-8 (byte 0x{bad:02x} at {error.start}); expected UTF-8 text") from error


def parsed_json(text: str, place: str) -> Json:
    """Returns the value of a JSON text; raises a one-line ValueError when it is damaged or nested too deep."""
    try:
        return loads(text)
    except ValueError as error:
        raise ValueError(f"{place}: invalid JSON ({error})") from error
