"""The configuration keys that only GPT-2 has; the keys of all families are in `charlm.config.pretraining`.

Open it to add a key or to see which values are allowed. "Released" is what Radford et al., 2019, "Language
Models are Unsupervised Multitask Learners", trained; what it leaves open is that of GPT-3 Small (Brown et al., 2020).
"""

from __future__ import annotations

import ml_collections

from charlm.core.keys import Key, share
from charlm.core.types import JsonObject
from charlm.families.shared_keys import (
    ACTIVATION,
    EPSILON,
    FFN,
    LAYERS,
    MAX_LENGTH,
    MAX_POSITIONS,
    PIECES,
    TOKENIZER,
)
from charlm.nn.choices import ACTIVATIONS

LEAST_PIECES = 300  # bytes and the end of a text have 257
# A resumed run may change this path, since it compares the contents of vocabularies.
RESUMABLE = ("text.tokenizer",)

KEYS: dict[str, Key] = {
    "text.tokenizer": TOKENIZER,
    "text.pieces": PIECES.but(50_257,
        "subwords of a vocabulary that is built, byte-level BPE; GPT-2 has as many", least=LEAST_PIECES),
    "data.max_length": MAX_LENGTH.but(1024, "subwords of a sequence, the token before them included (released)"),
    "model.layers": LAYERS,
    "model.ffn": FFN,
    "model.max_positions": MAX_POSITIONS.but(1024, least=1),
    "model.activation": ACTIVATION.but("gelu_new", choices=ACTIVATIONS),
    "model.epsilon": EPSILON.but(1e-5),
    "model.embed_dropout": share(0.1, "dropout rate of the embeddings"),
}  # fmt: skip
VALUES: JsonObject = {  # GPT-2's defaults of shared keys
    "text.splitter": "rules",  # subwords do not cross its words, much as in GPT-2's own expression
    "data.batch_size": 512,  # released
    "optim.learning_rate": 6e-4,
    "optim.b2": 0.95,
    "optim.weight_decay": 0.1,
    "optim.warmup_steps": 715,  # 375 million subwords
    "train.steps": 100_000,  # ours
}
CHOICES = {"data.masking": ("paper",)}  # of a shared key; nothing is masked


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of GPT-2's keys; raises ValueError naming the key, its value and what is expected."""
    length, positions = config.data.max_length, config.model.max_positions
    if length > positions:
        raise ValueError(f"data.max_length={length} must lie in [8, {positions}], model.max_positions")
