"""Reads WET files, in which Common Crawl publishes the text of web pages: each page is a document.

WARC files, which hold the pages themselves, are not read: their text must be extracted first. Open it when a WET file
is rejected, or to read more than the text of a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from charlm.core import extras
from charlm.data.parts import BAD_UTF8, MAX_DOCUMENT_CHARS, TOO_LONG, Part, decode

WET = (".wet", ".wet.gz")  # how the names of such files end

_MOST_BYTES = 4 * MAX_DOCUMENT_CHARS  # a character takes up to 4 bytes in UTF-8


def check_wet(path: str) -> None:
    """Raises ValueError if the package that reads WET files is missing."""
    extras.check(f"{path} is WET", "warcio")


def read_wet(part: Part, text_key: str, skipped: Counter[str]) -> Iterator[str]:
    """Yields the text of each page; `text_key` is not used, all readers take it.

    Raises:
      ValueError: the file is damaged, or ends within a page.
    """
    del text_key
    archives = extras.load(f"{part.path} is WET", "warcio.archiveiterator")
    failed = extras.load(f"{part.path} is WET", "warcio.exceptions").ArchiveLoadFailed
    with open(part.path, "rb") as stream:
        pages = archives.ArchiveIterator(stream)
        while True:
            try:
                page = next(pages, None)
                data = page.content_stream().read(_MOST_BYTES) if page is not None else b""
            except (failed, OSError, EOFError, ValueError) as error:  # the last three are gzip's and of odd headers
                raise ValueError(f"{part.path}: truncated or damaged WET file ({error})") from error
            if page is None:
                return
            if page.rec_type != "conversion":
                continue
            size = int(page.rec_headers.get_header("Content-Length"))
            if len(data) < min(size, _MOST_BYTES):
                raise ValueError(f"{part.path}: truncated WET file: a page of {size} bytes ends after {len(data)}")
            text = decode(data) if size <= _MOST_BYTES else None
            if text is None:
                skipped[TOO_LONG if size > _MOST_BYTES else BAD_UTF8] += 1
            elif text := text.strip():
                yield text
