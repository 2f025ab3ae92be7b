"""The paths of HLM: the paper's reshape, tables of distinct words, and a cache of word vectors.

Open it to see exactly what is timed. All paths start from the same host array, the characters of every word [texts,
words, slots]. The search for distinct words, where a path needs it, is part of the measured work.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm.benchmark.paths import PRODUCT, REMAT, TRAINING, UNPADDED, Job, Runner, product_speed
from charlm.benchmark.text import sentences
from charlm.config import load_config_file
from charlm.core import flops
from charlm.core.cache import WordCache
from charlm.core.memory import give_memory_back
from charlm.core.state import TrainState, new_state, on_processor, stream_key
from charlm.core.step import make_train_step, step_options
from charlm.core.trees import stack
from charlm.core.types import Tree
from charlm.data.batching import BatchShape, ShardPacker, WordSequence, cache_slots, inference_slots, pack_all
from charlm.data.budgets import measure_shape
from charlm.data.forms import encoded_record, rows_of
from charlm.data.masking import mask_words
from charlm.data.records import EncodedRecord
from charlm.data.word_batch import WordBatch, reshape_batch
from charlm.families.hlm.config import model_config
from charlm.families.hlm.flops import BatchLengths, hlm_forward, lengths_of_batch
from charlm.families.hlm.loss import MaskedCharSums, masked_char_sums
from charlm.families.hlm.model import HLM, HLMForMaskedLM
from charlm.families.hlm.shape import masking_of
from charlm.families.unpadded import Call, calls
from charlm.families.windows import rounded, rows_a_call
from charlm.nn.apply import applied
from charlm.nn.attention import PROJECTED
from charlm.nn.kernels import this_machine
from charlm.text.chars import CLS, SEP, CharVocab, WordEncoder
from charlm.text.words import RulesSplitter
from charlm.training.run import optimizer_of

SMOKE = {"hidden": 32, "heads": 2, "intra_layers": 1, "inter_layers": 1, "intra_ffn": 48, "inter_ffn": 48,
         "position_buckets": 16, "max_relative_words": 32}  # fmt: skip


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return HLMTraining(job) if job.case == TRAINING else HLMInference(job)


def hlm_config(job: Job) -> ml_collections.ConfigDict:
    """Returns the config of the model to measure."""
    config = load_config_file(job.config)
    config.model.dtype = job.dtype
    config.model.remat = job.path.endswith(REMAT)
    if job.attention_kernel:
        config.model.attention_kernel = job.attention_kernel
    if job.smoke:
        config.model.update(SMOKE)
    return config


def device_name() -> str:
    """Returns the devices that JAX uses."""
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}"


def jax_peak() -> int | None:
    """Returns the peak memory of the first accelerator in bytes."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def compile_first(step: jax.stages.Wrapped, *inputs: Tree) -> None:
    """Compiles a training step before it runs, as training does, and releases the memory that the compiler used."""
    step.lower(*inputs).compile()
    give_memory_back()


def program_text(lowered: jax.stages.Lowered) -> str:
    """Returns the text of a compiled program; raises ValueError if the backend provides none."""
    text = lowered.compile().as_text()
    if text is None:
        raise ValueError(f"programs of the backend {jax.default_backend()} have no text")
    return text


def jax_speed(dtype: str) -> dict[str, float]:
    """Returns `peak_gflop`, the peak speed of all devices in GFLOP/s; empty if it is unknown."""
    peak = flops.peak(jax.devices()[0].device_kind, dtype)
    return {"peak_gflop": peak * jax.device_count() / 1e9} if peak else {}


def bare_product(dtype: str) -> float:
    """Returns the speed of a bare product in JAX in GFLOP/s, by which speeds on several machines are compared."""
    rows, width, columns = PRODUCT
    x, y = (jnp.full(shape, 0.5, jnp.dtype(dtype)) for shape in ((rows, width), (width, columns)))
    multiply = jax.jit(jnp.matmul)
    return product_speed(lambda: multiply(x, y).block_until_ready())


