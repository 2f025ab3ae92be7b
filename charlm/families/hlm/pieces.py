"""The pieces of a subword tokenizer that an HLM knows beside its characters (`text.tokenizer`).

They are stored with the model, so that the tokenizer may go. A piece that begins a word is written with a space before
it, " the", one inside a word without, "ing". Open it to change which pieces are taken, or how they become ids;
`charlm.nn.pieces` finds them in words.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_collections

from charlm.core import checkpoint as checkpoints
from charlm.core.types import Json
from charlm.data.subword_building import read_named
from charlm.families.hlm import FAMILY
from charlm.families.stored import checkpoint_of, metadata_of
from charlm.nn.pieces import NO_PIECES, PieceTable
from charlm.text.chars import UNK, WORD_CLS, CharVocab
from charlm.text.subwords import SubwordTokenizer

KEY = "pieces"  # of a model's metadata


def pieces_of_start(config: ml_collections.ConfigDict, run: Path | None) -> tuple[str, ...]:
    """Returns the pieces of the tokenizer; if none is named, or a run goes on whose tokenizer is gone, stored ones.

    Those are the run's own, or those of the model that it starts from. `check_pieces` compares.

    Args:
      run: as in `Objective.prepare`.

    Raises:
      ValueError: the tokenizer cannot be read, or has no pieces.
    """
    goes_on, named = run or config.resume, config.text.tokenizer
    if goes_on and not (named and Path(named).expanduser().exists()):
        return stored_pieces(metadata_of(checkpoints.find(goes_on), (FAMILY.name,)))
    tokenizer = read_named("text.tokenizer", config.text.tokenizer, SubwordTokenizer.load)
    if tokenizer is not None:
        if not (pieces := pieces_of(tokenizer)):
            raise ValueError(f"text.tokenizer={config.text.tokenizer!r}: it has no piece of two characters or more")
        return pieces
    start = checkpoint_of(config.init_from, FAMILY.name) if config.init_from else None
    return () if start is None else stored_pieces(metadata_of(start, (FAMILY.name,)))


def stored_pieces(metadata: Mapping[str, Json]) -> tuple[str, ...]:
    """Returns the pieces that a model's metadata names."""
    return tuple(metadata.get(KEY, ()))


def pieces_of(tokenizer: SubwordTokenizer) -> tuple[str, ...]:
    """Returns the pieces of a tokenizer in the order of their ids, without special tokens.

    Left out are pieces of several words or of incomplete characters, and single characters inside a word: those have
    rows of their own already.
    """
    found = (tokenizer.surface(index) for index in tokenizer.ids())
    whole = (one for one in found if one is not None and one.whole and one.chars.split() == [one.chars])
    pieces = (" " * one.starts_word + one.chars for one in whole)
    return tuple(dict.fromkeys(piece for piece in pieces if len(piece) > 1))


@functools.lru_cache(maxsize=4)
def piece_table(pieces: Sequence[str], vocab: CharVocab, normalize: str) -> PieceTable:
    """Returns the table of pieces, in their order; see `charlm.nn.pieces`.

    A piece with a character that the vocabulary lacks is left out.

    Args:
      pieces: a tuple, as `pieces_of` returns it.
      normalize: `text.normalize`, the form of the characters that the model reads.
    """
    form = functools.partial(unicodedata.normalize, "NFC") if normalize == "nfc" else str
    kept: dict[tuple[int, ...], None] = {}
    for piece in pieces:
        begins = piece.startswith(" ")
        ids = (WORD_CLS,) * begins + tuple(vocab.encode_word(form(piece[begins:])))
        if UNK not in ids and len(ids) > 1:
            kept[ids] = None
    return PieceTable(tuple(kept)) if kept else NO_PIECES
