"""The paths of XRayEmb and Char2Subword on BERT-base with random weights.

They compare reading a word as one position with reading its subwords, in the cases `joined_words` and `full_mode`. Open
it to measure another policy of XRayEmb, or another way to read words in full mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from charlm.benchmark.bert import SMOKE
from charlm.benchmark.hlm import device_name, jax_peak
from charlm.benchmark.paths import JOINED, Job, Runner
from charlm.core.cache import WordCache
from charlm.core.state import on_processor
from charlm.core.types import AnyModel, Json, Option, Params, Tree
from charlm.families.char2subword.model import Char2SubwordBert, Char2SubwordBertConfig
from charlm.families.char2subword.module import Char2SubwordConfig
from charlm.families.char2subword.tensors import bert_config
from charlm.families.char2subword.units import Char2SubwordUnits
from charlm.families.predictor import Encoding
from charlm.families.pretrained import Pretrained
from charlm.families.spelled.model import smallest_batch
from charlm.families.spelled.predictor import read_codes
from charlm.families.subword.bert import Bert, BertConfig
from charlm.families.xrayemb.encoder import XREncoderConfig
from charlm.families.xrayemb.model import XRayEmbBert, XRayEmbBertConfig
from charlm.families.xrayemb.predictor import XRayEmbPredictor
from charlm.families.xrayemb.units import XRayEmbUnits
from charlm.families.xrayemb.vocab import xray_chars_of_words
from charlm.nn.apply import applied
from charlm.text.chars import CharVocab
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import RulesSplitter

SMOKE_ENCODER = {"char_embedding": 8, "hidden": 8, "output": SMOKE["hidden"]}
SMOKE_MODULE = {"hidden": 16, "layers": 1, "heads": 2, "output": SMOKE["hidden"]}
POLICIES = {"policy_all_multi": "all_multi", "policy_none": "none"}


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    if job.case == JOINED:
        return JoinedWords(job)
    return FullMode(job) if job.path == "full_cached" else SubwordTable(job)


def _random(model: nn.Module, *inputs: Tree) -> Params:
    """Returns random parameters on the device."""
    return jax.device_put(on_processor(lambda: model.init(jax.random.key(0), *inputs)["params"]))


class _Spelled(Runner):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._tokenizer = SubwordTokenizer.load(job.tokenizer)
        self._dtype = jnp.dtype(job.dtype)
        self.about = {"device": device_name(), "parameters_dtype": "float32"}

    def shape(self) -> dict[str, Option]:
        """Returns the fields of the config of BERT, with more than the published 512 positions if texts need them."""
        return {
            "vocab_size": max(BertConfig.vocab_size, self._tokenizer.size),
            "max_positions": max(BertConfig.max_positions, *self.job.words),
            "pooler": False,
            "dtype": self._dtype,
        } | (SMOKE if self.job.smoke else {})

    def pretrained(self, model: AnyModel, family: str, **metadata: Json) -> Pretrained:
        """Returns a model with random weights in the form of a loaded model."""
        about = {"family": family, "head": "encoder"} | metadata
        params = _random(model, smallest_batch())
        return Pretrained(model, params, model.config, family, "encoder", Path(self.job.tokenizer), about)

    def warm(self, host: Tree) -> None:
        """See `Runner`; the second run finds all words in the cache, whose table grew in the first run."""
        self.run(host)
        self.run(host)

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()


class JoinedWords(_Spelled):
    """Runs the predictor of XRayEmb from texts to word vectors; words that it reads as characters are in its cache."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        words = Counter(word for texts in job.texts for text in texts for word in text.split())
        chars = xray_chars_of_words(words, self._tokenizer)
        small = SMOKE_ENCODER if job.smoke else {}
        encoder = XREncoderConfig(char_vocab_size=chars.size, dtype=self._dtype, **small)
        config = XRayEmbBertConfig(**self.shape(), encoder=encoder, generator=None, policy=POLICIES[job.path])
        whole = self.pretrained(XRayEmbBert(config), "xrayemb", backbone="bert", xray_chars=chars.to_dict())
        self.predictor, self._units = XRayEmbPredictor(whole), XRayEmbUnits(whole)
        pieces = sum(self._pieces(text) for texts in job.texts for text in texts)
        self.about["subwords_a_word"] = round(pieces / max(1, words.total()), 3)

    def _pieces(self, text: str) -> int:
        return len(self._tokenizer.encode(text).ids) - self._tokenizer.special_count()

    def tokenise(self, texts: list[str], words: int) -> list[str]:
        """See `Runner`; returns the texts unchanged, since the predictor splits them."""
        return texts

    def run(self, host: list[str]) -> list[Encoding]:
        """See `Runner`."""
        return self.predictor.encode(host)

    def tokens(self, host: list[str]) -> tuple[float, int]:
        """See `Runner`; the tokens are positions, and a joined word is one position."""
        special = self._tokenizer.special_count()
        lengths = [len(encoded.content) + special for encoded in self._units.encode(host)]
        return sum(lengths) / len(lengths), max(lengths)


