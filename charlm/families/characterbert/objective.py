"""CharacterBERT's pre-training objective: predict masked whole words (section 3), without next-sentence prediction.

Most of it is shared (`charlm.families.spelled.masked_lm`); this module adds the words to predict and their head. Open
it to change what a run takes over from the model that it starts from.
"""

from __future__ import annotations

import logging
from pathlib import Path

import jax
import ml_collections
import numpy as np
from flax import traverse_util

from charlm.convert.heads import MASKED_LM
from charlm.core import checkpoint as checkpoints
from charlm.core.trees import flat
from charlm.core.types import JsonObject, Params
from charlm.families.characterbert.characters import shown
from charlm.families.characterbert.flops import characterbert_training
from charlm.families.characterbert.model import CharacterBertForMaskedLM
from charlm.families.characterbert.sequences import WholeWords, WordMaker, hiding_of
from charlm.families.characterbert.shape import CharacterBertData, model_config, prepare
from charlm.families.characterbert.vocab import WORD_VOCAB_FILE, WordVocab
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.spelled.batch import MaskedBatch
from charlm.families.spelled.masked_lm import MaskedSpelledLM
from charlm.families.spelled.model import smallest_batch
from charlm.families.stored import metadata_of
from charlm.families.subword.layout import config_to_dict

log = logging.getLogger("charlm")

NAME = "characterbert"
OUTPUT_PARAMETERS = "head/output_"  # prefix of the parameters that have one column for each word


class MaskedWordLM(MaskedSpelledLM):
    """Masked language modelling over frequent words; `shape` is the shape of every batch."""

    families = (NAME,)
    unit = "words"
    has_files = True
    of_shape = ("model.", "data.max_length", "text.lowercase", "text.mlm_words")

    def __init__(self, config: ml_collections.ConfigDict, data: CharacterBertData, shards: int) -> None:
        """Creates the model, and measures the sizes of the tables of distinct words; see `Objective`."""
        super().__init__(config, data, shards)
        self.model = CharacterBertForMaskedLM(model_config(config, data.vocab))
        self.shape = self.measure()

    def maker(self, seed: int, hiding: bool) -> WordMaker:
        """Returns the maker of sequences; `hiding`: every chosen word is masked, never kept or replaced at random."""
        cfg, vocab = self.config.data, self.data.vocab
        shares = (1.0, 0.0) if hiding else (cfg.mask_share, cfg.random_share)
        hidden = hiding_of(vocab, cfg.mask_rate, *shares)
        words, slots = WholeWords(self.config.text.lowercase), self.config.model.char_slots
        return WordMaker(words, cfg.max_length, seed, vocab, hidden, slots)

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> CharacterBertData:
        """Returns the encoded corpora and the words to predict; a resumed run keeps its words."""
        source = run or config.resume
        return prepare(config, checkpoints.files_of(checkpoints.find(source, key="resume")) if source else None)

    @staticmethod
    def check_vocab(checkpoint: Path, data: CharacterBertData) -> None:
        """Compares the lists of words to predict; see `Objective.check_vocab`."""
        if metadata_of(checkpoint, (NAME,)).get("words") != data.vocab.digest():
            file = checkpoints.files_of(checkpoint) / WORD_VOCAB_FILE
            raise ValueError(f"{checkpoint} predicts other words; set text.mlm_vocab={file}")

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters."""
        return self.model.init(key, smallest_batch())["params"]

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of a CharacterBERT; the output layer is fresh if that model predicts other words."""
        known = from_pretrained(source, family=NAME)
        if known.config.position != (position := self.model.config.position):
            raise ValueError(f"model.position={position}, but init_from={source} has {known.config.position} positions")
        words = (known.folder / WORD_VOCAB_FILE) if (known.folder / WORD_VOCAB_FILE).is_file() else None
        same = words is not None and WordVocab.load(words).digest() == self.data.vocab.digest()
        params, own = _merge_pretrained(known, fresh, same)
        parts = sorted({"/".join(name.split("/")[:2]) for name in own})
        log.info("parameters from %s; fresh: %s", source, ", ".join(parts) or "none")
        return params

    def training_flops(self, batch: MaskedBatch) -> float:
        """Returns the useful floating-point operations of a step."""
        return characterbert_training(self.model.config, batch)

    def metadata(self) -> JsonObject:
        """Returns the description of the model, as imported models have it, and the digest of its words."""
        model = config_to_dict(self.model.config)
        return {"family": NAME, "model": model, "head": MASKED_LM, "words": self.data.vocab.digest(), "hf_config": {}}

    def save_vocab(self, folder: Path) -> None:
        """Writes the words to predict."""
        self.data.vocab.save(folder / WORD_VOCAB_FILE)

    def start_lines(self) -> list[str]:
        """Returns the number of words to predict and the shape of a batch."""
        return [f"words to predict  {self.data.vocab.size:,}", self.batch_line()]

    def name_of(self, label: int) -> str:
        """Returns the word of a label."""
        return self.data.vocab.words[label]

    def read_at(self, batch: MaskedBatch, row: int, place: int) -> str:
        """Returns a word of the first shard as the model reads it, for people."""
        return shown(self.spelling_at(batch, row, place).tolist())


def _merge_pretrained(known: Pretrained, fresh: Params, same_words: bool) -> tuple[Params, list[str]]:
    """Replaces fresh parameters by those of another CharacterBERT; returns all, and the names of those still fresh.

    The encoder must fit completely. The other model's pooler and label heads are ignored.

    Args:
      same_words: whether the other model predicts the words of this run, so that its output layer is taken over.

    Raises:
      ValueError: naming a parameter of the encoder that is missing or has another shape.
    """
    ours, theirs = (flat(params) for params in (fresh, known.params))
    taken = {}
    for name, value in ours.items():
        found = theirs.get(name)
        if found is not None and found.shape == value.shape and (same_words or not name.startswith(OUTPUT_PARAMETERS)):
            taken[name] = jax.device_put(np.asarray(found), value.sharding)
        elif name.startswith(("bert/", "cnn/")):
            has = "nothing" if found is None else found.shape
            raise ValueError(f"init_from: {known.folder}: {name} is {has}, expected {value.shape}")
    return traverse_util.unflatten_dict(ours | taken, sep="/"), sorted(ours.keys() - taken.keys())
