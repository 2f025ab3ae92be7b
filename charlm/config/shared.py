"""Config keys that pre-training and fine-tuning, or two stages of pre-training, share: each is declared here, once.

Open it to add a key that two of `charlm.config.pretraining`, `charlm.config.finetuning` and the keys of a stage would
otherwise both declare. They take it from here, with `Key.but` where a default or the help differs. Keys that several
families share are in `charlm.families.shared_keys`.
"""

from __future__ import annotations

from charlm.core.keys import Key, amount, count, natural, share
from charlm.nn.choices import KERNELS

TASK_NAME = Key("", "what is learned")
SEED = natural(0, "seeds")
INIT_FROM = Key("", "the model whose parameters start this run")
TRAIN = Key((), "what to learn from")
BATCH_SIZE = count(16, "rows of an optimizer step")
ACCUMULATION = count(1, "micro-batches whose gradients are summed before one update")
PREFETCH = natural(4, "batches prepared ahead of the step that needs them")
DROPOUT = share(0.1, "of embeddings, relative positions and residual branches")
ATTENTION_DROPOUT = share(0.1, "of attention probabilities")
LEARNING_RATE = amount(5e-5, "peak, after warm-up")
WARMUP_STEPS = natural(10_000, "optimizer steps of linear warm-up from 0")
WEIGHT_DECAY = amount(0.01, "of matrices")
CLIP_NORM = amount(1.0, "global gradient norm is cut to this; 0: never")
FREEZE = Key((), "parameters that stay as they are: regular expressions found in their names, e.g.")
LOG_EVERY = count(100, "steps between progress lines")
EVAL_EVERY = count(10_000, "steps between evaluations on held-out text")
CHECKPOINT_EVERY = count(10_000, "steps between checkpoints")
STALL_MINUTES = amount(
    0.0, "minutes without progress (a step, compilation, evaluation or checkpoint) after which a run ends; 0: never"
)
SPIKES = {
    "train.spike_policy": Key("",
        'of a step whose loss or gradient norm is a spike or not finite: empty: every update is made, and what is not '
        'finite ends the run; "skip": its update is left out; "restore": back to a checkpoint, past the batches since',
        ("", "skip", "restore")),
    "train.spike_threshold": amount(6.0, "standard deviations above the mean of the last steps that make a spike"),
    "train.spike_window": Key(128,
        "recent steps without spikes that a step is compared with; checks begin when half of them are known",
        least=2, below=100_000),
    "train.spike_limit": count(10,
        'most spikes in a row that do not end the run; with "restore", those at most `spike_rewind` steps apart'),
    "train.spike_rewind": natural(100, '"restore": smallest number of steps from the checkpoint to the spike'),
}  # fmt: skip
LOCAL = {
    "train.local_dir": Key(
        "", "folder on a disk of each host, for checkpoints between those in the workdir; empty: none"
    ),
    "train.local_checkpoint_every": count(1000, "steps between checkpoints in `local_dir`"),
}  # fmt: skip
COMPUTING = {
    "model.dtype": Key("float32", 'matmul inputs: "float32" or "bfloat16"', ("float32", "bfloat16")),
    "model.remat": Key(False,
        "recompute layer activations in the backward pass: less memory, about a third more time"),
    "model.attention_kernel": Key("auto",
        '"auto": the best there is; "einsum": plain; "cudnn": NVIDIA\'s, at inference; "pallas": tiles', KERNELS),
    "model.scan_layers": Key(False,
        "run the layers as one loop: deep models compile faster; one more copy of their parameters and gradients"),
}  # fmt: skip
ADAM = {
    "optim.schedule": Key("linear",
        'after warm-up: "linear" or "cosine" to 0 at the last step, "constant", or "wsd": constant, then linear to 0',
        ("linear", "cosine", "constant", "wsd")),
    "optim.cooldown_share": share(0.2, 'of "wsd": share of all steps, the last, in which the learning rate falls'),
    "optim.b1": share(0.9, "AdamW: decay of the first moment"),
    "optim.b2": share(0.999, "AdamW: decay of the second moment"),
    "optim.eps": amount(1e-8, "AdamW: added to the root of the second moment"),
}  # fmt: skip
MESH = {
    "mesh.data": Key(-1, "devices over which the batch is spread; -1: all that are left"),
    "mesh.fsdp": count(1, "devices over which batch, parameters and optimizer state are spread"),
    "mesh.model": count(1, "devices over which single matrices are spread"),
}
