"""The cases without workers: parameter counts, input pipeline, start-up, collectives, parity with PyTorch's BERT.

Each is a function that returns its figures; open this module to add a case that compares no paths.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import ml_collections

from charlm.benchmark.figures import Figure, spread
from charlm.config import get_config
from charlm.convert.heads import ENCODER, SEQUENCE_CLASSIFICATION
from charlm.core import extras
from charlm.core.durable import write_text
from charlm.core.types import Option
from charlm.data.corpus import prepare
from charlm.data.sources import open_source
from charlm.data.word_batch import reshape_batch
from charlm.text.chars import CharVocab

STARTUP_TEXT = "The first words that somebody asks for."
PARITY_BATCH = (4, 60)  # sequences, subwords
PARITY_SHAPE: dict[str, Option] = {"pooler": False}  # fields of BertConfig that differ from its defaults, BERT-base


def parameters(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Returns the parameter counts, part by part, of pre-training in both wirings and of a two-label classifier."""
    import dataclasses

    import flax.linen as nn
    import jax
    import numpy as np

    from charlm.families.hlm.config import model_config
    from charlm.families.hlm.labels import HLMForLabels
    from charlm.families.hlm.model import HLMForMaskedLM
    from charlm.training.run import count_parameters

    del repeats
    shape = model_config(config)
    models: dict[str, nn.Module] = {
        f"pre-training, {wiring} wiring": HLMForMaskedLM(dataclasses.replace(shape, wiring=wiring))
        for wiring in ("paper", "reference")
    }
    models["classifier, 2 labels"] = HLMForLabels(dataclasses.replace(shape, head_layers=0), 2, SEQUENCE_CLASSIFICATION)
    batch = reshape_batch(np.ones((1, 3, 4), np.uint16), np.ones((1, 3, 4), np.uint16))
    figures = []
    for name, model in models.items():
        variables = jax.eval_shape(lambda model=model: model.init(jax.random.key(0), batch))
        parts = count_parameters(variables["params"])
        total = parts.pop("total")
        figures.append({"case": "parameters", "path": name, "value": total, "unit": "parameters", "parts": parts})
    return figures


