"""Config keys that pre-training and fine-tuning share, with the same meaning."""

from __future__ import annotations

from charlm.core.keys import Key, amount, count, natural, share
from charlm.nn.choices import KERNELS

ACCUMULATION = count(1, "micro-batches whose gradients are summed before one update")
PREFETCH = natural(4, "batches prepared ahead of the step that needs them")
CLIP_NORM = amount(1.0, "global gradient norm is cut to this; 0: never")
LOG_EVERY = count(100, "steps between progress lines")
STALL_MINUTES = amount(0.0, "minutes without a step, program, evaluation or checkpoint done that end the run; 0: never")
COMPUTING = {
    "model.dtype": Key("float32", 'matmul inputs: "float32" or "bfloat16"', ("float32", "bfloat16")),
    "model.remat": Key(False,
        "recompute layer activations in the backward pass: less memory, about a third more time"),
    "model.attention_kernel": Key("auto",
        '"auto": the best there is; "einsum": ours; "cudnn": NVIDIA\'s, at inference', KERNELS),
}  # fmt: skip
ADAM = {
    "optim.schedule": Key("linear",
        'after warm-up: "linear" or "cosine" to 0 at the last step, or "constant"', ("linear", "cosine", "constant")),
    "optim.b1": share(0.9, "AdamW: decay of the first moment"),
    "optim.b2": share(0.999, "AdamW: decay of the second moment"),
    "optim.eps": amount(1e-8, "AdamW: added to the root of the second moment"),
}  # fmt: skip
MESH = {
    "mesh.data": Key(-1, "devices over which the batch is spread; -1: all that are left"),
    "mesh.fsdp": count(1, "devices over which batch, parameters and optimizer state are spread"),
    "mesh.model": count(1, "devices over which single matrices are spread"),
}