class _Words(_Spelled):
    """The base class of the paths of full mode with one position for each word, from host arrays to the last states."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        vocab = CharVocab.from_dict(job.chars)
        module = Char2SubwordConfig(
            char_vocab_size=max(Char2SubwordConfig.char_vocab_size, vocab.size), dtype=self._dtype,
            **(SMOKE_MODULE if job.smoke else {}),
        )  # fmt: skip
        self.config = Char2SubwordBertConfig(**self.shape(), characters=module, mode="full")

    def rows(self, rows: Sequence[Sequence[int] | np.ndarray], pad: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows of units padded to the longest row, and the mask, [B, L]."""
        ids_BL = np.full((len(rows), max(map(len, rows))), pad, np.int32)
        mask_BL = np.zeros(ids_BL.shape, bool)
        for b, row in enumerate(rows):
            ids_BL[b, : len(row)], mask_BL[b, : len(row)] = row, True
        return ids_BL, mask_BL

    def tokens(self, host: tuple[np.ndarray, np.ndarray]) -> tuple[float, int]:
        """See `Runner`."""
        return float(host[1].sum(axis=1).mean()), host[1].shape[1]


class FullMode(_Words):
    """Computes states [B, L, D] of words, with the vectors of their spellings from the cache."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        whole = self.pretrained(Char2SubwordBert(self.config), "char2subword", char_vocab=job.chars)
        self._units, self._params, model = Char2SubwordUnits(whole), whole.params, whole.model
        spell = jax.jit(lambda module, chars: model.apply({"params": {"char2subword": module}}, chars, method="spell"))
        self.cache: WordCache | None = WordCache(spell, self.config.hidden, np.float32, self._units.buckets)
        self._states = jax.jit(
            lambda params, *inputs, method: applied(model, {"params": params}, method=method)(*inputs).states_BLD,
            static_argnames="method",
        )

    def tokenise(self, texts: list[str], words: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Runner`; returns codes [B, L] of words with special tokens around them, and the mask."""
        before, after = self._units.around
        return self.rows([[*before, *e.content, *after] for e in self._units.encode(texts)], self._units.pad)

    def run(self, host: tuple[np.ndarray, np.ndarray]) -> jax.Array:
        """See `Runner`; looking up the spellings in the cache is part of the measured work."""
        inputs, method = read_codes(self._units, self.cache, self._params["char2subword"], *host)
        return self._states(self._params, *inputs, method=method).block_until_ready()


class SubwordTable(_Words):
    """The same BERT with its subword table, at as many positions: it reads only the first subword of every word."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        model = Bert(bert_config(self.config))
        self._params = _random(model, np.ones((1, 3), np.int32))
        self._states = jax.jit(lambda params, ids, mask: applied(model, {"params": params})(ids, mask).states_BLD)

    def tokenise(self, texts: list[str], words: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Runner`; returns ids [B, L] and the mask."""
        splitter = RulesSplitter()
        sentences = [[text[a:b] for a, b in splitter.spans(text)] for text in texts]
        items = self._tokenizer.encode_words_batch(sentences)
        special = self._tokenizer.special
        rows = []
        for item, sentence in zip(items, sentences, strict=True):
            found = dict(zip(reversed(item.words), reversed(item.ids), strict=True))  # keeps the first id of each word
            rows.append([special.cls, *(found.get(w, special.unk) for w in range(len(sentence))), special.sep])
        return self.rows(rows, special.needed("pad"))

    def run(self, host: tuple[np.ndarray, np.ndarray]) -> jax.Array:
        """See `Runner`."""
        return self._states(self._params, *host).block_until_ready()
