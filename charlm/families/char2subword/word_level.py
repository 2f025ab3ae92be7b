"""Makes a tokenizer of whole words from a tokenizer of subwords, for `export.export_with_words`.

Normalisation and template stay the same; every word has one id. Open it when an export refuses a word, or cuts a text
elsewhere than expected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from charlm.core.durable import write_text
from charlm.core.reading import read_json
from charlm.core.types import JsonObject
from charlm.text.subwords import SubwordTokenizer

SUBWORD_VOCAB_FILE = "vocab.txt"


def check_words(words: Sequence[str], normalized: Callable[[str], str], special: Sequence[str], file: str) -> list[str]:
    """Returns the words in their normalised form.

    Args:
      normalized: normalises a word.
      special: special tokens, which are not allowed as words.
      file: where the words are from, for messages.

    Raises:
      ValueError: a word is empty when normalised, is a special token, or has the same normalised form as another.
    """
    found: dict[str, str] = {}
    for word in words:
        form = normalized(word)
        if not form or word in special:
            raise ValueError(f"--words={file}: {word!r} is no word: the tokenizer reads it as {form or 'nothing'}")
        if form in found:
            alike = "is there twice" if found[form] == word else f"is read as {form!r}, and so is {found[form]!r}"
            raise ValueError(f"--words={file}: {word!r} {alike}; expected distinct words")
        found[form] = word
    return list(found)


def word_level(
    tokenizer: SubwordTokenizer, special: Sequence[str], words: Sequence[str], folder: Path
) -> SubwordTokenizer:
    """Writes a tokenizer whose tokens are the special tokens and the words into a folder, and returns it.

    The tokenizer cuts texts at spaces and punctuation. Words that contain a cut are matched before that, so that they
    stay whole.

    Args:
      tokenizer: the tokenizer of subwords.
      special: its special tokens, which get the first ids; the words follow.

    Raises:
      ValueError: a word cannot be told apart from others; the message names it.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    tokenizer.save(folder)
    stored, settings = read_json(folder / "tokenizer.json"), read_json(folder / "tokenizer_config.json")
    vocab = {token: index for index, token in enumerate([*special, *words])}
    unknown = None if tokenizer.special.unk is None else tokenizer.token(tokenizer.special.unk)
    stored["model"] = {
        "type": "WordPiece",
        "unk_token": unknown or "",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": max(map(len, vocab)),
        "vocab": vocab,
    }
    kept = [token for token in stored.get("added_tokens", []) if token["content"] in special]
    stored["added_tokens"] = sorted(({**t, "id": vocab[t["content"]]} for t in kept), key=lambda t: t["id"])
    stored["post_processor"], stored["decoder"] = _template(tokenizer, vocab), None
    stored["pre_tokenizer"] = json.loads(BertPreTokenizer().__getstate__())
    backend = Tokenizer.from_str(json.dumps(stored))
    cut = BertPreTokenizer()
    normalize = tokenizer.normalized
    whole = [word for word in words if [part for part, _ in cut.pre_tokenize_str(normalize(word))] != [word]]
    backend.add_tokens([AddedToken(word, single_word=True, normalized=True) for word in whole])
    own = SubwordTokenizer(backend, settings | {"tokenizer_class": "PreTrainedTokenizerFast"})
    for word in words:
        ids = backend.encode(word, add_special_tokens=False).ids
        if ids != [vocab[word]]:
            raise ValueError(f"--words: {word!r} cannot be told apart from the other words; leave it out")
    own.save(folder)
    write_text(folder / SUBWORD_VOCAB_FILE, "".join(f"{token}\n" for token in vocab))
    return own


def _template(tokenizer: SubwordTokenizer, vocab: dict[str, int]) -> JsonObject:
    """Returns the post-processor that puts the same special tokens around texts, with their ids in `vocab`."""
    sides = {}
    for name, pair in (("single", None), ("pair", "b")):
        item, parts = tokenizer.encode("a", pair), []
        for index, kind, side in zip(item.ids, item.type_ids, item.sequences, strict=True):
            token = tokenizer.token(index)
            entry = {"SpecialToken": {"id": token, "type_id": kind}}
            if side is not None:
                entry = {"Sequence": {"id": "AB"[side], "type_id": kind}}
            if not parts or parts[-1] != entry or side is None:
                parts.append(entry)
        sides[name] = parts
    used = {part["SpecialToken"]["id"] for parts in sides.values() for part in parts if "SpecialToken" in part}
    known = {token: {"id": token, "ids": [vocab[token]], "tokens": [token]} for token in sorted(used)}
    return {"type": "TemplateProcessing", **sides, "special_tokens": known}
