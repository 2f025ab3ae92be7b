"""Turns records of text into CharBERT's pre-training sequences, called blocks.

Open it to follow the data of pre-training from a record to a sequence. The steps are: misspell words, cut them into
subwords, fill blocks, mask, lay out the characters. A block takes words, noised or not, until the next word does not
fit. So no subword and no character is lost, no word is cut (unless it is longer than a block), and no two lines are
joined. Noise depends only on the seed and the number of the record, masks only on the seed and the number of the block.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from charlm.core.types import JsonObject
from charlm.data.text_records import TextRecord
from charlm.families.charbert.char_inputs import CharInputs, PieceChars
from charlm.families.charbert.masking import SubwordMasking, mask_subwords
from charlm.families.charbert.noise import WordNoise
from charlm.families.charbert.terms import TermVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.word_pieces import WordPieces

EDGE_SLOTS = 4  # character slots of [CLS] and [SEP], each with the empty slot after it


class _Word(NamedTuple):
    seen: str  # the word as the model sees it, perhaps misspelled
    space: bool  # whether a space stands before it
    term: int  # the id of the original word; -1 if the word has no noise
    pieces: tuple[int, ...]
    cost: int  # character slots that it needs


class TwoChannelBlock(NamedTuple):
    """A sequence of T subwords, [CLS] and [SEP] included.

    Attributes:
      ids_T: int32, the subwords that the model reads.
      chars: their characters, for all L positions.
      mlm_positions, mlm_labels: int32, positions of masked subwords, and the original subwords.
      nlm_positions, nlm_labels: int32, positions of subwords of noised words, and the original words.
      words, number: the words and the number that the block was made from.
    """

    ids_T: np.ndarray
    chars: CharInputs
    mlm_positions: np.ndarray
    mlm_labels: np.ndarray
    nlm_positions: np.ndarray
    nlm_labels: np.ndarray
    words: tuple[_Word, ...]
    number: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class BlockMaker:
    """Makes blocks from records; see `charlm.data.streams.SequenceMaker`.

    Attributes:
      length: L, subwords of a block, [CLS] and [SEP] included.
      slots: N, character slots of a block.
      predicts_words: whether the original words of noised ones are to be predicted.
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
        """The character slots that each subword needs at most, including the empty slot after it."""
        return (self.chars.lengths_V + 1).tolist()

    @property
    def most(self) -> int:
        """The most subwords of a block that are masked."""
        return self.masking.most(self._room)

    @property
    def pad(self) -> int:
        """The subword id of padding: that of the vocabulary, or 0."""
        return self.tokenizer.special.pad or 0

    @property
    def _room(self) -> int:
        return self.length - 2

    def parts(self, record: TextRecord, number: int) -> Iterator[_Word]:
        """Misspells some words of a record and yields all words; words longer than a block are yielded in parts."""
        words = record.texts()
        seen = self.noise.words(words, number)
        terms = [self.terms.id(word) if word != now else -1 for word, now in zip(words, seen, strict=True)]
        return self._cut(seen, record.spaces.tolist(), terms)

    def _cut(self, words: Iterable[str], spaces: Iterable[bool], terms: Iterable[int]) -> Iterator[_Word]:
        words, spaces = list(words), list(spaces)
        unknown, slots = self.tokenizer.special.unk, self.piece_slots
        for word, space, term, pieces in zip(words, spaces, terms, self.pieces.of(words, spaces), strict=True):
            if len(pieces) > self._room:  # longer than a block: treat its halves as words
                middle = len(word) // 2
                yield from self._cut((word[:middle], word[middle:]), (space, False), (term, term))
                continue
            cost = sum(map(slots.__getitem__, pieces)) + (len(word) * pieces.count(unknown) if unknown in pieces else 0)
            # If a single word has too many characters, the layout keeps the beginning of each piece.
            yield _Word(word, space, term, pieces, min(cost, self.slots - EDGE_SLOTS))

    def filled(self, used: tuple[int, int] | None, part: _Word) -> tuple[int, int] | None:
        """Returns the numbers of subwords and character slots in use; see `SequenceMaker.filled`."""
        pieces, slots = used or (0, EDGE_SLOTS)
        pieces, slots = pieces + len(part.pieces), slots + part.cost
        return (pieces, slots) if pieces <= self._room and slots <= self.slots else None

    def make(self, parts: Sequence[_Word], number: tuple[int, ...]) -> TwoChannelBlock:
        """Returns a block of the given words; `number` seeds its mask."""
        special = self.tokenizer.special
        counts_W = np.array([len(word.pieces) for word in parts])
        ids_T = np.fromiter(itertools.chain.from_iterable(word.pieces for word in parts), np.int32, counts_W.sum())
        groups_T = np.repeat(np.arange(len(parts)), counts_W)
        terms_T = np.repeat(np.array([word.term for word in parts], np.int32), counts_W)
        input_T, labels_T = mask_subwords(ids_T, groups_T, terms_T >= 0, self.masking, (self.seed, *number))
        ids_T = np.concatenate([[special.needed("cls")], input_T, [special.needed("sep")]]).astype(np.int32)
        (mlm,), (nlm,) = np.nonzero(labels_T >= 0), np.nonzero((terms_T >= 0) & self.predicts_words)
        hidden_T = np.zeros(len(ids_T), bool)
        hidden_T[1 + mlm] = True
        (unknown,) = np.nonzero((input_T == special.unk) & (labels_T < 0))
        texts = {1 + place: parts[groups_T[place]].seen for place in unknown.tolist()}
        chars = self.chars.row(ids_T, self.length, self.slots, hidden_T=hidden_T, texts=texts)
        of_words = ((1 + nlm).astype(np.int32), terms_T[nlm])
        return TwoChannelBlock(ids_T, chars, (1 + mlm).astype(np.int32), labels_T[mlm], *of_words, tuple(parts), number)

    def halves(self, sequence: TwoChannelBlock) -> tuple[TwoChannelBlock, TwoChannelBlock]:
        """Raises ValueError: any single block must fit a shard, so a budget too small for one is wrong."""
        raise ValueError(f"data.noised_budget leaves no room for a block of {len(sequence.nlm_labels)} labels")

    def held(self, parts: Iterable[_Word], returned: Iterable[TwoChannelBlock]) -> JsonObject:
        """Returns the words that are waiting and those of returned blocks as JSON-able columns, for a checkpoint."""
        return {"words": _columns(parts), "returned": [[list(b.number), _columns(b.words)] for b in returned]}

    def restored(self, state: JsonObject) -> tuple[Iterable[_Word], Iterable[TwoChannelBlock]]:
        """Returns the arguments that `held` was given; the masks of blocks are drawn again from their numbers."""
        blocks = (self.make([*self._cut(*columns)], tuple(number)) for number, columns in state["returned"])
        return self._cut(*state["words"]), blocks


def _columns(words: Iterable[_Word]) -> list[list[str] | list[bool] | list[int]]:
    words = list(words)
    return [[word.seen for word in words], [word.space for word in words], [word.term for word in words]]
