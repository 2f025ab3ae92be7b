"""Exports a Char2Subword without its embedding table, or as a BERT whose table has a row for each of given words.

`python -m charlm.convert export` calls it for `--table-free` and `--words`; open it to change what these exports
contain. Both exports rest on full mode, which reads the table for special tokens only (Aguilar et al., 2021, section
3.3). So the other rows can be left out; and the module can compute the rows of a new table, one per word, which any
code that reads BERT can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from flax import traverse_util

from charlm.convert.heads import ENCODER, MASKED_LM
from charlm.convert.model import Model
from charlm.core.cache import WordCache
from charlm.core.reading import read_text
from charlm.families.char2subword import FAMILY
from charlm.families.char2subword.conversion import Char2SubwordConverter, kind_of
from charlm.families.char2subword.module import Char2Subword
from charlm.families.char2subword.spelling import spell_rows, spell_word
from charlm.families.char2subword.tensors import TABLE_PARAMETER, bert_config
from charlm.families.char2subword.word_level import check_words, word_level
from charlm.families.char2subword.words import SpelledWords, special_ids
from charlm.families.family import FAMILIES
from charlm.families.spelled.spellings import spelling_slots
from charlm.families.subword.bert_tensors import POOLED_ENCODER
from charlm.families.subword.conversion import CONFIG_FILE, SubwordConverter, say_ids
from charlm.families.subword.layout import config_to_dict
from charlm.text.chars import CharVocab
from charlm.text.subwords import SubwordTokenizer


def without_table(model: Model) -> Model:
    """Returns the model in full mode, with only the special tokens' rows of the table and without a prediction head.

    Raises:
      ValueError: the table was left out of the model before, or there is no tokenizer.
    """
    if model.metadata.get("rows"):
        raise ValueError(f"{model.source}: the table was left out of this checkpoint already")
    model = _encoder_for_masked_lm(model)
    kept = special_ids(SubwordTokenizer.load(model.folder))
    fields = model.metadata["model"] | {"vocab_size": len(kept), "mode": "full"}
    return _with_table(model, _table(model)[kept])._replace(
        metadata={**model.metadata, "model": fields, "rows": kept},
    )


def export_with_words(model: Model, words: Sequence[str], folder: Path, file: str) -> int:
    """Writes a model for transformers whose table has a row for each special token and each word.

    The exported model has the same states as full mode for texts that hold no other words, wherever its tokenizer and
    the splitter of the model cut alike. Its tokenizer cuts at spaces and punctuation, but never inside one of the
    words. Words are normalised as the transformer's tokenizer does; all other words are unknown to it.

    Args:
      words: distinct words.
      file: where the words are from, for messages.

    Returns:
      The number of parameters written.

    Raises:
      ValueError: a word is there twice or cannot be told apart from others; the message names it.
    """
    model = _encoder_for_masked_lm(model)
    metadata = model.metadata
    rows = metadata.get("rows", ())
    tokenizer = SubwordTokenizer.load(model.folder)
    reader, special = SpelledWords(tokenizer, "full", rows), special_ids(tokenizer)
    tokens = [tokenizer.token(index) for index in special]
    spelled = check_words(words, reader.normalized, tokens, file)
    own = word_level(tokenizer, tokens, spelled, folder)
    special_rows = _table(model)[[reader.row(index) for index in special]]
    table = np.concatenate([special_rows, _vectors(model, spelled)])
    plain = kind_of(metadata["model"]).backbone
    config = bert_config(Char2SubwordConverter().target(metadata, str(model.source)).config)
    fields = config_to_dict(config) | {"vocab_size": len(table)}
    head = POOLED_ENCODER if metadata["head"] == ENCODER and config.pooler else metadata["head"]
    kept = {"family": plain.name, "model": fields, "head": head, "hf_config": metadata.get("hf_config") or {}}
    kept |= {name: metadata[name] for name in ("labels", "task") if name in metadata}
    params = {name: value for name, value in _with_table(model, table).params.items() if name != "char2subword"}
    params = params["bert"] if head in (ENCODER, POOLED_ENCODER) else params
    if config.position_offset and own.special.pad != config.pad_id:
        raise ValueError(f"{model.source}: padding has the id {own.special.pad} here, but positions begin behind it")
    # The folder "none" does not exist, so nothing is copied from it: the tokenizer of the subwords would not fit.
    SubwordConverter(plain, FAMILIES[plain.name]).export(Model(params, kept, folder / "none", model.source), folder)
    say_ids(folder / CONFIG_FILE, own)
    return len(jax.tree.leaves(params))


def read_word_file(path: str) -> list[str]:
    """Returns the words of a file that has one word per line.

    Raises:
      ValueError: the file cannot be read, is empty, or has a line of several words.
    """
    try:
        lines = read_text(path).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--words={path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    words = [line.strip() for line in lines]
    for number, word in enumerate(words, start=1):
        if len(word.split()) > 1:
            raise ValueError(f"--words={path}: line {number}: expected one word, got {word!r}")
    words = [word for word in words if word]
    if not words:
        raise ValueError(f"--words={path}: expected one word a line, got none")
    return words


def _encoder_for_masked_lm(model: Model) -> Model:
    """Returns the model without its prediction head, if it has one: the head predicts the rows that will be removed."""
    return Char2SubwordConverter().cut(model, ENCODER) if model.metadata["head"] == MASKED_LM else model


def _table(model: Model) -> np.ndarray:
    return np.asarray(traverse_util.flatten_dict(model.params, sep="/")[TABLE_PARAMETER])


def _with_table(model: Model, table: np.ndarray) -> Model:
    flat = traverse_util.flatten_dict(model.params, sep="/")
    return model._replace(params=traverse_util.unflatten_dict(flat | {TABLE_PARAMETER: table}, sep="/"))


def _vectors(model: Model, words: Sequence[str]) -> np.ndarray:
    """Returns the vectors that the module makes of words, float32 [N, D]."""
    shape = Char2SubwordConverter().target(model.metadata, str(model.source)).config.characters
    vocab = CharVocab.from_dict(model.metadata["char_vocab"])
    chars_NC = spell_rows([spell_word(word) for word in words], vocab, shape.char_slots)
    module, params = Char2Subword(shape), model.params["char2subword"]
    run = jax.jit(lambda p, chars_UC: module.apply({"params": p}, chars_UC))
    buckets = spelling_slots(shape.char_slots)  # the same length buckets as when the model is used
    cache = WordCache(run, shape.output, np.float32, buckets, max_words=len(words))
    return np.asarray(cache.read(params, chars_NC[None])[0])


def export_table_free(model: Model, folder: Path, value: bool) -> str:
    """Writes a checkpoint without the table (`--table-free`); returns a description of it for the user."""
    free = without_table(model)
    Char2SubwordConverter().save(free, folder)
    rows, before = len(free.metadata["rows"]), model.metadata["model"]["vocab_size"]
    return f"{FAMILY.title} without its table, {rows} rows of {before}"


def export_words(model: Model, folder: Path, value: str) -> str:
    """Writes a BERT whose table has the words of a file (`--words`); returns a description of it for the user.

    Raises:
      ValueError: as `read_word_file` and `export_with_words` raise it.
    """
    words = read_word_file(value)
    tensors = export_with_words(model, words, folder, value)
    return f"a table of {len(words)} words for transformers, {tensors} tensors"
