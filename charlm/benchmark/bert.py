"""The path of charlm's BERT: BERT-base with random weights, which reads pieces of a WordPiece vocabulary.

It is the rival of HLM in the same library, and what the paths of `charbert` and `spelled` are compared with. Open it to
change the shape, the masking or the training step that BERT is measured with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from charlm.benchmark.hlm import compile_first, device_name, hlm_config, jax_peak, jax_speed, program_text
from charlm.benchmark.paths import TRAINING, UNPADDED, Job, Runner
from charlm.benchmark.text import sentences
from charlm.core import flops
from charlm.core.hashed_keys import hashed
from charlm.core.state import on_processor
from charlm.core.types import Array, Option, Params, Tree
from charlm.families.subword.bert import Bert, BertConfig, BertForMaskedLM
from charlm.families.subword.flops import bert_forward
from charlm.families.windows import packed
from charlm.nn.apply import applied
from charlm.text.subwords import SubwordTokenizer
from charlm.training.run import optimizer_of

_State = tuple[Tree, optax.OptState, jax.Array]  # parameters, moments, number of the step

SMOKE: dict[str, Option] = {"hidden": 32, "layers": 1, "heads": 2, "ffn": 48}
SORTED = 8  # texts of a call whose texts are sorted by length
MASK_RATE, MASK_SHARE, RANDOM_SHARE = 0.15, 0.8, 0.1  # Devlin et al., section 3.1


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return BertTraining(job) if job.case == TRAINING else BertInference(job)


class MaskedSubwords(NamedTuple):
    """A batch of pieces, some masked: positions and labels [B, M] of the masked ones; `weight_BM` is 0 at padding."""

    ids_BL: Array
    mask_BL: Array
    positions_BM: Array
    labels_BM: Array
    weight_BM: Array


def subwords(tokenizer: SubwordTokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and mask [B, L] of texts or pairs, padded to the longest; without segments, which cost nothing."""
    firsts = [sentences(text)[0] for text in texts]
    seconds = [second for text in texts for second in sentences(text)[1:]]  # of none or of all
    batch = tokenizer.pad(tokenizer.encode_batch(firsts, seconds or None))
    return batch.ids_BW, batch.mask_BW