def unpadded(chars_BWC: np.ndarray) -> list[np.ndarray]:
    """Returns the words [W, C] of each text, without padding."""
    return [chars_WC[: np.count_nonzero(chars_WC[:, 0])] for chars_WC in chars_BWC]


class _HLM(Runner):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.config = hlm_config(job)
        self.path = job.path.removesuffix(REMAT).removesuffix(UNPADDED)
        self.is_unpadded = job.path.endswith(UNPADDED)
        self.slots: int = self.config.model.char_slots
        self._vocab = CharVocab.from_dict(job.chars)
        self.about = {"device": device_name(), "parameters_dtype": "float32"}

    def chars(self, texts: list[str], words: int) -> np.ndarray:
        """Returns the characters [B, W, C] of texts or pairs, with a new encoder, whose cache is empty."""
        encoder = WordEncoder(self._vocab, self.slots)
        chars_BWC = np.zeros((len(texts), words, self.slots), np.uint16)
        for b, text in enumerate(texts):
            chars_BWC[b, 0, 0], at = CLS, 1
            for part in sentences(text):
                rows_WC = rows_of(self.record([part], encoder), self.slots)
                end = at + len(rows_WC)
                chars_BWC[b, at:end], chars_BWC[b, end, 0], at = rows_WC, SEP, end + 1
        return chars_BWC

    def record(self, texts: list[str], encoder: WordEncoder) -> EncodedRecord:
        """Returns all words of texts as one long sentence."""
        splitter = RulesSplitter()
        words = [text[start:end] for text in texts for start, end in splitter.spans(text)]
        return encoded_record(encoder, words)

    def used_slots(self, chars_BWC: np.ndarray) -> int:
        """Returns the slots to which the reshape pads words: the longest word's, a multiple of 8 (appendix A.3)."""
        longest = int((chars_BWC != 0).sum(axis=-1).max())
        return min(math.ceil(longest / 8) * 8, self.slots)

    @abc.abstractmethod
    def lengths(self, host: Tree, padded: bool) -> BatchLengths:
        """Returns the lengths in a batch, from which its operations are counted.

        Args:
          host: the host arrays of the batch.
          padded: whether padding counts.
        """

    def work(self, host: Tree) -> dict[str, float]:
        """See `Runner`."""
        shape, passes = model_config(self.config), flops.TRAINING if self.job.case == TRAINING else 1
        useful, padded = (passes * hlm_forward(shape, self.lengths(host, padded)) for padded in (False, True))
        with_padding = {} if self.is_unpadded else {"padded_gflop": padded / 1e9}
        return {"useful_gflop": useful / 1e9} | with_padding | jax_speed(self.job.dtype)

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()


