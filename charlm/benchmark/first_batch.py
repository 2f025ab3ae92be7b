"""The case `first_batch`: what a new process waits for its first vectors, with and without a table of words on disk.

An HLM with random weights is written with the tables of the corpus's most frequent words; each run is a process that
loads it and encodes 32 drawn texts. Open it to change what is timed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_collections

from charlm.benchmark.cases import INFERENCE, SHAPES
from charlm.benchmark.figures import Figure, spread
from charlm.benchmark.text import Corpus
from charlm.core.durable import remove_folder, write_json, write_text
from charlm.data.word_batch import reshape_batch
from charlm.text.chars import CharVocab
from charlm.text.words import RulesSplitter

SIZES = (0, 2_000, 10_000, 30_000)  # words of the tables; 0: no table
# Compiled programs are kept, as those of a second process are. The time is taken from texts to vectors; loading the
# model, where the table's identity is checked, is timed by itself.
_RUN = """
import json, sys, time
from charlm.core.programs import keep_programs
keep_programs()
import charlm
clock = lambda: (time.perf_counter(), time.process_time())
times = [clock()]
model = charlm.load(sys.argv[1])
model.predictor
times.append(clock())
texts = json.load(open(sys.argv[2], encoding="utf-8"))
model.encode(texts)
times.append(clock())
stats = model.predictor.cache.stats
model.encode(texts)
times.append(clock())
print(json.dumps({"times": times, "hits": stats.hits, "words": stats.hits + stats.misses}))
"""


def first_batch(config: ml_collections.ConfigDict, repeats: int, sizes: Sequence[int] = SIZES) -> list[Figure]:
    """Returns seconds and CPU seconds of the first and second batch of a process, for each size of the table.

    The words of the tables are counted in all of the corpus but the texts of the batch.

    Raises:
      ValueError: the corpus has too few words, or a process fails.
    """
    corpus, shape = Corpus(config), SHAPES[INFERENCE]
    (texts,) = corpus.drawn(shape)
    words = corpus.counts()
    splitter = RulesSplitter()
    words.subtract(text[a:b] for text in texts for a, b in splitter.spans(text))
    listed = [word for word, count in sorted(words.items(), key=lambda one: (-one[1], one[0])) if count > 0]
    figures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model", config, corpus.chars())
        write_json(folder / "texts.json", texts)
        for size in sizes:
            bytes_of = _write_table(folder, listed[:size]) if size else 0
            found = [_timed(folder) for _ in range(repeats + 1)][1:]  # the first compiles
            share = found[0]["hits"] / found[0]["words"]
            about = {"words_in_table": min(size, len(listed)), "bytes": bytes_of, "coverage": round(share, 3)}
            about |= {"batch": str(shape), "distinct": found[0]["words"]}
            path = f"{size:,} words on disk" if size else "no table"
            for part, what in enumerate(("load", "first batch", "second batch")):
                for clock, unit in enumerate(("s", "CPU-s")):
                    values = [run["times"][part + 1][clock] - run["times"][part][clock] for run in found]
                    figures.append({"case": "first_batch", "path": f"{path}: {what}"} | spread(values, 3) | about
                                   | {"unit": unit})  # fmt: skip
    return figures


def save_model(folder: Path, config: ml_collections.ConfigDict, vocab: CharVocab) -> None:
    """Writes a checkpoint of an HLM with the config's shape and random weights."""
    import jax
    import numpy as np

    from charlm.core.checkpoint import save_params
    from charlm.core.state import on_processor
    from charlm.families.hlm.config import model_config
    from charlm.families.hlm.model import HLMForMaskedLM

    model = HLMForMaskedLM(model_config(config))
    ones_BWC = np.ones((1, 3, config.model.char_slots), np.uint16)
    params = on_processor(lambda: model.init(jax.random.key(0), reshape_batch(ones_BWC, ones_BWC))["params"])
    save_params(folder, params, {"config": config.to_dict(), "char_vocab": vocab.to_dict()})


def _write_table(folder: Path, words: list[str]) -> int:
    """Writes a table of words beside the model, as the command does; returns the size of its vectors in bytes."""
    from charlm.core.word_table import FOLDER, VECTORS

    if (table := folder / "model" / FOLDER).exists():
        remove_folder(table)
    write_text(folder / "words.txt", "\n".join(words))
    options = ["--format=words", f"--model={folder / 'model'}", f"--words={folder / 'words.txt'}"]
    _done([sys.executable, "-m", "charlm", "export", *options])
    return (table / VECTORS).stat().st_size


def _timed(folder: Path) -> dict[str, Any]:  # times [4, 2], and two counts
    return json.loads(_done([sys.executable, "-c", _RUN, str(folder / "model"), str(folder / "texts.json")]))


def _done(command: list[str]) -> str:
    """Returns what a process prints; its compiled programs are kept in a folder of the measurement."""
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())[-300:] or "it said nothing"
        raise ValueError(f"first_batch: {' '.join(command[1:3])[:40]} failed: {said}")
    return done.stdout
