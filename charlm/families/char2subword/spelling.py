"""How Char2Subword spells what it reads: full words behind `##`, pieces inside words bare (Aguilar et al., 2021, 3.1).

That is WordPiece turned round (footnotes 3 and 13). A word that is no entry of the vocabulary is never cut: it is
spelled as full words are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from charlm.data.masking import Shares
from charlm.text.chars import MASK, CharVocab
from charlm.text.subwords.pieces import Surface

WORD_MARK = "##"  # two characters like any other


def spell_piece(surface: Surface) -> str:
    """Returns the characters that stand for an entry of a vocabulary: `##ness` -> ness, `business` -> ##business.

    RoBERTa's and GPT-2's entries with a leading space, and SentencePiece's with its mark, are full words too.
    """
    return (WORD_MARK if surface.starts_word else "") + surface.chars


def spell_word(word: str) -> str:
    """Returns the characters that stand for a word, whether or not the vocabulary has it."""
    return WORD_MARK + word


def spell_rows(spellings: Sequence[str], vocab: CharVocab, slots: int) -> np.ndarray:
    """Returns the ids of spellings, uint16 [U, slots]: 0 pads, unknown characters are UNK, what is longer is cut."""
    rows_UC = np.zeros((len(spellings), slots), np.uint16)
    for row, spelling in zip(rows_UC, spellings, strict=True):
        ids = vocab.encode_word(spelling[:slots])
        row[: len(ids)] = ids
    return rows_UC


def mask_rows(
    rows_UC: np.ndarray,
    marked_U: np.ndarray,
    rng: np.random.Generator,
    chars: tuple[int, int],
    shares: Shares,
    per_word: bool = False,
) -> np.ndarray:
    """Returns copies of rows whose characters are hidden for masked language modelling (section 3.2).

    Length and word mark stay to be seen.

    Args:
      rows_UC: as `spell_rows` returns them. marked_U: bool, rows that begin with the word mark.
      chars: first and one past the last id of a random character.
      shares: of the characters that become MASK, or random ones.
      per_word: True: one draw for all characters of a row, as in BERT; False: one for each, as the paper can be read,
        where about a tenth of the characters stay to be read.
    """
    U, C = rows_UC.shape
    draw = rng.random((U, 1 if per_word else C))
    hidden = (rows_UC != 0) & ~(marked_U[:, None] & (np.arange(C) < len(WORD_MARK)))
    random_UC = rng.integers(*chars, size=(U, C), dtype=np.uint16)
    to_mask, to_random = shares.fates(draw)
    masked_UC = np.where(hidden & to_mask, np.uint16(MASK), rows_UC)
    return np.where(hidden & to_random, random_UC, masked_UC)
