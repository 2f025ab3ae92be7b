"""Prepares the data of a CharacterBERT pre-training run, corpora and words to predict, and the shape of its model.

The objective calls it at the start of a run; open it to see where the words to predict come from.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import ml_collections

from charlm.core.files import cache_dir
from charlm.data.corpus import EncodedCorpus, prepare_texts
from charlm.data.subword_building import BuiltOnce, count_words, read_named
from charlm.families.characterbert.cnn import CharacterBertConfig
from charlm.families.characterbert.vocab import WORD_VOCAB_FILE, WordVocab


class CharacterBertData(NamedTuple):
    """The words to predict and the corpora that batches are made from."""

    vocab: WordVocab
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]


def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> CharacterBertData:
    """Returns the words to predict and the encoded corpora.

    Args:
      run: folder with the files of the run that is resumed; None: this is a new run.

    Raises:
      ValueError: a corpus or the words cannot be read, or no text is held out.
    """
    text = config.text
    # Read the given file first, so that errors in it show before encoding and counting, which may take hours.
    vocab = read_named("text.mlm_vocab", text.mlm_vocab, WordVocab.load)
    if vocab is None and run is not None:
        vocab = read_named("resume", str(run / WORD_VOCAB_FILE), WordVocab.load)
    train, heldout = prepare_texts(config, "CharacterBERT reads bytes of words")
    if vocab is None:
        build = lambda path: WordVocab.build(count_words(train), text.mlm_words, text.lowercase).save(path)
        cached = BuiltOnce(cache_dir(config), train)
        vocab = cached.get("words", (text.mlm_words, text.lowercase), build, WordVocab.load)
    return CharacterBertData(vocab, train, heldout)


def model_config(config: ml_collections.ConfigDict, vocab: WordVocab) -> CharacterBertConfig:
    """Returns the shape of the model that a run trains."""
    own = config.model.to_dict() | {"dtype": jnp.dtype(config.model.dtype), "vocab_size": vocab.size, "pooler": False}
    text = {name: config.text[name] for name in ("splitter", "language", "lowercase")}
    return CharacterBertConfig(**own, **text)
