"""The paths of charlm's CharBERT, with random weights: the fusion of the paper and that of the released code.

The case `charbert` measures them beside BERT-base on the same pieces. Open it to change the settings of a measured
fusion.
"""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np

from charlm.benchmark.bert import SMOKE, subwords
from charlm.benchmark.hlm import device_name, jax_peak, jax_speed, program_text
from charlm.benchmark.paths import Job, Runner
from charlm.core import flops
from charlm.core.state import on_processor
from charlm.core.types import Option
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.char_inputs import PieceChars
from charlm.families.charbert.flops import charbert_forward
from charlm.families.charbert.model import CharBert, CharBertConfig
from charlm.families.charbert.tensors import smallest_batch
from charlm.families.subword.bert import BertConfig
from charlm.nn.apply import applied
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab

FUSION_VARIANTS: dict[str, dict[str, Option]] = {
    "charbert_paper": {"fusion": "paper", "shared_fusion": True, "windows": (3,)},  # as configs/charbert_base.py has it
    "charbert_reference": {"fusion": "reference", "windows": (3,)},
}
SMOKE_CHARS: dict[str, Option] = {"char_hidden": 8}


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return CharBertInference(job)


class CharBertInference(Runner):
    """Computes contextual states [B, L, 2D] of all pieces, both channels joined."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._tokenizer = SubwordTokenizer.load(job.tokenizer)
        counts = Counter(char for texts in job.texts for text in texts for char in text)
        self._chars = PieceChars(self._tokenizer, SymbolVocab.build(counts))
        longest = max(subwords(self._tokenizer, texts)[0].shape[1] for texts in job.texts)
        small: dict[str, Option] = SMOKE | SMOKE_CHARS if job.smoke else {}
        self.config = CharBertConfig(
            vocab_size=max(BertConfig.vocab_size, self._tokenizer.size), pooler=False, dtype=jnp.dtype(job.dtype),
            max_positions=max(BertConfig.max_positions, longest), **FUSION_VARIANTS[job.path], **small,
        )  # fmt: skip
        model = CharBert(self.config)
        first = on_processor(lambda: model.init(jax.random.key(0), smallest_batch())["params"])
        self._params = jax.device_put(first)
        self._forward = jax.jit(lambda params, batch: applied(model, {"params": params})(batch).both_BLE)
        self.about = {"device": device_name(), "parameters_dtype": "float32"}

    def tokenise(self, texts: list[str], words: int) -> CharBertBatch:
        """See `Runner`."""
        ids_BL, mask_BL = subwords(self._tokenizer, texts)
        rows = [ids_L[mask_L] for ids_L, mask_L in zip(ids_BL, mask_BL, strict=True)]
        B, L = ids_BL.shape
        return CharBertBatch(ids_BL, None, mask_BL, *self._chars.rows(rows, B, L))

    def run(self, host: CharBertBatch) -> jax.Array:
        """See `Runner`."""
        return self._forward(self._params, host).block_until_ready()

    def program(self, host: CharBertBatch) -> str:
        """See `Runner`."""
        return program_text(self._forward.lower(self._params, host))

    def work(self, host: CharBertBatch) -> dict[str, float]:
        """See `Runner`; the useful operations of the GRU are those up to the last character of each row."""
        used = np.where(host.real_BL, host.ends_BL + 1, 0).max(axis=1).sum()
        useful = charbert_forward(self.config, flops.lengths_of(host.mask_BL), float(used))
        padded = charbert_forward(self.config, flops.full_lengths(host.mask_BL), float(host.chars_BN.size))
        return {"useful_gflop": useful / 1e9, "padded_gflop": padded / 1e9} | jax_speed(self.job.dtype)

    def tokens(self, host: CharBertBatch) -> tuple[float, int]:
        """See `Runner`; the tokens are pieces."""
        return float(host.real_BL.sum(axis=1).mean()), host.real_BL.shape[1]

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()
