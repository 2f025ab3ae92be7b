"""Replaces the subwords of selected words by one position each (Pinter et al., 2021, section 2).

`policies` selects the words; open this module to see what becomes of their positions. The sequence becomes shorter, and
its offsets, masks and labels are those of the remaining positions. `[UNK]` and other special tokens are not words, and
the characters behind `[UNK]` are lost, as in the released code.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from charlm.families.xrayemb.policies import BYTE_SPACE, CONTINUES, Policy, WordRuns, runs, select
from charlm.text.subwords import Subwords, SubwordTokenizer
from charlm.text.words import KEPT_WORDS

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Collapsed:
    """A sequence of P pieces as L positions, each of which is a piece or a word.

    Attributes:
      items: per position the id of the piece, or the text of the word.
      starts_L, ends_L: int, the pieces [start, end) of each position.
      type_ids, special, words, sequences: as in `charlm.text.subwords.Subwords`, for the first piece of each position.
      offsets: per position the characters (start, end) of the text.
    """

    items: tuple[int | str, ...]
    starts_L: np.ndarray
    ends_L: np.ndarray
    type_ids: tuple[int, ...]
    special: tuple[bool, ...]
    offsets: tuple[tuple[int, int], ...]
    words: tuple[int | None, ...]
    sequences: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def positions_P(self) -> np.ndarray:
        """The position of each piece, int [P]."""
        return np.repeat(np.arange(len(self)), self.ends_L - self.starts_L)

    def first(self, values: Sequence[T]) -> list[T]:
        """Returns one value per position from values of pieces, such as labels: that of its first piece."""
        return [values[start] for start in self.starts_L.tolist()]


class XRayWords:
    """Finds words in the pieces of one tokenizer, and their text.

    Args:
      tokenizer: the tokenizer of the backbone.
      compat_bytes: True: byte-level pieces are read by their glyphs, as in the released code, so that é is the two
        characters Ã©; False: they are decoded to text.
    """

    def __init__(self, tokenizer: SubwordTokenizer, *, compat_bytes: bool = False) -> None:
        self._tokenizer, self._compat = tokenizer, compat_bytes
        V = tokenizer.size
        self._tokens, self._chars = [""] * V, [""] * V
        self._real_V, self._begins_V, self._inked_V, self._closes_V = (np.zeros(V, bool) for _ in range(4))
        for index in tokenizer.ids():
            self._tokens[index] = tokenizer.token(index)
            surface = tokenizer.surface(index)
            if surface is None:
                continue
            chars = surface.chars
            self._chars[index], self._real_V[index] = chars, True
            # `Ġ` marks only the space; other white space, such as a line break, is a piece without the mark.
            self._begins_V[index] = surface.starts_word or chars[:1].isspace()
            self._closes_V[index] = chars[-1:].isspace()
            self._inked_V[index] = bool(chars.strip())
        self._known: dict[tuple[int, ...], str] = {}

    def find(
        self,
        ids: Sequence[int],
        sequences: Sequence[int | None] | None = None,
        words: Sequence[int | None] | None = None,
    ) -> WordRuns:
        """Returns the words of a sequence.

        Args:
          ids: the pieces, with or without special tokens.
          sequences: the text that each piece belongs to; no word spans two texts.
          words: the given word that each piece belongs to, if words were given; no word spans two of them.
        """
        ids_P = np.asarray(ids, np.int64)
        begins_P = self._begins_V[ids_P]
        begins_P[1:] |= self._closes_V[ids_P[:-1]]
        for of in (sequences, words):
            if of is not None:
                begins_P[1:] |= np.array([a != b for a, b in itertools.pairwise(of)], bool)
        starts_W, ends_W = runs(self._real_V[ids_P], begins_P, self._inked_V[ids_P])
        tokens, chars = self._tokens, self._chars
        return WordRuns([tokens[i] for i in ids_P.tolist()], [chars[i] for i in ids_P.tolist()], starts_W, ends_W)

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of the pieces of a word; invalid bytes become U+FFFD."""
        key = tuple(ids)
        found = self._known.get(key)
        if found is None:
            found = self._read(key)
            if len(self._known) >= KEPT_WORDS:
                self._known.clear()
            self._known[key] = found
        return found

    def _read(self, ids: tuple[int, ...]) -> str:
        if self._compat:
            return "".join(map(self._glyphs, ids))
        chars = "".join(self._chars[index] for index in ids)
        # Pieces with parts of a character hold its bytes as surrogates; joined, these decode to the character.
        return chars.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def _glyphs(self, index: int) -> str:
        """Returns a piece without its mark; byte-level pieces are not decoded."""
        token, chars = self._tokens[index], self._chars[index]
        return chars if token in (chars, CONTINUES + chars) else token.replace(BYTE_SPACE, "")

    def collapse(
        self, item: Subwords, policy: Policy, rng: np.random.Generator | None = None, *, given: bool = False
    ) -> Collapsed:
        """Returns a sequence with the words that a policy selects as one position each.

        Args:
          item: a text, a pair or words as the tokenizer encodes them.
          policy: selects the words.
          rng: generator of the sequence, for a policy that draws.
          given: True: `item` was made from given words, and no two of them are joined.

        Raises:
          ValueError: the policy draws and there is no generator, or its result is not bool [W].
        """
        found = self.find(item.ids, item.sequences, item.words if given else None)
        chosen_W = select(policy, found, rng)
        starts_P = np.ones(len(item.ids), bool)
        for start, end in zip(found.starts_W[chosen_W].tolist(), found.ends_W[chosen_W].tolist(), strict=True):
            starts_P[start + 1 : end] = False
        starts = np.flatnonzero(starts_P)
        ends = np.append(starts[1:], len(item.ids)).astype(starts.dtype)[: len(starts)]
        read = dict.fromkeys(found.starts_W[chosen_W].tolist())
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        return Collapsed(
            items=tuple(self.text(item.ids[a:b]) if a in read else item.ids[a] for a, b in spans),
            starts_L=starts,
            ends_L=ends,
            type_ids=tuple(item.type_ids[a] for a, _ in spans),
            special=tuple(item.special[a] for a, _ in spans),
            offsets=tuple(_together(item.offsets[a:b]) for a, b in spans),
            words=tuple(item.words[a] for a, _ in spans),
            sequences=tuple(item.sequences[a] for a, _ in spans),
        )


def _together(offsets: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Returns the span of characters that consecutive pieces cover together; the first may be a space only."""
    return min(start for start, _ in offsets), max(end for _, end in offsets)
