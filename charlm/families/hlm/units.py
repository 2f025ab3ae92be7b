"""How HLM reads text for fine-tuning: its units are words, encoded once for each distinct word of a batch.

Fine-tuning tasks read text through it. Open it to change how texts and pairs become sequences of words.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import jax
import ml_collections
import numpy as np

from charlm.convert.heads import QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.core.types import Params
from charlm.data.batching import BatchShape, ShardPacker, WordSequence, bucket_of, edges, inference_slots
from charlm.data.forms import word_rows
from charlm.data.word_batch import WordBatch
from charlm.families.hlm.config import HLMConfig
from charlm.families.hlm.flops import hlm_states, lengths_of_batch
from charlm.families.hlm.labels import OURS
from charlm.families.hlm.model import HLM
from charlm.families.pretrained import Pretrained
from charlm.families.units import (
    Encoded,
    Joined,
    Lost,
    Packing,
    TablePacking,
    Units,
    checked_longest,
    given_words,
    part_numbers,
    texts_in_words,
)
from charlm.nn.apply import applied
from charlm.text.chars import CharVocab, WordEncoder
from charlm.text.words import get_splitter

ROUND = 16  # row counts of tables are rounded up to a multiple of this: for wide tiles and few different shapes


class HLMUnits(Units[BatchShape, WordBatch]):
    """[CLS] words [SEP], or [CLS] words [SEP] words [SEP] as in the released code; no segments (section 3.5).

    Args:
      config: the config of the run that pre-trained the model.
      vocab: its character vocabulary.
      longest: see `charlm.families.lookup.units_of`.
      read: the words of which the head also reads the characters; see `charlm.families.hlm.labels`.

    Attributes:
      read: as above.
      slots: character slots of a word.
    """

    pools_specials = False
    shares_rows = True

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        vocab: CharVocab,
        longest: int = 0,
        read: Literal["none", "first", "all"] = "none",
    ) -> None:
        self.longest = checked_longest(longest, config.data.max_words, 8)
        self.read = read
        self.slots = config.model.char_slots
        self._buckets = inference_slots(self.slots)
        self._splitter = get_splitter(config.text.splitter, config.text.language)
        self._encoder = WordEncoder(vocab, self.slots, config.text.normalize)

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Returns the words of texts."""
        return texts_in_words(texts, self._splitter, self._rows)

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoded]:
        """Returns the given words unchanged, one unit each."""
        return given_words(sentences, self._rows)

    def _rows(self, words: Sequence[str]) -> np.ndarray:
        return word_rows(self._encoder, words)

    def lost(self, sentences: Sequence[Sequence[str]], encoded: Sequence[Encoded]) -> Lost:
        """Returns the share of unknown characters and the share of words that are cut; see `Units.lost`."""
        counting = WordEncoder(self._encoder.vocab, self.slots, self._encoder.normalize)
        for words in sentences:
            counting.encode(words)
        return Lost(counting.chars_unknown / counting.chars_total, counting.words_cut / counting.words_total)

    def specials(self, pair: bool) -> int:
        """Returns the number of [CLS] and [SEP] in a row."""
        return 3 if pair else 2

    def join(self, first: Encoded, second: Encoded | None = None) -> Joined:
        """Returns the characters of the row, and marks the words whose characters the head reads; see `Units.join`."""
        cls, sep = edges(self.slots)
        parts = [cls, first.content, sep] + ([] if second is None else [second.content, sep])
        chars_WC = np.concatenate(parts)
        labels_WC = np.zeros_like(chars_WC)
        if self.read == "first":
            labels_WC[0] = chars_WC[0]
        elif self.read == "all":
            labels_WC = chars_WC
        content = WordSequence(chars_WC, labels_WC)
        return Joined(content, len(chars_WC), 1, 2 + len(first), 0)

    def measure(
        self, groups: Sequence[Sequence[Joined]], rows: int, length: int, slack: float = 0.0, least: int = 0
    ) -> BatchShape:
        """Returns a shape with room for the distinct words of each group."""
        counts = np.zeros((3, len(self._buckets)), np.int64)
        for group in groups:
            counts = np.maximum(counts, self._count(group))
        counts[0] = np.maximum(counts[0], least)
        counts = np.ceil(counts * (1 + slack) / ROUND).astype(int) * ROUND
        table, masked, labels = (tuple(row) for row in counts.tolist())
        if not any(table):
            table = (*table[:-1], ROUND)
        return BatchShape(1, rows, length, self._buckets, table, masked, labels)

    def _count(self, group: Sequence[Joined]) -> np.ndarray:
        """Returns counts [3, buckets]: distinct words read as vectors, distinct words read whole, and their places."""
        buckets = len(self._buckets)
        chars_NC = np.concatenate([row.content.chars_WC for row in group])
        read_N = np.concatenate([row.content.labels_WC.any(axis=1) for row in group])
        words, at_N = np.unique(chars_NC, axis=0, return_inverse=True)
        bucket_U = bucket_of((words != 0).sum(axis=1), self._buckets)
        read_U = np.bincount(at_N.reshape(-1), weights=read_N, minlength=len(words)) > 0
        return np.stack(
            [
                np.bincount(bucket_U[~read_U], minlength=buckets),
                np.bincount(bucket_U[read_U], minlength=buckets),
                np.bincount(bucket_U[at_N.reshape(-1)][read_N], minlength=buckets),
            ]
        )

    def widest(self, rows: int, length: int) -> BatchShape:
        """Returns a shape with one row of a single table for every position, as in the paper's reshape."""
        read = ({"none": 0, "first": rows, "all": rows * length}[self.read],)
        return BatchShape(1, rows, length, self._buckets[-1:], (rows * length,), read, read)

    def pack(self, rows: Sequence[Joined], shape: BatchShape) -> WordBatch | None:
        """Returns the rows as tables of distinct words; None when they do not fit the shape."""
        packer = ShardPacker(shape)
        if not all(packer.add(row.content) for row in rows):
            return None
        batch = packer.build()
        return batch if self.read != "none" else batch._replace(masked=())

    def numbered(self, inputs: WordBatch, rows: Sequence[Joined]) -> WordBatch:
        """Returns the rows with a mask that numbers their parts; see `Units.numbered`."""
        return inputs._replace(mask_SBW=part_numbers(rows, inputs.mask_SBW.shape))

    def packing(self, shape: BatchShape) -> Packing[WordBatch]:
        """Returns what takes rows as long as the tables have room for their words."""
        if self.read != "none":
            return super().packing(shape)

        def words(row: Joined) -> dict[Hashable, int]:
            chars_WC = row.content.chars_WC
            buckets = bucket_of((chars_WC != 0).sum(axis=1), shape.slots).tolist()
            return dict(zip(map(bytes, chars_WC), buckets, strict=True))

        return TablePacking(lambda rows: self.pack(rows, shape), words, shape.table)

    def forward_flops(self, config: HLMConfig, inputs: WordBatch) -> float:
        """Returns the operations within the distinct words and between words; see `Units.forward_flops`."""
        return hlm_states(config, lengths_of_batch(inputs))

    def states(self, config: HLMConfig, params: Params, inputs: WordBatch) -> jax.Array:
        """Returns the contextual word vectors; see `Units.states`."""
        return applied(HLM(config), {"params": params["hlm"]})(inputs).context_NWD


# The words of which each head of the released code reads the characters, in addition to the states between words.
_READ: dict[str, Literal["first", "all"]] = {
    SEQUENCE_CLASSIFICATION: "first",
    TOKEN_CLASSIFICATION: "all",
    QUESTION_ANSWERING: "all",
}


def units_of_model(pretrained: Pretrained, longest: int = 0) -> HLMUnits:
    """Returns the units of a loaded model; see `charlm.families.lookup.units_of`.

    Raises:
      ValueError: it is an HLM that writes, which reads words together with the spaces between them.
    """
    if pretrained.config.causal:
        raise ValueError(
            f"{pretrained.folder} is an HLM that writes, which is not fine-tuned: take one that reads both ways"
        )
    labels = pretrained.head in _READ and pretrained.metadata.get("label_head") not in OURS
    read = _READ[pretrained.head] if labels and pretrained.config.head_layers > 0 else "none"
    return HLMUnits(pretrained.run_config(), pretrained.vocab(), longest, read)
