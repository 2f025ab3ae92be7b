"""How Char2Subword spells words and subwords: full words with a leading `##`, pieces inside words without.

Open it when the module gets other characters than you expect. This is the reverse of WordPiece (Aguilar et al., 2021,
section 3.1, footnotes 3 and 13). A word that is not in the vocabulary is never cut: it is spelled as a full word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from charlm.data.masking import Shares
from charlm.text.chars import MASK, CharVocab
from charlm.text.subwords.pieces import Surface

WORD_MARK = "##"  # two characters like any other


def spell_piece(surface: Surface) -> str:
    """Returns the spelling of an entry of a vocabulary: `##ness` -> ness, `business` -> ##business.

    RoBERTa's and GPT-2's entries with a leading space, and SentencePiece's with its mark, are full words too.
    """
    return (WORD_MARK if surface.starts_word else "") + surface.chars


def spell_word(word: str) -> str:
    """Returns the spelling of a full word, whether or not the vocabulary has it."""
    return WORD_MARK + word


def spell_rows(spellings: Sequence[str], vocab: CharVocab, slots: int) -> np.ndarray:
    """Returns character ids, uint16 [U, slots]: 0 pads, unknown characters are UNK, longer spellings are cut."""
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

    Length and word mark stay visible.

    Args:
      rows_UC: rows as `spell_rows` returns them.
      marked_U: bool, True at rows that begin with the word mark.
      chars: the first id of a random character, and one past the last.
      shares: shares of the characters that become MASK or random characters.
      per_word: True: one draw for all characters of a row, as in BERT; False: one draw per character, as the paper can
        be understood; about a tenth of the characters then stays readable.
    """
    U, C = rows_UC.shape
    draw = rng.random((U, 1 if per_word else C))
    hidden = (rows_UC != 0) & ~(marked_U[:, None] & (np.arange(C) < len(WORD_MARK)))
    random_UC = rng.integers(*chars, size=(U, C), dtype=np.uint16)
    to_mask, to_random = shares.fates(draw)
    masked_UC = np.where(hidden & to_mask, np.uint16(MASK), rows_UC)
    return np.where(hidden & to_random, random_UC, masked_UC)