class HLMInference(_HLM):
    """Computes contextual word vectors [B, W, D] of a batch."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        cfg = model_config(self.config)
        model = HLM(cfg)
        example = reshape_batch(np.ones((1, 3, self.slots), np.uint16))
        self._params = jax.device_put(on_processor(lambda: model.init(jax.random.key(0), example)["params"]))
        self._inside = {name: self._params[name] for name in ("embed", "intra_word")}
        self._buckets = inference_slots(self.slots)
        self._forward = jax.jit(lambda params, batch: applied(model, {"params": params})(batch).context_NWD)
        # As in `HLMPredictor`, values that depend on parameters only are computed once.
        positions_of = lambda hlm: hlm.inter_word.project_positions()
        project = lambda params: model.apply({"params": params}, method=positions_of, mutable=PROJECTED)[1]
        self._positions = jax.jit(project)(self._params).get(PROJECTED, {})
        self._context = jax.jit(
            lambda params, kept, *words: model.apply(
                {"params": params, PROJECTED: kept}, *words, method="contextualize"
            )
        )
        encode = jax.jit(lambda params, chars: model.apply({"params": params}, chars, method="encode_words"))
        self._cache = WordCache(encode, cfg.hidden, cfg.dtype, cache_slots(self.slots))

    def tokenise(self, texts: list[str], words: int) -> np.ndarray:
        """See `Runner`; shorter texts are padded to the longest, as in the other models."""
        return self.chars(texts, words)

    def run(self, host: np.ndarray) -> object:
        """See `Runner`; finding the distinct words is part of it, and laying texts end to end."""
        if self.is_unpadded:
            return jax.block_until_ready([self._context(*inputs) for inputs in self._end_to_end(host)])
        if self.path == "reshape":
            return self._forward(self._params, reshape_batch(host[..., : self.used_slots(host)])).block_until_ready()
        if self.path == "table":
            return self._forward(self._params, self._tables(host)).block_until_ready()
        words_NWD = self._cache.read(self._inside, host)
        return self._context(self._params, self._positions, words_NWD, host[..., 0] != 0).block_until_ready()

    def _laid(self, texts: list[np.ndarray]) -> Iterator[tuple[Call, np.ndarray]]:
        """Yields the calls that read these texts [W, C], and the mask of each; see `HLMPredictor.encode`."""
        lengths = [len(chars_WC) for chars_WC in texts]
        for call in calls(lengths, rounded, lambda length: rows_a_call(len(texts), length)):
            yield call, call.mask(lengths)

    def _end_to_end(self, chars_BWC: np.ndarray) -> Iterator[tuple[Tree, ...]]:
        """Yields the inputs of `_context` for each call."""
        texts = unpadded(chars_BWC)
        for call, mask_BW in self._laid(texts):
            words_BWD = self._cache.read(self._inside, call.filled(texts, np.zeros(self.slots, np.uint16)))
            yield self._params, self._positions, words_BWD, mask_BW

    def _tables(self, chars_BWC: np.ndarray) -> WordBatch:
        sequences = [WordSequence(chars_WC, np.zeros_like(chars_WC)) for chars_WC in unpadded(chars_BWC)]
        return pack_all(sequences, chars_BWC.shape[1], self._buckets)

    def lengths(self, host: np.ndarray, padded: bool) -> BatchLengths:
        """See `_HLM`; with a warm cache, only the layers between words count.

        With a cold cache, distinct words count as well, without padding.
        """
        reshaped = padded and self.path == "reshape"
        batch = reshape_batch(host[..., : self.used_slots(host)]) if reshaped else self._tables(host)
        cached = self.path.startswith("cache")
        found = lengths_of_batch(batch, padded and not cached)
        if cached:
            found = found._replace(words=lengths_of_batch(batch, padded).words)
        return found._replace(table=flops.TotalLengths()) if self.path == "cache_warm" else found

    def program(self, host: np.ndarray) -> str:
        """See `Runner`; for cached words, this is the program of the layers between words."""
        if self.is_unpadded:
            return program_text(self._context.lower(*next(self._end_to_end(host))))
        if self.path.startswith("cache"):
            words_NWD = self._cache.read(self._inside, host)
            lowered = self._context.lower(self._params, self._positions, words_NWD, host[..., 0] != 0)
            return program_text(lowered)
        reshaped = self.path == "reshape"
        batch = reshape_batch(host[..., : self.used_slots(host)]) if reshaped else self._tables(host)
        return program_text(self._forward.lower(self._params, batch))

    def forget(self) -> None:
        """See `Runner`."""
        if self.path == "cache_cold":
            self._cache.clear()

    def tokens(self, host: np.ndarray) -> tuple[float, int]:
        """See `Runner`."""
        positions = host.size // self.slots
        if self.is_unpadded:
            positions = sum(call.rows * call.length for call, _ in self._laid(unpadded(host)))
        return float((host[..., 0] != 0).sum(axis=1).mean()), round(positions / len(host))


class HLMTraining(_HLM):
    """Runs optimizer steps on masked words: forward pass, backward pass, update; with dropout."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._masking = masking_of(self.config, self._vocab.size)
        self._model, self._optimizer = HLMForMaskedLM(model_config(self.config)), optimizer_of(self.config)
        self._state: TrainState | None = None
        loss_sums = lambda params, batch, key: masked_char_sums(self._model, params, batch, key)
        self._step = jax.jit(
            make_train_step(loss_sums, self._optimizer, seed=0),
            donate_argnums=0,
            compiler_options=step_options(self.config.model.remat, jax.default_backend()),
        )

    def tokenise(self, texts: list[str], words: int) -> list[WordSequence]:
        """See `Runner`; also measures the budgets, since a training run knows them before its first batch."""
        rng = np.random.default_rng(0)
        rows = unpadded(self.chars(texts, words))
        made = [WordSequence(*mask_words(chars_WC, self._masking, rng)) for chars_WC in rows]
        self._sequences, self._shape = made, self._budgets([len(sequence.chars_WC) for sequence in made])
        return made

    def pack(self, host: list[WordSequence]) -> WordBatch:
        """See `Runner`; finds the distinct words, or pads as the paper does."""
        return stack([self._packed(host) if self.path == "table" else self._reshaped(host)])

    def _reshaped(self, sequences: list[WordSequence]) -> WordBatch:
        words = max(len(sequence.chars_WC) for sequence in sequences)
        pad = lambda rows_WC: np.pad(rows_WC, ((0, words - len(rows_WC)), (0, 0)))
        chars_BWC, labels_BWC = (np.stack([*map(pad, arrays)]) for arrays in zip(*sequences, strict=True))
        used = self.used_slots(chars_BWC)  # masked words keep their length
        return reshape_batch(chars_BWC[..., :used], labels_BWC[..., :used])

    def _packed(self, sequences: list[WordSequence]) -> WordBatch:
        """Packs the batch as training does, into budgets that were measured on more of the corpus than this batch."""
        packer = ShardPacker(self._shape)
        if all(packer.add(sequence) for sequence in sequences):
            self.about["budgets"] = "measured, as in training"
            return stack([packer.build()])
        self.about["budgets"] = "this batch's own: it does not fit the measured ones"
        return pack_all(sequences, max(len(sequence.chars_WC) for sequence in sequences), self._shape.slots)

    def _budgets(self, lengths: list[int]) -> BatchShape:
        encoder = WordEncoder(self._vocab, self.slots)
        records = [self.record(texts, encoder) for texts in self.job.budget_texts]
        # One long sentence is cut into full sequences, as the batch is. The short texts of a drawn batch would be
        # joined until a sequence is full, so a drawn batch is measured as a single sequence of all its words.
        whole = sum(lengths) - 2 * (len(lengths) - 1)
        sequences, words = (1, whole) if self.job.drawn else (len(lengths), max(lengths))
        shape = measure_shape(
            records, sequences=sequences, shards=1, max_words=words, char_slots=self.slots, masking=self._masking,
            platform=this_machine().platform,
        )  # fmt: skip
        return dataclasses.replace(shape, sequences=len(lengths), words=max(lengths))

    def lengths(self, host: WordBatch, padded: bool) -> BatchLengths:
        """See `_HLM`; the reshape repeats words, so its useful operations are those of the table."""
        useful = self._packed(self._sequences) if self.path == "reshape" and not padded else host
        return lengths_of_batch(useful, padded)

    def program(self, host: WordBatch) -> str:
        """See `Runner`."""
        return program_text(self._step.lower(self._state, host))

    def run(self, host: WordBatch) -> MaskedCharSums:
        """See `Runner`."""
        self._state, sums, _ = self._step(self._state, host)
        return jax.block_until_ready(sums)

    def warm(self, host: WordBatch) -> None:
        """See `Runner`."""
        micro_batch = jax.tree.map(lambda x: x[0], host)
        init = lambda: new_state(self._model.init(stream_key(0, "init"), micro_batch)["params"], self._optimizer)
        self._state = None  # free the state of the previous batch, so that there are never two
        self._state = jax.device_put(on_processor(init))
        compile_first(self._step, self._state, host)
        self.run(host)

    def tokens(self, host: WordBatch) -> tuple[float, int]:
        """See `Runner`."""
        mask_BW = host.mask_SBW.reshape(-1, host.mask_SBW.shape[-1])
        return float(mask_BW.sum(axis=1).mean()), mask_BW.shape[1]
