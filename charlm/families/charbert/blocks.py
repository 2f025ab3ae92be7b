"""Records of text -> sequences for CharBERT: misspell, cut into subwords, fill blocks, mask, lay out the characters.

A block takes words, noised or not, until the next one does not fit: neither a subword nor a character is lost, no word
is cut (unless it is longer than a block), and no two lines are glued together. Noise depends on the seed and the number
of the record alone, masks on the seed and the number of the block.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from charlm.data.text_records import TextRecord
from charlm.families.charbert.char_inputs import CharInputs, PieceChars
from charlm.families.charbert.masking import SubwordMasking, mask_subwords
from charlm.families.charbert.noise import WordNoise
from charlm.families.charbert.terms import TermVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.word_pieces import WordPieces

EDGES = 4  # character slots of [CLS] and [SEP], each with the gap behind it


@dataclasses.dataclass(frozen=True)
class BlockMaker:
    """All that turns words into blocks, but for where the words come from.

    Attributes:
      length: L, subwords of a block, [CLS] and [SEP] included. slots: N, its character slots.
      predicts_words: whether the words behind noised ones are to be predicted.
    """

    tokenizer: SubwordTokenizer
    pieces: WordPieces
    chars: PieceChars
    terms: TermVocab
    noise: WordNoise
    masking: SubwordMasking
    length: int
    slots: int
    seed: int
    predicts_words: bool = True

    @functools.cached_property
    def piece_slots(self) -> list[int]:
        """Character slots that each subword needs at most, the gap behind it included."""
        return (self.chars.lengths_V + 1).tolist()


class _Word(NamedTuple):
    seen: str  # as the model sees it
    space: bool  # before it
    term: int  # the word that it was; -1 where it has no noise
    pieces: tuple[int, ...]
    cost: int  # character slots


class Block(NamedTuple):
    """A sequence of T subwords, [CLS] and [SEP] included.

    Attributes:
      ids_T: int32, what the model reads. chars: its characters, over all L positions.
      mlm_positions, mlm_labels: int32, masked subwords and what they were.
      nlm_positions, nlm_labels: int32, subwords of noised words, and the words that these were.
      words, number: what it was made from.
    """

    ids_T: np.ndarray
    chars: CharInputs
    mlm_positions: np.ndarray
    mlm_labels: np.ndarray
    nlm_positions: np.ndarray
    nlm_labels: np.ndarray
    words: tuple[_Word, ...]
    number: tuple[int, ...]


class BlockStream:
    """Makes blocks of the words of records, in order.

    The blocks of a lane are numbered `lane`, `lane + lanes`, and so on. With `by_record` no block holds words of two
    records, and numbers are those of the records: the same blocks, however many lanes there are.
    """

    def __init__(
        self,
        records: Iterator[TextRecord],
        maker: BlockMaker,
        lane: int = 0,
        lanes: int = 1,
        by_record: bool = False,
    ) -> None:
        self._records, self._maker = records, maker
        self._lane, self._lanes, self._by_record = lane, lanes, by_record
        self._room = maker.length - 2
        self._words: deque[_Word] = deque()
        self._returned: deque[Block] = deque()
        self._made = 0  # blocks; with `by_record`, those of the record
        self._read_records = 0

    def next(self) -> Block | None:
        """Returns the next block, or None when the records are used up."""
        if self._returned:
            return self._returned.popleft()
        taken: list[_Word] = []
        pieces, slots = 0, EDGES
        while self._words or (not (taken and self._by_record) and self._read()):
            word = self._words[0]
            if pieces + len(word.pieces) > self._room or slots + word.cost > self._maker.slots:
                break
            taken.append(self._words.popleft())
            pieces, slots = pieces + len(word.pieces), slots + word.cost
        if not taken:
            return None
        record = self._lane + self._lanes * (self._read_records - 1)
        number = (record, self._made) if self._by_record else (self._lane + self._lanes * self._made,)
        self._made += 1
        return self._block(tuple(taken), number)

    def give_back(self, block: Block) -> None:
        """Puts a block in front of the stream."""
        self._returned.appendleft(block)

    def _read(self) -> bool:
        """Reads and misspells the next record that has a word."""
        for record in self._records:
            words = record.texts()
            seen = self._maker.noise.words(words, self._lane + self._lanes * self._read_records)
            term_of = self._maker.terms.id
            terms = [term_of(word) if word != now else -1 for word, now in zip(words, seen, strict=True)]
            self._read_records += 1
            self._made = 0 if self._by_record else self._made
            self._words.extend(self._cut(seen, record.spaces.tolist(), terms))
            if self._words:
                return True
        return False

    def _cut(self, words: Iterable[str], spaces: Iterable[bool], terms: Iterable[int]) -> Iterator[_Word]:
        words, spaces = list(words), list(spaces)
        unknown, slots = self._maker.tokenizer.special.unk, self._maker.piece_slots
        for word, space, term, pieces in zip(words, spaces, terms, self._maker.pieces.of(words, spaces), strict=True):
            if len(pieces) > self._room:  # longer than a block: its halves are words
                middle = len(word) // 2
                yield from self._cut((word[:middle], word[middle:]), (space, False), (term, term))
                continue
            cost = sum(map(slots.__getitem__, pieces)) + (len(word) * pieces.count(unknown) if unknown in pieces else 0)
            # Of a single huge word, the layout of characters keeps the beginning.
            yield _Word(word, space, term, pieces, min(cost, self._maker.slots - EDGES))

    def _block(self, words: tuple[_Word, ...], number: tuple[int, ...]) -> Block:
        maker, special = self._maker, self._maker.tokenizer.special
        counts_W = np.array([len(word.pieces) for word in words])
        ids_T = np.fromiter(itertools.chain.from_iterable(word.pieces for word in words), np.int32, counts_W.sum())
        groups_T = np.repeat(np.arange(len(words)), counts_W)
        terms_T = np.repeat(np.array([word.term for word in words], np.int32), counts_W)
        input_T, labels_T = mask_subwords(ids_T, groups_T, terms_T >= 0, maker.masking, (maker.seed, *number))
        ids_T = np.concatenate([[special.needed("cls")], input_T, [special.needed("sep")]]).astype(np.int32)
        (mlm,), (nlm,) = np.nonzero(labels_T >= 0), np.nonzero((terms_T >= 0) & maker.predicts_words)
        hidden_T = np.zeros(len(ids_T), bool)
        hidden_T[1 + mlm] = True
        (unknown,) = np.nonzero((input_T == special.unk) & (labels_T < 0))
        texts = {1 + place: words[groups_T[place]].seen for place in unknown.tolist()}
        chars = maker.chars.row(ids_T, maker.length, maker.slots, hidden_T=hidden_T, texts=texts)
        of_words = ((1 + nlm).astype(np.int32), terms_T[nlm])
        return Block(ids_T, chars, (1 + mlm).astype(np.int32), labels_T[mlm], *of_words, words, number)

    def get_state(self) -> dict[str, Any]:
        """Returns what the stream holds back, JSON-able."""
        returned = [[list(block.number), _columns(block.words)] for block in self._returned]
        counts = {"made": self._made, "records": self._read_records}
        return counts | {"words": _columns(self._words), "returned": returned}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._made, self._read_records = state["made"], state["records"]
        self._words = deque(self._cut(*state["words"]))
        self._returned = deque(
            self._block(tuple(self._cut(*columns)), tuple(number)) for number, columns in state["returned"]
        )


def _columns(words: Iterable[_Word]) -> list[list[Any]]:
    words = list(words)
    return [[word.seen for word in words], [word.space for word in words], [word.term for word in words]]
