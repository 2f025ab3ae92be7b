"""Computes for each document what cleaning needs: whether the filter keeps it, and the keys that find its duplicates.

Exact duplicates share the sha256 of their text. Near duplicates are found by MinHash: the share of equal numbers in two
signatures estimates which share of all sequences of five words two documents have in common (their Jaccard similarity,
Broder, 1997). Signatures are cut into bands; documents with an equal band are taken for near duplicates. Open it to
change what makes documents alike.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from charlm.core import entries, extras, registry
from charlm.core.durable import write_bytes
from charlm.core.types import JsonObject
from charlm.data.digests import file_sha256
from charlm.text.words import get_splitter

VERSION = 1  # raise it when the same text and rules would give another result
EXACT_COLUMNS = 2  # the sha256 is kept as two numbers of 64 bits
PERMUTATIONS = 128  # numbers of a signature; its estimate of a similarity is off by up to 0.05 (standard deviation)
SHINGLE = 5  # words of a sequence
SCHEME = "affine32"  # of the permutations, as datasketch names it; its default may change


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which documents are left out.

    Attributes:
      filter: place "module:function" of a function that takes a text and returns whether to keep it; "": none.
      exact: all but the first of documents with the same text are left out.
      near: similarity in (0, 1) above which documents count as near duplicates; 0: none do.
    """

    filter: str = ""
    exact: bool = False
    near: float = 0.0

    def check(self) -> None:
        """Raises ValueError if the filter cannot be loaded, the similarity is none, or a package is missing."""
        if self.filter:
            self.load_filter()
        if not (self.near == 0 or 0 < self.near < 1):
            raise ValueError(f"--near={self.near}: expected a similarity between 0 and 1, or 0 for none")
        if self.near:
            extras.check("--near", "datasketch")

    def load_filter(self) -> Callable[[str], object] | None:
        """Imports the filter; None if there is none, ValueError if it cannot be imported or called."""
        if not self.filter:
            return None
        problem = "" if ":" in self.filter else "expected a place, module:function"
        if problem := problem or entries.problem_of(self.filter):
            raise ValueError(f"--filter={self.filter}: {problem}")
        try:
            function = registry.load(self.filter)
        except Exception as error:  # the user's module may raise anything
            raise ValueError(f"--filter={self.filter}: cannot be imported: {type(error).__name__}: {error}") from error
        if not (callable(function) and entries.takes(function, 1)):
            raise ValueError(f"--filter={self.filter}: expected a function of one text, got {function!r}")
        return function

    def settings(self) -> JsonObject:
        """Returns all that decides which documents are left out, in a form that JSON can store."""
        return dataclasses.asdict(self) | {
            "filter_digest": self._filter_digest(),
            "bands": self.bands() if self.near else (0, 0),
            "minhash": (PERMUTATIONS, SHINGLE, SCHEME),
            "version": VERSION,
        }

    def _filter_digest(self) -> str:
        """Returns the sha256 of the module that the filter is in, so that a changed filter is another one."""
        self.load_filter()
        module = sys.modules.get(self.filter.partition(":")[0])
        path = module and inspect.getsourcefile(module)
        return file_sha256(path, None) if path else ""

    def bands(self) -> tuple[int, int]:
        """Returns how many bands a signature has, and of how many numbers: datasketch's best for the similarity."""
        lsh = extras.load("--near", "datasketch").MinHashLSH(threshold=self.near, num_perm=PERMUTATIONS)
        return lsh.b, lsh.r


class Features(NamedTuple):
    """What is known of the N documents of a part, in their order.

    Attributes:
      kept: whether the filter keeps a document, bool [N].
      keys: numbers by which twins are found, uint64 [N, K]: two of the exact text, then one for each band.
    """

    kept: np.ndarray
    keys: np.ndarray


class Measure:
    """Computes the features of documents.

    Args:
      rules: what is to be known; what is not has the key 0 or no column.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules, self._filter = rules, rules.load_filter()
        self._bands = rules.bands() if rules.near else (0, 0)
        self._splitter = get_splitter("rules", "en")
        self._minhash = extras.load("--near", "datasketch").MinHash if rules.near else None

    def columns(self) -> int:
        """Returns K, the number of keys of a document."""
        return EXACT_COLUMNS + self._bands[0]

    def keeps(self, text: str, place: str) -> bool:
        """Returns whether the filter keeps a document; ValueError, naming `place`, if it fails or answers neither."""
        if self._filter is None:
            return True
        try:
            answer = self._filter(text)
        except Exception as error:  # the user's function may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"--filter={self._rules.filter} failed on {place}: {reason}") from error
        if not isinstance(answer, bool | np.bool_):
            raise ValueError(f"--filter={self._rules.filter}: expected True or False for {place}, got {answer!r}")
        return bool(answer)

    def keys(self, text: str) -> list[int]:
        """Returns the keys of a document."""
        digest = hashlib.sha256(text.encode()).digest() if self._rules.exact else bytes(16)
        return np.frombuffer(digest[: 8 * EXACT_COLUMNS], "<u8").tolist() + list(self._band_keys(text))

    def _band_keys(self, text: str) -> Iterator[int]:
        if self._minhash is None:
            return
        signature = self._minhash(num_perm=PERMUTATIONS, scheme=SCHEME)
        signature.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in self._shingles(text)])
        numbers = signature.hashvalues.astype("<u8")
        count, rows = self._bands
        for band in numbers[: count * rows].reshape(count, rows):
            yield int.from_bytes(hashlib.blake2b(band.tobytes(), digest_size=8).digest(), "little")

    def _shingles(self, text: str) -> set[str]:
        """Returns all sequences of `SHINGLE` words, without case and punctuation; one if the text is shorter."""
        spans = self._splitter.spans(text)
        words = [text[start:end].casefold() for start, end in spans if text[start].isalnum()] or [text]
        last = max(len(words) - SHINGLE, 0)
        return {" ".join(words[start : start + SHINGLE]) for start in range(last + 1)}


def write_features(path: str, features: Features) -> None:
    """Writes features to a file."""
    buffer = io.BytesIO()
    np.savez(buffer, kept=features.kept, keys=features.keys)
    write_bytes(path, buffer.getvalue())


def read_features(path: str) -> Features:
    """Reads what `write_features` wrote; raises ValueError if it is damaged."""
    try:
        with np.load(path) as arrays:
            return Features(arrays["kept"], arrays["keys"])
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove it: the same command makes it again") from error
