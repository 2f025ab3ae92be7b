"""Builds tokenizers of the `tokenizers` library from the SentencePiece models of XLM-R, ALBERT and XLNet.

Open it when ids of such a model differ from those of Hugging Face. Sources: Kudo and Richardson 2018 (SentencePiece),
and the files of the released models.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from charlm.core.reading import read_bytes
from charlm.text.subwords.files import TokenizerFiles, call_library, require
from charlm.text.subwords.roles import add_tokens, added_contents, id_of, role_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Normalizer

_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_CONTROL, _BYTE = 3, 6  # types of SentencePiece's pieces
_DIGIT_COMMA = re.compile(r".*\d,", re.DOTALL)


def sentencepiece_backend(source: TokenizerFiles) -> Tokenizer:
    """Builds the tokenizer of XLM-R, ALBERT or XLNet from a unigram model of SentencePiece."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    proto = _read_proto(source.path)
    roles = role_tokens(source)
    pieces: list[tuple[str, float]] = [(piece.piece, piece.score) for piece in proto.pieces]
    unk_id = proto.trainer_spec.unk_id
    special = [piece.piece for piece in proto.pieces if piece.type == _CONTROL]
    if source.family == "xlm-roberta":
        # fairseq replaces <unk>, <s>, </s> by four symbols of its own, and adds <mask> after the last piece.
        if [piece for piece, _ in pieces[:3]] != ["<unk>", "<s>", "</s>"]:
            raise ValueError(f"{source.path}: expected <unk>, <s>, </s> first (XLM-R), found {pieces[:3]}")
        pieces = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")] + pieces[3:] + [("<mask>", 0.0)]
        unk_id = 3
    else:
        # ALBERT and XLNet cut the comma off a piece such as "9,"; a much lower score has the same effect, since such
        # pieces are then never chosen.
        low = {piece: float(np.float32(score - 100)) for piece, score in pieces if _DIGIT_COMMA.fullmatch(piece)}
        pieces = [(piece, low.get(piece, score)) for piece, score in pieces]
    counts = Counter(piece for piece, _ in pieces)
    if len(counts) != len(pieces):
        raise ValueError(f"{source.path}: expected every piece once, found {counts.most_common(1)[0][0]!r} twice")
    require(source.path, [*counts, *added_contents(source)], roles.values())
    backend = Tokenizer(call_library(source.path, "a unigram model", lambda: models.Unigram(pieces, unk_id, False)))
    backend.normalizer = _normalizer(source, proto.normalizer_spec.precompiled_charsmap)
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    # User-defined symbols are not marked as added tokens: with their score of 0 the model never cuts or joins them, and
    # an added token would put a `▁` before the text that follows it.
    add_tokens(backend, source, roles, special)
    cls, sep = roles["cls"], roles["sep"]
    assert source.family is not None  # only a tokenizer.json may have no family
    single, pair = {
        "xlm-roberta": (f"{cls} $A {sep}", f"{cls} $A {sep} {sep} $B {sep}"),
        "albert": (f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"),
        "xlnet": (f"$A:0 {sep}:0 {cls}:2", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2"),
    }[source.family]
    ids = [(token, id_of(backend, token)) for token in {cls: 0, sep: 0}]
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    return backend


def _read_proto(path: Path) -> Any:  # a `ModelProto`, a class that protobuf makes at run time
    """Reads a SentencePiece model and checks that it is of the kind that these families use."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    content = read_bytes(path)
    expected = "a SentencePiece model"
    if not content:
        raise ValueError(f"{path}: expected {expected}, found an empty file")
    call_library(path, expected, lambda: sentencepiece.SentencePieceProcessor(model_proto=content))
    read = sentencepiece_model_pb2.ModelProto.FromString  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    proto = call_library(path, expected, read, content)
    model_type = _MODEL_TYPES.get(proto.trainer_spec.model_type, "unknown")
    if model_type != "unigram":
        raise ValueError(f"{path}: expected a unigram model, found {model_type}; tokenizer.json can hold it")
    if any(piece.type == _BYTE for piece in proto.pieces):
        raise ValueError(f"{path}: expected a model without byte_fallback, found one with; tokenizer.json can hold it")
    spec = proto.normalizer_spec
    if not (spec.add_dummy_prefix and spec.remove_extra_whitespaces) or proto.trainer_spec.treat_whitespace_as_suffix:
        found = f"add_dummy_prefix={spec.add_dummy_prefix}, remove_extra_whitespaces={spec.remove_extra_whitespaces}"
        raise ValueError(f"{path}: expected the usual treatment of spaces as a prefix of words, found {found}")
    return proto


def _normalizer(source: TokenizerFiles, charsmap: bytes) -> Normalizer:
    """Returns the normaliser; ALBERT and XLNet have steps of their own before those of SentencePiece."""
    from tokenizers import normalizers

    steps = []
    if source.family != "xlm-roberta":
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if source.option("strip_accents") is not False:
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        lowercase = source.option("lowercase")
        if source.family == "albert" if lowercase is None else lowercase:
            steps.append(normalizers.Lowercase())
    if charsmap:
        steps.append(call_library(source.path, "a normalisation table", normalizers.Precompiled, charsmap))
    return normalizers.Sequence(steps)


def restore_scores(backend: Tokenizer) -> Tokenizer:
    """Restores the float32 scores of a unigram model that was read from JSON, in place, and returns the tokenizer.

    The library reads decimals with an error in the last digit, which would break ties between two equally likely ways
    of cutting a word. Scores that were never float32 stay as they are.
    """
    from tokenizers import models

    if not isinstance(backend.model, models.Unigram):
        return backend
    state = json.loads(backend.model.__getstate__())
    read = np.array([score for _, score in state["vocab"]])
    rounded = read.astype(np.float32).astype(np.float64)
    exact = np.where(np.abs(read - rounded) <= 8 * np.spacing(np.abs(read)), rounded, read)
    if (exact != read).any():
        pieces = [(piece, score) for (piece, _), score in zip(state["vocab"], exact.tolist(), strict=True)]
        backend.model = models.Unigram(pieces, state["unk_id"], state.get("byte_fallback", False))
    return backend
