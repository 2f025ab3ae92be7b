"""The training of a recogniser: cross entropy of every word of misspelled text, over the known words and "none".

`run` trains with it. Open it to change the loss, or what a run reports of held-out text.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm.core import checkpoint as checkpoints
from charlm.core.files import cache_dir
from charlm.core.flops import TRAINING
from charlm.core.types import JsonObject, Params
from charlm.data.corpus import EncodedCorpus, prepare_texts
from charlm.data.subword_building import BuiltOnce, count_words
from charlm.families.text_objective import EVAL_MASKS, TextObjective, sequences_of
from charlm.nn.apply import applied
from charlm.nn.label_sums import label_sums
from charlm.wordrec.batches import RecogniserBatch, RowMaker, RowShard
from charlm.wordrec.config import noises_of
from charlm.wordrec.model import Recogniser, RecogniserConfig
from charlm.wordrec.words import UNKNOWN, WORDS_FILE, KnownWords

log = logging.getLogger("charlm")

NAME = "wordrec"  # in the place of a family in the metadata of checkpoints


class RecogniserData(NamedTuple):
    """The words of a recogniser and the corpora that batches are made from."""

    known: KnownWords
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]


class RecogniserSums(NamedTuple):
    """Sums over the words of a batch, float32 scalars."""

    nats: jax.Array  # negative log-likelihood of the labels
    words: jax.Array  # number of words
    right: jax.Array  # number of words that are recognised; those that are not in the list never are
    changed: jax.Array  # number of misspelled words
    changed_right: jax.Array  # number of these that are recognised


class WordRecognition(TextObjective):
    """Recognises words; `shape` is (rows of a shard, words of a row)."""

    sums = RecogniserSums
    unit = "words"
    families = (NAME,)
    has_files = True
    idle = ()
    of_shape = ("model.", "text.words", "text.characters")
    use = "python -m charlm.wordrec measure --defence wordrec:{workdir} symspell --data FILE"
    model: Recogniser
    shape: tuple[int, int]

    def __init__(self, config: ml_collections.ConfigDict, data: RecogniserData, shards: int) -> None:
        """Creates the model; see `Objective`."""
        super().__init__(config, data, shards)
        known = data.known
        dtype = jnp.dtype(config.model.dtype)
        self.model = Recogniser(RecogniserConfig(known.alphabet, known.size, config.model.hidden, dtype))
        self.shape = sequences_of(config, shards), config.data.max_length

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> RecogniserData:
        """Returns the words and the encoded corpora; a resumed run keeps its words."""
        train, heldout = prepare_texts(config, "a word recogniser misspells text")
        if run is not None:
            path = checkpoints.files_of(checkpoints.find(run)) / WORDS_FILE
            return RecogniserData(KnownWords.load(path), train, heldout)
        text = config.text
        key = (text.words, text.characters, text.splitter, text.language)
        build = lambda path: KnownWords.build(count_words(train), *key).save(path)
        known = BuiltOnce(cache_dir(config), train).get("recognised", key, build, KnownWords.load)
        return RecogniserData(known, train, heldout)

    @staticmethod
    def check_vocab(checkpoint: Path, data: RecogniserData) -> None:
        """Compares the words; see `Objective.check_vocab`."""
        if checkpoints.read_metadata(checkpoint).get("words") != data.known.digest():
            raise ValueError(f"{checkpoint} knows other words than this run: choose another --workdir")

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns the accuracy of misspelled words before and after."""
        before, after = (100 * line["heldout_changed_accuracy"] for line in (first, last))
        return f"misspelled held-out words right: {before:.1f} % before, {after:.1f} % after"

    def maker(self, seed: int, hiding: bool) -> RowMaker:
        """Returns the maker of rows; held-out text is misspelled as the text of training is."""
        return RowMaker(self.config.data.max_length, noises_of(self.config), seed + EVAL_MASKS * hiding)

    def shard(self) -> RowShard:
        """Returns an empty shard."""
        return RowShard(self.data.known, *self.shape)

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters."""
        batch = RowShard(self.data.known, 1, 1).build()
        return self.model.init(key, *batch.read, batch.mask_SBL)["params"]

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Refuses: a recogniser starts from fresh parameters."""
        raise ValueError(f"init_from={source}: a word recogniser starts from fresh parameters")

    def loss_sums(self, params: Params, micro_batch: RecogniserBatch, dropout_key: jax.Array | None) -> RecogniserSums:
        """Returns the sums of a micro-batch [S, ...]; there is no dropout."""
        one_axis = lambda x: x.reshape(-1, *x.shape[2:])
        read = jax.tree.map(one_axis, micro_batch.read)
        recognise, mask_BL = applied(self.model, {"params": params}), one_axis(micro_batch.mask_SBL)
        logits_BLV = recognise(read.first, read.inner, read.last, mask_BL)
        labels_BL, changed_BL = one_axis(micro_batch.labels_SBL), one_axis(micro_batch.changed_SBL)
        nats, words, _ = label_sums(logits_BLV, labels_BL)
        right_BL = (logits_BLV.argmax(axis=-1) == labels_BL) & (labels_BL > UNKNOWN)
        count = lambda x: x.sum(dtype=jnp.float32)
        return RecogniserSums(nats, words, count(right_BL), count(changed_BL), count(right_BL & changed_BL))

    def count(self, batch: RecogniserBatch) -> int:
        """Returns the number of words in a host batch."""
        return int(batch.mask_SBL.sum())

    def training_flops(self, batch: RecogniserBatch) -> float:
        """Returns the useful floating-point operations of a step."""
        cfg = self.model.config
        gates = 2 * 4 * cfg.hidden * (3 * cfg.alphabet + cfg.hidden)  # of both directions
        return TRAINING * 2 * self.count(batch) * (gates + 2 * cfg.hidden * cfg.labels)

    def summarize(self, sums: RecogniserSums) -> dict[str, float]:
        """Returns the loss, in nats per word, and the accuracy of all words and of the misspelled ones.

        A word that is not in the list counts as wrong: "unknown" brings nothing back.

        Raises:
          ValueError: there was no word.
        """
        nats, words, right, changed, changed_right = (float(x) for x in sums)
        if not words:
            raise ValueError("no word was read: too little text")
        return {"loss": nats / words, "accuracy": right / words, "changed_accuracy": changed_right / max(changed, 1.0)}

    def measured(self) -> JsonObject:
        """Returns the number of shards, for the config that is saved."""
        return {"data.table_shards": self.shards}

    def metadata(self) -> JsonObject:
        """Returns the shape of the model and the digest of its words."""
        cfg = self.model.config
        shape = {"alphabet": cfg.alphabet, "labels": cfg.labels, "hidden": cfg.hidden}
        return {"family": NAME, "model": shape, "words": self.data.known.digest()}

    def save_vocab(self, folder: Path) -> None:
        """Writes the words and characters."""
        self.data.known.save(folder / WORDS_FILE)

    def start_lines(self) -> list[str]:
        """Returns the number of words and characters, and the shape of a batch."""
        known, (rows, length) = self.data.known, self.shape
        return [
            f"words  {len(known.words):,} to recognise, {len(known.characters)} characters",
            f"batch  {self.shards} shards x {rows} rows x {length} words; noise {', '.join(self.config.data.noise)}",
        ]

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns the loss and the accuracies."""
        return self.heldout_line(scalars)

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns the loss and the accuracies."""
        right, changed = 100 * metrics["accuracy"], 100 * metrics["changed_accuracy"]
        return f"loss {metrics['loss']:.4f}, {right:.1f} % of words right, {changed:.1f} % of misspelled ones"

    def show_examples(self, params: Params) -> None:
        """Logs some held-out rows as they are meant, read and recognised."""
        count, known = self.config.train.examples, self.data.known
        if not count or (batch := self.first_heldout()) is None:
            return
        read, mask_BL = jax.tree.map(lambda x: x[0, 0], (batch.read, batch.mask_SBL))
        recognise = jax.jit(lambda params, *inputs: applied(self.model, {"params": params})(*inputs).argmax(axis=-1))
        found_BL, labels_BL = np.asarray(recognise(params, *read, mask_BL)), batch.labels_SBL[0, 0]
        name = lambda label: known.word(label) or "?"
        for row in range(min(count, int(mask_BL.any(axis=1).sum()))):
            real = slice(0, int(mask_BL[row].sum()))
            log.info("meant       %s", " ".join(map(name, labels_BL[row, real].tolist())))
            log.info("recognised  %s", " ".join(map(name, found_BL[row, real].tolist())))
        log.info("? stands for a word that is not one of the %d (label %d)", len(known.words), UNKNOWN)
