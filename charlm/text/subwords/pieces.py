"""The surface of a subword: the characters that a piece stands for, and whether it begins a word.

Open it to see how `##ing` or `Ġthe` become characters; models that spell subwords rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# Placeholders in the released vocabularies, which never occur in text (BERT; RoBERTa).
_PLACEHOLDER = re.compile(r"\[unused\d+\]|madeupword\d{4}")
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


class Surface(NamedTuple):
    """The characters of one piece.

    Attributes:
      chars: the characters without the mark of a beginning or a continuation: "ing" for `##ing`, "the" for `Ġthe` and
        `▁the`. Empty for a piece that is only the mark. A byte that is not part of a complete UTF-8 character of the
        piece is U+DC80 to U+DCFF, as Python's "surrogateescape" writes it: joining pieces and encoding them with
        "surrogateescape" gives the bytes.
      starts_word: whether the piece begins a word. WordPiece: it has no `##`; byte-level BPE: it has a leading space
        (`Ġ`), which `chars` leaves out; SentencePiece: it has a leading `▁`.
      whole: whether all bytes of the piece form complete characters; false only in byte-level vocabularies.
    """

    chars: str
    starts_word: bool
    whole: bool = True


def byte_of_glyph() -> dict[str, int]:
    """Returns the byte that each of the 256 characters of a byte-level vocabulary stands for.

    Printable Latin-1 characters stand for their own byte; the characters from U+0100 on stand for the other bytes in
    order (Radford et al. 2019, released code).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + rank): byte for rank, byte in enumerate(others)}}


def style_of(backend: Tokenizer) -> str:
    """Returns how pieces mark words: "wordpiece", "bytes", "metaspace", or "unknown"."""
    from tokenizers import models  # here, since whoever has a tokenizer has loaded it

    if isinstance(backend.model, models.WordPiece):
        return "wordpiece"
    stages = [stage.__getstate__() for stage in (backend.pre_tokenizer, backend.decoder, backend.normalizer) if stage]
    described = b" ".join(stages).decode("utf-8")
    if '"ByteLevel"' in described:
        return "bytes"
    return "metaspace" if "▁" in described else "unknown"


def surfaces(backend: Tokenizer, special: Iterable[str], size: int) -> list[Surface | None]:
    """Returns the surface of every id below `size`; None for special tokens, placeholders and ids without a token.

    Raises:
      ValueError: the tokenizer marks words in none of the three known ways.
    """
    style = style_of(backend)
    if style == "unknown":
        model = type(backend.model).__name__
        message = "pieces that mark words by ##, by byte-level spaces (Ġ) or by ▁"
        raise ValueError(f"subword tokenizer with a {model} model: expected {message}, found none of these")
    special = set(special)
    prefix = backend.model.continuing_subword_prefix if style == "wordpiece" else ""
    table = byte_of_glyph()
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    result: list[Surface | None] = [None] * size
    for token, index in backend.get_vocab(with_added_tokens=True).items():
        if token in special or _PLACEHOLDER.fullmatch(token):
            continue
        if token in added:  # added tokens are spelled without marks in every style
            result[index] = Surface(token, True)
        elif style == "wordpiece":
            continues = bool(prefix) and token.startswith(prefix) and token != prefix
            result[index] = Surface(token[len(prefix) :] if continues else token, not continues)
        elif style == "bytes":
            result[index] = _byte_surface(token, table)
        elif match := _BYTE_PIECE.fullmatch(token):
            result[index] = _decoded(bytes([int(match[1], 16)]), False)
        else:
            result[index] = Surface(token.removeprefix("▁").replace("▁", " "), token.startswith("▁"))
    return result


def _byte_surface(token: str, table: dict[str, int]) -> Surface:
    """Decodes a byte-level piece; a piece with characters outside the 256 was added later and stands for itself."""
    if not all(glyph in table for glyph in token):
        return Surface(token, True)
    content = bytes(table[glyph] for glyph in token)
    return _decoded(content.removeprefix(b" "), content.startswith(b" "))


def _decoded(content: bytes, starts_word: bool) -> Surface:
    chars = content.decode("utf-8", "surrogateescape")
    return Surface(chars, starts_word, not any("\udc80" <= char <= "\udcff" for char in chars))
