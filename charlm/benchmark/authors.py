"""Runs the HLM that its authors released (github.com/lisun-ai/HLM), unchanged, from a checkout that the user names.

Open it when the checkout of the authors' code does not run.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import ml_collections
import numpy as np
import torch

from charlm.benchmark.hlm import hlm_config
from charlm.benchmark.paths import TRAINING, Job, Runner
from charlm.benchmark.pytorch import TorchRunner
from charlm.benchmark.text import sentences
from charlm.core.types import Option

RELEASED_CHARS = 1024  # rows of their character table
RELEASED_WORDS = 1024  # maximum number of words in their config; the tokenizer cuts off longer texts
FIRST_RANDOM, LAST_RANDOM = 8, 128  # range of the random characters by which their pre-training replaces masked ones


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return AuthorsHLM(job)


class AuthorsHLM(TorchRunner):
    """Contextual word vectors [W, B, D], or one optimizer step of their masked language model; dropout on."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        sys.path.insert(0, job.hlm_code)
        theirs: Any = importlib.import_module("model.hlm")  # from their checkout
        self._training = job.case == TRAINING
        shape = hlm_config(job).model
        # The released code ignores `attention_heads`, so the default of the class has to be changed.
        theirs.BertEncoder = functools.partial(theirs.BertEncoder, num_attention_heads=shape.heads)
        config = theirs.HLMConfig(**self._fields(shape))
        if self._training:
            whole = theirs.HLMForMaskedLanguageModeling(config, vocab_size=config.max_codepoint)
        else:
            whole = theirs.HLM(config)
        self.place(whole.eval(), torch.float32)
        self._tokenizer = self._make_tokenizer(shape)
        if self._training:
            self.start_training()

    def _fields(self, shape: ml_collections.ConfigDict) -> dict[str, Option]:
        """Returns the fields of their config; for inference without parts that the word vectors do not need."""
        return {
            "hidden_size": shape.hidden,
            "attention_heads": shape.heads,
            "transformer_ff_size": shape.inter_ffn,
            "local_transformer_ff_size": shape.intra_ffn,
            "dropout": shape.dropout,
            "activation": "gelu",
            "max_codepoint": max(RELEASED_CHARS, shape.vocab_size),
            "max_char_per_word": shape.char_slots,
            "max_num_word": max(RELEASED_WORDS, 2 * max(self.job.words)),  # their splitter finds more words
            "for_token_classification": not self._training,
            "n_local_layer_first": shape.intra_layers,
            "n_global_layer": shape.inter_layers,
            "n_local_layer_last": shape.head_layers if self._training else 0,
            "use_token_type": False,
            "use_projection": self._training and shape.wiring == "reference",
            "word_context": 1,
            "relative_attention": True,
        }

    # Its class is the authors' own, imported from their checkout.
    def _make_tokenizer(self, shape: ml_collections.ConfigDict) -> Any:
        tokenizers = importlib.import_module("model.codepoint_tokenizer")
        folder = Path(self.job.hlm_code) / "data"
        # Unpickling may run code, but so does importing the modules of the checkout above.
        tables = [pickle.loads((folder / f"{name}_dict.pkl").read_bytes()) for name in ("char2int", "int2char")]
        limit = max(RELEASED_WORDS, 2 * max(self.job.words))
        return tokenizers.CodepointTokenizer(*tables, max_num_word=limit, max_char_per_word=shape.char_slots)

    def tokenise(self, texts: list[str], words: int) -> dict[str, np.ndarray]:
        """See `Runner`; uses their splitter and their padding."""
        encoded = [self._tokenizer.encode(*sentences(text)) for text in texts]
        host = self._tokenizer.prepare_model_inputs(encoded, out_format="numpy")
        host["attention_mask_sentence"] = np.ascontiguousarray(host["attention_mask_sentence"])
        return self._masked(host) if self._training else host

    def _masked(self, host: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        masking = importlib.import_module("utils.masking")
        np.random.seed(0)
        ids, labels, chosen = masking.random_mask(
            input_ids=host["input_ids"],
            attention_mask_matrix=host["attention_mask_matrix"],
            attention_mask_sentence=host["attention_mask_sentence"],
            min_char_replacement=FIRST_RANDOM,
            max_char_replacement=LAST_RANDOM,
        )
        return host | {
            "input_ids": np.asarray(ids),
            "labels": np.asarray(labels),
            "predict_indices": np.asarray(chosen),
        }

    def compute(self, host: dict[str, np.ndarray]) -> torch.Tensor:
        """See `TorchRunner`."""
        inputs = {name: self.put(array) for name, array in host.items()}
        if not self._training:
            with torch.inference_mode(), self.autocast():
                return self.module(host)(**inputs)["embeddings_pool"]
        with self.autocast():
            loss = self.module(host)(**inputs)[0]
        return self.step(loss)

    def key(self, host: dict[str, np.ndarray]) -> tuple[int, ...]:
        """See `TorchRunner`."""
        return host["input_ids"].shape

    def tokens(self, host: dict[str, np.ndarray]) -> tuple[float, int]:
        """See `Runner`; the tokens are words as their splitter finds them."""
        padding_BW = host["attention_mask_sentence"]
        return float((~padding_BW).sum(axis=1).mean()), padding_BW.shape[1]