def collectives(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Returns the communication between devices in a training step, for each layout of the mesh."""
    import jax
    import numpy as np

    from charlm.benchmark.hlm import program_text
    from charlm.core.sharding import collectives as collectives_of
    from charlm.training.run import build

    del repeats
    devices, data = jax.device_count(), prepare(config)
    if devices == 1:
        raise ValueError("collectives: one device sends nothing to itself; on a CPU, set XLA_FLAGS to simulate several")
    meshes = [(devices, 1, 1), (devices // 2, 2, 1), (devices // 2, 1, 2), (devices // 4, 2, 2)]
    figures = []
    for sizes in meshes:
        if int(np.prod(sizes)) != devices:
            continue
        config.mesh.data, config.mesh.fsdp, config.mesh.model = sizes
        config.data.table_shards = devices  # so that the batch is the same for every layout
        run = build(config, data)
        batch = jax.tree.map(lambda x: np.repeat(x, config.data.accumulation, axis=0), run.empty)
        program = program_text(run.train_step.lower(run.abstract_state, run.place(batch)))
        for kind, shapes in collectives_of(program).items():
            path = ", ".join(f"{axis}={size}" for axis, size in zip(("data", "fsdp", "model"), sizes, strict=True))
            count, mib = len(shapes), sum(4 * int(np.prod(shape)) for shape in shapes) / 2**20
            largest = max(shapes, key=lambda shape: int(np.prod(shape)))
            figures.append(
                {"case": "collectives", "path": path, "value": count, "unit": kind, "mib": round(mib, 2),
                 "largest": list(largest)}
            )  # fmt: skip
    return figures


def input_pipeline(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Returns the speed from a text file to encoded shards (one process) and from shards to batches (one thread)."""
    from charlm.data.batching import ShardPacker
    from charlm.data.pipeline import SentenceMaker, record_dataset
    from charlm.data.streams import sequence_batches
    from charlm.families.hlm.shape import batch_shape, masking_of

    seconds: dict[str, list[float]] = {"text to shards": [], "shards to batches": []}
    words = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        source = open_source(config.data.train[0], split="all", heldout_fraction=0.0)
        documents = (document.replace("\n", " ") for part in source.parts for document in source.documents(part))
        write_text(text, "\n".join(documents))
        config.data.train, config.data.heldout, config.data.encode_processes = (str(text),), (), 1
        for n in range(repeats):
            config.data.cache_dir = str(Path(folder) / str(n))
            started = time.perf_counter()
            data = prepare(config)
            seconds["text to shards"].append(time.perf_counter() - started)
            words["text to shards"] = sum(c.stats.words for c in data.train + data.heldout)
            shape = batch_shape(config, data, shards=1)
            maker = SentenceMaker(shape.words, shape.slots[-1], masking_of(config, data.vocab.size), seed=0)
            lanes, pack = {0: record_dataset(data.train)}, functools.partial(ShardPacker, shape)
            batches = sequence_batches(lanes, maker, pack, of=1, accumulation=1, prefetch=0)
            started = time.perf_counter()
            words["shards to batches"] = sum(int(batch.mask_SBW.sum()) for batch in batches)
            seconds["shards to batches"].append(time.perf_counter() - started)
    return [
        {"case": "input_pipeline", "path": name}
        | spread([words[name] / s for s in times])
        | {"unit": "words/s", "seconds": round(statistics.median(times), 4), "words": words[name]}
        for name, times in seconds.items()
    ]


KEPT = ", programs kept"  # end of the names of what has the programs of an earlier process
TAGGER = "hlm-small-en-pos"  # comes with charlm


def startup(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Returns how many seconds a user waits from the start of a process.

    The help is timed, which imports no JAX; the import of JAX, for scale; the first vectors of a small model with
    random weights, and the first tags of the tagger that comes with charlm: from nothing, and with the programs that
    an earlier process has kept.

    Raises:
      ValueError: a command fails.
    """
    del config  # always a small model
    times: dict[str, list[float]] = {}
    own = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    with tempfile.TemporaryDirectory() as folder:
        _save_small_model(Path(folder) / "model")
        encode = ["-m", "charlm.predict", "encode", f"--checkpoint={folder}/model", STARTUP_TEXT]
        commands = {
            "charlm.main --help, without JAX": ["-m", "charlm.main", "--help"],
            "import jax": ["-c", "import jax"],
        }
        tag = ["-m", "charlm.predict", "tag", f"--checkpoint={TAGGER}", STARTUP_TEXT]
        for name, command in (("first vectors of a small HLM", encode), (f"first tags of {TAGGER}", tag)):
            commands |= {name: command, name + KEPT: command}
        for repeat in range(repeats + 1):
            for name, command in commands.items():
                # Compiled anew, whatever the user's cache holds; what has programs has them from a cache of its own.
                kept = (
                    {"CHARLM_CACHE": f"{folder}/cache"}
                    if name.endswith(KEPT)
                    else {"JAX_ENABLE_COMPILATION_CACHE": "false"}
                )
                started = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, *command], env=own | kept, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    said = " ".join(done.stderr.split())[-300:] or "it said nothing"
                    raise ValueError(f"startup: {name} failed: {said}")
                if repeat:  # the first run of each brings files into memory and programs into the cache
                    times.setdefault(name, []).append(time.perf_counter() - started)
    unit = "s from process start"
    return [{"case": "startup", "path": name} | spread(found, 2) | {"unit": unit} for name, found in times.items()]


def _save_small_model(folder: Path) -> None:
    """Writes a checkpoint with random weights and the shape of a smoke run."""
    import jax
    import numpy as np

    from charlm.benchmark.hlm import SMOKE
    from charlm.core.checkpoint import save_params
    from charlm.core.state import on_processor
    from charlm.families.hlm.config import model_config
    from charlm.families.hlm.model import HLMForMaskedLM

    config = get_config()
    config.text.splitter = "rules"
    config.model.update(SMOKE)
    model = HLMForMaskedLM(model_config(config))
    ones_BWC = np.ones((1, 3, config.model.char_slots), np.uint16)
    params = on_processor(lambda: model.init(jax.random.key(0), reshape_batch(ones_BWC, ones_BWC))["params"])
    vocab = CharVocab.build(Counter(STARTUP_TEXT), config.model.vocab_size)
    save_params(folder, params, {"config": config.to_dict(), "char_vocab": vocab.to_dict()})


def check_parity() -> None:
    """Raises ValueError if `parity` cannot be measured here."""
    extras.check("parity", "torch", "transformers")


def parity(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Returns the largest difference between the last states of charlm's BERT and Hugging Face's.

    Both have the same weights and read the same ids, in float32.

    Raises:
      ValueError: PyTorch or transformers is not installed.
    """
    check_parity()
    import jax
    import numpy as np
    import torch
    import transformers

    from charlm.convert.rules import export_state
    from charlm.families.subword.bert import BertConfig
    from charlm.families.subword.bert_tensors import BERT_LAYOUT
    from charlm.nn.apply import applied

    del config, repeats  # the model is BERT-base
    shape = BertConfig(**PARITY_SHAPE)
    model, _, table = BERT_LAYOUT.target(shape, ENCODER)
    ids = np.random.default_rng(0).integers(1, shape.vocab_size, PARITY_BATCH).astype(np.int32)
    params = jax.jit(lambda: model.init(jax.random.key(0), ids))()["params"]
    their_config = transformers.BertConfig.from_dict(BERT_LAYOUT.to_theirs(shape, ENCODER, {}))
    theirs = transformers.BertModel(their_config, add_pooling_layer=False).eval()
    state = export_state(table, (), params)
    theirs.load_state_dict(
        {name.removeprefix(BERT_LAYOUT.prefix): torch.tensor(value) for name, value in state.items()}
    )
    ours = jax.jit(lambda params, ids: applied(model, {"params": params})(ids).states_BLD)(params, ids)
    with torch.inference_mode():
        difference = np.abs(np.asarray(ours) - theirs(torch.tensor(ids).long()).last_hidden_state.numpy()).max()
    batch = f"{PARITY_BATCH[0]} x {PARITY_BATCH[1]} subwords"
    path = "bert - hf_bert"
    return [{"case": "parity", "path": path, "value": float(difference), "unit": "largest difference", "batch": batch}]
