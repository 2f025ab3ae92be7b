"""Our BERT against Hugging Face's in PyTorch: the same random weights, the same batch, both on the CPU."""

from __future__ import annotations

import os
import statistics
from typing import Any

import ml_collections

from charlm.benchmark.cases import Figure, interleaved

BATCH = (32, 60)  # sequences, subwords: what the 32 x 46 words of `cases.INFERENCE` become, padding included
SHAPE: dict[str, Any] = {"pooler": False}  # fields of BertConfig beside its defaults, BERT-base


def bert(config: ml_collections.ConfigDict, repeats: int) -> list[Figure]:
    """Last states of a batch of subword ids in float32, as many threads for PyTorch as there are processors.

    Raises:
      ValueError: when PyTorch or transformers is not installed.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ValueError(f"bert: {error.name} is not installed: pip install 'charlm[torch]' transformers") from None
    import jax
    import numpy as np

    from charlm.convert.bert import BERT
    from charlm.convert.family import ENCODER
    from charlm.convert.rules import export_state
    from charlm.models.bert import BertConfig

    del config  # the shape is BERT's
    shape = BertConfig(**SHAPE)
    model, _, table = BERT.target(shape, ENCODER)
    ids = np.random.default_rng(0).integers(1, shape.vocab_size, BATCH).astype(np.int32)
    mask = np.ones(BATCH, bool)
    params = jax.jit(lambda: model.init(jax.random.key(0), ids))()["params"]
    their_config = transformers.BertConfig.from_dict(BERT.to_theirs(shape, ENCODER, {}))
    theirs = transformers.BertModel(their_config, add_pooling_layer=False).eval()
    state = export_state(table, (), params)
    theirs.load_state_dict({name.removeprefix(BERT.prefix): torch.tensor(value) for name, value in state.items()})
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(threads)
    ids_torch, mask_torch = torch.tensor(ids).long(), torch.tensor(mask).long()
    forward = jax.jit(lambda params, ids, mask: model.apply({"params": params}, ids, mask).states_BLD)

    def run_theirs() -> Any:
        with torch.inference_mode():
            return theirs(ids_torch, attention_mask=mask_torch).last_hidden_state

    run_ours = lambda: forward(params, ids, mask).block_until_ready()
    error = float(np.abs(np.asarray(run_ours()) - run_theirs().numpy()).max())
    seconds = interleaved({"charlm": run_ours, "transformers": run_theirs}, repeats)
    about = {"batch": f"{BATCH[0]} x {BATCH[1]} subwords", "largest_difference": error, "threads": threads,
             "device": jax.devices()[0].device_kind}  # fmt: skip
    figures: list[Figure] = []
    for name, times in seconds.items():
        speed = [BATCH[0] * BATCH[1] / time for time in times]
        extremes = {"low": round(min(speed), 1), "high": round(max(speed), 1)}
        value = round(statistics.median(speed), 1)
        figures.append({"case": "bert", "path": name, "value": value, "unit": "subwords/s"} | extremes | about)
    ratio = statistics.median(b / a for a, b in zip(*seconds.values(), strict=True))
    figures.append({"case": "bert", "path": "charlm / transformers", "value": round(ratio, 2), "unit": "x"} | about)
    return figures
