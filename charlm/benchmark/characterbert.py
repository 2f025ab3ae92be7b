"""The path of charlm's CharacterBERT, with random weights, in the case `inference`: a rival of HLM's paper.

Every distinct word of a batch passes the CNN once; no vector is kept from batch to batch. Open it to change how
CharacterBERT is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from charlm.benchmark.bert import SMOKE
from charlm.benchmark.hlm import device_name, jax_peak, jax_speed, program_text
from charlm.benchmark.paths import Job, Runner
from charlm.benchmark.text import sentences
from charlm.core import flops
from charlm.core.state import on_processor
from charlm.core.types import Option
from charlm.families.characterbert.cnn import CharacterBertConfig
from charlm.families.characterbert.flops import cnn_forward
from charlm.families.characterbert.model import CharacterBert
from charlm.families.characterbert.units import CharacterBertUnits
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.batch import SpelledBatch
from charlm.families.spelled.model import smallest_batch
from charlm.families.spelled.predictor import read_codes
from charlm.families.subword.flops import bert_forward
from charlm.nn.apply import applied

SMOKE_CNN: dict[str, Option] = {"char_hidden": 4, "filters": (4,) * 7, "highways": 1}


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return CharacterBertInference(job)


class Words(NamedTuple):
    """A batch of words before its distinct ones are found: units [B, L], mask [B, L], and what knows the spellings."""

    codes_BL: np.ndarray
    mask_BL: np.ndarray
    units: CharacterBertUnits


class CharacterBertInference(Runner):
    """Computes contextual states [B, L, D] of all words."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        small = SMOKE | SMOKE_CNN if job.smoke else {}
        self.config = CharacterBertConfig(
            pooler=False, dtype=jnp.dtype(job.dtype), splitter="rules",  # the words of HLM
            max_positions=max(CharacterBertConfig.max_positions, *job.words), **small,
        )  # fmt: skip
        model = CharacterBert(self.config)
        self._params = jax.device_put(on_processor(lambda: model.init(jax.random.key(0), smallest_batch())["params"]))
        self._forward = jax.jit(lambda params, batch: applied(model, {"params": params})(batch).states_BLD)
        about = {"family": "characterbert", "head": "encoder"}
        whole = Pretrained(model, self._params, self.config, "characterbert", "encoder", Path(job.tokenizer), about)
        self._units = CharacterBertUnits(whole)
        self.about = {"device": device_name(), "parameters_dtype": "float32"}

    def tokenise(self, texts: list[str], words: int) -> Words:
        """See `Runner`; spells the words anew, with a list of spellings that is empty."""
        units = self._units.fresh()
        before, after = units.around
        rows = [
            np.concatenate([before, *(part for e in units.encode(sentences(text)) for part in (e.content, after))])
            for text in texts
        ]
        codes_BL = np.full((len(rows), max(map(len, rows))), units.pad, np.int32)
        mask_BL = np.zeros(codes_BL.shape, bool)
        for b, row in enumerate(rows):
            codes_BL[b, : len(row)], mask_BL[b, : len(row)] = row, True
        return Words(codes_BL, mask_BL, units)

    def _batch(self, host: Words) -> SpelledBatch:
        (batch,), _ = read_codes(host.units, None, {}, host.codes_BL, host.mask_BL)
        return batch

    def run(self, host: Words) -> jax.Array:
        """See `Runner`; finding the distinct words is part of it."""
        return self._forward(self._params, self._batch(host)).block_until_ready()

    def program(self, host: Words) -> str:
        """See `Runner`."""
        return program_text(self._forward.lower(self._params, self._batch(host)))

    def work(self, host: Words) -> dict[str, float]:
        """See `Runner`."""
        batch, found = self._batch(host), {}
        for name, measure in (("useful_gflop", flops.lengths_of), ("padded_gflop", flops.full_lengths)):
            words = sum((measure(chars[0]) for chars in batch.chars), flops.TotalLengths())
            found[name] = (cnn_forward(self.config, words) + bert_forward(self.config, measure(host.mask_BL))) / 1e9
        return found | jax_speed(self.job.dtype)

    def tokens(self, host: Words) -> tuple[float, int]:
        """See `Runner`; the tokens are words."""
        return float(host.mask_BL.sum(axis=1).mean()), host.mask_BL.shape[1]

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()