def sorted_calls(ids_BL: np.ndarray, mask_BL: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields texts by their length, a few a call, cut to the longest of the call: their numbers, ids and mask."""
    lengths_B = mask_BL.sum(axis=1)
    order_B = np.argsort(lengths_B, kind="stable")
    for begin in range(0, len(order_B), SORTED):
        chosen = order_B[begin : begin + SORTED]
        longest = lengths_B[chosen[-1]]
        yield chosen, ids_BL[chosen, :longest], mask_BL[chosen, :longest]


def masked_subwords(tokenizer: SubwordTokenizer, texts: list[str]) -> MaskedSubwords:
    """Encodes texts and masks 15 % of the pieces of each: 80 % become [MASK], 10 % random pieces, 10 % stay."""
    ids_BL, mask_BL = subwords(tokenizer, texts)
    rng = np.random.default_rng(0)
    counts_B = np.maximum(1, np.round(MASK_RATE * (mask_BL.sum(axis=1) - 2))).astype(int)
    positions_BM = np.zeros((len(texts), counts_B.max()), np.int32)
    weight_BM = np.zeros(positions_BM.shape, np.float32)
    for b, count in enumerate(counts_B):
        inner = np.arange(1, mask_BL[b].sum() - 1)  # neither [CLS] nor [SEP]
        positions_BM[b, :count] = np.sort(rng.permutation(inner)[:count])
        weight_BM[b, :count] = 1
    labels_BM = np.take_along_axis(ids_BL, positions_BM, axis=1)
    kind_BM, random_BM = rng.random(labels_BM.shape), rng.integers(5, tokenizer.size, labels_BM.shape)
    shown_BM = np.where(kind_BM < MASK_SHARE + RANDOM_SHARE, random_BM, labels_BM)
    shown_BM = np.where(kind_BM < MASK_SHARE, tokenizer.special.needed("mask"), shown_BM)
    rows_B1 = np.arange(len(texts))[:, None]
    real = weight_BM > 0
    ids_BL[np.broadcast_to(rows_B1, real.shape)[real], positions_BM[real]] = shown_BM[real]
    return MaskedSubwords(ids_BL, mask_BL, positions_BM, labels_BM, weight_BM)


class _Bert(Runner):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._tokenizer = SubwordTokenizer.load(job.tokenizer)
        self.about = {"device": device_name(), "parameters_dtype": "float32"}

    def _shape(self, length: int) -> BertConfig:
        """Returns the config of BERT-base, with a larger table of positions if texts have more than 512 pieces."""
        fields: dict[str, Option] = dict(SMOKE) if self.job.smoke else {}
        if self.job.attention_kernel:
            fields["attention_kernel"] = self.job.attention_kernel
        rows = max(BertConfig.vocab_size, self._tokenizer.size)
        positions = max(BertConfig.max_positions, length)
        dtype = jnp.dtype(self.job.dtype)
        return BertConfig(vocab_size=rows, max_positions=positions, pooler=False, dtype=dtype, **fields)

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()


class BertInference(_Bert):
    """Computes contextual states [B, L, D] of all pieces."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._is_unpadded = job.path.endswith(UNPADDED)
        self._longest = max(subwords(self._tokenizer, texts)[0].shape[1] for texts in job.texts)
        model = Bert(self._shape(self._longest))
        first = on_processor(lambda: model.init(jax.random.key(0), np.ones((1, 3), np.int32))["params"])
        self._params = jax.device_put(first)
        self._forward = jax.jit(lambda params, ids, mask: applied(model, {"params": params})(ids, mask).states_BLD)

    def tokenise(self, texts: list[str], words: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Runner`."""
        return subwords(self._tokenizer, texts)

    def run(self, host: tuple[np.ndarray, np.ndarray]) -> object:
        """See `Runner`; laying texts end to end is part of it."""
        found = jax.block_until_ready([self._forward(self._params, *inputs) for inputs in self._inputs(host)])
        return found if self._is_unpadded else found[0]

    def _inputs(self, host: tuple[np.ndarray, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields ids and mask of each call: all texts, padded to the longest, or as `SubwordPredictor` reads them."""
        if not self._is_unpadded:
            yield host
            return
        rows = [row_L[mask_L].tolist() for row_L, mask_L in zip(*host, strict=True)]
        for _, ids_BL, mask_BL in packed(rows, len(rows), max(BertConfig.max_positions, self._longest), 0, splits=True):
            yield ids_BL, mask_BL

    def program(self, host: tuple[np.ndarray, np.ndarray]) -> str:
        """See `Runner`."""
        return program_text(self._forward.lower(self._params, *next(self._inputs(host))))

    def work(self, host: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
        """See `Runner`."""
        useful, padded = (bert_forward(self._shape(self._longest), measure(host[1]))
                          for measure in (flops.lengths_of, flops.full_lengths))  # fmt: skip
        with_padding = {} if self._is_unpadded else {"padded_gflop": padded / 1e9}
        return {"useful_gflop": useful / 1e9} | with_padding | jax_speed(self.job.dtype)

    def tokens(self, host: tuple[np.ndarray, np.ndarray]) -> tuple[float, int]:
        """See `Runner`."""
        positions = sum(ids_BL.size for ids_BL, _ in self._inputs(host))
        return float(host[1].sum(axis=1).mean()), round(positions / len(host[1]))


class BertTraining(_Bert):
    """Runs optimizer steps of masked language modelling, with the head at masked positions only and with dropout."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._optimizer = optimizer_of(hlm_config(job))  # the same as HLM's
        longest = max(subwords(self._tokenizer, texts)[0].shape[1] for texts in job.texts)
        self._model = BertForMaskedLM(self._shape(longest))
        self._state: _State | None = None
        self._step = jax.jit(self._next, donate_argnums=0)

    def tokenise(self, texts: list[str], words: int) -> MaskedSubwords:
        """See `Runner`."""
        return masked_subwords(self._tokenizer, texts)

    def _next(self, state: _State, batch: MaskedSubwords) -> tuple[_State, jax.Array]:
        params, moments, number = state
        rngs = {"dropout": jax.random.fold_in(hashed(jax.random.key(0)), number)}

        def loss(params: Params) -> jax.Array:
            predict = applied(self._model, {"params": params}, rngs)
            where = batch.positions_BM
            logits_BMV = predict(batch.ids_BL, batch.mask_BL, positions_BM=where, deterministic=False).logits
            nats_BM = optax.softmax_cross_entropy_with_integer_labels(logits_BMV, batch.labels_BM)
            return (nats_BM * batch.weight_BM).sum() / batch.weight_BM.sum()

        value, grads = jax.value_and_grad(loss)(params)
        updates, moments = self._optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments, number + 1), value

    def run(self, host: MaskedSubwords) -> jax.Array:
        """See `Runner`."""
        self._state, value = self._step(self._state, host)
        return value.block_until_ready()

    def program(self, host: MaskedSubwords) -> str:
        """See `Runner`."""
        return program_text(self._step.lower(self._state, host))

    def warm(self, host: MaskedSubwords) -> None:
        """See `Runner`."""

        def init() -> _State:
            params = self._model.init(jax.random.key(0), np.ones((1, 3), np.int32))["params"]
            return params, self._optimizer.init(params), jnp.zeros((), jnp.int32)

        self._state = None  # free the state of the previous batch, so that there are never two
        self._state = jax.device_put(on_processor(init))
        compile_first(self._step, self._state, host)
        self.run(host)

    def tokens(self, host: MaskedSubwords) -> tuple[float, int]:
        """See `Runner`."""
        return float(host.mask_BL.sum(axis=1).mean()), host.mask_BL.shape[1]
