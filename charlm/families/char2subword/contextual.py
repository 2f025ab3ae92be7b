"""The objective of the contextual stage: Char2Subword learns masked language modelling (section 3.2).

Open it to change which subwords are spelled or masked in that stage. The transformer behind the module is frozen. Most
of the objective is shared: see `objective` for the model, and `charlm.families.spelled.masked_lm` for batches and loss.
"""

from __future__ import annotations

import ml_collections

from charlm.families.char2subword.flops import character_masked_training
from charlm.families.char2subword.masking import CharacterMasking, PieceRows
from charlm.families.char2subword.objective import Char2SubwordObjective
from charlm.families.char2subword.sequences import SubwordMaker
from charlm.families.char2subword.shape import Char2SubwordData
from charlm.families.char2subword.spelling import WORD_MARK
from charlm.families.spelled.batch import MaskedBatch
from charlm.families.spelled.masked_lm import MaskedSpelledLM
from charlm.text.chars import MASK
from charlm.text.subwords.word_pieces import WordPieces

HIDDEN = "_"  # stands for a hidden character


class CharacterMaskedLM(MaskedSpelledLM, Char2SubwordObjective):
    """Masked language modelling of subwords whose characters are hidden; `shape` is the shape of every batch."""

    unit = "subwords"
    section = "contextual"

    def __init__(self, config: ml_collections.ConfigDict, data: Char2SubwordData, shards: int) -> None:
        """Measures how many distinct spellings a batch needs to hold; see `Objective`."""
        super().__init__(config, data, shards)
        # Composition is measured on the unseen entries, so they must not be learned here: like special tokens they are
        # read as their rows of the table.
        self._spelled = data.entries.where(~self.unseen_N)
        self._pieces = PieceRows.of(self._spelled, data.chars, data.tokenizer.size, config.model.char_slots)
        self._words = WordPieces(data.tokenizer)
        self.shape = self.measure()

    def maker(self, seed: int, hiding: bool) -> SubwordMaker:
        """Returns the maker of sequences; with `hiding`, all characters of a chosen subword become MASK."""
        cfg, data = self.config.data, self.data
        shares = (1.0, 0.0) if hiding else (cfg.mask_share, cfg.random_share)
        masking = CharacterMasking(cfg.mask_rate, *shares, data.chars.size, cfg.mask_whole)
        return SubwordMaker(self._words, cfg.max_length, seed, data.tokenizer, self._pieces, masking)

    def training_flops(self, batch: MaskedBatch) -> float:
        """Returns the useful operations of a step."""
        return character_masked_training(self.model.config, batch)

    def start_lines(self) -> list[str]:
        """Returns the sizes of the vocabularies and the shape of a batch."""
        data = self.data
        return [
            f"spells  {len(self._spelled):,} subwords of {data.start.shape.vocab_size:,} of {data.start.source}; "
            f"{int(self.unseen_N.sum()):,} never; characters {data.chars.size:,}",
            self.batch_line(),
        ]

    def name_of(self, label: int) -> str:
        """Returns the subword of an id."""
        return self.data.tokenizer.token(label)

    def read_at(self, batch: MaskedBatch, row: int, place: int) -> str:
        """Returns a subword of the first shard as text; pieces inside a word begin with `##`, as in WordPiece."""
        index = int(batch.inputs.ids_SBL[0, row, place])
        if index >= 0:
            return self.data.tokenizer.token(index)
        ids = self.spelling_at(batch, row, place).tolist()
        spelled = "".join(HIDDEN if i == MASK else self.data.chars.decode([i]) for i in ids)
        return spelled.removeprefix(WORD_MARK) if spelled.startswith(WORD_MARK) else WORD_MARK + spelled
