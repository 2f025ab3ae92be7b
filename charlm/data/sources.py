"""Reads raw text: documents from files, from prepared TFDS data sets, and from Python's own documentation.

`open_source` turns one corpus of the config (`data.train`, `data.heldout`) into a `Source`: a list of parts that can be
read independently and in any order, each an iterator of documents (`str`). A document that cannot be read as text is
skipped and counted under a reason, never repaired silently; a file that is not text at all stops the run. Open it to
add a source of text.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

import ml_collections

from charlm.core.files import cache_dir as cache_dir_of
from charlm.core.files import stable_hash
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.data.builtin import fingerprint as builtin_fingerprint
from charlm.data.builtin import read_builtin
from charlm.data.digests import file_digests
from charlm.data.files import file_parts, matching_files, read_jsonl, read_lines, read_parquet
from charlm.data.parts import BAD_UTF8, MAX_DOCUMENT_CHARS, TOO_LONG, Part, clear_read_errors, is_heldout
from charlm.data.tfds_source import read_tfds, tfds_parts
from charlm.data.wet import read_wet

SPLITS = ("train", "heldout", "all")

_READERS = {
    "lines": read_lines,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "wet": read_wet,
    "tfds": read_tfds,
    "builtin": read_builtin,
}


class Source:
    """The documents of one corpus and split; picklable, so that parts can be read in other processes.

    Attributes:
      name: the corpus as the config names it.
      parts: pieces that can be read independently, in a fixed order.
      skipped: number of documents that this object's `documents` left out so far, by reason.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[Part],
        files: Sequence[str],
        *,
        text_key: str,
        split: str,
        heldout_fraction: float,
        cache_dir: str | None,
    ):
        self.name = name
        self.parts = list(parts)
        self.skipped: Counter[str] = Counter()
        self.split = split
        self.heldout_fraction = heldout_fraction
        self._files = list(files)
        self._text_key = text_key
        self._cache_dir = cache_dir

    def fingerprint(self) -> str:
        """Returns a sha256 (hex) of the content; the cache keeps file hashes while size and time stay the same."""
        if self.parts[0].kind == "builtin":
            return stable_hash("builtin", builtin_fingerprint())
        kinds = sorted({(part.kind, part.detail) for part in self.parts})
        key = "" if kinds == [("lines", "")] else self._text_key
        return stable_hash(kinds, key, file_digests(self._files, self._cache_dir))

    def without_parts(self) -> Source:
        """Returns a source that reads the same documents, but holds no list of parts and files: small to send."""
        small = copy.copy(self)
        small.parts, small._files, small.skipped = [], [], Counter()
        return small

    def documents(self, part: Part) -> Iterator[str]:
        """Yields the documents of `part` in the source's split, in order; counts in `skipped` those that are unusable.

        Raises:
          ValueError: the part cannot be read (truncated gzip, no usable line, broken Parquet file); names the file.
        """
        for text in self._texts(part):
            if len(text) > MAX_DOCUMENT_CHARS:
                self.skipped[TOO_LONG] += 1
                continue
            try:
                data = text.encode()
            except UnicodeEncodeError:  # JSON may contain half a surrogate pair
                self.skipped[BAD_UTF8] += 1
                continue
            if part.kind == "builtin" or self._belongs(data):
                yield text

    def _texts(self, part: Part) -> Iterator[str]:
        with clear_read_errors(part.path):
            yield from _READERS[part.kind](part, self._text_key, self.skipped)

    def _belongs(self, data: bytes) -> bool:
        """Returns whether a document is in the split; its own hash decides, so duplicates stay together."""
        return self.split == "all" or is_heldout(data, self.heldout_fraction) == (self.split == "heldout")


def open_source(
    spec: str,
    *,
    text_key: str = "text",
    split: str = "all",
    heldout_fraction: float = 0.0,
    cache_dir: str | None = None,
    key: str = "data.train",
) -> Source:
    """Opens a corpus.

    Args:
      spec: "builtin"; a path or glob (.txt, .text, .jsonl, .json with one object per line, each also with .gz;
        .parquet; .wet, also with .gz, Common Crawl's text of pages; other extensions are read as plain text, one
        document per line); or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]" for a data set that is prepared in $TFDS_DATA_DIR
        or in TFDS's default folder (nothing is ever downloaded).
      text_key: field or column of the text (JSONL, Parquet, TFDS).
      split: "train", "heldout" or "all".
      heldout_fraction: share of documents held out, in [0, 1). The built-in corpus ignores it: it holds out whole
        modules, the share `builtin.HELDOUT` of them.
      cache_dir: folder that keeps file hashes; None: they are computed each time.
      key: config key of `spec`, for messages.

    Raises:
      ValueError: unknown `spec` or `split`, missing or unreadable file, data set or column; says what was expected.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: expected one of {', '.join(SPLITS)}{did_you_mean(split, SPLITS, ALIKE)}")
    if not 0 <= heldout_fraction < 1:
        raise ValueError(f"data.heldout_fraction={heldout_fraction}: expected at least 0 and below 1")
    if spec == "builtin":
        parts = [Part(f"builtin-{s}", "builtin", detail=s) for s in ("train", "heldout") if split in (s, "all")]
        files: list[str] = []
    elif spec.startswith("tfds:"):
        parts, files = tfds_parts(spec, text_key, key)
    else:
        files = matching_files(spec, key, corpora=True)
        parts = [part for path in files for part in file_parts(path, text_key)]
    if len({part.name for part in parts}) < len(parts):  # files of the same name in several folders
        parts = [dataclasses.replace(part, name=f"{i:05d}-{part.name}") for i, part in enumerate(parts)]
    fraction = float(heldout_fraction)
    return Source(spec, parts, files, text_key=text_key, split=split, heldout_fraction=fraction, cache_dir=cache_dir)


def open_configured(spec: str, config: ml_collections.ConfigDict, split: str, key: str) -> Source:
    """Opens a corpus with the settings of a config; `key` is the config key of `spec`, for messages."""
    return open_source(
        spec,
        text_key=config.data.text_key,
        split=split,
        heldout_fraction=config.data.heldout_fraction,
        cache_dir=cache_dir_of(config),
        key=key,
    )
