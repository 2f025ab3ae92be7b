"""The cases `calls` and `pages`, each of which measures HLM under two settings.

`calls` gives the encoder calls that fit the caches of a processor, or larger ones; `pages` gives it huge pages or usual
ones. Open it when you doubt a default that rests on these figures.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from charlm.benchmark.hlm import HLMTraining, device_name, hlm_config, jax_peak
from charlm.benchmark.paths import CALLS, TRAINING, Job, Runner
from charlm.core.state import on_processor
from charlm.data.word_batch import reshape_batch
from charlm.families import windows
from charlm.families.hlm.config import model_config
from charlm.families.hlm.model import HLM
from charlm.families.hlm.predictor import HLMPredictor
from charlm.families.predictor import Encoding
from charlm.text.chars import CharVocab
from charlm.text.words import RulesSplitter


def make(job: Job) -> Runner:
    """Returns the runner of a job; for `pages` that of a training step, since only the worker's environment differs."""
    if job.case == CALLS:
        return Calls(job)
    return HLMTraining(dataclasses.replace(job, path="table", case=TRAINING))


class Calls(Runner):
    """Runs the predictor of HLM from texts to word vectors; all words are in its cache."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        if job.path == "calls_of_32":  # changing the module is safe, as each path has a process of its own
            windows.CPU_POSITIONS = 2**31
        config = hlm_config(job)
        config.text.splitter = "rules"
        config.data.max_words = max(config.data.max_words, *job.words)
        model, ones_BWC = HLM(model_config(config)), np.ones((1, 3, config.model.char_slots), np.uint16)
        params = on_processor(lambda: model.init(jax.random.key(0), reshape_batch(ones_BWC))["params"])
        self.predictor = HLMPredictor(config, CharVocab.from_dict(job.chars), jax.device_put({"hlm": params}))
        self.about = {"device": device_name(), "parameters_dtype": "float32"}

    def tokenise(self, texts: list[str], words: int) -> list[str]:
        """See `Runner`; returns the texts unchanged, since the predictor splits them."""
        return texts

    def warm(self, host: list[str]) -> None:
        """See `Runner`; the second run finds all words in the cache."""
        self.run(host)
        self.run(host)

    def run(self, host: list[str]) -> list[Encoding]:
        """See `Runner`."""
        return self.predictor.encode(host, batch_size=32)

    def tokens(self, host: list[str]) -> tuple[float, int]:
        """See `Runner`."""
        splitter = RulesSplitter()
        words = [len(splitter.spans(text)) + 2 for text in host]
        return sum(words) / len(words), max(words)

    def device_peak(self) -> int | None:
        """See `Runner`."""
        return jax_peak()
