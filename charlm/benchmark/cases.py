"""The cases of the benchmark; each returns figures: case, path, value, unit and what it was measured on."""

from __future__ import annotations

import itertools
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_collections

from charlm.config import load_config_file

PATHS = ("reshape", "table")  # the paper's reshape, and tables of distinct words
INFERENCE = (32, 46)  # sequences, words: the paper measured MRPC at batch 32 (section 4.5)
TRAINING = (4, 128)
Figure = dict[str, Any]


def load_config(spec: str, text: str = "builtin") -> ml_collections.ConfigDict:
    """Returns the config of "path/to/file.py[:variant]", with the rules splitter and one corpus.

    Raises:
      ValueError: when there is no such config.
    """
    config = load_config_file(spec)
    config.text.splitter = "rules"
    config.data.train = (text,)
    if text != "builtin":
        config.data.heldout = (text,)  # all of it may be measured: nothing is learned here
    return config


def interleaved(paths: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Returns the seconds of each path, run in turn `repeats` times after one warm-up each."""
    for run in paths.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(repeats):
        for name, run in paths.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def _figures(case: str, seconds: dict[str, list[float]], amount: float, unit: str, **about: Any) -> list[Figure]:
    figures = []
    for name, times in seconds.items():
        figure = {"case": case, "path": name, "value": round(amount / statistics.median(times), 1), "unit": unit}
        figure |= {"low": round(amount / max(times), 1), "high": round(amount / min(times), 1)}
        figures.append(figure | {"seconds": round(statistics.median(times), 4)} | about)
    if set(PATHS) <= set(seconds):
        ratio = statistics.median(a / b for a, b in zip(seconds["reshape"], seconds["table"], strict=True))
        figures.append({"case": case, "path": "table / reshape", "value": round(ratio, 2), "unit": "x", **about})
    return figures


def _sequences(config: ml_collections.ConfigDict, count: int, words: int, rate: float | None) -> list[Any]:
    """Returns `count` sequences of exactly `words` words of held-out text, masked when `rate` is given."""
    import numpy as np

    from charlm.data.batching import Sequence
    from charlm.data.corpus import prepare
    from charlm.data.masking import mask_words
    from charlm.data.pipeline import record_dataset, rows_of
    from charlm.run import masking_of
    from charlm.text.chars import CLS, SEP

    data = prepare(config)
    slots, room = config.model.char_slots, words - 2
    rows: list[Any] = []
    for record in record_dataset(data.heldout):
        rows.append(rows_of(record, slots))
        if sum(map(len, rows)) >= count * room:
            break
    rows_NC = np.concatenate(rows)[: count * room]
    edges = np.zeros((2, 1, slots), np.uint16)
    edges[:, 0, 0] = CLS, SEP
    rng = np.random.default_rng(0)
    made = []
    for rows_WC in rows_NC.reshape(count, room, slots):
        chars_WC = np.concatenate([edges[0], rows_WC, edges[1]])
        labels_WC = np.zeros_like(chars_WC)
        if rate is not None:
            chars_WC, labels_WC = mask_words(chars_WC, masking_of(config, data.vocab.size), rng)
        made.append(Sequence(chars_WC, labels_WC))
    return made


def _about(sequences: list[Any]) -> Figure:
    import jax

    rows = [row.tobytes() for s in sequences for row in s.chars_WC]
    shape = f"{len(sequences)} x {len(sequences[0].chars_WC)} words"
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return {"batch": shape, "distinct_words": round(len(set(rows)) / len(rows), 3), "device": device}


def _reshape_batch(sequences: list[Any], masked: bool) -> Any:
    import numpy as np

    from charlm.batch import reshape_batch

    chars_BWC = np.stack([s.chars_WC for s in sequences])
    # The paper pads words to the longest of the batch, rounded up to a multiple of 8 (appendix A.3).
    longest = -(-int((chars_BWC != 0).sum(axis=-1).max()) // 8) * 8
    labels_BWC = np.stack([s.labels_WC for s in sequences])[..., :longest] if masked else None
    return reshape_batch(chars_BWC[..., :longest], labels_BWC)


def inference(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Contextual word vectors of a batch, from character ids on the host (packing included) to the device."""
    import jax

    from charlm.data.batching import pack_all
    from charlm.models.hlm import HLM
    from charlm.run import model_config

    sequences = _sequences(config, *INFERENCE, rate=None)
    model = HLM(model_config(config))
    slots = (*(c for c in (6, 10) if c < config.model.char_slots), config.model.char_slots)
    example = pack_all(sequences, INFERENCE[1], slots)
    params = jax.jit(lambda: model.init(jax.random.key(0), example)["params"])()
    forward = jax.jit(lambda p, batch: model.apply({"params": p}, batch).context_NWD)
    paths = {
        "reshape": lambda: forward(params, _reshape_batch(sequences, masked=False)).block_until_ready(),
        "table": lambda: forward(params, pack_all(sequences, INFERENCE[1], slots)).block_until_ready(),
    }
    words = INFERENCE[0] * INFERENCE[1]
    return _figures("inference", interleaved(paths, repeats), words, "words/s", **_about(sequences))


def _training(config: ml_collections.ConfigDict, path: str) -> tuple[Callable[[], Any], list[Any]]:
    """Returns a function that does one optimizer step on the given path."""
    import jax

    from charlm.data.batching import ShardPacker, stack
    from charlm.data.corpus import prepare
    from charlm.models.hlm import HLMForMaskedLM
    from charlm.optim import make_optimizer
    from charlm.run import batch_shape, make_train_step, model_config
    from charlm.state import init_state

    sequences = _sequences(config, *TRAINING, rate=config.data.mask_rate)
    config.data.batch_size, config.data.max_words = TRAINING
    if path == "table":
        packer = ShardPacker(batch_shape(config, prepare(config), shards=1))  # the budgets that training would use
        for sequence in sequences:
            if not packer.add(sequence):
                raise ValueError("training_step: the benchmark's text does not fit the measured budgets")
        batch = stack([stack([packer.build()])])
    else:
        batch = stack([_reshape_batch(sequences, masked=True)])
    model, optimizer = HLMForMaskedLM(model_config(config)), make_optimizer(config)
    micro_batch = jax.tree.map(lambda x: x[0], batch)
    box = [jax.jit(lambda: init_state(model, optimizer, micro_batch, seed=0))()]
    step = jax.jit(make_train_step(model, optimizer, seed=0), donate_argnums=0)

    def run() -> None:
        box[0], sums, _ = step(box[0], batch)
        jax.block_until_ready(sums)

    return run, sequences


def training_step(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """One optimizer step: forward, backward, update; dropout on."""
    runs = {}
    for path in PATHS:
        runs[path], sequences = _training(config, path)
    words = TRAINING[0] * TRAINING[1]
    return _figures("training_step", interleaved(runs, repeats), words, "words/s", **_about(sequences))


def peak(config: ml_collections.ConfigDict, path: str) -> Figure:
    """Peak resident memory of this process after training steps on one path."""
    run, sequences = _training(config, path)
    for _ in range(3):
        run()
    return {"case": "memory", "path": path, "value": peak_mebibytes(), "unit": "MiB peak resident", **_about(sequences)}


def peak_mebibytes() -> int:
    """Returns the peak resident memory of this process; `ru_maxrss` would count what the parent held when it forked."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return round(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024)
    except FileNotFoundError:  # not Linux
        import resource

        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def parameters(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Parameter counts, part by part, of pre-training in both wirings and of a two-label classifier."""
    import dataclasses

    import jax
    import numpy as np

    from charlm.batch import reshape_batch
    from charlm.models.hlm import HLMForMaskedLM, HLMForSequenceClassification
    from charlm.run import count_parameters, model_config

    del repeats
    shape = model_config(config)
    models = {
        f"pre-training, {wiring} wiring": HLMForMaskedLM(dataclasses.replace(shape, wiring=wiring))
        for wiring in ("paper", "reference")
    }
    models["classifier, 2 labels"] = HLMForSequenceClassification(dataclasses.replace(shape, head_layers=0), labels=2)
    batch = reshape_batch(np.ones((1, 3, 4), np.uint16), np.ones((1, 3, 4), np.uint16))
    figures = []
    for name, model in models.items():
        variables = jax.eval_shape(lambda model=model: model.init(jax.random.key(0), batch))
        parts = count_parameters(variables["params"])
        total = parts.pop("total")
        figures.append({"case": "parameters", "path": name, "value": total, "unit": "parameters", "parts": parts})
    return figures


def collectives(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """What the devices send each other in a training step, for each way to lay the mesh over them."""
    import jax
    import numpy as np

    from charlm.data.corpus import prepare
    from charlm.run import build
    from charlm.sharding import collectives as collectives_of

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
        config.data.table_shards = devices  # the same batch, however it is spread
        run = build(config, data)
        batch = jax.tree.map(lambda x: np.repeat(x, config.data.accumulation, axis=0), run.empty)
        program = run.train_step.lower(run.abstract_state, run.place(batch)).compile().as_text()
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
    """A text file -> encoded shards in one process, and encoded shards -> batches in one thread."""
    from charlm.data.corpus import prepare
    from charlm.data.pipeline import batch_dataset, record_dataset
    from charlm.data.sources import open_source
    from charlm.run import batch_shape, masking_of

    seconds: dict[str, list[float]] = {"text to shards": [], "shards to batches": []}
    words = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        source = open_source(config.data.train[0], split="all", heldout_fraction=0.0)
        documents = (document.replace("\n", " ") for part in source.parts for document in source.documents(part))
        text.write_text("\n".join(documents), encoding="utf-8")
        config.data.train, config.data.heldout, config.data.encode_processes = (str(text),), (), 1
        for n in range(repeats):
            config.data.cache_dir = str(Path(folder) / str(n))
            started = time.perf_counter()
            data = prepare(config)
            seconds["text to shards"].append(time.perf_counter() - started)
            words["text to shards"] = sum(c.stats.words for c in data.train + data.heldout)
            shape = batch_shape(config, data, shards=1)
            masking = masking_of(config, data.vocab.size)
            lanes = {0: record_dataset(data.train)}
            batches = batch_dataset(lanes, shape, masking, accumulation=1, seed=0, prefetch=0)
            started = time.perf_counter()
            words["shards to batches"] = sum(int(batch.mask_SBW.sum()) for batch in batches)
            seconds["shards to batches"].append(time.perf_counter() - started)
    figures: Iterator[Figure] = itertools.chain.from_iterable(
        _figures("input_pipeline", {name: times}, words[name], "words/s", words=words[name])
        for name, times in seconds.items()
    )
    return list(figures)


def startup(repeats: int) -> list[Figure]:
    """Seconds until `--help` has been printed."""
    command = [sys.executable, "-m", "charlm.main", "--help"]
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        times.append(time.perf_counter() - started)
    return [{"case": "startup", "path": "--help", "value": round(statistics.median(times), 2), "unit": "s"}]
