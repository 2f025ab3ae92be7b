"""Builds tokenizers of the `tokenizers` library from the files of published WordPiece and byte-level BPE models.

Open it when ids of such a model differ from those of Hugging Face. Sources: Devlin et al. 2019 (WordPiece, section 3),
Radford et al. 2019 (byte-level BPE, section 2.2), and the files of the released models.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from charlm.core.reading import read_bytes, read_object
from charlm.core.types import JsonObject
from charlm.text.subwords.files import TokenizerFiles, call_library, read_tokenizer_json, require
from charlm.text.subwords.roles import add_tokens, added_contents, id_of, role_tokens
from charlm.text.subwords.sentencepieces import restore_scores, sentencepiece_backend

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def build(source: TokenizerFiles) -> Tokenizer:
    """Returns the configured tokenizer of a source; raises a ValueError naming the file if the file is malformed."""
    if source.kind == "tokenizer.json":
        return restore_scores(read_tokenizer_json(source))
    makers = {"vocab.txt": _wordpiece, "vocab.json": _byte_level, "*.model": sentencepiece_backend}
    return makers[source.kind](source)


def _wordpiece(source: TokenizerFiles) -> Tokenizer:
    """Builds BERT's tokenizer from `vocab.txt`, which has one piece per line; the line number is the id."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocab = _read_vocab_txt(source.path)
    roles = role_tokens(source)
    require(source.path, [*vocab, *added_contents(source)], roles.values())
    lowercase = source.option("lowercase")
    if lowercase is None:
        cased = sum(piece != piece.lower() for piece in vocab if not piece.startswith("["))
        raise ValueError(
            f"{source.path}: expected do_lower_case in {source.config_path.name}, or lowercase= in Python, "
            f"found neither; {cased:,} of {len(vocab):,} pieces have capital letters"
        )
    split_chinese = source.option("split_chinese")
    backend = Tokenizer(models.WordPiece(vocab, unk_token=roles["unk"], max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_chinese is not False,
        strip_accents=source.option("strip_accents"),
        lowercase=lowercase,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    add_tokens(backend, source, roles)
    cls, sep = roles["cls"], roles["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(token, id_of(backend, token)) for token in {cls: 0, sep: 0}],
    )
    return backend


def _read_vocab_txt(path: Path) -> dict[str, int]:
    """Reads one piece per line; only newlines end a line, since some pieces hold U+2028 or U+0085."""
    text = _read_text(path)
    text = text.replace("\r\n", "\n") if text.count("\r\n") == text.count("\n") else text
    pieces = text.removesuffix("\n").split("\n")
    if text.lstrip().startswith(("{", "#version")):
        raise ValueError(f"{path}: expected one piece a line (WordPiece), found {pieces[0][:40]!r}")
    vocab = {piece: index for index, piece in enumerate(pieces)}
    if "" in vocab:
        raise ValueError(f"{path}: expected one piece a line, found an empty line {vocab[''] + 1}")
    if len(vocab) != len(pieces):
        piece, count = Counter(pieces).most_common(1)[0]
        raise ValueError(f"{path}: expected every piece once, found {piece!r} {count} times")
    return vocab


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path}: expected a readable file: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8 text: {error}") from None


def _byte_level(source: TokenizerFiles) -> Tokenizer:
    """Builds the tokenizer of GPT-2 or RoBERTa from `vocab.json` {piece: id} and `merges.txt`, one merge per line."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocab = read_object(source.path)
    _check_vocab_json(source.path, vocab)
    roles = role_tokens(source)
    require(source.path, [*vocab, *added_contents(source)], roles.values())
    merges_path = source.path.with_name(source.path.name.removesuffix("vocab.json") + "merges.txt")
    merges = _read_merges(merges_path, vocab)
    prefix = bool(source.option("add_prefix_space"))
    backend = Tokenizer(call_library(merges_path, "merges", lambda: models.BPE(vocab=vocab, merges=merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    backend.decoder = decoders.ByteLevel()
    add_tokens(backend, source, roles)
    if source.family == "gpt2":
        backend.post_processor = processors.ByteLevel(trim_offsets=False)
    else:
        sep, cls = ((roles[role], id_of(backend, roles[role])) for role in ("sep", "cls"))
        backend.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=prefix)
    return backend


def _check_vocab_json(path: Path, vocab: JsonObject) -> None:
    """Raises ValueError unless every value is an id and no id occurs twice."""
    owners: dict[int, str] = {}
    for piece, index in vocab.items():
        if type(index) is not int or index < 0:
            raise ValueError(f"{path}: expected pieces and ids >= 0, found {piece!r}: {str(index)[:40]}")
        if index in owners:
            raise ValueError(f"{path}: expected every id once, found {index} for {owners[index]!r} and {piece!r}")
        owners[index] = piece
    if not vocab:
        raise ValueError(f"{path}: expected pieces and ids, found an empty object")


def _read_merges(path: Path, vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Reads the merges in order; raises a ValueError naming file and line if a merge does not fit the vocabulary."""
    if not path.is_file():
        raise ValueError(f"{path}: expected the merges of the vocab.json beside it, found no such file")
    merges = []
    for number, line in enumerate(_read_text(path).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise ValueError(f"{path}, line {number}: expected two pieces, found {line[:60]!r}")
        for piece in (*parts, "".join(parts)):
            if piece not in vocab:
                raise ValueError(f"{path}, line {number}: expected pieces of the vocabulary, found {piece!r}")
        merges.append((parts[0], parts[1]))
    if not merges:
        raise ValueError(f"{path}: expected merges, found none")
    return merges
